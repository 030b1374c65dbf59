"""Regulators' figures, against scikit-learn, counting, closed forms and simulations with known truth."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.extremes import least_ratio_interval, sum_interval
from pyro_fairvae.auditing.measuring import probability_broken
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.evaluation.metrics import evaluate
from tests.support.audited import draw_people, stating

PEOPLE = draw_people(900, groups=3, seed=5)
SCORES = np.random.default_rng(5).beta(1 + PEOPLE.y, 2 - PEOPLE.y).round(2)  # with ties
GROUP = PEOPLE.group.astype(str)


def figures_of(audited: Audit) -> Any:
    assert audited.figures is not None
    return audited.figures


def by_group(audited: Audit, measure: str, column: str = "estimate") -> dict[str, float]:
    lines = figures_of(audited).by_group
    lines = lines[lines["measure"] == measure]
    return dict(zip(lines["group"], lines[column], strict=True))


def test_where_all_state_their_group_figures_are_counted() -> None:
    y, decided = PEOPLE.y, PEOPLE.decided
    found = audit(y, decided, GROUP, scores=SCORES)
    table = pd.DataFrame({"y": y, "d": decided, "s": SCORES, "g": GROUP})
    rate = (table.d == 1).groupby(table.g).mean()
    assert by_group(found, "selection rate") == pytest.approx(rate.to_dict())
    assert by_group(found, "impact ratio") == pytest.approx((rate / rate.max()).to_dict())
    precision = table[table.d == 1].groupby("g").y.mean()
    assert by_group(found, "positive predictive value") == pytest.approx(precision.to_dict())
    assert by_group(found, "false discovery rate") == pytest.approx((1 - precision).to_dict())
    omission = table[table.d == 0].groupby("g").y.mean()
    assert by_group(found, "false omission rate") == pytest.approx(omission.to_dict())
    area = {name: roc_auc_score(of.y, of.s) for name, of in table.groupby("g")}
    assert by_group(found, "AUC") == pytest.approx(area)
    residual = table.groupby("g").apply(lambda of: (of.y - of.s).mean(), include_groups=False)
    assert by_group(found, "label less score") == pytest.approx(residual.to_dict())
    disparities = figures_of(found).disparities["estimate"]
    expected = {
        "impact_ratio": rate.min() / rate.max(),
        "predictive_parity": np.ptp(precision),
        "false_omission": np.ptp(omission),
        "mean_odds": evaluate(y, decided, PEOPLE.group, 2)["mean_odds"],
        "auc": max(area.values()) - min(area.values()),
        "calibration": np.ptp(residual),
    }
    assert disparities.to_dict() == pytest.approx(expected)
    assert figures_of(found).four_fifths["least"] == rate.idxmin()
    assert figures_of(found).four_fifths["largest"] == rate.idxmax()


def test_calibration_is_counted_in_fifths_of_the_scores() -> None:
    found = figures_of(audit(PEOPLE.y, PEOPLE.decided, GROUP, scores=SCORES))
    cuts = np.unique(np.quantile(SCORES, [0.2, 0.4, 0.6, 0.8]))
    table = pd.DataFrame({"y": PEOPLE.y, "s": SCORES, "bin": (SCORES[:, None] > cuts).sum(1), "g": GROUP})
    curve = table.groupby(["g", "bin"])[["s", "y"]].mean()
    np.testing.assert_allclose(found.calibration[["score", "share"]], curve)
    size = table.groupby(["g", "bin"]).size() / table.groupby("g").size()
    error = ((curve.y - curve.s).abs() * size).groupby("g").sum()
    assert by_group(audit(PEOPLE.y, PEOPLE.decided, GROUP, scores=SCORES), "calibration error") == (
        pytest.approx(error.to_dict())
    )


@pytest.mark.parametrize("depends_on", ["group", "group and label"])
def test_stated_figures_are_those_of_stating_rows(depends_on: str) -> None:
    said = stating(PEOPLE, [0.5, 0.6, 0.7])
    kept = np.array([each is not None for each in said])
    found = audit(
        PEOPLE.y, PEOPLE.decided, said, scores=SCORES, groups_proba=PEOPLE.proba, depends_on=depends_on
    )
    alone = audit(PEOPLE.y[kept], PEOPLE.decided[kept], GROUP[kept], scores=SCORES[kept])
    for measure in ("selection rate", "positive predictive value", "false omission rate", "AUC"):
        assert by_group(found, measure, "stated_estimate") == pytest.approx(by_group(alone, measure))
    # Rows that withhold are of use: they narrow intervals.
    table = figures_of(found).by_group
    if depends_on == "group":
        assert ((table["high"] - table["low"]) / (table["stated_high"] - table["stated_low"])).mean() < 1


def test_the_interval_of_one_ratio_is_fiellers() -> None:
    """Those c at which p − c q is within z of its standard errors from 0: the roots of a quadratic."""
    values, covariance = np.array([0.3, 0.5]), np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    z = stats.norm.ppf(0.95)
    a = values[1] ** 2 - z**2 * covariance[1, 1]
    b = -2 * (values[0] * values[1] - z**2 * covariance[0, 1])
    roots = sorted(np.roots([a, b, values[0] ** 2 - z**2 * covariance[0, 0]]).real)
    found = least_ratio_interval(values, covariance, [(0, 1), (1, 0)], 0.9)
    assert found == pytest.approx(tuple(roots), abs=0.006)  # one end is simulated


@pytest.mark.parametrize(
    "rates", [(0.02, 0.05), (0.4, 0.5), (0.3, 0.3), (0.2, 0.25, 0.25), (0.3, 0.3, 0.3)], ids=str
)
def test_intervals_of_the_least_ratio_hold_as_often_as_they_say(rates: tuple[float, ...]) -> None:
    draw, held = np.random.default_rng(1), []
    truth, size = min(rates) / max(rates), 400
    pairs = [(g, h) for g in range(len(rates)) for h in range(len(rates)) if g != h]
    for _ in range(250):
        found = draw.binomial(size, rates) / size
        covariance = np.diag((found * (1 - found) + 1 / size) / size)
        low, high = least_ratio_interval(found, covariance, pairs, 0.9)
        assert low <= min(1, found.min() / found.max()) <= high
        held.append(low - 1e-9 <= truth <= high + 1e-9)
    assert 0.86 <= np.mean(held) <= (0.97 if len(rates) == 2 else 1)


def test_intervals_of_a_mean_of_differences_hold_as_often_as_they_say() -> None:
    rates, size = np.array([0.6, 0.6, 0.8, 0.7]), 300  # two labels of two groups, one of them fair
    parts = [
        np.array([[1, -1, 0, 0], [-1, 1, 0, 0]]) / 2,
        np.array([[0, 0, 1, -1], [0, 0, -1, 1]]) / 2,
    ]
    draw, held = np.random.default_rng(2), []
    for _ in range(300):
        found = draw.binomial(size, rates) / size
        estimate, low, high = sum_interval(found, np.diag(found * (1 - found) / size), parts, 0.9, 1)
        assert estimate == pytest.approx((abs(found[0] - found[1]) + abs(found[2] - found[3])) / 2)
        held.append(low <= 0.05 <= high)
    assert 0.86 <= np.mean(held) <= 0.97


def test_the_probability_of_a_broken_rule_is_even_at_the_limit() -> None:
    """Where the ratio is 0.8, the probability is spread evenly over [0, 1]."""
    draw, rates, size = np.random.default_rng(3), np.array([0.4, 0.5]), 500
    found = draw.binomial(size, rates, size=(300, 2)) / size
    spread = [probability_broken(one, np.diag(one * (1 - one) / size)) for one in found]
    assert stats.kstest(spread, "uniform").pvalue > 0.01


def test_a_group_that_is_never_selected_has_a_ratio_of_0_and_a_certain_finding() -> None:
    decided = np.where(GROUP == "0", 0, PEOPLE.decided)
    found = audit(PEOPLE.y, decided, GROUP)
    line = figures_of(found).disparities.loc["impact_ratio"]
    assert (line["estimate"], line["low"]) == (0, 0)
    assert 0 < line["high"] < 0.2
    assert figures_of(found).four_fifths["probability"] == 1


def test_where_nobody_is_selected_there_is_no_ratio() -> None:
    found = audit(PEOPLE.y, np.zeros(900, dtype=int), GROUP, pos_label=1)
    line = figures_of(found).disparities.loc["impact_ratio"]
    assert np.isnan(line["estimate"])
    assert (line["low"], line["high"]) == (0, 1)
    assert "cannot be judged" in str(found)


def test_rates_of_ones_own_are_audited() -> None:
    words = np.array(["no", "yes"])

    def cost(y: np.ndarray, decided: np.ndarray, scores: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return 5.0 * ((y == "no") & (decided == "yes")) + ((y == "yes") & (decided == "no")), np.ones(len(y))

    found = audit(words[PEOPLE.y], words[PEOPLE.decided], GROUP, own_rates={"cost": cost})
    each = 5.0 * ((PEOPLE.y == 0) & (PEOPLE.decided == 1)) + ((PEOPLE.y == 1) & (PEOPLE.decided == 0))
    expected = pd.Series(each).groupby(GROUP).mean()
    assert by_group(found, "cost") == pytest.approx(expected.to_dict())
    assert figures_of(found).disparities.loc["cost", "estimate"] == pytest.approx(np.ptp(expected))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"scores": SCORES * 100}, "expected probabilities within"),
        ({"scores": np.full(900, 0.5)}, "all scores are 0.5"),
        ({"scores": np.where(SCORES > 0.9, np.nan, SCORES)}, "gaps"),
        ({"scores": SCORES[:-1]}, "expected one number for each of 900 rows"),
        ({"scores": GROUP}, "expected probabilities|not all numbers"),
        ({"own_rates": {"auc": lambda y, d, s: (y, d)}}, "exists already"),
        ({"own_rates": {"x": lambda y, d, s: y / 0 + None}}, "could not be evaluated"),
        ({"own_rates": {"x": lambda y, d, s: (1, 1)}}, "must return two arrays of 900"),
        ({"own_rates": {"x": lambda y, d, s: (np.ones(900), -np.ones(900))}}, "below 0"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        audit(PEOPLE.y, PEOPLE.decided, GROUP, **given)


def test_local_law_144_counts_those_whose_category_is_known() -> None:
    draw = np.random.default_rng(7)
    sex = np.where(draw.random(900) < 0.3, None, draw.choice(["f", "m"], 900))
    race = np.where(draw.random(900) < 0.2, None, draw.choice(["a", "b", "c"], 900, p=[0.01, 0.39, 0.6]))
    found = audit(PEOPLE.y, PEOPLE.decided, pd.DataFrame({"sex": sex, "race": race}), scores=SCORES)
    for by, chosen in (("decisions", PEOPLE.decided == 1), ("scores", np.median(SCORES) < SCORES)):
        law = found.local_law_144(by=by, exclude_below=0.02)
        assert list(law.tables) == ["sex", "race", "sex × race"]
        for name, of in (("sex", sex), ("race", race)):
            known = np.array([each is not None for each in of])
            counted = pd.Series(chosen[known]).groupby(of[known])
            lines = law.tables[name].lines.set_index("category")
            assert law.tables[name].unknown == 900 - known.sum()
            assert lines["applicants"].to_dict() == counted.size().to_dict()
            assert lines["selected"].to_dict() == counted.sum().to_dict()
            rates = counted.mean()
            assert lines["rate"].to_dict() == pytest.approx(rates.to_dict())
            assert lines.index[lines["excluded"]].tolist() == (["a"] if name == "race" else [])
            ratios = (rates / rates[~lines["excluded"]].max())[~lines["excluded"]]
            assert lines["impact_ratio"].dropna().to_dict() == pytest.approx(ratios.to_dict())
        both = law.tables["sex × race"]
        known = np.array([s is not None and r is not None for s, r in zip(sex, race, strict=True)])
        assert both.lines["applicants"].sum() == known.sum() == 900 - both.unknown
        assert f"{both.unknown} of 900 applicants are of no known category" in str(law)
    with pytest.raises(InputError, match="give scores to the audit"):
        audit(PEOPLE.y, PEOPLE.decided, sex).local_law_144(by="scores")
    with pytest.raises(InputError, match="exclude_below must be within"):
        found.local_law_144(exclude_below=1)


def test_figures_survive_json_and_an_audit_from_a_file_has_no_rows(tmp_path: Path) -> None:
    found = audit(PEOPLE.y, PEOPLE.decided, stating(PEOPLE, [0.4, 0.7, 0.6]), scores=SCORES)
    found = replace(found, local_law=found.local_law_144())
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(found.to_dict(), allow_nan=False))
    again = Audit.read(path)
    assert str(again) == str(found)
    pd.testing.assert_frame_equal(figures_of(again).by_group, figures_of(found).by_group)
    for without_rows in (again, pickle.loads(pickle.dumps(found))):
        with pytest.raises(InputError, match="holds no rows"):
            without_rows.local_law_144()
    old = {
        key: value
        for key, value in found.to_dict().items()
        if key not in ("figures", "local_law", "sensitivity")
    }
    path.write_text(json.dumps(old))
    assert Audit.read(path).figures is None  # an audit stored before there were figures
