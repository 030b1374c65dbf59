"""What the README and the quickstart tell people to type does what it says."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from pyro_fairvae import data
from pyro_fairvae.auditing import Audit
from pyro_fairvae.data import Table, raw_adult
from pyro_fairvae.estimator import classifier as estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()


def test_the_library_example_runs(adult: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 600 rows of Adult instead of all."""
    monkeypatch.setattr(data, "load", lambda name, group: adult.take(600, seed=0))
    (*_, example) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(example, found)  # the README is ours
    parts, fitted = found["parts"], found["fitted"]
    x = found["x"]
    assert fitted.predict_proba(x).shape == (2, parts.test.rows, 2)  # type: ignore[attr-defined]
    rate = found["withheld"]["a"]["Male"]["unavailable"]  # type: ignore[index]
    assert rate["q05"] < rate["mean"] < rate["q95"]
    assert {"prior", "contraction"} <= set(rate)


def test_the_quickstart_runs(adult: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On 1,500 people instead of 36,000 and 12,842, in a few epochs."""
    people = raw_adult().iloc[[*range(1000), *range(36_000, 36_500)]]
    monkeypatch.setattr(data, "raw_adult", lambda: people)
    quick = partial(FairSSVAEClassifier, lambdas=(0.0, 1.0), epochs=3, hidden=16, intervals="given_h")
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
    assert len(FairSSVAEClassifier.load(tmp_path / "model").frontier_) == 2


def test_every_command_is_named() -> None:
    for command in (
        *("fit", "predict", "audit", "report", "train", "decide", "inspect", "priors show", "priors study"),
        *("recover", "reproduce"),
    ):
        assert f"fairvae {command}" in README
