"""A user's own table as features, against pandas, scikit-learn and values worked out by hand."""

from __future__ import annotations

import datetime
import json
import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.table_encoder import (
    FARTHEST,
    FEWEST_IN_CATEGORY,
    MOST_CATEGORIES,
    TableEncoder,
    as_frame,
)
from pyro_fairvae.data.user_table import CodedTable
from pyro_fairvae.schema.attributes import Attributes

ROWS = 60


def numbers_with_gaps(rows: int = ROWS) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"age": draw.normal(40, 12, rows), "income": draw.lognormal(9, 2, rows)})
    return table.mask(draw.random(table.shape) < 0.2)


def encoded(**columns: Any) -> np.ndarray:
    table = pd.DataFrame(columns)
    return TableEncoder.learn(table).encode(table)


def standardised(values: Any) -> np.ndarray:
    """One column after median and scale, as scikit-learn has it."""
    filled = SimpleImputer(strategy="median").fit_transform(np.asarray(values, dtype=float)[:, None])
    return StandardScaler().fit_transform(filled)[:, 0]


def test_numbers_are_imputed_and_standardised_as_scikit_learn_does() -> None:
    table = numbers_with_gaps()
    new = numbers_with_gaps(200).iloc[ROWS:] * 3 + 1
    encoder = TableEncoder.learn(table)
    imputer = SimpleImputer(strategy="median").fit(table)
    scaler = StandardScaler().fit(imputer.transform(table))
    for each in (table, new):
        np.testing.assert_allclose(
            encoder.encode(each)[:, :2], scaler.transform(imputer.transform(each)), rtol=1e-5, atol=1e-6
        )


def test_gaps_are_flagged_in_blocks_of_their_own() -> None:
    table = numbers_with_gaps().assign(whole=np.arange(ROWS))
    encoder = TableEncoder.learn(table)
    assert encoder.blocks == (("age is missing", 2), ("income is missing", 2))
    assert encoder.columns.numbers == 3
    flags = encoder.encode(table)[:, 3:]
    for j, name in enumerate(("age", "income")):
        expected = pd.get_dummies(table[name].isna()).to_numpy(float)
        np.testing.assert_array_equal(flags[:, 2 * j : 2 * j + 2], expected)
    # A gap where none was seen takes the median, and there is no place to say so.
    gap = encoder.encode(table.assign(whole=np.nan))
    np.testing.assert_allclose(gap[:, 2], 0, atol=1e-6)  # the median of 0, …, 59 is their mean


def test_a_constant_with_gaps_says_where_the_gaps_are() -> None:
    table = pd.DataFrame({"x": [0.1, np.nan, 0.1, 0.1, np.nan, 0.1, 0.1]})
    encoder = TableEncoder.learn(table)
    x = encoder.encode(table)
    np.testing.assert_allclose(x[:, 0], 0, atol=1e-6)
    np.testing.assert_array_equal(x[:, 2], table["x"].isna())
    # Rounding is no deviation: another value does not come out as astronomical.
    assert encoder.encode(pd.DataFrame({"x": [1.1]}))[0, 0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([True, False, True, True]),
        pd.Series([True, False, None, True], dtype="boolean"),
        pd.Series([1, 2, None, 5], dtype="Int64"),
        pd.Series([1, 2, None, 5], dtype="Float64"),
        pd.Series([1, 2, 3, 5], dtype="uint8"),
        pd.Series([1, 2.5, None, 5], dtype=object),
        pd.Series([1, 2.5, pd.NA, 5], dtype=object),
        pd.Series([True, False, None, True], dtype=object),
        pd.Series([Decimal("1.5"), Decimal(2), None, Decimal(7)], dtype=object),
        pd.Series(pd.arrays.SparseArray([0.0, 1.0, 0.0, 4.0])),
        pd.Series([1, 2, None, 5], dtype="int64[pyarrow]"),
        pd.Series([1.5, 2, None, 5], dtype="double[pyarrow]"),
        pd.Series([True, False, None, True], dtype="bool[pyarrow]"),
    ],
    ids=lambda column: f"{column.dtype}-{column.iloc[-1]!r}",
)
def test_numbers_of_every_type_become_the_same_numbers(column: pd.Series) -> None:
    table = pd.DataFrame({"x": column})
    encoder = TableEncoder.learn(table)
    plain = [np.nan if pd.isna(value) else float(value) for value in column]
    x = encoder.encode(table)
    np.testing.assert_allclose(x[:, 0], standardised(plain), rtol=1e-6)
    assert x.shape[1] == (3 if np.isnan(plain).any() else 1)
    # The same values in another type are the same at prediction.
    np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"x": plain})), x)
    np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"x": pd.Series(plain, dtype=object)})), x)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_days_in_whatever_unit_they_are_kept(unit: str) -> None:
    days = np.array([0.0, 1.0, 5.5, 40.0])
    dates = pd.Series(pd.Timestamp("1999-12-30") + pd.to_timedelta(days * 86400, unit="s"))
    dates[4] = pd.NaT
    encoder = TableEncoder.learn(pd.DataFrame({"when": dates.astype("datetime64[us]")}))
    expected = standardised([*days, np.nan])
    for each in (
        dates.astype(f"datetime64[{unit}]"),
        dates.dt.tz_localize("UTC"),
        dates.astype(object),
        dates.astype(f"timestamp[{unit}][pyarrow]"),
    ):
        x = encoder.encode(pd.DataFrame({"when": each}))
        np.testing.assert_allclose(x[:, 0], expected, rtol=1e-5)
        np.testing.assert_array_equal(x[:, 2], [0, 0, 0, 0, 1])


