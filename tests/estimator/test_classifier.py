"""The classifier with scikit-learn's interface, on tables whose truth is known."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator import network_estimator as estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.inference.training import Progress
from tests.support.user_tables import LABEL_RATE, RATES, SMALL, SMALLEST, Made, made_table, tiny

WEIGHTS = (0.0, 0.4, 1.6)


@pytest.fixture(scope="module")
def fitted() -> FairSSVAEClassifier:
    """A fit on 2,000 rows. Tests select members as they like."""
    made = made_table(2000)
    model = tiny(lambdas=WEIGHTS, epochs=10, hidden=32, layers=2, intervals="calibrated",
                 options=SMALL | {"channel_steps": 50, "decision_steps": 100})  # fmt: skip
    return model.fit(made.X, made.y_obs, sensitive_features=made.a_obs)


@pytest.fixture(scope="module")
def new() -> Made:
    return made_table(4000, seed=1)


@pytest.fixture
def small() -> Made:
    return made_table(80)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be trained."""
    monkeypatch.setattr(estimator, "fit", lambda *_, **__: pytest.fail("training began"))


def deo(decided: np.ndarray, y: np.ndarray, a: np.ndarray) -> float:
    """The largest gap between two groups in P(ŷ = y | y, a), of true labels and groups."""
    rates = {(c, g): np.mean(decided[(y == c) & (a == g)] == c) for c in ("no", "yes") for g in ("f", "m")}
    return max(abs(rates[c, "f"] - rates[c, "m"]) for c in ("no", "yes"))


# What is learned, against the truth.


def test_the_risk_lowers_true_disparity_at_little_cost(fitted: FairSSVAEClassifier, new: Made) -> None:
    decided = {weight: fitted.select(lambda_=weight).predict(new.X) for weight in WEIGHTS}
    gap = {weight: deo(decided[weight], new.y, new.a) for weight in WEIGHTS}
    accuracy = {weight: np.mean(decided[weight] == new.y) for weight in WEIGHTS}
    assert gap[0.0] > 0.15
    assert gap[1.6] < 0.5 * gap[0.0]
    assert gap[1.6] < gap[0.0] - 0.1
    assert accuracy[0.0] > 0.8
    assert accuracy[1.6] > accuracy[0.0] - 0.04


def test_intervals_of_withholding_hold_the_true_rates(fitted: FairSSVAEClassifier) -> None:
    channels = fitted.channels_.set_index(["what", "of"])
    truth = {("group", g): rate for g, rate in RATES.items()}
    truth |= {("label", c): LABEL_RATE for c in ("no", "yes")}
    assert set(channels.index) == set(truth)
    for which, rate in truth.items():
        line = channels.loc[which]
        assert line["low"] < line["withheld"] < line["high"]
        # A 90 % interval, widened by its half, as four are asked to hold at once.
        slack = 0.25 * (line["high"] - line["low"])
        assert line["low"] - slack < rate < line["high"] + slack
        assert line["high"] - line["low"] < 0.15


def test_the_frontier_is_of_held_out_rows(fitted: FairSSVAEClassifier, new: Made) -> None:
    frontier = fitted.frontier_
    assert list(frontier["lambda"]) == list(WEIGHTS)
    assert fitted.summary_["held_out_rows"] == 300
    for weight, error in zip(frontier["lambda"], frontier["error"], strict=True):
        truth = 1 - np.mean(fitted.select(lambda_=weight).predict(new.X) == new.y)
        assert error == pytest.approx(truth, abs=4 * (0.2 * 0.8 / 240) ** 0.5)


# What the methods say of each other.


