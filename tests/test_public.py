"""The names that the package exports: where they come from, and what importing them loads."""

from __future__ import annotations

import ast
import configparser
import doctest
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pyro_fairvae
from pyro_fairvae.risks.custom import CUSTOM

ROOT = Path(__file__).parent.parent
HEAVY = ("arviz", "matplotlib", "ray", "torchvision")
LOADED = """
import json, sys
{statement}
print(json.dumps([name for name in {names} if name in sys.modules]))
"""


def loaded_by(statement: str, names: tuple[str, ...]) -> list[str]:
    """Which of some modules a new interpreter has loaded after a statement."""
    code = LOADED.format(statement=statement, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_exported_names_are_known_to_type_checkers_and_to_the_table() -> None:
    """The imports under TYPE_CHECKING, the table and ``__all__`` say the same of every name."""
    tree = ast.parse(Path(pyro_fairvae.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    table = {
        name: (module, pyro_fairvae._OTHER_NAMES.get(name, name))
        for name, module in pyro_fairvae._DEFINED_IN.items()
    }
    assert typed == table
    assert pyro_fairvae.__all__ == sorted(table, key=lambda name: (not name.isupper(), name))
    assert set(pyro_fairvae.__all__) <= set(dir(pyro_fairvae))


@pytest.mark.parametrize("name", pyro_fairvae.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    value = getattr(pyro_fairvae, name)
    assert not isinstance(value, ModuleType)
    assert f"`{name}`" in (pyro_fairvae.__doc__ or "")


def test_no_package_has_the_name_of_what_is_exported() -> None:
    """Importing a package sets the attribute of that name, which would hide the exported one."""
    packages = {module.name for module in pkgutil.iter_modules(pyro_fairvae.__path__)}
    assert not (packages | {"models", "guides", "run"}) & set(pyro_fairvae.__all__)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'pyro_fairvae' has no attribute 'audits'"):
        pyro_fairvae.audits  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'audits'"):
        from pyro_fairvae import audits  # noqa: F401


def test_importing_the_package_loads_nothing_else() -> None:
    others = ("numpy", "pandas", "pyro", "scipy", "sklearn", "torch", *HEAVY)
    assert loaded_by("import pyro_fairvae", others) == []
    assert loaded_by("from pyro_fairvae import InputError", others) == []


def test_exported_names_load_no_plotting_image_or_cluster_library() -> None:
    """pandas itself loads pyarrow where it is installed; none of our modules may be the first to."""
    statement = (
        "import pyro_fairvae, pandas\n"
        "before = 'pyarrow' in sys.modules\n"
        "for name in pyro_fairvae.__all__: getattr(pyro_fairvae, name)\n"
        "assert before or 'pyarrow' not in sys.modules"
    )
    assert loaded_by(statement, HEAVY) == []


def test_the_classifier_loads_no_trees_or_neighbours() -> None:
    unneeded = ("sklearn.ensemble", "sklearn.neighbors", "fairlearn.reductions", *HEAVY)
    assert loaded_by("from pyro_fairvae import FairSSVAEClassifier, audit", unneeded) == []


FITTED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pyarrow": raise ModuleNotFoundError(name)
if {blocked}: sys.meta_path.insert(0, Absent())
from tests.support.user_tables import made_table, tiny
made = made_table(60)
made.X["word"] = made.X["c"].map({{0: "none", 1: "one", 2: "two", 3: None}})
model = tiny(lambdas=(0.0,), epochs=1).fit(made.X, made.y_obs, made.a_obs)
assert ("pyarrow" in sys.modules) != {blocked}
print(json.dumps(model.predict_proba(made.X).tolist()))
"""


def test_a_fit_without_pyarrow_is_the_same() -> None:
    """pandas keeps words in pyarrow where it is installed, and otherwise in objects."""
    found = [
        subprocess.run(
            [sys.executable, "-c", "import json" + FITTED.format(blocked=blocked)],
            capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout
        for blocked in (True, False)
    ]  # fmt: skip
    assert len(json.loads(found[0])) == 60
    assert found[0] == found[1]


def test_audit_is_the_function_whatever_was_imported_before() -> None:
    import pyro_fairvae.run.audit

    import pyro_fairvae.auditing.intervals
    from pyro_fairvae import audit

    assert inspect.isfunction(audit)
    assert audit is pyro_fairvae.audit


def sections(docstring: str) -> set[str]:
    """Titles of a docstring, underlined as numpydoc has them."""
    return set(re.findall(r"^(\w+)\n-{3,}$", inspect.cleandoc(docstring), flags=re.MULTILINE))


def documented() -> list[str]:
    return [name for name in pyro_fairvae.__all__ if callable(getattr(pyro_fairvae, name))]


@pytest.mark.parametrize("name", documented())
def test_every_exported_callable_says_what_it_takes_and_gives(name: str) -> None:
    value = getattr(pyro_fairvae, name)
    titles = sections(value.__doc__)
    assert "Examples" in titles
    if inspect.isclass(value):
        assert titles & {"Parameters", "Attributes"} or issubclass(value, Exception)
        return
    assert {"Parameters", "Returns"} <= titles
    listed = value.__doc__.split("Parameters\n")[1].split("-------\n")[1]
    for parameter in inspect.signature(value).parameters:
        assert re.search(rf"\b{parameter}\b", listed), f"{name} does not explain {parameter}"


@pytest.mark.parametrize("name", ["fit", "predict", "predict_proba", "decision_function", "score", "load"])
def test_methods_of_the_classifier_say_what_they_take_and_give(name: str) -> None:
    method = getattr(pyro_fairvae.FairSSVAEClassifier, name)
    assert {"Parameters", "Returns"} <= sections(method.__doc__)


@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows tell little, and the fits say so
@pytest.mark.parametrize("name", documented())
def test_examples_run(name: str) -> None:
    registered = dict(CUSTOM)
    try:
        value = getattr(pyro_fairvae, name)
        (example,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
        assert example.examples
        failures, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    finally:
        CUSTOM.clear()
        CUSTOM.update(registered)
    assert failures == 0


def test_types_are_shipped() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert "py.typed" in config["options.package_data"]["pyro_fairvae"].split()
    assert (ROOT / "pyro_fairvae" / "py.typed").is_file()