def test_days_without_a_time_are_dates() -> None:
    days = [datetime.date(2020, 1, 1), None, datetime.date(2020, 2, 1), datetime.date(1020, 2, 1)]
    plain = [np.nan if day is None else day.toordinal() for day in days]
    for each in (days, pd.Series(days, dtype="date32[pyarrow]")):
        np.testing.assert_allclose(encoded(day=each)[:, 0], standardised(plain), rtol=1e-6)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_durations_are_numbers(unit: str) -> None:
    plain = [1.0, 5.0, np.nan, 90.0]
    lasting = pd.Series(pd.to_timedelta(plain, unit="s")).astype(f"timedelta64[{unit}]")
    for each in (lasting, lasting.astype(object), lasting.astype(f"duration[{unit}][pyarrow]")):
        np.testing.assert_allclose(encoded(lasting=each)[:, 0], standardised(plain), rtol=1e-6)


def words(rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(1).choice(["b", "a", "d", "c"], rows)


@pytest.mark.parametrize(
    "convert",
    [
        lambda w: w.astype(object),
        lambda w: w.astype("string"),
        lambda w: w.astype("category"),
        lambda w: w.astype(pd.CategoricalDtype(["d", "zzz", "c", "b", "a"], ordered=True)),
    ],
    ids=["object", "string", "category", "ordered"],
)
def test_words_are_dummies_as_pandas_has_them(convert: Any) -> None:
    column = pd.Series(words()).mask(np.arange(ROWS) % 7 == 0)
    expected = pd.get_dummies(column.astype(object), dummy_na=True).to_numpy(float)
    table = pd.DataFrame({"w": convert(column)})
    encoder = TableEncoder.learn(table)
    np.testing.assert_array_equal(encoder.encode(table), expected)  # categories that nobody has take no place
    np.testing.assert_array_equal(encoder.encode(pd.DataFrame({"w": column.astype(object)})), expected)


def test_unseen_words_and_gaps_are_nowhere_if_there_is_no_place_for_them() -> None:
    encoder = TableEncoder.learn(pd.DataFrame({"w": words()}))
    x = encoder.encode(pd.DataFrame({"w": ["a", "new", None, "d", np.nan, pd.NA]}))
    np.testing.assert_array_equal(x, [[1, 0, 0, 0], [0] * 4, [0] * 4, [0, 0, 0, 1], [0] * 4, [0] * 4])


def test_objects_of_mixed_types_are_known_by_their_words() -> None:
    mixed = [1, "1", 1.0, "a", None, True, [2], pd.NA]
    table = pd.DataFrame({"m": pd.Series(mixed, dtype=object)})
    by_word = pd.Series(["1", "1", "1", "a", None, "True", "[2]", None], dtype=object)
    np.testing.assert_array_equal(
        TableEncoder.learn(table).encode(table), pd.get_dummies(by_word, dummy_na=True).to_numpy(float)
    )


def test_rare_ones_of_many_categories_are_pooled() -> None:
    """10,000 categories: those of the most, by count, that have enough rows; all others are one."""
    draw = np.random.default_rng(2)
    column = pd.Series([f"c{each}" for each in np.minimum(draw.zipf(1.3, 40_000), 10_000)])
    column = pd.concat([column, pd.Series([f"c{k}" for k in range(1, 10_001)])], ignore_index=True)
    counts = column.value_counts()
    commonest = sorted(counts.index, key=lambda word: (-counts[word], word))[:MOST_CATEGORIES]
    assert counts[commonest].min() >= FEWEST_IN_CATEGORY
    table = pd.DataFrame({"c": column})
    encoder = TableEncoder.learn(table)
    pooled = column.where(column.isin(commonest), "~")  # which sorts last
    x = encoder.encode(table)
    assert x.shape[1] == MOST_CATEGORIES + 1
    np.testing.assert_array_equal(x, pd.get_dummies(pooled).to_numpy(float))
    unseen = encoder.encode(pd.DataFrame({"c": ["never seen"]}))
    assert unseen.argmax() == MOST_CATEGORIES
    assert unseen.sum() == 1


def test_a_category_of_too_few_rows_is_pooled_where_there_are_too_many() -> None:
    column = (
        ["often"] * FEWEST_IN_CATEGORY
        + ["seldom"] * (FEWEST_IN_CATEGORY - 1)
        + [f"once {k}" for k in range(MOST_CATEGORIES)]
    )
    table = pd.DataFrame({"c": column})
    expected = (table["c"] == "often").to_numpy(float)
    np.testing.assert_array_equal(
        TableEncoder.learn(table).encode(table), np.stack([expected, 1 - expected], 1)
    )


def test_columns_that_say_nothing_are_left_out_and_named() -> None:
    table = pd.DataFrame(
        {
            "x": np.arange(100.0),
            "nothing": None,
            "seven": 7,
            "third": 0.1 * np.array([3.0, 1 + 2]).repeat(50),
            "word": "same",
            "identity": [f"person {k}" for k in range(100)],
            "day": pd.Timestamp("2020-01-01"),
        }
    )
    with pytest.warns(UserWarning, match="left out") as caught:
        encoder = TableEncoder.learn(table)
    (told,) = (str(each.message) for each in caught)
    for part in (
        "'nothing': all its values are missing",
        "'seven': it has one value, 7",
        "'third': it has one value",
        "'word': it has one value, 'same'",
        "'identity': nearly every row has a value of its own (100)",
        "'day': it has one value, 2020-01-01",
    ):
        assert part in told
    assert [encoder.kind_of(name) for name in table] == ["number"] + ["left out"] * 6
    np.testing.assert_array_equal(encoder.encode(table), encoder.encode(table[["x"]]))  # nor asked for again


def test_large_numbers_that_differ_little_are_not_one_value() -> None:
    values = 1e15 + np.arange(20)
    np.testing.assert_allclose(encoded(x=values)[:, 0], standardised(np.arange(20)), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-290, 1e300, 1.7e308])
