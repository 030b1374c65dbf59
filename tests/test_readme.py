"""What the README tells people to type does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyro_fairvae import data
from pyro_fairvae.data import Table

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_library_example_runs(adult: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 600 rows of Adult instead of all."""
    monkeypatch.setattr(data, "load", lambda name, group: adult.take(600, seed=0))
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(example, found)  # the README is ours
    parts, fitted = found["parts"], found["fitted"]
    x = found["x"]
    assert fitted.predict_proba(x).shape == (2, parts.test.rows, 2)  # type: ignore[attr-defined]
    rate = found["withheld"]["a"]["Male"]["unavailable"]  # type: ignore[index]
    assert rate["q05"] < rate["mean"] < rate["q95"]
    assert {"prior", "contraction"} <= set(rate)


def test_every_command_is_named() -> None:
    for command in ("train", "decide", "inspect", "priors show", "priors study", "recover"):
        assert f"fairvae {command}" in README
