"""Proxies of the group, and what withholding depends on: they reach training, never a decision."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from pyro_fairvae import FairDecisions
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator import network_estimator as estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.schema.observed import Observed
from tests.support.user_tables import Made, made_table, tiny

ROWS = 120


class TrainingBegan(Exception):
    """Raised in place of training."""


@pytest.fixture(scope="module")
def made() -> Made:
    """Rows with two proxies, a number and a category with gaps, among the features."""
    table = made_table(ROWS)
    draw = np.random.default_rng(5)
    is_f = table.a == "f"
    district = pd.Series(np.where(draw.random(ROWS) < 0.2 + 0.6 * is_f, "north", "south"))
    X = table.X.copy()
    X.insert(1, "district", district.mask(draw.random(ROWS) < 0.1))
    X["height"] = draw.normal(is_f, 1)
    return table._replace(X=X)


@pytest.fixture(scope="module")
def proba(made: Made) -> pd.DataFrame:
    """Probabilities of the groups that are calibrated, unknown in every tenth row."""
    draw = np.random.default_rng(6)
    f = np.where(made.a == "f", draw.beta(3, 2, size=ROWS), draw.beta(2, 3, size=ROWS))
    table = pd.DataFrame({"m": 1 - f, "f": f})
    table[::10] = np.nan
    return table


@pytest.fixture(scope="module")
def fitted(made: Made, proba: pd.DataFrame) -> FairSSVAEClassifier:
    model = tiny(proxies=("district", "height"), withholding_depends_on=("x1", "label"))
    return model.fit(made.X, made.y_obs, made.a_obs, proxy_proba=proba)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of training, which does not take place."""
    arguments: list[Any] = []

    def stop(*given: Any, **_: Any) -> None:
        arguments.extend(given)
        raise TrainingBegan

    monkeypatch.setattr(estimator, "fit", stop)
    return arguments


def outputs(model: FairSSVAEClassifier, X: Any, a_obs: Any) -> list[np.ndarray]:
    """Everything that a model says about rows."""
    rows = model.observed(X, None, a_obs)
    assert rows.u is None
    assert isinstance(rows.x, estimator.torch.Tensor)
    return [
        model.predict(X),
        model.predict_proba(X),
        model.decision_function(X),
        model.predict_groups_proba(X),
        model.predict_groups_proba(X, a_obs),
        rows.x.numpy(),
    ]


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_decisions_do_not_look_at_proxies(fitted: FairSSVAEClassifier, made: Made) -> None:
    """Absent, shuffled, missing or of another type: the outputs are bitwise the same."""
    expected = outputs(fitted, made.X, made.a_obs)
    others = (
        made.X.drop(columns=["district", "height"]),
        made.X.drop(columns="height"),
        made.X.assign(district=made.X["district"].sample(frac=1, random_state=0).to_numpy(), height=1e300),
        made.X.assign(district=3.5, height="nobody knows"),
        made.X.assign(district=np.nan, height=None),
    )
    for X in others:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(outputs(fitted, X, made.a_obs), expected)


def test_proxies_are_not_features(fitted: FairSSVAEClassifier, made: Made) -> None:
    features = [name for name in made.X if name not in ("district", "height")]
    assert list(fitted.feature_names_in_) == features == list(fitted.encoder_.names)
    assert fitted.n_features_in_ == len(features)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        by_place = fitted.predict_proba(made.X[features].to_numpy())
    np.testing.assert_array_equal(by_place, fitted.predict_proba(made.X))
    kinds = {column["name"]: column["kind"] for column in fitted.summary_["columns"]}
    assert kinds["district"] == "proxy (category)"
    assert kinds["height"] == kinds["log P(f)"] == kinds["log P(m)"] == "proxy (number)"
    assert [name for name, kind in kinds.items() if not kind.startswith("proxy")] == features


