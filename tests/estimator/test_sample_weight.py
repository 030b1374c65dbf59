"""Weights of rows in estimators: nothing changes where all are equal, and an uneven sample is undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyro_fairvae import FairDecisions, FairSSVAERegressor, InputError
from pyro_fairvae.auditing import audit_numbers
from tests.support.user_tables import RATES, SMALLEST, made_table, tiny

ROWS = 200


def few_numbers(**changes: Any) -> FairSSVAERegressor:
    chosen = {"lambdas": (0.0, 1.0), "epochs": 2, "hidden": 8, "layers": 1, "intervals": "given_h",
              "options": SMALLEST}  # fmt: skip
    return FairSSVAERegressor(**chosen | changes)


def logistic(**changes: Any) -> FairDecisions:
    return FairDecisions(LogisticRegression(), targets=(0.1, 0.05), folds=3, **changes)


KINDS = {
    "lambdas": lambda: tiny(),
    "targets": lambda: tiny(lambdas=None, targets=(0.2, 0.05), trunk="mlp"),
    "decisions": logistic,
    "regressor": few_numbers,
}


def given(rows: int = ROWS, numbers: bool = False) -> tuple[pd.DataFrame, Any, Any]:
    table = made_table(rows)
    X = table.X.select_dtypes("number")
    return X, X.iloc[:, 0] + X.iloc[:, 1] if numbers else table.y_obs, table.a_obs


@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_change_nothing_and_zeros_are_absent(kind: str) -> None:
    X, y, sex = given(numbers=kind == "regressor")
    plain = KINDS[kind]().fit(X, y, sensitive_features=sex)
    equal = KINDS[kind]().fit(X, y, sensitive_features=sex, sample_weight=np.full(ROWS, 2.0))
    assert np.array_equal(plain.predict(X), equal.predict(X))
    pd.testing.assert_frame_equal(plain.frontier_, equal.frontier_)
    pd.testing.assert_frame_equal(plain.channels_, equal.channels_)
    weight = np.where(np.arange(ROWS) % 10 == 0, 0.0, 1 + np.arange(ROWS) % 3)
    kept = weight > 0
    zeros = KINDS[kind]().fit(X, y, sensitive_features=sex, sample_weight=weight)
    absent = KINDS[kind]().fit(X[kept], y[kept], sensitive_features=sex[kept], sample_weight=weight[kept])
    assert np.array_equal(zeros.predict(X), absent.predict(X))
    pd.testing.assert_frame_equal(zeros.frontier_, absent.frontier_)
    assert not zeros.frontier_["error"].equals(plain.frontier_["error"])
    assert zeros.summary_["rows"] == kept.sum()


def test_cross_fitted_intervals_of_who_withholds_are_of_weighted_rows() -> None:
    """Those who state their group weigh a tenth, so that the odds of withholding are ten times as high."""
    X, y, sex = given()
    weight = np.where(sex.isna(), 10.0, 1.0)
    model = tiny(lambdas=(0.0,), trunk="mlp", intervals="calibrated")
    model.fit(X, y, sensitive_features=sex, sample_weight=weight)
    groups = model.channels_.query("what == 'group'")
    odds = 10 * np.array([rate / (1 - rate) for rate in RATES.values()])
    assert ((groups["low"] < odds / (1 + odds)) & (odds / (1 + odds) < groups["high"])).all()


def test_weights_undo_a_sample_that_depends_on_the_label() -> None:
    """People with the label are sampled a tenth as often: only weighted scores are those of everybody."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(12_000, 2))
    y = (draw.random(12_000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    a = (draw.random(12_000) < 1 / (1 + np.exp(-X[:, 1]))).astype(int)
    said = np.where(draw.random(12_000) < np.array([0.5, 0.2])[a], None, a.astype(str))
    chance = np.where(y == 1, 0.1, 1.0)
    kept = draw.random(12_000) < chance
    rows = X[kept], y[kept], said[kept]
    weighted, plain = logistic(), logistic()
    weighted.fit(*rows, sample_weight=1 / chance[kept])
    plain.fit(*rows)
    assert weighted.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.03)
    assert plain.predict_proba(X)[:, 1].mean() < 0.25
    shares = weighted.predict_groups_proba(X).mean(0)
    assert shares[1] == pytest.approx(a.mean(), abs=0.05)
    line = weighted.channels_.query("what == 'group'").iloc[0]
    assert line["low"] < 0.5 < line["high"]


def test_score_weighs_rows() -> None:
    X, y, sex = given()
    model = logistic().fit(X, y, sensitive_features=sex)
    weight = np.random.default_rng(0).integers(0, 3, ROWS)
    repeated = np.repeat(np.arange(ROWS), weight)
    assert model.score(X, y, sample_weight=weight) == pytest.approx(
        model.score(X.iloc[repeated], y.iloc[repeated])
    )
    with pytest.raises(InputError, match="negative"):
        model.score(X, y, sample_weight=-weight)


def test_a_pipeline_passes_weights_to_its_last_step_and_others_are_refused() -> None:
    X, y, sex = given()
    weight = 1.0 + np.arange(ROWS) % 3
    piped = FairDecisions(make_pipeline(StandardScaler(), LogisticRegression()), targets=(0.1,), folds=3)
    piped.fit(X, y, sensitive_features=sex, sample_weight=weight)
    for estimator in (KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())):
        with pytest.raises(InputError, match="KNeighborsClassifier takes no sample_weight"):
            FairDecisions(estimator, folds=3).fit(X, y, sensitive_features=sex, sample_weight=weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (np.zeros(ROWS), "zero in all 200 rows"),
        (np.ones(ROWS - 1), "expected one weight for each of 200 rows"),
        (np.full(ROWS, np.nan), "200 values that are NaN or infinite"),
        (-np.arange(ROWS), "199 negative values"),
    ],
)
def test_bad_weights_are_refused_before_anything_is_fitted(kind: str, weight: Any, says: str) -> None:
    X, y, sex = given(numbers=kind == "regressor")
    with pytest.raises(InputError, match=says):
        KINDS[kind]().fit(X, y, sensitive_features=sex, sample_weight=weight)


