"""Fair decisions of any classifier: simulations with known groups, scikit-learn's checks, and bad input."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from pyro_fairvae import FairDecisions
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.table_classifier import OneClassWarning
from tests.support.user_tables import inexact_weights, tiny

RATES = {"f": 0.6, "m": 0.3}


def simulated(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """A table, labels with gaps, groups with gaps, and the groups; decisions of x alone are unfair."""
    draw = np.random.default_rng(seed)
    group = np.where(draw.random(rows) < 0.4, "f", "m")
    woman = group == "f"
    table = pd.DataFrame(
        {
            "skill": draw.normal(size=rows),
            "hobby": draw.normal(size=rows) + 2.5 * woman,
            "town": np.where(draw.random(rows) < 0.1, None, draw.choice(["k", "l", "m"], size=rows)),
        }
    )
    table.loc[draw.random(rows) < 0.05, "hobby"] = np.nan
    label = np.where(draw.random(rows) < expit(1.5 * table["skill"] + 0.8 - 2.5 * woman), "yes", "no").astype(
        object
    )
    stated = np.where(draw.random(rows) < pd.Series(group).map(RATES), None, group)
    return table, label, stated, group


def deo(label: np.ndarray, decided: np.ndarray, group: np.ndarray) -> float:
    return max(
        abs(
            (decided[(label == c) & (group == "f")] == c).mean()
            - (decided[(label == c) & (group == "m")] == c).mean()
        )
        for c in ("no", "yes")
    )


@pytest.fixture(scope="module")
def fitted() -> FairDecisions:
    table, label, stated, _ = simulated(6000, seed=0)
    hidden = np.random.default_rng(1).random(len(label)) < 0.2
    model = FairDecisions(targets=(0.05, 0.15), folds=3)
    return model.fit(table, np.where(hidden, None, label), sensitive_features=stated)


def test_targets_are_met_on_new_people_whose_groups_are_unknown(fitted: FairDecisions) -> None:
    table, label, _, group = simulated(20_000, seed=5)
    plain = fitted.classes_[fitted.predict_proba(table).argmax(1)]
    assert deo(label, plain, group) > 0.2
    for target in (0.15, 0.05):
        decided = fitted.select(max_disparity=target).predict(table)
        assert deo(label, decided, group) <= target + 0.04
        assert (decided != label).mean() <= (plain != label).mean() + 0.1
    assert fitted.frontier_["target"].tolist()[1:] == [0.15, 0.05]
    assert fitted.frontier_["disparity"][0] == pytest.approx(deo(label, plain, group), abs=0.05)


def test_any_other_target_is_settled_when_it_is_asked_for(fitted: FairDecisions) -> None:
    before = len(fitted.frontier_)
    fitted.select(max_disparity=0.1)
    assert len(fitted.frontier_) == before + 1
    assert fitted.frontier_["disparity"].iloc[-1] <= 0.105
    fitted.select(max_disparity=0.1)
    assert len(fitted.frontier_) == before + 1


def test_who_withholds_is_learned(fitted: FairDecisions) -> None:
    rates = fitted.channels_.set_index(["what", "of"])
    for group, truth in RATES.items():
        low, high = rates.loc[("group", group), ["low", "high"]]
        assert low - 0.03 <= truth <= high + 0.03
    for label in ("no", "yes"):
        assert rates.loc[("label", label), "withheld"] == pytest.approx(0.2, abs=0.03)
    assert fitted.withholding_check_ is not None
    assert not fitted.withholding_check_.rejected


def test_groups_are_told_from_features(fitted: FairDecisions) -> None:
    table, _, _, group = simulated(4000, seed=6)
    probability = fitted.predict_groups_proba(table)
    np.testing.assert_allclose(probability.sum(1), 1)
    assert (np.array(fitted.groups_)[probability.argmax(1)] == group).mean() > 0.75


def test_with_confidence_the_audit_decides(fitted: FairDecisions) -> None:
    fitted.select(max_disparity=0.3, confidence=0.9)
    assert fitted.selected_ >= 0
    with pytest.raises(InputError, match=r"no member's disparity is at most 0\.001 with 90 % confidence"):
        fitted.select(max_disparity=0.001, confidence=0.9)


def test_a_pickled_model_decides_the_same(fitted: FairDecisions) -> None:
    table = simulated(500, seed=7)[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(table), fitted.predict(table))


def test_a_frozen_classifier_is_not_fitted_again() -> None:
    table, label, stated, group = simulated(3000, seed=2)
    X = table[["skill", "hobby"]].fillna(0.0)
    known = LogisticRegression().fit(X, label.astype(str))
    table, label, stated, group = simulated(5000, seed=3)
    X = table[["skill", "hobby"]].fillna(0.0)
    model = FairDecisions(FrozenEstimator(known), targets=(0.05,), folds=3).fit(X, label, stated)
    np.testing.assert_allclose(model.labeller_.predict(X), known.predict_proba(X))
    decided = model.select(max_disparity=0.05).predict(X)
    assert deo(label, decided, group) < deo(label, known.predict(X), group) / 2


def test_scikit_learns_checks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairDecisions(LogisticRegression(), folds=2, targets=(0.1,))
        check_estimator(model, expected_failed_checks=inexact_weights(model))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"targets": (0.0,)}, r"targets must be within \(0, 1\], got 0"),
        ({"targets": (0.1, 0.1)}, "targets has a value twice"),
        ({"targets": "loose"}, r"targets must be numbers within \(0, 1\]"),
        ({"max_disparity": 2}, r"max_disparity must be within \(0, 1\], got 2"),
        ({"risk": "fair"}, "risk 'fair'"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"estimator": LinearSVC()}, "LinearSVC has no predict_proba"),
        ({"estimator": LogisticRegression()}, "LogisticRegression could not be fitted.*give a pipeline"),
    ],
)
def test_bad_input_is_told(given: dict[str, Any], says: str) -> None:
    table, label, stated, _ = simulated(200, seed=0)
    with pytest.raises(InputError, match=says):
        FairDecisions(**given).fit(table, label, sensitive_features=stated)


def test_without_groups_decisions_are_those_of_the_classifier() -> None:
    table, label, _, _ = simulated(400, seed=0)
    X = table[["skill"]]
    with pytest.warns(UserWarning, match="no sensitive_features were given"):
        model = FairDecisions(RandomForestClassifier(20, random_state=0), folds=2).fit(X, label)
    assert model.groups_ == ()
    assert model.predict(X).tolist() == model.classes_[model.predict_proba(X).argmax(1)].tolist()
    with pytest.raises(InputError, match="knows no groups"):
        model.select(max_disparity=0.1)


def test_a_fit_that_gives_everybody_one_class_warns() -> None:
    draw = np.random.default_rng(0)
    X = pd.DataFrame({"x": draw.normal(size=300)})
    sex = np.where(draw.random(300) < 0.4, None, draw.choice(["f", "m"], 300))
    rare = np.where(np.arange(300) % 100 == 0, "yes", "no")
    with pytest.warns(OneClassWarning, match="gives everybody one class: no for all 45 rows"):
        tiny(lambdas=(0.0, 1.0)).fit(X, rare, sex)
    with pytest.warns(OneClassWarning, match="no for all 300 rows"):
        FairDecisions(LogisticRegression(), targets=(0.2,)).fit(X, rare, sex)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneClassWarning)
        often = np.where(X["x"] + draw.normal(0, 0.3, 300) > 0, "yes", "no")
        FairDecisions(LogisticRegression(), targets=(0.2,)).fit(X, often, sex)