def trained_scores(model: FairSSVAEClassifier, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """P_f(y|x), (rows, classes), and P(y, a|x), (rows, classes, groups), of the selected member's heads."""

    def softmax(logits: torch.Tensor) -> np.ndarray:
        exponent = np.exp(logits[model.selected_].double().numpy())
        return exponent / exponent.sum(-1, keepdims=True)

    (heads,) = model.fit_.heads(model.observed(X).x)
    cells = softmax(heads.label_logits)[..., None] * softmax(heads.group_logits_by_label)
    return softmax(heads.class_logits), cells


@pytest.mark.parametrize("weight", WEIGHTS)
def test_probabilities_are_those_of_the_classifier_as_trained(
    fitted: FairSSVAEClassifier, new: Made, weight: float
) -> None:
    probability = fitted.select(lambda_=weight).predict_proba(new.X)
    assert probability.shape == (4000, 2)
    assert probability.min() > 0
    assert probability.max() < 1
    np.testing.assert_allclose(probability.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(probability, trained_scores(fitted, new.X)[0], rtol=1e-5)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_decisions_go_by_adjusted_scores(fitted: FairSSVAEClassifier, new: Made, weight: float) -> None:
    """P_f(c|x) + Σ ν(c, y, a) P(y, a|x), which is not the largest probability where λ is positive."""
    score = fitted.select(lambda_=weight).decision_function(new.X)
    decided = fitted.predict(new.X)
    assert score.shape == (4000,)
    np.testing.assert_array_equal(decided, np.where(score > 0, "yes", "no"))
    probability, cells = trained_scores(fitted, new.X)
    assert fitted.fit_.adjustment is not None
    nu = fitted.fit_.adjustment[fitted.selected_].double().numpy()
    expected = probability + np.einsum("rya,cya->rc", cells, nu)
    np.testing.assert_allclose(score, expected[:, 1] - expected[:, 0], atol=1e-4)
    likeliest = fitted.classes_[fitted.predict_proba(new.X).argmax(1)]
    assert (decided == likeliest).all() == (weight == 0)


def test_three_classes_and_three_groups() -> None:
    draw = np.random.default_rng(0)
    X, y, a = draw.normal(size=(90, 3)), draw.integers(3, size=90), draw.integers(3, size=90)
    model = tiny(lambdas=(0.0, 5.0)).fit(X + y[:, None], y, a)
    for weight in (0.0, 5.0):
        score = model.select(lambda_=weight).decision_function(X)
        assert score.shape == (90, 3)
        np.testing.assert_array_equal(model.classes_[score.argmax(1)], model.predict(X))
        np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, atol=1e-12)
    assert model.predict_groups_proba(X).shape == (90, 3)
    assert model.groups_ == ("0", "1", "2")


def test_thresholds_belong_to_decisions(small: Made) -> None:
    """A threshold τ decides for the last class where P_f exceeds τ, and P_f is the same at every τ."""
    models = {
        tau: tiny(lambdas=(0.0,), options=SMALLEST | {"thresholds": tau}).fit(
            small.X, small.y_obs, small.a_obs
        )
        for tau in (0.5, 0.7)
    }
    for tau, model in models.items():
        likely = model.predict_proba(small.X)[:, 1] > tau
        np.testing.assert_array_equal(model.predict(small.X), np.where(likely, "yes", "no"))
    np.testing.assert_array_equal(models[0.5].predict_proba(small.X), models[0.7].predict_proba(small.X))
    assert (models[0.5].predict(small.X) != models[0.7].predict(small.X)).any()


def test_decisions_as_trained_do_not_look_at_the_group(small: Made) -> None:
    """With refine_decisions 0 the heads of the group may say anything; otherwise decisions follow them."""
    changed = {}
    for refine in (0.0, 50.0):
        options = SMALLEST | {"refine_decisions": refine}
        model = tiny(lambdas=(5.0,), options=options).fit(small.X, small.y_obs, small.a_obs)
        scores, cells = model.decision_function(small.X), trained_scores(model, small.X)[1]
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, weights in model.fit_.program.guide.encoder.named_parameters():
                if "group" in name:  # of h(a|x) and r(a|x,y)
                    weights += 10 * torch.randn(weights.shape, generator=noise)
        assert np.abs(trained_scores(model, small.X)[1] - cells).max() > 0.3
        changed[refine] = (model.decision_function(small.X) != scores).any()
    assert changed == {0.0: False, 50.0: True}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_imputed_groups_follow_from_bayes_rule(fitted: FairSSVAEClassifier, new: Made, weight: float) -> None:
    """P(a|x, ∅) ∝ P(a|x) P(∅|a), with P(∅|a) as the summary of the same member's posterior has it."""
    fitted.select(lambda_=weight)
    prior = fitted.predict_groups_proba(new.X)
    given = fitted.predict_groups_proba(new.X, new.a_obs)
    rows = fitted.posterior_["members"][fitted.selected_]["a"]
    silent = np.array([rows[group]["unavailable"]["mean"] for group in fitted.groups_])
    expected = prior * silent
    expected /= expected.sum(1, keepdims=True)
    stated = new.a_obs.notna().to_numpy()
    np.testing.assert_allclose(given[~stated], expected[~stated], atol=2e-3)
    one_hot = (new.a_obs.to_numpy()[stated, None] == np.array(fitted.groups_)).astype(float)
    np.testing.assert_allclose(given[stated], one_hot, atol=1e-6)
    # And it is right: the group is known better than by the commoner one, and f withhold more often.
    right = np.array(fitted.groups_)[given[~stated].argmax(1)] == new.a[~stated]
    assert right.mean() > 0.85
    assert given[~stated].mean(0)[0] == pytest.approx(np.mean(new.a[~stated] == "f"), abs=0.06)


def test_score_ignores_rows_without_a_label(fitted: FairSSVAEClassifier, new: Made) -> None:
    decided, stated = fitted.predict(new.X), new.y_obs.notna().to_numpy()
    right = decided == new.y
    assert fitted.score(new.X, new.y_obs) == pytest.approx(right[stated].mean())
    weight = np.arange(4000.0)
    expected = np.average(right[stated], weights=weight[stated])
    assert fitted.score(new.X, new.y_obs, sample_weight=weight) == pytest.approx(expected)
    with pytest.raises(InputError, match="all labels are missing"):
        fitted.score(new.X, [None] * 4000)
    with pytest.raises(InputError, match="X has 4000 rows, but y 3"):
        fitted.score(new.X, ["no"] * 3)


def test_selecting_a_member(fitted: FairSSVAEClassifier) -> None:
    frontier = fitted.frontier_
    for k, weight in enumerate(WEIGHTS):
        assert fitted.select(lambda_=weight).selected_ == k
    for limit in (*frontier["disparity"], 1.0):
        within = frontier[frontier["disparity"] <= limit]
        assert fitted.select(limit).selected_ == within["error"].idxmin()
    with pytest.raises(InputError, match=r"no member has a disparity of at most 0.0.*Fit with larger"):
        fitted.select(0.0)
    with pytest.raises(InputError, match=r"no member has λ = 3; there are \[0.0, 0.4, 1.6\]"):
        fitted.select(lambda_=3)
    for given in ({}, {"max_disparity": 0.1, "lambda_": 0.4}):
        with pytest.raises(InputError, match="one of them"):
            fitted.select(**given)


def test_a_limit_that_no_member_keeps_is_said() -> None:
    made = made_table(200)
    with pytest.warns(UserWarning, match="no member has a disparity of at most 0 on held-out rows"):
        model = tiny(max_disparity=0, epochs=4).fit(made.X, made.y_obs, made.a_obs)
    assert model.selected_ == model.frontier_["disparity"].idxmin()
    model.set_params(max_disparity=1).fit(made.X, made.y_obs, made.a_obs)
    assert model.selected_ == model.frontier_["error"].idxmin()


def test_no_held_out_row_that_tells(small: Made) -> None:
    """Then no member is known to be more accurate or fairer, and the fit still ends."""
    y, a = (pd.Series([*values, *[None] * 78], dtype=object) for values in (("no", "yes"), ("f", "m")))
    model = tiny(max_disparity=1, epochs=1, options=SMALLEST | {"imputer": "stated"})
    with pytest.warns(UserWarning, match="no member has a disparity of at most 1"):
        model.fit(small.X, y, a)
    assert model.frontier_[["error", "disparity"]].isna().all(axis=None)
    assert set(model.predict(small.X)) <= {"no", "yes"}


# Among other tools.


def test_pickled_and_saved_models_decide_alike(
    fitted: FairSSVAEClassifier, new: Made, tmp_path: Path
) -> None:
    fitted.select(lambda_=1.6)
    joblib.dump(fitted, tmp_path / "model.joblib")
    fitted.save(tmp_path / "model")
    others = [
        pickle.loads(pickle.dumps(fitted)),
        joblib.load(tmp_path / "model.joblib"),
        FairSSVAEClassifier.load(tmp_path / "model", device="cpu"),
    ]
    for other in others:
        np.testing.assert_array_equal(other.predict_proba(new.X), fitted.predict_proba(new.X))
        for groups in (None, new.a_obs):
            found, expected = (m.predict_groups_proba(new.X, groups) for m in (other, fitted))
            np.testing.assert_array_equal(found, expected)
        pd.testing.assert_frame_equal(other.channels_, fitted.channels_)
        pd.testing.assert_frame_equal(other.frontier_, fitted.frontier_)
        assert other.get_params()["lambdas"] in (WEIGHTS, list(WEIGHTS))
        assert other.select(lambda_=0.0).predict(new.X).tolist() != fitted.predict(new.X).tolist()


def test_a_clone_is_unfitted_and_has_the_parameters(fitted: FairSSVAEClassifier) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    for deed in (copy.predict, copy.decision_function, copy.predict_proba, copy.predict_groups_proba):
        with pytest.raises(NotFittedError):
            deed([[0.0]])
    for deed in (copy.select, lambda: copy.score([[0.0]], [0]), lambda: copy.groups_, lambda: copy.channels_):
        with pytest.raises(NotFittedError):
            deed()


def test_pipeline_and_search_with_routed_groups(routing: None, small: Made) -> None:
    """Groups reach each fit, cut to its rows; gaps in labels ask for folds that are not stratified."""
    model = tiny(epochs=1).set_fit_request(sensitive_features=True)
    scaled = make_column_transformer((StandardScaler(), [f"x{j}" for j in range(8)]), remainder="drop")
    pipeline = make_pipeline(scaled, model)
    pipeline.fit(small.X, small.y_obs, sensitive_features=small.a_obs)
    assert pipeline[-1].groups_ == ("f", "m")
    assert set(pipeline.predict(small.X)) <= {"no", "yes"}
    search = GridSearchCV(model, {"hidden": [4, 8]}, cv=KFold(2), error_score="raise")
    search.fit(small.X, small.y_obs, sensitive_features=small.a_obs)
    assert search.best_estimator_.groups_ == ("f", "m")
    assert 0 <= search.best_score_ <= 1
    scores = cross_val_score(
        pipeline, small.X, small.y_obs, cv=KFold(2), params={"sensitive_features": small.a_obs},
        error_score="raise",
    )  # fmt: skip
    assert scores.shape == (2,)


# What may be passed.


@pytest.fixture(scope="module")
def expected() -> FairSSVAEClassifier:
    """A fit on the small table, its gaps as pandas has them."""
    made = made_table(80)
    return tiny(epochs=1).fit(made.X, made.y_obs, made.a_obs)


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA], ids=["None", "NaN", "NA"])
@pytest.mark.parametrize("kind", ["Series", "array", "list", "DataFrame"])
def test_groups_and_labels_in_every_form_are_the_same(
    small: Made, expected: FairSSVAEClassifier, gap: Any, kind: str
) -> None:
    forms = {
        "Series": lambda values: pd.Series(values, index=range(900, 980)),
        "array": lambda values: np.array(values, dtype=object),
        "list": list,
        "DataFrame": lambda values: pd.DataFrame({"it": values}),
    }
    y, a = ([gap if pd.isna(each) else each for each in part] for part in (small.y_obs, small.a_obs))
    found = tiny(epochs=1).fit(small.X, forms[kind](y), forms[kind](a))
    assert found.groups_ == ("f", "m")
    assert found.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(found.predict_proba(small.X), expected.predict_proba(small.X))
    np.testing.assert_array_equal(
        found.predict_groups_proba(small.X, forms[kind](a)),
        expected.predict_groups_proba(small.X, small.a_obs),
    )