def test_proxies_reach_training(made: Made, proba: pd.DataFrame, seen: list[Any]) -> None:
    """u of training rows: standardised numbers, one-hot districts, logs of probabilities, and gaps."""
    model = tiny(proxies=("district", "height"), withholding_depends_on="x0")
    with pytest.raises(TrainingBegan):
        model.fit(made.X, made.y_obs, made.a_obs, proxy_proba=proba)
    train, validation, _, settings = seen[:4]
    assert isinstance(train, Observed)
    assert settings.withholding_depends_on == ("x0",)
    assert train.u_columns == validation.u_columns
    assert train.u_columns is not None
    assert train.u_columns.names == (
        "height", "log P(f)", "log P(m)", "district", "proxy_proba is known",
    )  # fmt: skip
    assert train.u_columns.blocks == (3, 2)
    assert train.columns.names == tuple(name for name in made.X if name not in ("district", "height"))
    u = np.concatenate([train.u, validation.u])
    height, gaps = u[:, train.u_columns.of("height")].ravel(), u[:, train.u_columns.of("district")][:, 2]
    standardised = (made.X["height"] - made.X["height"].mean()) / made.X["height"].std(ddof=0)
    np.testing.assert_allclose(np.sort(height), np.sort(standardised), rtol=1e-5)
    assert gaps.sum() == made.X["district"].isna().sum() > 0
    logs = np.log(proba["f"].fillna(proba["f"].mean()))
    found = u[:, train.u_columns.of("log P(f)")].ravel()
    np.testing.assert_allclose(
        np.sort(found), np.sort((logs - logs.mean()) / logs.std(ddof=0)), rtol=1e-4, atol=1e-6
    )
    assert u[:, train.u_columns.of("proxy_proba is known")].sum(0).tolist() == [12, 108]


def test_probabilities_alone_and_an_array_of_them(made: Made, proba: pd.DataFrame, seen: list[Any]) -> None:
    X = made.X.drop(columns=["district", "height"])
    tables = []
    for given in (proba, proba[["f", "m"]].to_numpy()):
        seen.clear()
        with pytest.raises(TrainingBegan):
            tiny().fit(X, made.y_obs, made.a_obs, proxy_proba=given)
        tables.append(seen[0])
    np.testing.assert_array_equal(tables[0].u, tables[1].u)
    assert tables[0].u_columns.names == ("log P(f)", "log P(m)", "proxy_proba is known")


def test_without_proxies_there_is_no_u(made: Made, seen: list[Any]) -> None:
    with pytest.raises(TrainingBegan):
        tiny().fit(made.X, made.y_obs, made.a_obs)
    assert seen[0].u is None
    assert seen[3].withholding_depends_on == ()


@pytest.mark.parametrize(("proxy", "of_new"), [("0", [1, 2, 3]), (2, [0, 1, 3]), ("3", [0, 1, 2])])
def test_columns_of_arrays_are_called_by_their_places(proxy: Any, of_new: list[int], made: Made) -> None:
    X = made.X[["x0", "x1", "x2", "height"]].to_numpy()
    model = tiny(epochs=1, proxies=[proxy]).fit(X, made.y_obs, made.a_obs)
    assert model.n_features_in_ == 3
    expected = model.predict_proba(X)
    other = X.copy()
    other[:, int(proxy)] = 1e9
    for new in (other, X[:, of_new], pd.DataFrame(other), pd.DataFrame(X[:, of_new]), X.tolist()):
        np.testing.assert_array_equal(model.predict_proba(new), expected)
    with pytest.raises(ValueError, match="X has 2 features"):
        model.predict(X[:, :2])


def test_a_stored_model_is_the_same(fitted: FairSSVAEClassifier, made: Made, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    expected = outputs(fitted, made.X, made.a_obs)
    for again in (FairSSVAEClassifier.load(tmp_path / "model", "cpu"), pickle.loads(pickle.dumps(fitted))):
        assert_same(outputs(again, made.X, made.a_obs), expected)
        assert_same(outputs(again, made.X.drop(columns=["district", "height"]), made.a_obs), expected)
        assert again.proxy_encoder_ == fitted.proxy_encoder_
        assert list(again.proxies) == ["district", "height"]
        assert list(again.withholding_depends_on) == ["x1", "label"]
        assert again.fit_.settings == fitted.fit_.settings
        assert again.summary_ == fitted.summary_
    again = clone(fitted)
    assert again.proxies == ("district", "height")
    assert not hasattr(again, "proxy_encoder_")


def test_a_fit_does_not_resume_with_other_proxies(made: Made, tmp_path: Path) -> None:
    """A checkpoint knows the proxies of its rows."""

    def interrupt(_: Any) -> None:
        raise TrainingBegan

    model = tiny(proxies=("height",), checkpoint=tmp_path / "state", callback=interrupt)
    X = made.X.drop(columns="district")
    with pytest.raises(TrainingBegan):
        model.fit(X, made.y_obs, made.a_obs)
    with pytest.raises(InputError, match="another"):
        clone(model).fit(X.assign(height=X["height"].to_numpy()[::-1]), made.y_obs, made.a_obs)
    with pytest.raises(TrainingBegan):
        clone(model).fit(X, made.y_obs, made.a_obs)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"proxies": ["x0"], "withholding_depends_on": ["x1", "x0"]}, "'x0' cannot be in both proxies and withh"),
    ({"proxies": ["distrct"]}, "unknown column for the parameter proxies 'distrct'.*mean 'district'"),
    ({"withholding_depends_on": ["hight"]}, "parameter withholding_depends_on 'hight'.*mean 'height'"),
    ({"proxies": ["sex"]}, "'sex' in proxies is the group itself"),
    ({"withholding_depends_on": ["sex"]}, "'sex' in withholding_depends_on is the group itself, on which"),
    ({"proxies": ["hired"]}, "'hired' in proxies is the label itself"),
    (
        {"withholding_depends_on": ["hired"]},
        "'hired' in withholding_depends_on is the label itself; wr",
    ),
]