def test_weights_are_routed_as_metadata() -> None:
    X, y, sex = given()
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            logistic()
            .set_fit_request(sample_weight=True, sensitive_features=True)
            .set_score_request(sample_weight=True)
        )
        params = {"sample_weight": 1.0 + np.arange(ROWS) % 2, "sensitive_features": sex.to_numpy()}
        found = cross_validate(model, X, y.fillna("no"), params=params, cv=2, error_score="raise")
    assert np.isfinite(found["test_score"]).all()


def test_a_dummy_classifier_learns_weighted_shares() -> None:
    X, y, sex = given()
    weight = np.where(y == "yes", 4.0, 1.0)
    model = FairDecisions(DummyClassifier(), targets=(0.1,), folds=3)
    model.fit(X, y, sensitive_features=sex, sample_weight=weight)
    known = y.notna()
    share = np.average(y[known] == "yes", weights=weight[known])
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(share, abs=0.03)


def test_audits_of_numbers_weigh_rows() -> None:
    draw = np.random.default_rng(0)
    y, predicted, group = draw.normal(size=200), draw.normal(size=200), draw.integers(2, size=200)
    times = draw.integers(1, 4, size=200)
    again = np.repeat(np.arange(200), times)
    weighted = audit_numbers(y, predicted, group, sample_weight=times, clusters=np.arange(200))
    repeated = audit_numbers(y[again], predicted[again], group[again], clusters=again)
    columns = ["estimate", "low", "high"]
    for table in ("means", "differences"):
        one, other = (getattr(found, table)[columns].to_numpy() for found in (weighted, repeated))
        assert one == pytest.approx(other)
    alone = audit_numbers(y, predicted, group, clusters=np.arange(200)).means[columns]
    assert alone.to_numpy() == pytest.approx(audit_numbers(y, predicted, group).means[columns].to_numpy())
    assert "200 clusters" in str(weighted)
