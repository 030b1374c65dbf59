"""The regressor on tables as people have them: prediction, choice, withholding, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from pyro_fairvae import FairSSVAEClassifier, FairSSVAERegressor, InputError, load
from pyro_fairvae.estimator.loading import load_estimator
from pyro_fairvae.evaluation.number_metrics import evaluate_numbers
from tests.support.numbers import number_table
from tests.support.user_tables import SMALLEST


class Table:
    """A table of a user: text groups, gaps in the outcome, a column of text."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        made = number_table(rows, seed)
        self.X = pd.DataFrame(made.x, columns=list("pqrs")).assign(
            town=np.random.default_rng(seed).choice(["Ely", "Bath"], rows)
        )
        self.y, self.a = made.y, made.a
        self.y_obs = pd.Series(made.y_obs, name="pay")
        self.a_obs = pd.Series(np.array(["f", "m", None], dtype=object)[made.a_obs], name="sex")


def tiny(**changes: Any) -> FairSSVAERegressor:
    chosen = {"lambdas": (0.0, 3.0), "epochs": 3, "hidden": 8, "layers": 1, "intervals": "given_h",
              "options": SMALLEST}  # fmt: skip
    return FairSSVAERegressor(**chosen | changes)


@pytest.fixture(scope="module")
def table() -> Table:
    return Table(500)


@pytest.fixture(scope="module")
def fitted(table: Table) -> FairSSVAERegressor:
    options = SMALLEST | {"lr": 0.02, "channel_steps": 100, "prior_y": "truthful"}
    model = tiny(epochs=20, batch=64, hidden=16, options=options)
    return model.fit(table.X, table.y_obs, sensitive_features=table.a_obs)


def test_it_learns_from_gaps_and_larger_weights_are_fairer(fitted: FairSSVAERegressor) -> None:
    new = Table(1000, seed=9)
    bins = fitted.number_.bin_codes(new.y)
    found = []
    for weight in (0.0, 3.0):
        predicted = fitted.select(lambda_=weight).predict(new.X)
        found.append(evaluate_numbers(new.y, predicted, new.a, bins))
    assert found[0]["r2"] > 0.7
    assert found[0]["mean_gap"] > 2
    assert found[1]["mean_gap"] < found[0]["mean_gap"] / 1.5
    assert fitted.select(lambda_=0.0).score(new.X, new.y) == pytest.approx(found[0]["r2"])
    gaps = np.where(np.arange(1000) < 300, np.nan, new.y)
    weight = np.linspace(1, 2, 1000)
    expected = r2_score(new.y[300:], fitted.predict(new.X)[300:], sample_weight=weight[300:])
    assert fitted.score(new.X, gaps, weight) == pytest.approx(expected)


def test_frontier_is_in_the_unit_of_the_outcome(table: Table, fitted: FairSSVAERegressor) -> None:
    frontier = fitted.frontier_
    assert frontier["lambda"].tolist() == [0.0, 3.0]
    assert 1 < frontier["error"][0] < 2.2
    assert frontier["low"][0] < frontier["disparity"][0] < frontier["high"][0]
    scaled = tiny().fit(table.X, 100 * table.y_obs - 50, sensitive_features=table.a_obs)
    plain = tiny().fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    np.testing.assert_allclose(scaled.predict(table.X), 100 * plain.predict(table.X) - 50, rtol=1e-4)
    for name in ("error", "disparity", "standard_error"):
        np.testing.assert_allclose(scaled.frontier_[name], 100 * plain.frontier_[name], rtol=1e-3)


def test_intervals_cover_as_they_say(fitted: FairSSVAERegressor) -> None:
    new = Table(1500, seed=5)
    model = fitted.select(lambda_=0.0)
    for confidence in (0.5, 0.9):
        low, high = model.predict_interval(new.X, confidence).T
        assert np.mean((low <= new.y) & (new.y <= high)) == pytest.approx(confidence, abs=0.12)


def test_selection(fitted: FairSSVAERegressor) -> None:
    fairest = float(fitted.frontier_["disparity"].min())
    assert fitted.select(fairest * 1.01).selected_ == int(fitted.frontier_["disparity"].idxmin())
    with pytest.raises(InputError, match="no member has a disparity of at most"):
        fitted.select(fairest / 10)
    with pytest.raises(InputError, match=r"no member has λ = 7"):
        fitted.select(lambda_=7)
    with pytest.raises(InputError, match="exactly one of them"):
        fitted.select()


def test_channels_name_groups_and_levels(fitted: FairSSVAERegressor) -> None:
    channels = fitted.channels_
    levels = channels[channels["what"] == "label"]
    assert len(levels) == len(fitted.number_.levels.names)
    assert set(levels["of"]) == set(fitted.number_.levels.names)
    of_groups = channels.set_index("of")["withheld"]
    assert of_groups["f"] > of_groups["m"]
    # Large outcomes are withheld more.
    assert levels["withheld"].iloc[-1] > levels["withheld"].iloc[0] + 0.1


