"""Fair decisions where withholding depends on more than the group, and with proxies, which never decide."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions, audit
from pyro_fairvae.base.errors import InputError
from tests.estimator.test_fair_decisions import simulated

RISE = 2.5  # of the log-odds of withholding, in the evening
PROXIES = ("street", "hat")
TARGETS = (0.1, 0.05)


def people(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """The simulation of the plain test; people withhold in the evening, and have two proxies."""
    X, label, _, group = simulated(rows, seed)
    draw = np.random.default_rng([seed, 1])
    woman = group == "f"
    X["time"] = np.where(evening := draw.random(rows) < 0.35 + 0.3 * woman, "evening", "morning")
    X.insert(0, "street", np.where(draw.random(rows) < 0.2 + 0.6 * woman, "north", "south"))
    X["hat"] = draw.normal(woman, 1)
    silent = draw.random(rows) < expit(-0.8 + 0.8 * woman + RISE * (evening - 0.5))
    return X, label, np.where(silent, None, group), group


def probabilities(X: pd.DataFrame) -> pd.DataFrame:
    """P(a|street), unknown in every tenth row."""
    north = (X["street"] == "north").to_numpy()
    f = np.where(north, 0.73, 0.14)
    f[::10] = np.nan
    return pd.DataFrame({"m": 1 - f, "f": f})


@pytest.fixture(scope="module")
def fitted() -> FairDecisions:
    X, label, stated, _ = people(2000, seed=0)
    model = FairDecisions(targets=TARGETS, folds=3, withholding_depends_on=("time", "label"), proxies=PROXIES)
    return model.fit(X, label, stated, proxy_proba=probabilities(X))


def outputs(model: FairDecisions, X: Any) -> list[np.ndarray]:
    return [
        model.predict(X),
        model.predict_proba(X),
        model.decision_function(X),
        model.predict_groups_proba(X),
    ]


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_makes_people_withhold_is_learned(fitted: FairDecisions) -> None:
    effects = {effect["column"]: effect["mean"] for effect in fitted.posterior_["effects"]}
    assert effects["time = evening"] - effects["time = morning"] == pytest.approx(RISE, abs=0.5)
    assert effects["label = yes"] - effects["label = no"] == pytest.approx(0, abs=0.5)
    assert "averaged over the people of the group" in fitted.posterior_["describes"]
    assert fitted.withholding_check_ is not None
    assert not fitted.withholding_check_.rejected


def test_the_imputed_disparity_is_that_of_everybody(fitted: FairDecisions) -> None:
    """Of unadjusted decisions on the rows of the fit, by the groups that were hidden."""
    _, label, _, group = people(2000, seed=0)
    decided = fitted.classes_[fitted._settling[0].label.argmax(1)]
    true = [[(decided[(label == c) & (group == g)] == c).mean() for c in ("no", "yes")] for g in ("f", "m")]
    assert fitted.frontier_["disparity"][0] == pytest.approx(np.abs(np.subtract(*true)).max(), abs=0.06)


def test_decisions_do_not_look_at_proxies(fitted: FairDecisions) -> None:
    """Absent, of other rows, missing or of another type: the outputs are bitwise the same."""
    X = people(300, seed=1)[0]
    expected = outputs(fitted, X)
    others = (
        X.drop(columns=list(PROXIES)),
        X.drop(columns="hat"),
        X.assign(street=X["street"].to_numpy()[::-1], hat=1e300),
        X.assign(street=3.5, hat="nobody knows"),
        X.assign(street=np.nan, hat=None),
    )
    for other in others:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(outputs(fitted, other), expected)
    assert not set(PROXIES) & set(fitted.feature_names_in_)
    kinds = {column["name"]: column["kind"] for column in fitted.summary_["columns"]}
    assert kinds["street"] == "proxy (category)"
    assert kinds["hat"] == kinds["log P(f)"] == "proxy (number)"


def test_a_classifier_does_not_see_proxies() -> None:
    X, label, stated, _ = people(300, seed=2)
    numbers = X[["skill", "hobby", "hat"]].fillna(0.0)
    other = numbers.assign(hat=1e9)
    for table, changed, name in (
        (numbers, other, "hat"),
        (numbers.to_numpy(), other.to_numpy(), "2"),
    ):
        model = FairDecisions(LogisticRegression(), targets=(0.1,), folds=2, proxies=(name,))
        model.fit(table, label, stated)
        assert {copy.n_features_in_ for copy in model.labeller_.copies} == {2}
        assert_same(outputs(model, table), outputs(model, changed))


def test_a_stored_model_is_the_same(fitted: FairDecisions, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    X = people(300, seed=1)[0]
    for again in (FairDecisions.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        assert_same(outputs(again, X), outputs(fitted, X))
        assert_same(outputs(again, X.drop(columns=list(PROXIES))), outputs(fitted, X))
        assert again.proxy_encoder_ == fitted.proxy_encoder_
        assert list(again.proxies) == list(PROXIES)
        assert list(again.withholding_depends_on) == ["time", "label"]
        assert again.summary_ == fitted.summary_
        assert all(again.posterior_[part] == fitted.posterior_[part] for part in ("a", "effects", "warnings"))


def test_an_audit_weighs_by_what_the_model_was_fitted_with(fitted: FairDecisions) -> None:
    X, label, stated, _ = people(800, seed=3)
    rows = X[list(fitted.feature_names_in_)]
    decided = fitted.predict(rows)
    of_model = audit(label, decided, stated, X=rows, model=fitted)
    named = audit(label, decided, stated, X=rows, model=fitted, withholding_depends_on=("time", "label"))
    pd.testing.assert_frame_equal(of_model.metrics, named.metrics)
    assert of_model.depends_on == "group, time, label"
    plain = audit(label, decided, stated, X=rows, model=fitted, withholding_depends_on=())
    assert not np.allclose(plain.metrics["estimate"], of_model.metrics["estimate"])


def test_with_confidence_the_audit_weighs_by_it(fitted: FairDecisions) -> None:
    """The least upper end is that of audits of the table as it was given."""
    X, label, stated, _ = people(2000, seed=0)
    rows = fitted._judged(fitted._adjustment)
    ends = [
        audit(
            label, fitted.classes_[decided], stated, X=X, groups_proba=rows.scores,
            withholding_depends_on=("time", "label"),
        ).metrics["high"]["deo"]
        for decided in rows.decided
    ]  # fmt: skip
    with pytest.raises(InputError, match=f"the least upper end is {min(ends):.3f}"):
        fitted.select(max_disparity=0.001, confidence=0.9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"proxies": ("street",)}, "but no sensitive_features were given"),
        ({"proxy_proba": np.full((100, 2), 0.5)}, "probabilities of groups, but no sensitive_features"),
    ],
)
def test_roles_without_groups_are_refused(given: dict[str, Any], message: str) -> None:
    X, label, _, _ = people(100, seed=0)
    known = {"proxy_proba": given.pop("proxy_proba", None)}
    with pytest.raises(InputError, match=message):
        FairDecisions(**given).fit(X, label, **known)
