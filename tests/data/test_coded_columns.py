"""Codes of labels and groups as people write them, against what they say by eye."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import LabelEncoder

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.coded_columns import as_column, code_groups, code_labels, is_missing, word_of
from pyro_fairvae.schema.attributes import RESERVED, Attributes

TIME_UNITS = ("ns", "us", "ms", "s", "D", "M")
MISSING = [None, np.nan, pd.NA, pd.NaT]


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize(
    ("present", "kind"),
    [
        (["no", "yes", "no", "maybe"], "O"),
        ([3, 1, 2, 1], "i"),
        ([0.5, -1.5, 0.5, 2.0], "f"),
        ([1, 2.5, 1.0, 2], "f"),
        ([True, False, False, True], "b"),
    ],
)
def test_labels_are_coded_as_scikit_learn_does_and_gaps_come_last(
    present: list[Any], kind: str, missing: Any
) -> None:
    encoder = LabelEncoder().fit(np.array(present, dtype=object if kind == "O" else None))
    expected = [*encoder.transform(present), len(encoder.classes_)]
    for values in (
        [*present, missing],
        pd.Series([*present, missing], dtype=object, index=[5, 5, 1, 0, 9]),
        pd.DataFrame({"y": pd.Series([*present, missing], dtype=object)}),
        np.array([*present, missing], dtype=object).reshape(-1, 1),
    ):
        codes, classes = code_labels(values)
        assert codes.tolist() == expected
        assert classes.tolist() == encoder.classes_.tolist()
        assert classes.dtype.kind == kind


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pd.Series([2, None, 1], dtype="Int64"), [1, 2]),
        (pd.Series([2.5, None, 1.0], dtype="Float64"), [1.0, 2.5]),
        (pd.Series([True, None, False], dtype="boolean"), [False, True]),
        (pd.Series(["b", None, "a"], dtype="string"), ["a", "b"]),
        (pd.Series(["b", None, "a"], dtype="category"), ["a", "b"]),
        (pd.Series(pd.Categorical(["b", None, "a"], categories=["c", "b", "a"])), ["a", "b"]),
        (np.array(["b", "b", "a"]), ["a", "b"]),
        ([np.str_("b"), None, "a"], ["a", "b"]),
    ],
)
def test_labels_of_every_type_of_pandas(values: Any, classes: list[Any]) -> None:
    codes, found = code_labels(values)
    assert found.tolist() == classes
    assert [type(each) for each in found.tolist()] == [type(each) for each in classes]
    assert codes.tolist() == [1, 1 if isinstance(values, np.ndarray) else 2, 0]


@pytest.mark.parametrize(
    ("known", "given", "codes"),
    [
        ([0, 1], [1.0, 0.0, np.nan], [1, 0, 2]),
        ([0, 1], ["1", "0", None], [1, 0, 2]),
        ([0, 1], [True, False], [1, 0]),
        ([0.0, 1.0], [1, 0], [1, 0]),
        (["0", "1"], [1, 0], [1, 0]),
        (["0", "1"], [1.0, np.nan], [1, 2]),
        ([False, True], ["True", None], [1, 2]),
        ([False, True], [1, 0], [1, 0]),
        (["a", "b"], [np.nan, np.nan], [2, 2]),
        (["a", "own"], ["own", "a"], [1, 0]),
    ],
)
def test_known_labels_are_known_again_in_another_type(known: list, given: list, codes: list[int]) -> None:
    found, classes = code_labels(given, np.array(known, dtype=object if isinstance(known[0], str) else None))
    assert found.tolist() == codes
    assert classes.tolist() == known


@pytest.mark.parametrize(
    ("known", "strange", "told"),
    [
        ([0, 1], [0.5], "'0.5'; it knows '0', '1'"),
        ([0, 1], ["a"], "'a'; it knows '0', '1'"),
        (["a", "b"], ["b", "c", None], "'c'; it knows 'a', 'b'"),
        ([False, True], [2], "'2'"),
        ([0, 1], list(range(20)), "'10', '11', .* and 10 more; it knows '0', '1'"),
    ],
)
def test_labels_that_a_model_does_not_know_are_named(known: list, strange: list, told: str) -> None:
    with pytest.raises(InputError, match=f"y has labels that the model does not know: {told}"):
        code_labels(strange, np.array(known))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, "a", 2], "mixes values of the kinds int, str"),
        ([True, "a"], "mixes values of the kinds bool, str"),
        ([True, 2, None], "mixes values of the kinds bool, int"),
        (pd.Series([[1], [2]]), "holds list, which cannot be labels"),
        ([0, 1, np.inf], "contains infinity"),
        ([0, 1, None, np.inf], "contains infinity"),
        (pd.Series([0, None, np.inf], dtype="Float64"), "contains infinity"),
        (np.zeros((3, 2)), r"shape \(3, 2\)"),
        (np.array(3), r"shape \(\)"),
        (pd.DataFrame({"a": [1], "b": [2]}), "has 2 columns, expected one"),
    ],
)
def test_labels_that_cannot_be_are_refused(values: Any, told: str) -> None:
    with pytest.raises(InputError, match=f"y .*{told}"):
        code_labels(values)


def test_nobody_stating_a_label_leaves_no_class() -> None:
    codes, classes = code_labels([None, np.nan])
    assert codes.tolist() == [0, 0]
    assert len(classes) == 0


def test_missing_values_are_known_by_their_words() -> None:
    column = pd.Series([99, "99", 99.0, "?", 1, None, "?? "], dtype=object)
    for given in (["99", "?"], [99, "?"], ("?", 99.0)):
        assert is_missing(column, given).tolist() == [True, True, True, True, False, True, False]
    assert is_missing(pd.Series([1, 99]), ["99"]).tolist() == [False, True]
    assert is_missing(pd.Series(["unknown", "u"]), "unknown").tolist() == [True, False]  # a word, not letters
    assert is_missing(pd.Series(["x", "?"], dtype="category"), ["?"]).tolist() == [False, True]


@pytest.mark.parametrize("missing", [*MISSING, "?", "prefer not to say"])
@pytest.mark.parametrize(
    ("present", "words"),
    [
        (["m", "f", "m"], ["f", "m"]),
        ([2, 1, 2], ["1", "2"]),
        ([2.0, 1.0, 2.0], ["1", "2"]),
        ([1.5, 0.5, 1.5], ["0.5", "1.5"]),
        ([True, False, True], ["False", "True"]),
        (["2", 1, 2.0], ["1", "2"]),
    ],
)
def test_groups_are_coded_by_their_words(present: list[Any], words: list[str], missing: Any) -> None:
    for values in ([*present, missing], pd.Series([*present, missing], dtype=object, index=list("abcd"))):
        found = code_groups(values, ["?", "prefer not to say"])
        assert found.outcomes.tolist() == [1, 0, 1, 2]
        assert found.codes.tolist() == [1, 0, 1, 2]
        assert found.stated.tolist() == [True, True, True, False]
        assert found.attributes == Attributes(("group",), (tuple(words),))


@pytest.mark.parametrize("dtype", ["string", "category", object])
def test_groups_of_every_type_of_pandas(dtype: Any) -> None:
    found = code_groups(pd.Series(["m", None, "f"], dtype=dtype, name="sex"))
    assert found.outcomes.tolist() == [1, 2, 0]
    assert found.attributes == Attributes(("sex",), (("f", "m"),))
    unused = pd.Series(pd.Categorical(["m", None, "f"], categories=["x", "m", "f"], ordered=True))
    assert code_groups(unused).attributes.values == (("f", "m"),)
    assert code_groups(pd.Series([1, None, 0], dtype="Int64")).attributes.values == (("0", "1"),)


def test_several_columns_are_groups_by_combination() -> None:
    table = pd.DataFrame(
        {
            "sex": ["m", "f", None, "m", None, "f"],
            "age": [1.0, 2.0, 3.0, np.nan, np.nan, 3.0],
            7: list("uvuvuv"),
        }
    )
    found = code_groups(table)
    assert found.attributes == Attributes(("sex", "age", "7"), (("f", "m"), ("1", "2", "3"), ("u", "v")))
    names = found.attributes.outcome_names
    assert [names[each] for each in found.outcomes] == [
        "m, 1, u",
        "f, 2, v",
        "unavailable, 3, u",
        "m, unavailable, v",
        "unavailable, unavailable, u",
        "f, 3, v",
    ]
    assert found.stated.tolist() == [True, True, False, False, False, True]
    groups = (*found.attributes.group_names, None)
    assert [groups[each] for each in found.codes] == ["m, 1, u", "f, 2, v", None, None, None, "f, 3, v"]
    array = code_groups(table.to_numpy(dtype=object))
    assert array.attributes.names == ("group 0", "group 1", "group 2")
    np.testing.assert_array_equal(array.outcomes, found.outcomes)


def test_known_groups_keep_their_codes_where_some_do_not_occur() -> None:
    known = code_groups(["c", "a", "b"]).attributes
    assert code_groups(["c", None, "c"], known=known).outcomes.tolist() == [2, 3, 2]
    assert code_groups([None, None], known=known).outcomes.tolist() == [3, 3]
    numbers = code_groups([1, 2]).attributes
    assert code_groups([2.0, np.nan, 1.0], known=numbers).outcomes.tolist() == [1, 2, 0]


def test_known_columns_are_taken_by_name_in_any_order() -> None:
    """Both columns say yes and no, so that nothing but their names tells them apart."""
    table = pd.DataFrame({"old": ["yes", "no", None], "poor": ["no", "no", "yes"]})
    found = code_groups(table)
    again = code_groups(table[["poor", "old"]], known=found.attributes)
    np.testing.assert_array_equal(again.outcomes, found.outcomes)
    np.testing.assert_array_equal(
        code_groups(table.to_numpy(dtype=object), known=found.attributes).outcomes, found.outcomes
    )
    with pytest.raises(InputError, match=r"has the columns 'rich', 'old', but the model knows 'old', 'poor'"):
        code_groups(table.rename(columns={"poor": "rich"})[["rich", "old"]], known=found.attributes)
    with pytest.raises(InputError, match="has 1 columns, but the model knows 2: old, poor"):
        code_groups(table["old"], known=found.attributes)


def test_groups_that_a_model_does_not_know_are_named() -> None:
    known = code_groups(pd.DataFrame({"sex": ["m", "f"], "race": ["u", "v"]})).attributes
    new = pd.DataFrame({"sex": ["m", None, "x"], "race": ["u", "v", "v"]})
    with pytest.raises(InputError, match=r"'sex' of .* does not know: 'x'; it knows 'f', 'm'\. Rename"):
        code_groups(new, known=known)
    found = code_groups(new, ["x"], known)
    assert [known.outcome_names[each] for each in found.outcomes] == [
        "m, u",
        "unavailable, v",
        "unavailable, v",
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["m", "m", None], "'group' of .* has one value, 'm'"),
        ([1, 1.0, "1"], "has one value, '1'"),
        ([None, np.nan, pd.NA], "nobody states 'group' .* all 3 values are missing"),
        (["?", "?"], "nobody states"),
        ([], "nobody states"),
        (pd.DataFrame({"sex": ["m", "f"], "race": [None, None]}), "nobody states 'race'"),
        (pd.DataFrame([["m", "f"], ["f", "m"]], columns=["sex", "sex"]), "several columns called 'sex'"),
        (pd.DataFrame([["m", "f"], ["f", "m"]], columns=[1, "1"]), "distinct names"),
        (pd.DataFrame(index=range(3)), "has no column"),
        (np.zeros((2, 2, 2)), "shape"),
        ("mf", "shape"),
    ],
)
def test_groups_that_cannot_be_are_refused(values: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        code_groups(values, ["?"])


def test_reserved_words_may_be_groups_and_classes() -> None:
    """They are quoted, so that priors can still tell ``own`` from a group of that name."""
    reserved = sorted(RESERVED)
    found = code_groups([*reserved, None, "f"])
    assert found.attributes.values == (("'every'", "f", "'other'", "'own'", "'unavailable'"),)
    assert found.outcomes.tolist() == [0, 2, 3, 4, 5, 1]
    assert code_groups(reserved, known=found.attributes).outcomes.tolist() == [0, 2, 3, 4]
    assert code_groups(["own", "f"], ["own", "unavailable"], found.attributes).outcomes.tolist() == [5, 1]
    codes, classes = code_labels(reserved)
    assert classes.tolist() == reserved
    assert codes.tolist() == [0, 1, 2, 3]
    # A prior can be made of them.
    made = channel("a", found.attributes, "truthful")
    assert len(made.sites) == 5


def test_words_are_the_same_for_numbers_that_are() -> None:
    alike = [1, 1.0, "1", np.int8(1), np.float32(1), np.uint64(1)]
    assert {word_of(value) for value in alike} == {"1"}
    assert word_of(-0.0) == word_of(0) == "0"
    assert [word_of(value) for value in (True, 1.5, float("inf"), "1.0", "", "own")] == [
        "True", "1.5", "inf", "1.0", "", "'own'",
    ]  # fmt: skip


def test_a_column_has_no_index() -> None:
    column = as_column(pd.Series([3, 4], index=[9, 9]), "y")
    assert column.index.tolist() == [0, 1]
    assert as_column((1, None), "y").isna().tolist() == [False, True]
    assert as_column(["a", np.nan], "y").isna().tolist() == [False, True]  # not the word "nan"


@pytest.mark.parametrize("word", ["nan", "NaN", "<NA>", "NaT"])
def test_gaps_that_were_turned_into_words_are_refused(word: str) -> None:
    with pytest.raises(InputError, match=f"the word '{word}', which is what a gap becomes.*missing_values"):
        code_groups(["f", "m", word])
    with pytest.raises(InputError, match=f"y has the word '{word}'.*None or NaN itself"):
        code_labels(["f", "m", word])
    assert code_groups(["f", "m", word], [word]).attributes.group_names == ("f", "m")
    assert code_groups(["f", "m", "None"]).attributes.group_names == ("None", "f", "m")


def test_groups_are_in_the_order_of_numbers_and_of_words_without_quotes() -> None:
    assert code_groups([10, 2, 1]).attributes.group_names == ("1", "2", "10")
    found = code_groups(["white", "other", "asian", None])
    assert found.attributes.group_names == ("asian", "'other'", "white")
    assert found.outcomes.tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize(
    "times",
    [
        *(np.array(["2020-01-01", "2021-01-01"] * 4, dtype=f"datetime64[{unit}]") for unit in TIME_UNITS),
        *(np.arange(8).astype(f"timedelta64[{unit}]") for unit in TIME_UNITS),
        [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)] * 4,
        [datetime.datetime(2020, 1, 1), None] * 4,
        [datetime.timedelta(1), datetime.time(3)] * 4,
        pd.period_range("2020", periods=8, freq="M"),
        pd.Series(pd.date_range("2020", periods=8, tz="UTC")),
        pd.Series(pd.date_range("2020", periods=8)).astype("category"),
        pd.interval_range(0, 8),
    ],
    ids=lambda times: str(getattr(times, "dtype", type(times[0]).__name__)),
)
def test_times_of_any_resolution_are_no_labels(times: Any) -> None:
    for known in (None, np.array([0, 1])):
        with pytest.raises(InputError, match="y holds dates, times or durations"):
            code_labels(times, known)


def test_codes_that_begin_with_a_zero_are_values_of_their_own() -> None:
    words = ["01", "1", "1", None, "01", "001"]
    codes, classes = code_labels(words)
    assert classes.tolist() == ["001", "01", "1"]
    assert codes.tolist() == [1, 2, 2, 3, 1, 0]
    groups = code_groups(words)
    assert sorted(groups.attributes.values[0]) == ["001", "01", "1"]
    with pytest.raises(InputError, match="labels that the model does not know: '01'"):
        code_labels(["01"], np.array([1, 2]))
