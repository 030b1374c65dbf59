"""The site: `make docs`."""

from __future__ import annotations

import re
import warnings
from importlib.metadata import version as version_of

from docutils import nodes

project = "pyro_fairvae"
author = "pyro_fairvae contributors"
version = release = version_of("pyro_fairvae")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.rst"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["config.cache", "myst.strikethrough"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "_gallery",
    "filename_pattern": "plot_",
    "remove_config_comments": True,
    "show_signature": False,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "pyro_fairvae"
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False

warnings.filterwarnings("ignore", category=UserWarning, message=".*non-interactive.*")


def links_to_files(app, doctree) -> None:
    """Links of pages to files of the repository that are no pages become plain text."""
    for link in list(doctree.findall(nodes.reference)):
        if re.match(r"\.\./", link.get("refuri", "")):
            link.replace_self(nodes.literal(text=link.astext()))


def setup(app) -> None:
    app.connect("doctree-read", links_to_files)