def test_huge_and_tiny_numbers_are_standardised(scale: float) -> None:
    plain = np.array([-1.0, 0.5, 1.0, np.nan, 0.25, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = encoded(x=plain * scale)
    np.testing.assert_allclose(x[:, 0], standardised(plain), rtol=1e-5, atol=1e-6)


def test_what_is_far_out_at_prediction_stays_finite() -> None:
    encoder = TableEncoder.learn(pd.DataFrame({"x": [-1.0, 1.0]}))
    x = encoder.encode(pd.DataFrame({"x": [1e300, -1e300, 10**30, 5.0]}))
    np.testing.assert_allclose(x[:, 0], [FARTHEST, -FARTHEST, FARTHEST, 5])


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, 10**400])
def test_infinity_is_refused_in_learning_and_in_prediction(wrong: Any) -> None:
    good, bad = (pd.DataFrame({"x": pd.Series([1, 2, each], dtype=object)}) for each in (3, wrong))
    for call in (lambda: TableEncoder.learn(bad), lambda: TableEncoder.learn(good).encode(bad)):
        with pytest.raises(InputError, match="'x' contains infinity in 1 rows"):
            call()


def test_a_table_without_a_usable_column_is_refused() -> None:
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(InputError, match="none of the 2 columns can be used"),
    ):
        TableEncoder.learn(pd.DataFrame({"a": [1, 1], "b": [None, None]}))


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_names_must_differ(names: list[Any]) -> None:
    table = pd.DataFrame([[1, 2], [3, 4]], columns=names)
    with pytest.raises(InputError, match=f"several columns are called '{names[0]}'"):
        TableEncoder.learn(table)


