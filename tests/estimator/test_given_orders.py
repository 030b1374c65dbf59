"""Rows in another order than X, masks, probabilities that are none: the same model, or a clear refusal."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator import table_classifier
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.validation import check_groups
from tests.support.user_tables import made_table, tiny

MADE = made_table(120)
NAMES = pd.Index([f"person {n}" for n in range(120)])
X, Y, A = MADE.X.set_axis(NAMES), MADE.y_obs.set_axis(NAMES), MADE.a_obs.set_axis(NAMES)


class Percent(LogisticRegression):
    """A classifier whose probabilities are none."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return 100 * super().predict_proba(X)


def models() -> list[FairSSVAEClassifier | FairDecisions]:
    return [tiny(trunk="mlp", epochs=1), FairDecisions(folds=2, targets=[0.1])]


@pytest.mark.filterwarnings("ignore")
def test_labels_and_groups_follow_the_index_of_x() -> None:
    plain = tiny(trunk="mlp", epochs=1).fit(X, Y.to_numpy(), A.to_numpy())
    shuffled = Y.sample(frac=1, random_state=1), A.to_frame().sample(frac=1, random_state=2)
    found = tiny(trunk="mlp", epochs=1).fit(X, *shuffled)
    np.testing.assert_array_equal(found.predict_proba(X), plain.predict_proba(X))
    assert found.score(X, shuffled[0]) == plain.score(X, Y.to_numpy())
    asked = found.predict_groups_proba(X, A.sample(frac=1, random_state=3))
    np.testing.assert_array_equal(asked, plain.predict_groups_proba(X, A.to_numpy()))
    rows, expected = found.observed(X, *shuffled), plain.observed(X, Y.to_numpy(), A.to_numpy())
    assert rows.y_obs.tolist() == expected.y_obs.tolist()
    assert rows.a_obs.tolist() == expected.a_obs.tolist()
    with pytest.raises(InputError, match="y and X have different indexes"):
        found.score(X, Y.rename(index=str.upper))


def test_both_estimators_code_labels_in_the_order_of_x(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without training: what is checked first is what would be trained with."""
    monkeypatch.setattr(table_classifier, "check_labels", seen)
    for model in models():
        with pytest.raises(Seen) as labels:
            model.fit(X, Y.sample(frac=1, random_state=1), A)
        pd.testing.assert_series_equal(labels.value.args[0], Y)
        with pytest.raises(InputError, match="y and X have different indexes"):
            model.fit(X, Y.rename(index=str.upper), A)
        with pytest.raises(InputError, match="sensitive_features and X have different indexes"):
            model.fit(X, Y, A.rename(index=str.upper))


class Seen(Exception):
    pass


def seen(y: pd.Series, rows: int) -> None:
    raise Seen(y)


def test_masks_of_arrays_are_gaps() -> None:
    numbers = MADE.X.select_dtypes("number").to_numpy()
    hidden = np.random.default_rng(0).random(numbers.shape) < 0.1
    masked, gaps = np.ma.array(numbers, mask=hidden), np.where(hidden, np.nan, numbers)
    labels, groups = (np.ma.array(true, mask=stated.isna()) for true, stated in ((MADE.y, Y), (MADE.a, A)))
    one = tiny(trunk="mlp", epochs=1).fit(masked, labels, groups)
    other = tiny(trunk="mlp", epochs=1).fit(gaps, MADE.y_obs, MADE.a_obs)
    np.testing.assert_array_equal(one.predict_proba(masked), other.predict_proba(gaps))
    assert one.score(masked, labels) == other.score(gaps, MADE.y_obs)


def test_dates_are_refused_before_anything_is_trained() -> None:
    days = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")[(MADE.y == "yes").astype(int)]
    for model in models():
        with pytest.raises(InputError, match="y holds dates, times or durations"):
            model.fit(X, days, A)
        assert not hasattr(model, "encoder_")


def test_probabilities_that_are_none_are_refused() -> None:
    numbers = MADE.X.select_dtypes("number").to_numpy()
    with pytest.raises(InputError, match="predict_proba of Percent must return probabilities of 2 classes"):
        FairDecisions(Percent(), folds=2).fit(numbers, MADE.y_obs, MADE.a_obs)


def test_more_groups_than_can_be_told_apart_are_refused() -> None:
    names = np.array([f"g{k}" for k in range(65)] * 20)
    with pytest.raises(InputError, match=r"sensitive_features make 65 groups; the most .* is 64. Join small"):
        check_groups(names, (), len(names))
    assert check_groups(names[names != "g7"], (), 64 * 20)[1].groups == 64
