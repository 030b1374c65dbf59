"""The layout, and who may import whom."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

import pyro_fairvae

ROOT = Path(__file__).parent.parent
FOLDERS = {"pyro_fairvae": "pyro_fairvae", "models": "pyro_fairvae.models", "guides": "pyro_fairvae.guides",
           "run": "pyro_fairvae.run"}  # fmt: skip

# Each may import its own layer and those before it.
LAYERS = [
    {"base"},
    {"schema", "channels"},
    {"nn", "data", "boosting"},
    {"risks"},
    {"decisions"},
    {"models"},
    {"guides"},
    {"inference"},
    {"posterior", "evaluation"},
    {"storage"},
    {"auditing"},
    {"estimator", "baselines"},
    {"studies"},
    {"report"},
    {"run"},
]
ONLY_IN = {
    "pyro": {"models", "guides", "inference", "posterior", "run"},
    "matplotlib": {"report"},
    "argparse": {"run"},
    "fairlearn": {"evaluation", "baselines"},
}


def modules() -> dict[str, Path]:
    found = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def topic(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "pyro_fairvae" and len(parts) > 1 and parts[1] != "__version__" else None


def layer(name: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if name in names)


def test_every_topic_has_a_layer() -> None:
    known = set().union(*LAYERS)
    assert {topic(module) for module in modules()} - {None} <= known


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_only_what_stands_before(module: str) -> None:
    own = topic(module)
    if own is None:
        return
    for imported in imports(modules()[module]):
        other = topic(imported)
        assert other is None or layer(other) <= layer(own), f"{module} imports {imported}"
        package = imported.split(".")[0]
        assert own in ONLY_IN.get(package, {own}), f"{module} imports {package}"


def test_metrics_share_no_code_with_risks() -> None:
    found = modules()
    risky = [name for name in found if topic(name) == "risks"]
    assert not any(topic(i) == "evaluation" for name in risky for i in imports(found[name]))
    assert not any(topic(i) == "risks" for i in imports(found["pyro_fairvae.evaluation.metrics"]))


def test_setup_cfg_lists_every_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    there = {
        ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == there


def declared() -> dict[str, str]:
    """The oldest version of each dependency that setup.cfg allows."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].split()
    return dict(line.split(">=") for line in lines)


def test_the_conda_recipe_and_the_oldest_versions_are_those_of_setup_cfg() -> None:
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    assert f'set version = "{pyro_fairvae.__version__}"' in recipe
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    run = re.findall(r"^    - ([\w-]+) >=([\d.]+)$", recipe.split("  run:")[1], flags=re.MULTILINE)
    assert dict(run) == {"python": "3.11"} | {names.get(name, name): at for name, at in declared().items()}
    oldest = dict(
        line.split("==")
        for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert oldest.keys() == declared().keys()
    for name, version in declared().items():
        assert [int(part) for part in oldest[name].split(".")][: version.count(".") + 1] == [
            int(part) for part in version.split(".")
        ], name
