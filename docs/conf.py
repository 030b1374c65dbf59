"""The site: `make docs`."""

from __future__ import annotations

import warnings
from importlib.metadata import version as version_of

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
suppress_warnings = ["config.cache", "myst.header"]

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
    "write_computation_times": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "pyro_fairvae"
html_theme_options = {
    "show_prev_next": False,
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False

warnings.filterwarnings("ignore", category=UserWarning, message=".*non-interactive.*")
