"""What rows that withhold add to an audit: moments, weights and control variates, against simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyro_fairvae.auditing import AUDITED, DEPENDS_ON, audit, intervals
from pyro_fairvae.auditing.auditing import MISFIT
from pyro_fairvae.auditing.control_variates import ControlVariates
from tests.support.audited import draw_people, rows_of, stating


def test_exactly_as_many_moments_as_unknowns_are_solved() -> None:
    """Four cells of (y, ŷ), four weights of (group, label): in each cell stating rows stand for all."""
    people = draw_people(3000, seed=5)
    rows = rows_of(people, stating(people, [0.4, 0.7], of_label=[1.0, 0.7]))
    anchored = ControlVariates(rows, by_label=True)
    assert not anchored.helps
    weights = anchored.moments.weights.reshape(2, 2)
    for y in range(2):
        for c in range(2):
            cell = (rows.y == y) & (rows.decided == c)
            standing = sum(weights[g, y] * (cell & (rows.group == g)).sum() for g in range(2))
            assert standing == pytest.approx(cell.sum())


def test_more_moments_than_unknowns_are_weighed_as_least_squares_would() -> None:
    """The same w from the two-step formula of Hansen (1982), iterated, by plain inverses."""
    people = draw_people(2000, seed=6)
    rows = rows_of(people, stating(people, [0.4, 0.7]))
    anchored = ControlVariates(rows, people.proba)
    functions, weighs = anchored.functions, anchored.weighs
    weights = np.ones(2)
    for _ in range(20):
        errors = functions * (1 - weighs @ weights)[:, None]
        inverse = np.linalg.inv(np.cov(errors.T, bias=True))
        slopes = functions.T @ weighs / len(rows)
        weights = np.linalg.solve(slopes.T @ inverse @ slopes, slopes.T @ inverse @ functions.mean(0))
    assert anchored.helps
    assert anchored.moments.weights == pytest.approx(weights, rel=1e-3)
    left = anchored.moments.residual.T @ slopes
    assert left == pytest.approx(np.zeros_like(left), abs=1e-9)


@pytest.mark.parametrize("of_label", [None, [1.0, 0.6]], ids=["group", "group and label"])
def test_how_often_groups_withhold_is_recovered(of_label: list[float] | None) -> None:
    held, tables, bias = np.zeros(2), 100, np.zeros(2)
    for seed in range(tables):
        people = draw_people(1500, seed=100 + seed)
        rows = rows_of(people, stating(people, [0.4, 0.75], of_label, seed))
        rate, low, high = ControlVariates(rows, people.proba, of_label is not None).withholding(
            stats.norm.ppf(0.95)
        )
        truth = 1 - np.array([0.4, 0.75]) * (1 if of_label is None else people.label_shares @ of_label)
        held += (low <= truth) & (truth <= high)
        bias += (rate - truth) / tables
    assert (held >= stats.binom.ppf(0.001, tables, 0.9)).all()
    assert (held <= stats.binom.ppf(0.999, tables, 0.9)).all()
    assert np.abs(bias).max() < 0.02


def test_groups_are_reported_as_the_moments_have_them() -> None:
    people = draw_people(1500, seed=16)
    said = stating(people, [0.4, 0.75])
    found = audit(people.y, people.decided, said, groups_proba=people.proba, confidence=0.8).groups
    rate, low, high = ControlVariates(rows_of(people, said), people.proba).withholding(stats.norm.ppf(0.9))
    assert found["withhold"].to_numpy() == pytest.approx(rate)
    assert found["withhold_low"].to_numpy() == pytest.approx(low)
    assert found["withhold_high"].to_numpy() == pytest.approx(high)
    truly = [int(((people.group == g) & (said != str(g))).sum()) for g in range(2)]
    assert found["withheld"].to_numpy() == pytest.approx(truly, rel=0.15)


def test_what_moments_cannot_tell_is_not_told() -> None:
    """Three groups have more weights by label than labels and decisions have cells."""
    people = draw_people(1200, groups=3, seed=7)
    said = stating(people, [0.4, 0.7, 0.6])
    found = audit(people.y, people.decided, said, depends_on="group and label")
    assert found.metrics.loc["ddp", ["estimate", "low", "high"]].isna().all()
    assert found.metrics.loc["ddp", "stated_estimate"] > 0
    assert found.groups["withhold"].isna().all()
    assert (found.groups["withhold_high"] - found.groups["withhold_low"] == 1).all()
    assert any("cannot be estimated" in words and "Give X" in words for words in found.notes)
    told = audit(people.y, people.decided, said, groups_proba=people.proba, depends_on="group and label")
    assert told.metrics.loc["ddp", "estimate"] == pytest.approx(people.truth["ddp"], abs=0.15)


def test_who_must_withhold_in_one_label_alone_is_not_needed_in_the_other() -> None:
    """Nobody withholds at label 0: there a row stands for itself, and DDP is that of weighted counting."""
    people = draw_people(2000, seed=8)
    said = stating(people, [0.5, 0.5], of_label=[2.0, 1.0])
    anchored = ControlVariates(rows_of(people, said), by_label=True)
    assert anchored.told.all()
    assert anchored.moments.weights.reshape(2, 2)[:, 0] == pytest.approx(np.ones(2))


@pytest.mark.parametrize("depends_on", DEPENDS_ON)
def test_a_good_imputer_narrows_intervals_and_one_that_knows_nothing_leaves_them(depends_on: str) -> None:
    """By label, nothing is gained without an imputer; else labels and decisions alone narrow some."""
    people = draw_people(4000, seed=9)
    said = stating(people, [0.25, 0.5])
    shuffled = np.random.default_rng(0).permutation(people.proba)
    widths = []
    for proba in (people.proba, shuffled, None):
        found = audit(people.y, people.decided, said, groups_proba=proba, depends_on=depends_on).rates[:4]
        widths.append((found["high"] - found["low"]).mean())
    stated = (found["stated_high"] - found["stated_low"]).mean()
    good, knows_nothing, without = widths
    assert good < 0.85 * stated
    assert good < 0.95 * without
    assert knows_nothing == pytest.approx(without, rel=0.03)
    if depends_on == "group and label":
        assert without == pytest.approx(stated)


@pytest.mark.parametrize("of_label", [None, [1.0, 0.6]], ids=["group", "group and label"])
def test_intervals_hold_the_truth_as_often_as_they_say(
    of_label: list[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "SIMULATED", 300)
    monkeypatch.setattr(intervals, "BISECTIONS", 8)
    tables = 80
    held = pd.Series(0, list(AUDITED))
    of_rates, narrower, bias = 0.0, 0.0, 0.0
    for seed in range(tables):
        people = draw_people(1200, seed=1000 + seed)
        found = audit(
            people.y, people.decided, stating(people, [0.3, 0.6], of_label, seed),
            groups_proba=people.proba, depends_on="group and label" if of_label else "group",
        )  # fmt: skip
        truth = pd.Series(people.truth)
        held += (found.metrics["low"] <= truth) & (truth <= found.metrics["high"])
        rates = found.rates
        of_rates += (
            (rates["low"] <= people.true_rates) & (people.true_rates <= rates["high"])
        ).mean() / tables
        narrower += (
            (rates["high"] - rates["low"]) < rates["stated_high"] - rates["stated_low"]
        ).mean() / tables
        bias += (rates["estimate"] - people.true_rates) / tables
    # DEO and DDP hold more often than they say where several differences compete for the largest.
    assert (held >= stats.binom.ppf(0.001, tables, 0.9)).all()
    assert held["deopp"] <= stats.binom.ppf(0.999, tables, 0.93)
    assert of_rates == pytest.approx(0.9, abs=0.035)  # eight rates in each table
    assert np.abs(bias).max() < 0.025
    assert narrower > 0.6


@pytest.mark.parametrize(
    ("rows", "states"), [(1500, [0.4, 0.6]), (3000, [0.05, 0.3])], ids=["many state", "few state"]
)
def test_the_assumption_is_seldom_doubted_where_it_holds(rows: int, states: list[float]) -> None:
    """Also where few rows stand for many, where the usual covariance of moments doubts every fourth table."""
    found = []
    for seed in range(100):
        people = draw_people(rows, seed=2000 + seed)
        found.append(
            ControlVariates(rows_of(people, stating(people, states, seed=seed)), people.proba).misfit()
        )
    assert np.mean(np.array(found) < MISFIT) <= 0.06
    assert 0.25 < np.median(found) < 0.75


def test_errors_of_weights_are_in_the_errors_of_weighted_rates() -> None:
    """Without an imputer, where weights are least sure: rates spread over tables as their errors say."""
    rates, variances = [], []
    for seed in range(150):
        people = draw_people(3000, seed=3000 + seed)
        rows = rows_of(people, stating(people, [0.4, 0.7], [1.0, 0.6], seed))
        found = ControlVariates(rows, by_label=True).parity()
        rates.append(found.values[1])
        variances.append(np.diag(found.covariance())[2:])
    ratio = np.var(rates, axis=0) / np.median(variances, axis=0)
    assert (np.abs(np.log(ratio)) < np.log(1.4)).all()