def test_a_column_that_is_gone_is_named_with_the_one_that_may_be_it() -> None:
    table = numbers_with_gaps()
    encoder = TableEncoder.learn(table)
    with pytest.raises(InputError, match=r"lacks .*'income' \(is it 'Income' now\?\)"):
        encoder.encode(table.rename(columns={"income": "Income"}))
    with pytest.raises(InputError, match=r"fitted with: 'age'\."):  # 'income' is taken
        encoder.encode(table.drop(columns="age"))


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (["1", "2"], "'1'"),
        (pd.Series([3, "many"], dtype=object), "'many'"),
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "'2020-01-01 00:00:00'"),
        (pd.Categorical(["low", "high"]), "'low'"),
        ([1j, 2j], "'1j'"),
    ],
)
def test_numbers_that_are_words_or_dates_at_prediction_are_refused(column: Any, told: str) -> None:
    encoder = TableEncoder.learn(pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(InputError, match=f"'x' held numbers .* now holds values such as {told}"):
        encoder.encode(pd.DataFrame({"x": column}))


def test_dates_that_are_numbers_at_prediction_are_refused() -> None:
    encoder = TableEncoder.learn(pd.DataFrame({"x": pd.to_datetime(["2020-01-01", "2020-01-02"])}))
    with pytest.raises(InputError, match=r"'x' held dates .* such as '20200101'"):
        encoder.encode(pd.DataFrame({"x": [20200101]}))


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT])
def test_a_column_without_values_at_prediction_is_all_gaps(nothing: Any) -> None:
    table = numbers_with_gaps().assign(
        w=words(),
        when=pd.date_range("2020-01-01", periods=ROWS),
        lasting=pd.to_timedelta(np.arange(ROWS), unit="ns"),
    )
    encoder = TableEncoder.learn(table)
    x = encoder.encode(pd.DataFrame({name: pd.Series([nothing], dtype=object) for name in table}))
    medians = SimpleImputer(strategy="median").fit(table[["age", "income"]]).statistics_
    expected = [(medians[0] - encoder.numbers[0].mean) / encoder.numbers[0].deviation]
    np.testing.assert_allclose(x[0, :1], expected, rtol=1e-5)
    np.testing.assert_array_equal(x[0, 4:], [0, 1, 0, 1, 0, 0, 0, 0])


def test_more_columns_and_another_order_change_nothing() -> None:
    table = numbers_with_gaps().assign(w=words(), more="x", yet_more=1j)
    known = ["w", "age", "income"]
    encoder = TableEncoder.learn(table[known])
    x = encoder.encode(table[known])
    np.testing.assert_array_equal(encoder.encode(table[["more", "income", "yet_more", "age", "w"]]), x)
    shuffled = np.random.default_rng(0).permutation(ROWS)
    np.testing.assert_array_equal(encoder.encode(table.iloc[shuffled]), x[shuffled])


def test_names_of_features_find_their_columns() -> None:
    table = numbers_with_gaps().assign(w=words())
    encoder = TableEncoder.learn(table)
    x = encoder.encode(table)
    np.testing.assert_array_equal(x[:, encoder.columns.of("w")], pd.get_dummies(table["w"]).to_numpy(float))
    np.testing.assert_array_equal(x[:, encoder.columns.of("income is missing")][:, 1], table["income"].isna())


@pytest.fixture(scope="module")
def of_all_kinds() -> pd.DataFrame:
    many = [f"k{each}" for each in np.random.default_rng(3).integers(40, size=2 * ROWS)]
    return pd.DataFrame(
        {
            "third": np.arange(2 * ROWS) / 3,
            "gaps": [*numbers_with_gaps()["income"]] * 2,
            "when": pd.date_range("1970-01-01", periods=2 * ROWS, freq="31h"),
            "w": pd.Series([*words(), *words()]).mask(np.arange(2 * ROWS) % 5 == 0),
            "many": many,
            "own": ["own", "'quoted'", "ä\u2028", "", "None", "\\"] * (ROWS // 3),
            "one": 1,
        }
    )


@pytest.fixture(scope="module")
def learned(of_all_kinds: pd.DataFrame) -> TableEncoder:
    with pytest.warns(UserWarning, match="'one'"):
        return TableEncoder.learn(of_all_kinds, most_categories=20)


def test_an_encoder_out_of_json_is_the_same(of_all_kinds: pd.DataFrame, learned: TableEncoder) -> None:
    again = TableEncoder.from_dict(json.loads(json.dumps(learned.to_dict())))
    assert again == learned
    np.testing.assert_array_equal(again.encode(of_all_kinds), learned.encode(of_all_kinds))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["numbers"][0].update(deviation=0.0),
        lambda d: d["numbers"][0].update(mean=float("nan")),
        lambda d: d["numbers"][0].update(kind="words"),
        lambda d: d["numbers"][0].update(gaps=2),
        lambda d: d["numbers"][0].update(name="other"),
        lambda d: d["categories"][0].update(values=[1, 2]),
        lambda d: d["categories"][0].update(values=["a", "a"]),
        lambda d: d["names"].append("more"),
    ],
)
def test_a_description_that_was_tampered_with_is_refused(learned: TableEncoder, change: Any) -> None:
    content = json.loads(json.dumps(learned.to_dict()))
    change(content)
    with pytest.raises(InputError, match="not one that was learned"):
        TableEncoder.from_dict(content)


