"""fairvae audit with the flags for regulators, and what the report shows of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyro_fairvae.run.__main__ import main

from pyro_fairvae.auditing import audit
from pyro_fairvae.estimator.fair_decisions import FairDecisions


def people(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Decisions and scores of another classifier, beside a label, a group with gaps, and two features."""
    draw = np.random.default_rng(seed)
    sex = draw.choice(["f", "m"], rows)
    x = draw.normal(size=rows) + (sex == "m")
    hired = np.where(draw.random(rows) < 1 / (1 + np.exp(-x)), "yes", "no")
    score = 1 / (1 + np.exp(-x + draw.normal(size=rows) / 2))
    stated = np.where(draw.random(rows) < 0.4, None, sex)
    columns = {"x": x, "z": draw.normal(size=rows), "hired": hired, "sex": stated, "p": score}
    return pd.DataFrame(columns).assign(theirs=np.where(score > 0.5, "yes", "no"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a table of its own."""
    place = tmp_path_factory.mktemp("regulators")
    table = people()
    table.to_csv(place / "people.csv", index=False)
    model = FairDecisions(targets=(0.2,)).fit(
        table[["x", "z"]], table["hired"], sensitive_features=table["sex"]
    )
    model.save(place / "model")
    return place


def command(*words: object) -> int:
    return main([str(word) for word in words])


def audited(folder: Path, *flags: str) -> int:
    return command(
        "audit", folder / "model", folder / "people.csv", "--label", "hired", "--group", "sex", "--decisions",
        "theirs", *flags,
    )  # fmt: skip


def test_the_command_gives_the_figures_of_the_audit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "audit.json"
    flags = ("--scores", "p", "--pos-label", "no", "--local-law-144", "--sensitivity", "--out", str(out))
    assert audited(folder, *flags) == 0
    text, content = capsys.readouterr().out, json.loads(out.read_text())
    table = pd.read_csv(folder / "people.csv")
    model = FairDecisions.load(folder / "model")
    found = audit(
        table["hired"], table["theirs"], table["sex"], X=table[["x", "z"]], model=model, scores=table["p"],
        pos_label="no",
    )  # fmt: skip
    assert found.figures is not None
    told = {line["measure"]: line["estimate"] for line in content["figures"]["disparities"]}
    assert told == pytest.approx(found.figures.disparities["estimate"].to_dict())
    assert content["figures"]["positive"] == "no"
    assert content["local_law"] == json.loads(json.dumps(found.local_law_144().to_dict()))
    told = content["sensitivity"]["curves"]
    expected = found.sensitivity().curves
    assert [line["high"] for line in told] == pytest.approx(expected["high"].tolist())
    assert "overturned from" in text
    assert "To be selected is to be decided no." in text
    assert "Local Law 144" in text
    assert command("report", folder / "model", "--audit", out) == 0
    page = (folder / "model" / "report.html").read_text()
    for words in (
        "Figures for regulators",
        "Local Law 144: sex",
        "Calibration",
        "four-fifths rule",
        "Sensitivity",
        "What overturns each finding",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--scores", "q"), "unknown column for the scores 'q'"),
        (("--scores", "x"), "expected probabilities within [0, 1]"),
        (("--local-law-144", "scores"), "name their column by --scores"),
        (("--pos-label", "maybe"), "unknown pos_label 'maybe'"),
        (("--sensitivity", "--tolerance", "2"), "tolerance must be within [0, 1)"),
        (("--local-law-144", "--exclude-below", "2"), "exclude_below must be within [0, 1)"),
    ],
)
def test_flags_that_cannot_be_used_end_with_2(
    folder: Path, flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(folder, *flags) == 2
    assert words in capsys.readouterr().err
