"""Commands where withholding depends on the label: what they say of it, with and without it in the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from pyro_fairvae.estimator.classifier import FairSSVAEClassifier, WithholdingWarning
from tests.support.browser import Reader
from tests.support.command_line import FEW_STEPS, run

SMALL = ("--lambdas", "0", "--epochs", "3", "--device", "cpu", "--quiet", *FEW_STEPS, "--holdout", "0.1")
COLUMNS = ("--label", "hired", "--group", "sex")
RISE = 2.0  # of the log-odds of withholding, from one label to the other


def people(rows: int = 1500, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    is_m, hired = draw.integers(2, size=(2, rows))
    withheld = draw.random(rows) < expit(-1.2 * is_m + RISE * (hired - 0.5))
    table = pd.DataFrame(
        {
            "height": draw.normal(170 + 13 * is_m, 7).round(1),
            "month": draw.choice(["May", "June", "July"], rows),
            "years": draw.poisson(2 + 4 * hired),
            "sex": np.where(is_m, "m", "f"),
            "hired": np.where(hired, "yes", "no"),
        }
    )
    return table.assign(sex=table["sex"].mask(withheld))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("withholding")
    people().to_csv(where / "people.csv", index=False)
    return where


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    """A model fitted in Python, which warns."""
    table = people()
    small = {"channel_steps": 2, "decision_steps": 10}
    model = FairSSVAEClassifier(lambdas=(0.0,), epochs=3, options=small, device="cpu")
    with pytest.warns(WithholdingWarning, match="Put into withholding_depends_on: label"):
        model.fit(table[["height", "month", "years"]], table["hired"], table["sex"])
    model.save(folder / "plain")
    return folder / "plain"


@pytest.fixture(scope="module")
def with_label(folder: Path) -> Path:
    depends_on = ("--withholding-depends-on", "label,month")
    assert run("fit", folder / "people.csv", *COLUMNS, *SMALL, *depends_on, "--out", folder / "v") == 0
    return folder / "v"


def test_inspect_says_that_the_assumption_is_rejected(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("inspect", plain, "--suggest", "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "REJECTED" in printed
    assert printed.index("REJECTED") < printed.index("P(ã | a)")
    assert "--withholding-depends-on label" in " ".join(printed.split())
    table = printed[printed.index("worst category") :].splitlines()
    assert table[1].startswith("label ")
    assert (tmp_path / "check.png").exists()
    assert not (tmp_path / "effects.png").exists()


def test_the_estimator_keeps_the_check(plain: Path) -> None:
    model = FairSSVAEClassifier.load(plain, "cpu")
    assert model.withholding_check_ is not None
    assert model.withholding_check_.rejected
    assert model.withholding_check_.suggestions()[0] == "label"


def test_inspect_shows_what_makes_people_withhold(
    with_label: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("inspect", with_label, "--out", tmp_path, "--arviz", tmp_path / "posterior.nc") == 0
    printed = capsys.readouterr().out
    assert "nothing speaks against it" in printed
    assert "averaged over the people of the group" in printed
    effects = json.loads((with_label / "model.json").read_text())["posterior"]["effects"]
    found = {effect["column"]: effect for effect in effects}
    no, yes = found["label = no"], found["label = yes"]
    assert yes["mean"] - no["mean"] == pytest.approx(RISE, abs=0.6)
    assert no["q95"] < 0 < yes["q05"]  # what cannot be learned, their sum, is not in the intervals
    line = next(line for line in printed.splitlines() if line.startswith("label = yes"))
    assert line.split()[3:] == [f"{yes[key]:+.3f}" for key in ("mean", "q05", "q95")]
    assert (tmp_path / "effects.png").read_bytes().startswith(b"\x89PNG")
    arviz = pytest.importorskip("arviz")
    drawn = arviz.from_netcdf(tmp_path / "posterior.nc").posterior["withholding_a"]
    of_yes = drawn.sel(withheld="sex", column="label = yes")
    assert float(of_yes.mean()) == pytest.approx(yes["mean"], abs=1e-3)
    assert of_yes.sizes["chain"] == 4
    assert run("inspect", with_label, "--source", "guide", "--out", tmp_path) == 0
    assert "at the mean of what withholding depends on" in capsys.readouterr().out


@pytest.mark.parametrize("which", ["plain", "with_label"])
def test_the_page_shows_check_and_effects(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("report", request.getfixturevalue(which), "--out", page) == 0
    written = page.read_text()
    words = " ".join(" ".join(text) for text in Reader(written).texts)
    assert ('class="notice"' in written) == (which == "plain")
    assert ("What makes people withhold" in words) == (which == "with_label")
    assert "What else withholding could depend on" in words
    assert "Check of the assumption" in words or "--withholding-depends-on label" in words


def test_train_draws_check_and_effects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = (
        *("--rows", "600", "--epochs", "1", "--hidden", "8", "--lambdas", "0", "--device", "cpu"),
        "--quiet",
    )
    v = ("--withholding-depends-on", "label")
    assert run("train", "--dataset", "synthetic", *tiny, *v, "--suggest", "--out", tmp_path / "run") == 0
    printed = capsys.readouterr().out
    assert printed.index("assumption on withholding") < printed.index("P(∅ | group)")
    assert "what makes people withhold" in printed
    assert "worst category" in printed
    for name in ("check.png", "effects.png"):
        assert (tmp_path / "run" / name).exists()