def test_arrays_are_tables_with_numbered_columns() -> None:
    array = np.array([[1, "a"], [2.5, "b"], [None, "a"]], dtype=object)
    encoder = TableEncoder.learn(as_frame(array))
    assert encoder.names == ("0", "1")
    assert [encoder.kind_of(name) for name in encoder.names] == ["number", "category"]
    np.testing.assert_allclose(
        encoder.encode(as_frame(array))[:, 0], standardised([1, 2.5, np.nan]), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        (np.ones(3), InputError, "Reshape your data"),
        (np.ones((2, 2, 2)), InputError, "2D"),
        (np.ones((2, 0)), InputError, "0 feature"),
        (np.ones((2, 2)) * 1j, InputError, "Complex data not supported"),
        (sparse.csr_matrix(np.eye(2)), TypeError, "sparse"),
    ],
)
def test_what_is_no_table_is_refused(wrong: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        as_frame(wrong)


def test_complex_columns_are_refused() -> None:
    with pytest.raises(InputError, match="Complex data not supported: column 'z'"):
        TableEncoder.learn(pd.DataFrame({"z": [1j, 2, 3]}))


def test_a_summary_counts_by_hand(of_all_kinds: pd.DataFrame, learned: TableEncoder) -> None:
    rows = len(of_all_kinds)
    y_obs, a_obs = np.arange(rows) % 3, np.arange(rows) % 4
    frame = of_all_kinds.assign(many=[[each] for each in of_all_kinds["many"]])  # lists have no hash
    table = CodedTable(
        np.zeros((rows, 1), np.float32), y_obs, a_obs, learned, np.array([0.0, 1.0]),
        Attributes(("s", "t"), (("f", "m"), ("u", "v"))),
    )  # fmt: skip
    found = table.summary(frame)
    assert found["rows"] == rows
    assert found["labels"] == {"0": 40, "1": 40, "unavailable": 40}
    assert found["groups"]["f, u"] == found["groups"]["f, unavailable"] == rows // 4
    assert sum(found["groups"].values()) == rows
    assert len(found["groups"]) == 9
    columns = {each["name"]: each for each in found["columns"]}
    assert columns["w"] == {
        "name": "w", "kind": "category", "values": of_all_kinds["w"].nunique(), "missing": rows // 5
    }  # fmt: skip
    assert columns["many"]["values"] == of_all_kinds["many"].nunique()
    assert columns["one"]["kind"] == "left out"


def test_numbers_beside_words_in_a_list_stay_numbers() -> None:
    frame = as_frame([[1.5, "a"], [2, None]])
    assert frame[0].tolist() == [1.5, 2]
    assert pd.api.types.is_numeric_dtype(frame[0])


def test_a_column_that_is_not_the_same_any_more_is_told() -> None:
    encoder = TableEncoder.learn(pd.DataFrame({"town": ["Oslo", "Rome"] * 20}))
    with pytest.warns(UserWarning, match="40 of 40 values of column 'town' .* 'oslo'; .* 'Oslo'"):
        encoder.encode(pd.DataFrame({"town": ["oslo", "rome"] * 20}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(pd.DataFrame({"town": ["Oslo"] * 20 + ["Bern"] * 10}))
        encoder.encode(pd.DataFrame({"town": ["Bern"]}))


@pytest.mark.parametrize(
    ("values", "is_text"),
    [(["0010", "A4"], True), (["1.0", "x"], True), (["TRUE", "x"], True), (["1e5", "x"], True),
     (["10", "A4"], False), (["True", "x"], False), (["x", "y"], False), (["1.5", "x"], False)],
)  # fmt: skip
def test_codes_are_told_from_words_that_any_reader_leaves_alone(values: list[str], is_text: bool) -> None:
    (category,) = TableEncoder.learn(pd.DataFrame({"code": values})).categories
    assert category.is_text == is_text