def test_two_sensitive_columns_are_combined(small: Made) -> None:
    draw = np.random.default_rng(0)
    young = pd.Series(draw.random(80) < 0.5, dtype="boolean").mask(draw.random(80) < 0.2)
    both = pd.DataFrame({"sex": small.a_obs, "young": young})
    model = tiny().fit(small.X, small.y_obs, both)
    assert model.groups_ == ("f, False", "f, True", "m, False", "m, True")
    assert {"sex: f", "sex: m", "young: False", "young: True"} <= set(model.channels_["of"])
    found = model.predict_groups_proba(small.X, both)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    is_f = (small.a_obs == "f").to_numpy(dtype=bool, na_value=False)
    np.testing.assert_allclose(found[is_f, :2].sum(1), 1, atol=1e-6)
    certain = is_f & young.eq(True).fillna(False).to_numpy(dtype=bool)
    np.testing.assert_allclose(found[certain, 1], 1, atol=1e-6)


def test_words_that_mean_nothing_is_stated(small: Made) -> None:
    said = small.a_obs.fillna("prefer not to say")
    model = tiny(missing_values=("prefer not to say",)).fit(small.X, small.y_obs, said)
    expected = tiny().fit(small.X, small.y_obs, small.a_obs)
    assert model.groups_ == ("f", "m")
    np.testing.assert_array_equal(model.predict_proba(small.X), expected.predict_proba(small.X))
    np.testing.assert_array_equal(
        model.predict_groups_proba(small.X, said), expected.predict_groups_proba(small.X, small.a_obs)
    )


