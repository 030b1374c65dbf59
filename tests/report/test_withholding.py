"""What the check says and what makes people withhold, in text, figures and on the page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pyro_fairvae.posterior.summaries import EffectSummary, PosteriorSummary
from pyro_fairvae.posterior.withholding_check import (
    SCORES,
    CategoryCheck,
    CheckSummary,
    ColumnCheck,
    WithholdingCheck,
)
from pyro_fairvae.report import (
    check_lines,
    draw_check,
    draw_effects,
    effects_table,
    suggestion_table,
    withholding_table,
)
from pyro_fairvae.report.withholding import shown_columns


def column(name: str, statistic: float, degrees: int, in_v: bool = False) -> ColumnCheck:
    shares = ((0.31, 0.30, 0.01), (0.62, 0.45, 0.02), (0.5, 0.49, 0.1))
    categories = tuple(CategoryCheck(f"{name}-{k}", 50, *share) for k, share in enumerate(shares))
    return ColumnCheck(name, statistic, degrees, float(stats.chi2.sf(statistic, degrees)), categories, in_v)


def summary(*columns: ColumnCheck, p_value: float) -> CheckSummary:
    return WithholdingCheck(p_value, tuple(sorted(columns, key=lambda one: one.p_value))).summary()


@pytest.fixture
def rejected() -> CheckSummary:
    return summary(
        column("month", 60.0, 5),
        column("label", 58.0, 1),
        column("age", 70.0, 8, in_v=True),
        column("a b", 3.0, 7),
        column(SCORES, 4.0, 5),
        p_value=1e-9,
    )


def effect(name: str, mean: float, attribute: str = "sex") -> EffectSummary:
    return {"attribute": attribute, "column": name, "mean": mean, "q05": mean - 0.2, "q95": mean + 0.2}


def test_a_summary_holds_the_whole_check(rejected: CheckSummary) -> None:
    check = WithholdingCheck.of(rejected)
    assert check.in_words() == rejected["says"]
    assert [asdict(one) for one in check.columns] == rejected["columns"]
    rejected["columns"][0]["statistic"] = None  # JSON has no NaN
    assert np.isnan(WithholdingCheck.of(rejected).columns[0].statistic)


def test_the_line_names_the_flag_with_what_was_there(rejected: CheckSummary) -> None:
    words = check_lines(rejected, ["age"])
    assert words.startswith("!!!!")
    assert "REJECTED (p < 1e-6)" in words
    assert "--withholding-depends-on age,label,month." in " ".join(words.split())
    assert check_lines(None) == ""
    calm = check_lines(summary(column("month", 3.0, 5), p_value=0.4))
    assert calm == "Check of the assumption on withholding: nothing speaks against it (p = 0.4).\n"


def test_it_stands_directly_above_the_rates(rejected: CheckSummary) -> None:
    rate = {"mean": 0.4, "q05": 0.3, "q95": 0.5}
    posterior: PosteriorSummary = {
        "describes": "d", "a": {"f": {"unavailable": {**rate}}, "m": {"unavailable": {**rate}}}, "y": {},  # type: ignore[typeddict-item]
        "warnings": [], "members": [], "effects": [effect("month = May", 0.3)], "check": rejected,
    }  # fmt: skip
    lines = withholding_table(posterior).splitlines()
    place = next(k for k, line in enumerate(lines) if line.startswith("P(∅ | group)"))
    assert set(lines[place - 1]) == {"!"}
    assert any(line.startswith("month = May") for line in lines[place:])


def test_suggestions_are_ordered_by_what_they_explain(rejected: CheckSummary) -> None:
    lines = suggestion_table(rejected).splitlines()
    # χ² − degrees: 57, 55, −4; neither the column in v nor the bins of scores are candidates.
    assert [line.split("  ")[0] for line in lines[1:4]] == ["label", "month", "a b"]
    assert len(lines) == 5
    assert lines[1].split()[-4:] == ["label-1", "0.620", "0.450", "*"]  # 8.5 standard errors
    assert not lines[3].endswith("*")
    assert "not checked" in suggestion_table(None)


def test_effects_come_largest_first_and_at_most_twelve() -> None:
    many = [effect(f"c{k}", (-1) ** k * 0.1 * k) for k in range(15)]
    lines = effects_table(many).splitlines()
    assert [line.split()[0] for line in lines[1:13]] == [f"c{k}" for k in range(14, 2, -1)]
    assert lines[1].split()[1:] == ["+1.400", "+1.200", "+1.600"]
    assert lines[13] == "… and 3 more"
    assert effects_table([]) == ""
    both = effects_table([effect("c", 0.1), effect("c", 0.2, "race")])
    assert "race: c" in both
    assert "sex: c" in both


def test_the_figure_shows_what_speaks_against_the_model(rejected: CheckSummary, tmp_path: Path) -> None:
    assert [one.name for one in shown_columns(rejected)] == ["age", "label", "month"]
    calm = summary(column("month", 3.0, 5), column(SCORES, 4.0, 5), p_value=0.4)
    assert [one.name for one in shown_columns(calm)] == [SCORES]
    for number, check in enumerate((rejected, calm)):
        draw_check(tmp_path / f"{number}.png", check)
    draw_effects(tmp_path / "effects.png", [effect("$x_{", 0.3), effect("w" * 300, -0.2)])
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
