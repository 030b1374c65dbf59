"""A number as the sensitive feature of both estimators: known truth, models that are kept, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, audit
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.schema.levels import Levels
from tests.support.number_tables import Aged, aged, withheld_at
from tests.support.user_tables import SMALLEST, inexact_weights, tiny

LEVELS = 8
ESTIMATOR = tiny(lambdas=(0.0,), epochs=3, batch=64, options=SMALLEST | {"lr": 0.1}, group_levels=LEVELS)


def numbers(table: Aged) -> pd.DataFrame:
    return table.X[["tenure", "skill"]]


@pytest.fixture(scope="module")
def people() -> Aged:
    return aged(4000)


@pytest.fixture(scope="module")
def settled(people: Aged) -> FairDecisions:
    simple = make_pipeline(StandardScaler(), LogisticRegression())
    model = FairDecisions(simple, group_levels=LEVELS, targets=(0.01, 0.004), folds=3)
    return model.fit(numbers(people), people.y, people.stated)


@pytest.fixture(scope="module")
def network() -> FairSSVAEClassifier:
    table = aged(600, seed=1)
    return tiny(group_levels=LEVELS, targets=(0.05,), lambdas=None).fit(table.X, table.y, table.stated)


def test_the_curve_is_recovered(people: Aged, settled: FairDecisions) -> None:
    curve = settled.withholding_curve_
    assert curve is not None
    levels = Levels.of(people.stated.dropna().to_numpy(), LEVELS)
    assert curve["level"].tolist() == list(settled.groups_) == list(levels.names)
    np.testing.assert_allclose(curve["centre"], levels.centres)
    truth = [withheld_at(people.age[levels.code(people.age) == k]).mean() for k in range(LEVELS)]
    assert np.abs(curve["withheld"] - truth).mean() < 0.045
    assert ((curve["low"] - 0.04 <= truth) & (truth <= curve["high"] + 0.04)).all()


def test_decisions_depend_less_on_the_true_number(people: Aged, settled: FairDecisions) -> None:
    """Given the label, by the true ages of new people: what a user wants, and what no fit has seen."""
    new = aged(6000, seed=7)
    codes = Levels.of(people.age, 5).code(new.age)

    def dependence(decided: np.ndarray) -> float:
        """The mean over labels of the variance between ages of the share of yes, of all variance."""
        ratios = []
        for label in ("no", "yes"):
            yes = (decided == "yes")[new.y == label]
            by_age = pd.Series(yes).groupby(codes[new.y == label]).transform("mean")
            ratios.append(by_age.var() / yes.var())
        return float(np.mean(ratios))

    every = [settled.select(target).predict(numbers(new)) for target in (0.01, 0.004)]
    settled.selected_ = 0
    plain = settled.predict(numbers(new))
    assert dependence(every[1]) < dependence(every[0]) < dependence(plain)
    assert dependence(every[1]) < 0.5 * dependence(plain)
    assert np.mean(every[1] != new.y) < np.mean(plain != new.y) + 0.04
    assert settled.metric_ == "mutual_information_given_label"
    assert settled.frontier_["disparity"][2] <= 0.0041


def test_stated_numbers_are_exact_within_their_level(network: FairSSVAEClassifier) -> None:
    table = aged(200, seed=3)
    found = network.predict_groups_proba(table.X, table.stated)
    levels = network.attributes_.levels
    assert levels is not None
    stated = table.stated.notna().to_numpy()
    expected = np.eye(len(levels.centres))[levels.code(table.age)]
    np.testing.assert_allclose(found[stated], expected[stated], atol=1e-6)
    assert (found[~stated].max(1) < 0.99).all()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)


def test_a_saved_model_is_the_same(network: FairSSVAEClassifier, tmp_path: Path) -> None:
    new = aged(100, seed=4)
    network.save(tmp_path / "network")
    loaded = FairSSVAEClassifier.load(tmp_path / "network")
    assert loaded.attributes_ == network.attributes_
    assert loaded.group_levels == LEVELS
    assert loaded.risk is None
    np.testing.assert_array_equal(loaded.predict(new.X), network.predict(new.X))
    np.testing.assert_array_equal(
        loaded.predict_groups_proba(new.X, new.stated), network.predict_groups_proba(new.X, new.stated)
    )
    pd.testing.assert_frame_equal(loaded.withholding_curve_, network.withholding_curve_)
    trees = FairDecisions(group_levels=5, targets=(0.01,), folds=3)
    table = aged(500, seed=5)
    trees.fit(table.X, table.y, table.stated).save(tmp_path / "trees")
    again = FairDecisions.load(tmp_path / "trees")
    np.testing.assert_array_equal(again.predict(new.X), trees.predict(new.X))
    pd.testing.assert_frame_equal(again.withholding_curve_, trees.withholding_curve_)
    assert clone(again).group_levels == 5


@parametrize_with_checks([ESTIMATOR], expected_failed_checks=inexact_weights)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_an_audit_compares_ranges_of_the_number(people: Aged, settled: FairDecisions) -> None:
    new = aged(3000, seed=8)
    decided = settled.predict(numbers(new))
    found = audit(new.y, decided, new.stated, X=numbers(new), model=settled)
    names, levels = settled.groups_, settled.attributes_.levels
    assert levels is not None
    assert len(found.groups) == 4
    edges = [float(name.split()[0]) for name in found.groups.index[1:]]
    assert set(edges) <= set(levels.edges)
    ranges = np.searchsorted(edges, new.age, side="right")
    truth = np.array([withheld_at(new.age[ranges == k]).mean() for k in range(4)])
    assert (
        (found.groups["withhold_low"] - 0.05 < truth) & (truth < found.groups["withhold_high"] + 0.05)
    ).all()
    rates = [(decided[ranges == k] == "yes").mean() for k in range(4)]
    assert found.metrics.loc["ddp", "low"] <= max(rates) - min(rates) <= found.metrics.loc["ddp", "high"]
    assert len(audit(new.y, decided, new.stated, X=numbers(new), model=settled, group_levels=3).groups) == 3
    assert len(names) == LEVELS
    alone = audit(new.y, decided, new.stated, X=new.X, group_levels=3)
    assert len(alone.groups) == 3


def test_withholding_may_depend_on_more_and_proxies_tell_of_it() -> None:
    table = aged(900, seed=9)
    X = table.X.assign(grey=table.age / 20 + np.random.default_rng(0).normal(size=900))
    model = FairDecisions(
        group_levels=6, targets=(0.01,), folds=3, withholding_depends_on=("town",), proxies=("grey",)
    ).fit(X, table.y, table.stated)
    (effect,) = (e for e in model.posterior_["effects"] if e["column"] == "town = north")
    assert effect["q05"] < 0 < effect["q95"]  # the town has none
    assert model.withholding_curve_ is not None
    assert model.predict(table.X).shape == (900,)


@pytest.mark.parametrize("estimator", [FairDecisions(group_levels=6, folds=3), tiny(group_levels=6)])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda age: age.map(lambda a: "old" if a > 40 else "young"), "is text where a number was expected"),
        (lambda age: age.where(age.isna(), 40.0), "has 1 different number, which cannot"),
        (lambda age: age.mask(np.arange(200) > 60), r"levels of a number need 50"),
        (lambda age: age.replace(age.max(), np.inf), "contains infinity in"),
        (lambda age: pd.DataFrame({"age": age, "other": age}), "has 2 columns, but a number"),
    ],
)
def test_what_is_no_number_is_refused(estimator: Any, change: Any, told: str) -> None:
    table = aged(200)
    with pytest.raises(InputError, match=told):
        clone(estimator).fit(table.X, table.y, change(table.stated))


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"group_levels": 2}, "group_levels must be a whole number from 3 to 64, got 2"),
        ({"group_levels": 6.5}, "got 6.5"),
        ({"group_levels": True}, "got True"),
        ({"prior_a": "flat"}, "of a number nobody can misstate"),
        ({"prior_a": "{preset: truthful, given: [town]}"}, "its rows are given no columns"),
        ({"risk": "deo", "targets": (2.0,)}, "targets must be within"),
    ],
)
def test_what_a_number_does_not_go_with_is_refused_before_work(
    parameters: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FairDecisions, "_cross_fit", None)
    monkeypatch.setattr("pyro_fairvae.estimator.classifier.BoostedScores", None)
    table = aged(200)
    with pytest.raises(InputError, match=told):
        FairDecisions(**{"group_levels": 6} | parameters).fit(table.X, table.y, table.stated)
    options = {"options": {"prior_a": parameters["prior_a"]}} if "prior_a" in parameters else parameters
    with pytest.raises(InputError, match=told):
        FairSSVAEClassifier(**{"group_levels": 6} | options).fit(table.X, table.y, table.stated)


def test_probabilities_of_levels_are_refused() -> None:
    table = aged(200)
    with pytest.raises(InputError, match="put a prediction of the number among the columns"):
        FairDecisions(group_levels=4).fit(table.X, table.y, table.stated, np.full((200, 4), 0.25))
    with pytest.raises(InputError, match="or group_levels for a number such as age"):
        FairDecisions().fit(table.X, table.y, table.stated)