def test_without_groups_there_is_one_member_and_a_warning(small: Made) -> None:
    with pytest.warns(UserWarning, match="no sensitive_features were given: one member is fitted"):
        model = tiny().fit(small.X, small.y_obs)
    assert (model.groups_, list(model.frontier_["lambda"])) == ((), [0.0])
    assert set(model.channels_["what"]) == {"label"}
    with pytest.raises(InputError, match="knows no groups"):
        model.predict_groups_proba(small.X)


def test_tables_and_arrays_may_stand_for_each_other(small: Made) -> None:
    """As everywhere in scikit-learn: by place, and with its warning."""
    table = small.X.drop(columns="c")
    model = tiny(epochs=1).fit(table, small.y_obs, small.a_obs)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found = model.predict_proba(table.to_numpy())
    np.testing.assert_array_equal(found, model.predict_proba(table))
    model.fit(table.to_numpy(), small.y_obs, small.a_obs)
    with pytest.warns(UserWarning, match="X has feature names, but"):
        found = model.predict_proba(table)
    np.testing.assert_array_equal(found, model.predict_proba(table.to_numpy()))


# Repeating, interrupting, watching.


def test_the_same_seed_gives_the_same_model_and_another_does_not(small: Made) -> None:
    first, again, other = (
        tiny(random_state=seed).fit(small.X, small.y_obs, small.a_obs).predict_proba(small.X)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def interrupt_after_two(done: Progress) -> None:
    if done.epoch == 2:
        interrupt()


def test_an_interrupted_fit_goes_on_to_the_same_numbers(small: Made, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.pt"
    whole = tiny(epochs=4).fit(small.X, small.y_obs, small.a_obs)
    broken = tiny(epochs=4, checkpoint=path, callback=interrupt_after_two)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(small.X, small.y_obs, small.a_obs)
    with pytest.raises(InputError, match=r"checkpoint of another config: .*rows was"):
        clone(broken).fit(small.X[::-1], small.y_obs, small.a_obs)
    seen: list[int] = []
    broken.set_params(callback=lambda done: seen.append(done.epoch))
    broken.fit(small.X, small.y_obs, small.a_obs)
    assert seen == [3, 4]
    assert not path.exists()
    np.testing.assert_array_equal(broken.predict_proba(small.X), whole.predict_proba(small.X))
    pd.testing.assert_frame_equal(broken.channels_, whole.channels_)
    pd.testing.assert_frame_equal(broken.frontier_, whole.frontier_)


def test_an_interrupt_after_training_loses_nothing(
    small: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals may take as long as training, so the checkpoint stays until they are there."""
    model = tiny(checkpoint=tmp_path / "state.pt")
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "summarise", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(small.X, small.y_obs, small.a_obs)
    seen: list[int] = []
    model.set_params(callback=lambda done: seen.append(done.epoch))
    model.fit(small.X, small.y_obs, small.a_obs)
    assert seen == []
    expected = tiny().fit(small.X, small.y_obs, small.a_obs)
    np.testing.assert_array_equal(model.predict_proba(small.X), expected.predict_proba(small.X))


def test_a_fit_is_silent_unless_asked(small: Made, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    model = tiny(epochs=3, callback=lambda done: seen.append((done.epoch, done.epochs)))
    model.fit(small.X, small.y_obs, small.a_obs).predict(small.X)
    assert capfd.readouterr() == ("", "")
    assert seen == [(1, 3), (2, 3), (3, 3)]
    tiny(epochs=3, verbose=1).fit(small.X, small.y_obs, small.a_obs)
    out, err = capfd.readouterr()
    assert out == ""
    assert "fitting" in err
    assert "3/3" in err


# Input that cannot be used.

HALF = ["f", "m"] * 40


@pytest.mark.parametrize(
    ("changes", "given", "complaint"),
    [
        ({}, {"a": [None] * 80}, "nobody states 'group'.*all 80 values are missing"),
        ({}, {"a": ["f", None] * 40}, "has one value, 'f'"),
        ({}, {"a": pd.DataFrame({"s": HALF, "t": ["x"] * 80})}, "'t' of sensitive_features has one value"),
        ({}, {"y": ["no", None] * 40}, "y has one class, no"),
        ({}, {"y": [None] * 80}, "all 80 labels are missing"),
        ({}, {"y": [0.5, 1.5] * 40}, "Unknown label type: continuous"),
        ({}, {"y": range(80)}, "y has 80 values in 80 rows that state one; numbers and identifiers"),
        ({}, {"a": np.linspace(0, 1, 80)}, "make 80 groups, which 80 rows state; numbers and identifiers"),
        ({}, {"y": ["no", 1] * 40}, "mixes values of the kinds int, str"),
        ({}, {"y": [0.0, float("inf")] * 40}, "contains infinity"),
        ({}, {"y": HALF[:7]}, "80 rows of X, 7 labels"),
        ({}, {"y": None}, "requires y to be passed"),
        ({}, {"a": HALF[:7]}, "X has 80 rows, but sensitive_features 7"),
        ({}, {"X": [[0.0]] * 3, "y": [0, 1, 0], "a": HALF[:3]}, "n_samples=3 is too small"),
        ({}, {"X": [[0.0, float("inf")]] * 80}, "contains infinity"),
        ({}, {"X": np.zeros(80)}, "expected a 2D array"),
        ({}, {"X": np.zeros((80, 0))}, "0 feature"),
        ({}, {"X": pd.DataFrame(np.eye(80)[:, :2], columns=["u", "u"])}, "several columns are called 'u'"),
        ({"risk": "deoo"}, {}, "unknown risk 'deoo'.*Did you mean 'deo"),
        ({"options": {"latnt": 3}}, {}, "unknown option 'latnt'.*Did you mean 'latent'"),
        ({"options": {"risk": "ddp"}}, {}, "risk given in options, but is a parameter of the estimator"),
        ({"options": {"prior_a": "truthfull"}}, {}, "Did you mean 'truthful'"),
        ({"lambdas": (0.0, -1.0)}, {}, "finite and not negative, got -1"),
        ({"lambdas": (0.0, float("nan"))}, {}, "finite and not negative, got nan"),
        ({"lambdas": ()}, {}, "no λ was given"),
        ({"lambdas": 0.5}, {}, "lambdas must be numbers, one for each member, got 0.5"),
        ({"lambdas": ("none",)}, {}, "lambdas must be numbers"),
        ({"max_disparity": 1.5}, {}, r"max_disparity must be within \[0, 1\], got 1.5"),
        ({"validation_fraction": 1.0}, {}, r"validation_fraction must be within \(0, 1\), got 1.0"),
        ({"epochs": 0}, {}, "epochs must be at least 1, got 0"),
        ({"batch": 0}, {}, "batch must be at least 1, got 0"),
        ({"hidden": 0}, {}, "hidden must be at least 1"),
        ({"intervals": "narrow"}, {}, "unknown kind of intervals 'narrow'"),
        ({"device": "abacus"}, {}, "unknown device 'abacus'"),
        ({"checkpoint": "/proc/no/such/state.pt"}, {}, "cannot make the folder"),
    ],
)
def test_bad_input_is_told_before_training(
    untrained: None, small: Made, changes: dict[str, Any], given: dict[str, Any], complaint: str
) -> None:
    rows = {"X": small.X, "y": small.y_obs, "a": small.a_obs} | given
    if isinstance(rows["X"], list) and "contains" in complaint:
        rows["X"][0] = [1.0, 2.0]
    with pytest.raises(InputError, match=complaint):
        tiny(**changes).fit(rows["X"], rows["y"], rows["a"])


def test_columns_that_say_nothing_are_left_out_with_a_warning(small: Made) -> None:
    more = small.X.assign(same=7, empty=np.nan)
    with pytest.warns(UserWarning, match="'same': it has one value, 7; 'empty': all its values are missing"):
        model = tiny(epochs=1).fit(more, small.y_obs, small.a_obs)
    expected = tiny(epochs=1).fit(small.X, small.y_obs, small.a_obs)
    np.testing.assert_array_equal(model.predict_proba(more), expected.predict_proba(small.X))
    with (
        pytest.warns(UserWarning, match="'same'"),
        pytest.raises(InputError, match="none of the 2 columns can be used"),
    ):
        tiny().fit(more[["same", "empty"]], small.y_obs, small.a_obs)


def test_tables_that_the_model_cannot_decide_about(fitted: FairSSVAEClassifier, new: Made) -> None:
    with pytest.raises(InputError, match="lacks columns that the model was fitted with: 'x3'"):
        fitted.predict(new.X.drop(columns="x3"))
    with pytest.raises(InputError, match=r"'x3' \(is it 'x3b' now\?\)"):
        fitted.predict(new.X.rename(columns={"x3": "x3b"}))
    with pytest.raises(InputError, match="column 'x3' held numbers when the model was fitted"):
        fitted.predict(new.X.assign(x3="many"))
    with pytest.raises(InputError, match="column 'x3' contains infinity in 4000 rows"):
        fitted.predict(new.X.assign(x3=np.inf))
    with pytest.raises(InputError, match="X has 0 rows"):
        fitted.predict(new.X[:0])
    with pytest.raises(InputError, match="groups that the model does not know: 'x'; it knows 'f', 'm'"):
        fitted.predict_groups_proba(new.X, ["f", "x"] * 2000)
    with pytest.raises(InputError, match="X has 4000 rows, but sensitive_features 2"):
        fitted.predict_groups_proba(new.X, ["f", "m"])
    with pytest.raises(InputError, match="has 2 columns, but the model knows 1: sex"):
        fitted.predict_groups_proba(new.X, pd.DataFrame({"sex": new.a, "age": new.a}))


def test_gaps_and_new_categories_are_decided_about(fitted: FairSSVAEClassifier, new: Made) -> None:
    strange = new.X[:20].assign(c="never seen")
    strange.loc[:9, "x0"] = np.nan
    with pytest.warns(UserWarning, match="20 of 20 values of column 'c' were never seen in fitting"):
        assert set(fitted.predict(strange)) <= {"no", "yes"}
    strange["c"] = ["never seen"] * 5 + new.X["c"].tolist()[5:20]
    assert np.isfinite(fitted.predict_groups_proba(strange)).all()


def test_columns_that_have_numbers_for_names_are_known_by_them() -> None:
    made = made_table(60)
    named = made.X.set_axis(range(made.X.shape[1]), axis=1)
    model = tiny().fit(named, made.y_obs, made.a_obs)
    np.testing.assert_array_equal(model.predict_proba(named), model.predict_proba(named[named.columns[::-1]]))


def test_too_few_rows_for_cross_fitting_are_said(small: Made) -> None:
    few = small.X[:40], small.y_obs[:40], small.a_obs[:40]
    found = tiny(intervals="calibrated").fit(*few)
    assert found.summary_["training_rows"] < estimator.ENOUGH
    assert "too narrow" in found.posterior_["describes"]
    assert any("training rows" in words for words in found.posterior_["warnings"])
    assert found.withholding_check_ is None
    asked = tiny(intervals="given_h").fit(*few)  # who asks for them knows
    assert not asked.posterior_["warnings"]
