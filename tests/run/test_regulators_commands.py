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
from tests.support.browser import assert_self_contained


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


def monitored(folder: Path, *words: object) -> int:
    return command(
        "monitor", folder / "model", *words, "--label", "hired", "--group", "sex", "--decisions", "theirs"
    )  # fmt: skip


def months(folder: Path, changed: bool) -> list[Path]:
    """Five files, in the last two of which many more withhold, if so."""
    paths = []
    for t in range(5):
        table = people(400, seed=10 + t).assign(when=f"2025-0{t + 1}-15")
        if changed and t > 2:
            table["sex"] = table["sex"].where(np.arange(400) % 3 == 0, None)
        paths.append(folder / f"{t}-{'changed' if changed else 'same'}.csv")
        table.to_csv(paths[-1], index=False)
    return paths


def test_monitor_ends_with_4_where_something_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert monitored(folder, *months(folder, changed=False)) == 0
    assert "No change was found in 5 periods" in capsys.readouterr().out
    page, out = folder / "page.html", folder / "monitor.json"
    assert monitored(folder, *months(folder, changed=True), "--out", page, "--json", out) == 4
    content = json.loads(out.read_text())
    assert content["alarm"] in ("3-changed.csv", "4-changed.csv")
    assert any("withholding" in name for name in content["changed"])
    text = page.read_text()
    assert "A change was found in" in text
    assert_self_contained(text)
    assert "A change was found in" in capsys.readouterr().out


def test_monitor_splits_rows_by_dates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.concat([pd.read_csv(path) for path in months(folder, changed=False)]).sample(
        frac=1, random_state=0
    )
    path, out = folder / "year.csv", folder / "monitor.json"
    table.to_csv(path, index=False)
    assert monitored(folder, path, "--by", "when", "--json", out) == 0
    periods = json.loads(out.read_text())["periods"]
    assert [line["period"] for line in periods] == [f"2025-0{t}" for t in range(1, 6)]
    assert {line["rows"] for line in periods} == {400}
    assert monitored(folder, path, "--by", "when", "--every", "quarter", "--json", out) == 0
    assert [line["period"] for line in json.loads(out.read_text())["periods"]] == ["2025Q1", "2025Q2"]
    table["when"] = table["when"].where(np.arange(2000) > 0, "soon")
    table.to_csv(path, index=False)
    capsys.readouterr()
    assert monitored(folder, path, "--by", "when") == 2
    assert "has 1 values that are no dates, such as 'soon'" in capsys.readouterr().err


def test_a_period_in_which_nobody_states_a_group_is_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = months(folder, changed=False)
    table = pd.read_csv(paths[1]).assign(sex=None)
    table.to_csv(paths[1], index=False)
    assert monitored(folder, *paths) == 0
    assert f"{paths[1].name} could not be audited" in capsys.readouterr().out
    assert monitored(folder, paths[1]) == 2
    assert "no period could be audited" in capsys.readouterr().err
    assert monitored(folder, *paths, "--alpha", "2") == 2
    assert "--alpha must be within (0, 1)" in capsys.readouterr().err
