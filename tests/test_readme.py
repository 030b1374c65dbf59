"""What README and docs tell people to type does what it says."""

from __future__ import annotations

import argparse
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
from pyro_fairvae.run.__main__ import COMMANDS, main

from pyro_fairvae import data
from pyro_fairvae.auditing import Audit
from pyro_fairvae.data import Table, raw_adult
from pyro_fairvae.estimator import classifier as estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier

ROOT = Path(__file__).parent.parent
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()
LIBRARY = (ROOT / "docs" / "guide" / "library.md").read_text()
DEMO = (ROOT / "docs" / "demo.md").read_text()
PAGES = [
    page
    for page in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in page.parts
]
ALL = "\n".join(page.read_text() for page in PAGES)
TYPED = [
    line.strip() for page in PAGES for line in page.read_text().splitlines() if line[:12] == "    fairvae "
]


def example_with(words: str) -> str:
    """The one example of the library's page in which some words occur."""
    examples = re.findall(r"```python\n(.*?)```", LIBRARY, flags=re.DOTALL)
    (example,) = [each for each in examples if words in each]
    return str(example)


def test_the_library_example_runs(adult: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 600 rows of Adult instead of all."""
    monkeypatch.setattr(data, "load", lambda name, group: adult.take(600, seed=0))
    found: dict[str, object] = {}
    exec(example_with("load_dataset"), found)  # the page is ours
    parts, fitted = found["parts"], found["fitted"]
    x = found["x"]
    assert fitted.predict_proba(x).shape == (2, parts.test.rows, 2)  # type: ignore[attr-defined]
    rate = found["withheld"]["a"]["Male"]["unavailable"]  # type: ignore[index]
    assert rate["q05"] < rate["mean"] < rate["q95"]
    assert {"prior", "contraction"} <= set(rate)


def test_the_example_that_opens_a_run_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a small run of synthetic rows instead of the demo's."""
    monkeypatch.chdir(tmp_path)
    small = (
        "--rows 300 --epochs 1 --hidden 8 --layers 1 --intervals given_h --channel-steps 2 --decision-steps 2"
    )
    run = f"train --dataset synthetic --lambdas 0,1 {small} --device cpu --quiet --out runs/demo"
    assert main(run.split()) == 0
    found: dict[str, object] = {}
    exec(example_with('load("runs/demo")'), found)  # the page is ours
    model, classifier = found["model"], found["classifier"]
    assert list(model.frontier["lambda"]) == [0.0, 1.0] == list(model.fit.lambdas)  # type: ignore[attr-defined]
    assert classifier.frontier_.equals(model.frontier)  # type: ignore[attr-defined]
    listed = DEMO.split("then holds")[1].split("![")[0]
    files = set(re.findall(r"`([\w.]+\.(?:json|csv|png|pt|safetensors))`", listed))
    assert files - {"faces.png", "check.png", "effects.png"} == {
        path.name for path in Path("runs/demo").iterdir()
    }


def test_the_quickstart_runs(adult: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On 1,500 people instead of 36,000 and 12,842, in a few epochs."""
    people = raw_adult().iloc[[*range(1000), *range(36_000, 36_500)]]
    monkeypatch.setattr(data, "raw_adult", lambda: people)
    quick = partial(FairSSVAEClassifier, epochs=3, hidden=16, intervals="given_h")
    monkeypatch.setattr(estimator, "FairSSVAEClassifier", quick)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", QUICKSTART, flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 16
    found: dict[str, object] = {}
    exec(example, found)  # the page is ours
    audited = found["found"]
    assert isinstance(audited, Audit)
    assert audited.rows["rows"] == 500
    assert audited.metrics.loc["deo", "low"] <= audited.metrics.loc["deo", "high"]
    assert len(FairSSVAEClassifier.load(tmp_path / "model").frontier_) == 5


def test_every_command_is_named() -> None:
    for command in (
        *(
            "fit",
            "predict",
            "audit",
            "monitor",
            "report",
            "train",
            "decide",
            "inspect",
            "priors show",
            "priors study",
        ),
        *("recover", "reproduce"),
    ):
        assert f"fairvae {command}" in ALL


@pytest.mark.parametrize("line", TYPED)
def test_every_command_line_has_options_that_there_are(line: str) -> None:
    """Command lines of README and docs are parsed, and not run."""
    _, command, *words = shlex.split(line, comments=True)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    COMMANDS[command].add_arguments(parser)
    parser.parse_args(words)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            other = (page.parent / path).resolve() if path else page
            assert other.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", other.read_text(), flags=re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_files_that_pages_name_are_there() -> None:
    """Files of the repository by their path in it, and on the page of rooms by their path in the package."""
    for page in PAGES:
        text = page.read_text()
        for path in re.findall(r"`((?:pyro_fairvae|models|guides|run|tests|benchmarks)/[\w/]+\.py)`", text):
            assert (ROOT / path).is_file(), f"{page.name}: {path}"
    rooms = (ROOT / "docs" / "rooms.md").read_text()
    for path in re.findall(r"`(\w+/\w+\.py)`", rooms):
        assert (ROOT / path).is_file() or (ROOT / "pyro_fairvae" / path).is_file(), path
    for room, first in re.findall(r"^\| `(\w+)` \|.*\| (`.*`) \|$", rooms, flags=re.MULTILINE):
        folder = ROOT / room if room in ("models", "guides", "run") else ROOT / "pyro_fairvae" / room
        assert all((folder / name).is_file() for name in re.findall(r"`([\w.]+)`", first)), room