@pytest.mark.parametrize("kind", [tiny, FairDecisions])
@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_names_are_refused(
    kind: Callable[..., Any], given: dict[str, Any], message: str, made: Made, seen: list[Any]
) -> None:
    with pytest.raises(InputError, match=message):
        kind(**given).fit(made.X, made.y_obs, made.a_obs)
    with pytest.raises(InputError, match=message):
        kind(**given).fit(made.X, made.y_obs, made.a_obs.to_frame())
    assert not seen


def test_a_copy_of_the_group_or_the_label_is_refused(made: Made, seen: list[Any]) -> None:
    X = made.X.assign(copied=made.a_obs, labels=made.y_obs, label=1, same=1)
    y, a = made.y_obs.to_numpy(object), made.a_obs.to_numpy(object)  # without names
    for given, message in (
        ({"proxies": ["copied"]}, "'copied' in proxies is the group itself"),
        ({"withholding_depends_on": ["labels"]}, "'labels' in withholding_depends_on is the label itself"),
        (
            {"withholding_depends_on": ["label"]},
            "'label' in .* is the label y, but X has a column",
        ),
    ):
        with pytest.raises(InputError, match=message):
            tiny(**given).fit(X, y, a)
    coded = X.assign(copied=made.a_obs.fillna("?"))
    with pytest.raises(InputError, match="'copied' in proxies is the group itself"):
        tiny(proxies=["copied"], missing_values=["?"]).fit(coded, y, made.a_obs.fillna("?"))
    assert not seen


def test_columns_that_say_nothing_have_no_role(made: Made, seen: list[Any]) -> None:
    X = made.X.assign(same=1)
    with (
        pytest.raises(InputError, match="'same' in withholding_depends_on says nothing and is not a feature"),
        pytest.warns(UserWarning, match="'same'"),
    ):
        tiny(withholding_depends_on=["same"]).fit(X, made.y_obs, made.a_obs)
    with (
        pytest.raises(InputError, match=r"none of the 1 columns can be used \('same'\): it has one value"),
        pytest.warns(UserWarning, match="'same'"),
    ):
        tiny(proxies=["same"]).fit(X, made.y_obs, made.a_obs)
    with pytest.raises(InputError, match=f"proxies name all {X.shape[1]} columns of X"):
        tiny(proxies=list(X)).fit(X, made.y_obs, made.a_obs)
    assert not seen


def test_probabilities_need_groups_and_names_of_their_own(made: Made, proba: pd.DataFrame) -> None:
    with (
        pytest.raises(InputError, match="proxy_proba has probabilities of groups, but no sensitive_features"),
        pytest.warns(UserWarning, match="no sensitive_features"),
    ):
        tiny().fit(made.X, made.y_obs, proxy_proba=proba)
    with (
        pytest.raises(InputError, match="withholding_depends_on are about the group, but no sensitive_feat"),
        pytest.warns(UserWarning, match="no sensitive_features"),
    ):
        tiny(withholding_depends_on=["label"]).fit(made.X, made.y_obs)
    X = made.X.rename(columns={"x0": "log P(f)"})
    with pytest.raises(InputError, match=r"several columns are called 'log P\(f\)'"):
        tiny().fit(X, made.y_obs, made.a_obs, proxy_proba=proba)
    wrong = proba.copy()
    wrong.loc[3] = 0.75
    with pytest.raises(InputError, match=r"proxy_proba sums to 1\.5 in row 3"):
        tiny().fit(made.X, made.y_obs, made.a_obs, proxy_proba=wrong)


def test_miscalibrated_probabilities_are_warned_of(seen: list[Any]) -> None:
    table = made_table(2000)
    wrong = np.where(table.a == "f", 0.1, 0.9)
    with (
        pytest.raises(TrainingBegan),
        pytest.warns(UserWarning, match="not calibrated: .*f: by"),
    ):
        tiny().fit(table.X, table.y_obs, table.a_obs, proxy_proba=np.column_stack([wrong, 1 - wrong]))


def test_a_parameter_is_not_given_twice(made: Made) -> None:
    with pytest.raises(InputError, match="withholding_depends_on given in options, but is a parameter"):
        tiny(options={"withholding_depends_on": ["x0"]}).fit(made.X, made.y_obs, made.a_obs)