def test_calibrated_intervals_of_both_channels(table: Table) -> None:
    model = tiny(epochs=2, intervals="calibrated").fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    rates = model.channels_.set_index("of")
    assert (rates["low"] < rates["high"]).all()
    assert 0.55 < rates.loc["f", "withheld"] < 0.85
    assert 0.25 < rates.loc["m", "withheld"] < 0.55
    assert model.withholding_check_ is not None
    withheld = table.y_obs.isna().mean()  # at one rate, whatever the outcome is
    label = model.channels_.query("what == 'label'").iloc[0]
    assert len(model.channels_) == 3
    assert label["low"] < withheld < label["high"]


def test_a_saved_model_predicts_the_same(table: Table, fitted: FairSSVAERegressor, tmp_path: Path) -> None:
    fitted.select(lambda_=3.0).save(tmp_path / "model")
    for opened in (
        FairSSVAERegressor.load(tmp_path / "model", device="cpu"),
        load_estimator(tmp_path / "model", "cpu"),
        pickle.loads(pickle.dumps(fitted)),
    ):
        assert isinstance(opened, FairSSVAERegressor)
        np.testing.assert_array_equal(opened.predict(table.X), fitted.predict(table.X))
        np.testing.assert_array_equal(opened.predict_interval(table.X), fitted.predict_interval(table.X))
        np.testing.assert_array_equal(
            opened.predict_groups_proba(table.X, table.a_obs),
            fitted.predict_groups_proba(table.X, table.a_obs),
        )
        pd.testing.assert_frame_equal(opened.frontier_, fitted.frontier_)
        assert opened.number_ == fitted.number_
        assert opened.get_params()["lambdas"] in ([0.0, 3.0], (0.0, 3.0))
    assert load(tmp_path / "model").number == fitted.number_
    with pytest.raises(InputError, match="open it by FairSSVAERegressor"):
        FairSSVAEClassifier.load(tmp_path / "model", device="cpu")
    y = np.where(np.arange(500) % 2, "yes", "no")
    small = {"epochs": 1, "hidden": 4, "layers": 1, "intervals": "given_h", "options": SMALLEST}
    classes = FairSSVAEClassifier(lambdas=(0.0,), trunk="mlp", **small).fit(table.X, y, table.a_obs)
    classes.save(tmp_path / "classes")
    with pytest.raises(InputError, match="it is a model of classes; open it by FairSSVAEClassifier"):
        FairSSVAERegressor.load(tmp_path / "classes", device="cpu")


def test_an_interrupted_fit_resumes(table: Table, tmp_path: Path) -> None:
    whole = tiny().fit(table.X, table.y_obs, sensitive_features=table.a_obs)

    def stop(progress: Any) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    state = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        tiny(checkpoint=state, callback=stop).fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    resumed = tiny(checkpoint=state).fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    np.testing.assert_array_equal(resumed.predict(table.X), whole.predict(table.X))
    assert not state.exists()


def test_without_groups_one_member_is_fitted(table: Table) -> None:
    with pytest.warns(UserWarning, match="no sensitive_features were given"):
        model = tiny().fit(table.X, table.y_obs)
    assert model.groups_ == ()
    assert model.frontier_["disparity"].isna().all()
    assert model.fit_.lambdas == (0.0,)


def test_proxies_are_needed_in_fitting_alone(table: Table) -> None:
    model = tiny(epochs=1, proxies=("town",)).fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    np.testing.assert_array_equal(model.predict(table.X), model.predict(table.X.drop(columns="town")))


def with_value(value: Any) -> Any:
    def change(y: pd.Series) -> pd.Series:
        changed = y.astype(object).copy()
        changed.iloc[0] = value
        return changed

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_value(np.inf), "y contains infinity in 1 rows"),
        (with_value("many"), "where numbers are predicted. For classes use FairSSVAEClassifier"),
        (lambda y: y.map(lambda v: "high" if v > 5 else "low"), "For classes use FairSSVAEClassifier"),
        (lambda y: y * 0 + 3, "y is 3.0 in all rows that state it"),
        (lambda y: y.where(np.arange(len(y)) < 60), "predicting a number needs 50 or more"),
        (lambda y: y * np.nan, "y is stated in 0 of 500 rows"),
        (lambda y: pd.Series(pd.Timestamp("2020-01-01"), y.index), "where numbers are predicted"),
        (lambda y: y[:-1], "inconsistent numbers of samples"),
    ],
)
def test_outcomes_that_cannot_be_learned(table: Table, change: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        tiny().fit(table.X.to_numpy()[:, :4].astype(float), change(table.y_obs), table.a_obs.to_numpy())
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk": "deo"}, "'deo' needs classes, but the outcome is a number; choose one of mean_gap"),
        ({"max_disparity": -1.0}, "max_disparity must not be negative"),
        ({"withholding_depends_on": ("label",)}, "not on an outcome that is a number"),
        ({"lambdas": ("much",)}, "lambdas must be numbers"),
    ],
)
def test_parameters_that_cannot_be_used(table: Table, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        tiny(**options).fit(table.X, table.y_obs, sensitive_features=table.a_obs)
    assert words in str(raised.value)


def test_two_numbers_may_be_classes(table: Table) -> None:
    with pytest.warns(UserWarning, match="two different numbers, 0 and 1; if they are classes"):
        tiny(epochs=1).fit(table.X, (table.y > 5).astype(int), sensitive_features=table.a_obs)
