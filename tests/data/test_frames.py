"""Frames of other libraries, and estimators and audits of them, against the same of pandas."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions, FairSSVAERegressor, InputError, audit
from pyro_fairvae.data.frames import as_pandas, kind_of, like
from pyro_fairvae.data.table_encoder import TableEncoder
from tests.support.user_tables import SMALLEST, tiny

ROWS = 240
START = datetime.date(2020, 1, 1)


def columns() -> dict[str, list[Any]]:
    draw = np.random.default_rng(0)

    def gappy(values: list[Any]) -> list[Any]:
        return [None if gap else value for value, gap in zip(values, draw.random(ROWS) < 0.1, strict=True)]

    return {
        "age": draw.integers(18, 80, ROWS).tolist(),
        "children": gappy(draw.integers(0, 4, ROWS).tolist()),
        "pay": gappy(draw.normal(size=ROWS).tolist()),
        "citizen": gappy((draw.random(ROWS) < 0.5).tolist()),
        "town": gappy(draw.choice(["k", "l", "m"], ROWS).tolist()),
        "since": [
            datetime.date(2020, 1, 1) + datetime.timedelta(days=int(d)) for d in draw.integers(900, size=ROWS)
        ],
        "level": draw.choice(["low", "high"], ROWS).tolist(),
    }


LIBRARIES = {
    "polars": lambda data: pl.DataFrame(data).with_columns(pl.col("level").cast(pl.Enum(["low", "high"]))),
    "pyarrow": lambda data: pa.table(data | {"level": pa.array(data["level"]).dictionary_encode()}),
}


def of_pandas() -> pd.DataFrame:
    data = columns()
    frame = pd.DataFrame(data)
    frame["children"] = pd.array(data["children"], dtype="Int64")
    frame["since"] = pd.to_datetime(frame["since"])
    return frame.astype({"level": "category", "citizen": "boolean"})


def in_library(library: str) -> Any:
    return LIBRARIES[library](columns())


def column_in(library: str, values: list[Any]) -> Any:
    return pl.Series("said", values) if library == "polars" else pa.chunked_array([values])


def people() -> tuple[list[str], list[str | None]]:
    draw = np.random.default_rng(1)
    frame = of_pandas()
    sex = draw.choice(["f", "m"], ROWS)
    label = np.where(frame["age"] + 20 * (sex == "m") + draw.normal(0, 15, ROWS) > 60, "yes", "no")
    said = [None if gap else str(value) for value, gap in zip(sex, draw.random(ROWS) < 0.3, strict=True)]
    return label.tolist(), said


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_keep_their_kinds_and_gaps(library: str) -> None:
    found, wanted = as_pandas(in_library(library)), of_pandas()
    assert list(found.columns) == list(wanted.columns)
    assert found.isna().equals(wanted.isna())
    known, other = TableEncoder.learn(wanted), TableEncoder.learn(found)
    assert other == known
    assert [number.kind for number in other.numbers][-1] == "dates"
    assert np.array_equal(other.encode(found), known.encode(wanted))
    assert isinstance(found["level"].dtype, pd.CategoricalDtype)


def test_rarer_columns() -> None:
    when = datetime.datetime(2024, 5, 1, 12)
    frame = pl.DataFrame(
        {
            "small": pl.Series([1, None, 3], dtype=pl.UInt8), "big": [2**60 + 1, None, 0],
            "time": [when, None, when], "span": [datetime.timedelta(days=2), None, None],
            "nothing": [None, None, None], "word": ["a", None, "b"],
        }
    )  # fmt: skip
    found = as_pandas(frame)
    assert found["big"][0] == 2**60 + 1
    assert found["time"][0] == pd.Timestamp(when)
    assert found["span"][0] == pd.Timedelta(days=2)
    assert found["nothing"].isna().all()
    assert found["small"].tolist()[::2] == [1, 3]
    assert len(as_pandas(pl.DataFrame({"a": []}))) == 0


def test_what_is_no_frame_of_another_library_stays() -> None:
    for values in (np.eye(2), [1, 2], None, "word", pd.Series([1]), pd.DataFrame({"a": [1]}), 3.0):
        assert as_pandas(values) is values
    assert kind_of(np.eye(2), None, pd.Series([1])) is None
    assert kind_of(np.eye(2), pl.Series([1])) == "polars"
    table = pd.DataFrame({"a": [1.0, np.nan]})
    assert like(table, np.eye(2)) is table
    assert like(table, pl.DataFrame({"b": [1]}))["a"].to_list() == [1.0, None]
    assert as_pandas(nw.from_native(pl.DataFrame({"b": [1]})))["b"].tolist() == [1]


def test_a_lazy_frame_is_refused() -> None:
    label, said = people()
    with pytest.raises(InputError, match="X is a lazy frame, whose rows are not there yet; collect it first"):
        FairDecisions().fit(in_library("polars").lazy(), label, sensitive_features=said)


MAKE = {"decisions": lambda: FairDecisions(targets=(0.1,), folds=2), "network": lambda: tiny(trunk="mlp")}


@cache
def fitted_on_pandas(kind: str) -> Any:
    label, said = people()
    return MAKE[kind]().fit(
        of_pandas(), label, sensitive_features=said, sample_weight=1.0 + np.arange(ROWS) % 2
    )


@pytest.mark.parametrize(
    ("library", "kind"), [("polars", "decisions"), ("pyarrow", "decisions"), ("polars", "network")]
)
def test_estimators_take_them_and_give_them(library: str, kind: str) -> None:
    label, said = people()
    X, plain = in_library(library), of_pandas()
    given = column_in(library, label), column_in(library, said)
    weight = column_in(library, (1.0 + np.arange(ROWS) % 2).tolist())
    here = MAKE[kind]().fit(X, given[0], sensitive_features=given[1], sample_weight=weight)
    there = fitted_on_pandas(kind)
    assert np.array_equal(here.predict(X), there.predict(plain))
    assert np.array_equal(here.predict(plain), there.predict(X))
    assert list(here.feature_names_in_) == list(plain.columns)
    assert here.score(X, given[0]) == there.score(plain, label)
    found = here.predict_groups_proba(X)
    assert type(found) is type(X)
    frame = nw.from_native(found, eager_only=True)
    assert frame.columns == ["f", "m"]
    assert frame.to_numpy() == pytest.approx(there.predict_groups_proba(plain))
    assert isinstance(here.predict_groups_proba(plain), np.ndarray)


def test_a_classifier_within_is_given_tables_of_pandas() -> None:
    label, said = people()
    X = (
        in_library("polars")
        .select("age", "since", "level")
        .with_columns(pl.col("since").cast(pl.Int32), pl.col("level") == "low")
    )
    model = FairDecisions(LogisticRegression(max_iter=500), targets=(0.1,), folds=3)
    model.fit(X, pl.Series(label), sensitive_features=pl.Series("sex", said))
    assert list(model.labeller_.copies[0].feature_names_in_) == X.columns
    assert model.predict(X).shape == (ROWS,)


def test_the_regressor_takes_them() -> None:
    _, said = people()
    X = in_library("polars").drop("pay")
    y = in_library("polars")["pay"]
    small = {"lambdas": (0.0,), "epochs": 1, "hidden": 8, "layers": 1, "intervals": "given_h"}
    model = FairSSVAERegressor(**small, options=SMALLEST).fit(X, y, sensitive_features=pl.Series(said))
    assert model.predict(X).shape == (ROWS,)
    assert np.isfinite(model.score(X, y))


@pytest.mark.parametrize("library", LIBRARIES)
def test_audits_take_them_and_give_them(library: str) -> None:
    label, said = people()
    decided = np.random.default_rng(2).permutation(label).tolist()
    X = in_library(library)
    groups = X.select(["level"]) if library == "pyarrow" else X.select("level")
    here = audit(column_in(library, label), column_in(library, decided), column_in(library, said), X=X)
    there = audit(label, decided, said, X=of_pandas())
    assert str(here) == str(there).replace("group  ", "group  ")
    tables = here.tables()
    assert {type(table) for table in tables.values() if len(table)} == {type(X)}
    metrics = nw.from_native(tables["metrics"], eager_only=True)
    assert metrics["estimate"].to_list() == pytest.approx(there.metrics["estimate"].tolist())
    assert isinstance(there.tables()["metrics"], pd.DataFrame)
    assert there.tables(library)["rates"].shape == there.rates.shape
    assert audit(label, decided, groups).groups.index.tolist() == ["high", "low"]
    with pytest.raises(InputError, match="a table of 'abacus' cannot be made"):
        here.tables("abacus")
