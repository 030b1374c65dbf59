"""Audits where withholding depends on a column, against simulations with known truth and other solvers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares
from scipy.special import expit

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.conditions import AuditedConditions
from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.files import write_json
from tests.support.audited import People, draw_people

BASE, SLOPE = np.array([-0.6, 0.6]), 0.8


class Given:
    """A model that imputes groups from a column of given probabilities."""

    def predict_groups_proba(self, X: pd.DataFrame) -> np.ndarray:
        return np.c_[1 - X["p"], X["p"]]


def drawn(rows: int, seed: int) -> tuple[People, np.ndarray, pd.DataFrame, np.ndarray]:
    """People, what they state, their columns, and P(∅|a) of these people; v goes with the decision."""
    people, draw = draw_people(rows, seed=seed), np.random.default_rng([seed, 5])
    v = draw.normal(size=rows) + 0.8 * (people.decided == 1) + 0.5 * (people.y == 1)
    withheld = expit(BASE[people.group] + SLOPE * v)
    said = np.where(draw.random(rows) < withheld, None, people.group.astype(str).astype(object))
    p = expit(2 * people.score - 2 + np.log(np.bincount(people.group)[1] / np.bincount(people.group)[0]))
    X = pd.DataFrame({"v": v, "noise": draw.normal(size=rows), "p": p})
    return people, said, X, np.array([withheld[people.group == g].mean() for g in range(2)])


def audited(seed: int, names: list[str], rows: int = 3000) -> tuple[Audit, People, np.ndarray]:
    people, said, X, truth = drawn(rows, seed)
    found = audit(people.y, people.decided, said, X=X, model=Given(), withholding_depends_on=names)
    return found, people, truth


def test_intervals_hold_the_truth_and_the_check_tells_the_models_apart() -> None:
    held: dict[str, list[Any]] = {"rates": [], "groups": [], "plain": [], "rejected": []}
    for seed in range(12):
        found, people, truth = audited(seed, ["v"])
        rates, groups = found.rates, found.groups
        held["rates"].append((rates.low <= people.true_rates) & (people.true_rates <= rates.high))
        held["groups"].append((groups.withhold_low <= truth) & (truth <= groups.withhold_high))
        assert found.check is not None
        held["rejected"].append(found.check["rejected"])
        plain, _, _ = audited(seed, [])
        assert plain.check is not None
        assert plain.check["rejected"]
        assert plain.check["suggestions"][0] == "v"
        held["plain"].append((plain.groups.withhold_low <= truth) & (truth <= plain.groups.withhold_high))
    shares = {name: np.mean(values) for name, values in held.items()}
    assert shares["rates"] > 0.8
    assert shares["groups"] > 0.75
    assert shares["plain"] < 0.7
    assert shares["rejected"] < 0.2


def test_weights_are_those_of_a_general_solver() -> None:
    """As many moments as unknowns: the estimate is where they are 0."""
    _, said, X, _ = drawn(4000, 3)
    group = np.array([2 if each is None else int(each) for each in said])
    rows = AuditedRows(np.zeros(4000, dtype=int), np.zeros(4000, dtype=int), group, 1, 2)
    v = ((X["v"] - X["v"].mean()) / X["v"].std()).to_numpy()[:, None]
    found = ControlVariates(rows, np.c_[1 - X["p"], X["p"]], conditions=v)
    assert not found.helps
    functions = np.c_[np.ones(4000), 1 - X["p"], v]

    def moments(at: np.ndarray) -> np.ndarray:
        odds = np.exp(at[np.minimum(group, 1)] + at[2] * v[:, 0])
        return np.asarray(functions.T @ np.where(group == 2, 1, -odds) / 4000)

    solved = least_squares(moments, np.zeros(3), xtol=1e-12, ftol=1e-12, gtol=1e-12).x
    assert found.moments.weights == pytest.approx(solved, abs=1e-5)
    assert solved[1] - solved[0] == pytest.approx(1.2, abs=0.3)
    assert solved[2] / X["v"].std() == pytest.approx(SLOPE, abs=0.15)


def test_what_is_rejected_stands_above_the_intervals_and_is_kept(tmp_path: Path) -> None:
    found, _, _ = audited(0, [])
    words = str(found)
    assert "Put into withholding_depends_on: v" in words
    assert words.index("!!! The assumption on withholding is REJECTED") < words.index("deo")
    write_json(tmp_path / "audit.json", found.to_dict())
    assert Audit.read(tmp_path / "audit.json").to_dict() == found.to_dict()
    better, _, _ = audited(0, ["v"])
    assert better.depends_on == "group, v"
    assert "depends on the group, v alone" in str(better)
    assert "nothing speaks against it" in str(better)


def test_the_label_among_what_withholding_depends_on() -> None:
    people, draw = draw_people(6000, seed=4), np.random.default_rng([4, 5])
    withheld = expit(BASE[people.group] + 1.5 * (people.y - 0.5))
    said = np.where(draw.random(6000) < withheld, None, people.group.astype(str).astype(object))
    label = pd.Series(people.y.astype(float)).mask(draw.random(6000) < 0.1)
    found = audit(label, people.decided, said, groups_proba=people.proba, withholding_depends_on=["label"])
    assert found.rows["rows"] == label.notna().sum()
    truth = [withheld[people.group == g].mean() for g in range(2)]
    assert found.groups["withhold"].to_numpy() == pytest.approx(truth, abs=0.05)


def test_what_cannot_be_audited() -> None:
    people, said, X, _ = drawn(400, 0)
    given = {"y_true": people.y, "y_pred": people.decided, "sensitive_features": said}
    for wrong, complaint in (
        ({"X": X, "withholding_depends_on": ["w"]}, "'w'"),
        ({"withholding_depends_on": ["v"]}, "X is not given"),
        ({"X": X, "withholding_depends_on": "v"}, "must be a list of names"),
        ({"X": X, "withholding_depends_on": ["v"], "depends_on": "group and label"}, "exclude each other"),
    ):
        with pytest.raises(InputError, match=complaint):
            audit(**given, **wrong)


def test_the_check_takes_log_odds_that_grow_without_end() -> None:
    """Where columns tell who withholds for certain; warnings are errors, so that no number may overflow."""
    people, said, X, _ = drawn(600, 0)
    codes = pd.Series(said).map({"0": 0, "1": 1}).fillna(2).astype(int).to_numpy()
    rows = AuditedRows(people.y.copy(), people.decided, codes.copy(), 2, 2)
    depending = AuditedConditions.make(rows, X, np.ones(600, dtype=bool), ["v", "noise"], ("0", "1"))
    estimates = ControlVariates(rows, None, False, depending.design)
    for certainty in (1.0, 1000.0):
        estimates.moments.weights = estimates.moments.weights * certainty
        check = depending.check(estimates, np.full((600, 2), 0.5), ("0", "1"), False)
        assert check is not None
        assert 0 <= check.p_value <= 1


def test_rates_below_zero_are_not_known_to_be_zero() -> None:
    """At odds of 0, or below, errors by derivatives are 0 as well; where nobody withholds it is known."""
    people, said, X, _ = drawn(600, 0)
    codes = pd.Series(said).map({"0": 0, "1": 1}).fillna(2).astype(int).to_numpy()
    estimates = ControlVariates(AuditedRows(people.y, people.decided, codes, 2, 2))
    rates, low, high = estimates.withholding(1.645)
    assert (low > 0).all()
    assert (low < rates).all()
    assert (rates < high).all()
    design = np.c_[X["v"] - X["v"].mean()]
    by_v = ControlVariates(AuditedRows(people.y, people.decided, codes, 2, 2), None, False, design)
    by_v.moments.weights = np.array([-30.0, *by_v.moments.weights[1:]])
    estimates.moments.weights = np.array([0.1, estimates.moments.weights[1]])
    for impossible in (by_v, estimates):
        rates, low, high = impossible.withholding(1.645)
        assert np.isnan(rates[0])
        assert (low[0], high[0]) == (0, 1)
    everybody = ControlVariates(AuditedRows(people.y, people.decided, people.group, 2, 2))
    np.testing.assert_allclose(everybody.withholding(1.645), 0, atol=1e-9)
