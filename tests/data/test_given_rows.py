"""What is given about the same rows, in other orders and with masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.coded_columns import code_groups, code_labels
from pyro_fairvae.data.given_rows import in_one_order, unmasked
from pyro_fairvae.data.table_encoder import as_frame
from tests.support.user_tables import tiny

INDEXES: dict[str, list[Any]] = {
    "numbers": [30, 10, 20, 40],
    "words": ["d", "a", "c", "b"],
    "counts": [0, 1, 2, 3],
    "mixed": ["d", 1, None, 2.5],
    "pairs": [("a", 1), ("a", 2), ("b", 1), ("b", 2)],
}


@pytest.mark.parametrize("name", INDEXES)
def test_rows_are_put_together_by_their_index(name: str) -> None:
    index = pd.Index(INDEXES[name])
    X = pd.DataFrame({"x": np.arange(4)}, index=index)
    of_row = dict(zip(INDEXES[name], ["p", "q", "r", "s"], strict=True))
    for order in ([3, 1, 0, 2], [0, 1, 2, 3], [1, 0, 3, 2]):
        y = pd.Series([of_row[INDEXES[name][place]] for place in order], index=index[order])
        found_X, found, table = in_one_order(X=X, y=y, sensitive_features=y.to_frame("group"))
        assert found_X is X
        assert list(found) == list(table["group"]) == ["p", "q", "r", "s"]


def test_arrays_and_tables_made_of_arrays_are_taken_by_place() -> None:
    X = pd.DataFrame({"x": [1, 2, 3]}, index=[7, 8, 9])
    y, groups = pd.Series(["a", "b", "c"]), np.array([3, 2, 1])
    assert [list(one) for one in in_one_order(X=X, y=y, groups=groups)[1:]] == [["a", "b", "c"], [3, 2, 1]]
    # X has no names for its rows, y has, and the groups have the same in another order.
    of_group = pd.Series([1, 2, 3], index=[9, 7, 8])
    _, y, of_group = in_one_order(X=X.reset_index(drop=True), y=y.set_axis([7, 8, 9]), of_group=of_group)
    assert list(y) == ["a", "b", "c"]
    assert list(of_group) == [2, 3, 1]
    assert in_one_order(X=X, y=None, z=[1])[1:] == (None, [1])


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([7, 8, 9], [7, 8, 10], "1 of 3 values are in one alone, such as 9"),
        ([7, 8, 8], [8, 7, 8], "values are repeated, in another order"),
        (["a", "b", "c"], [7, 8, 9], "3 of 3 values"),
    ],
)
def test_rows_that_cannot_be_put_together_are_refused(first: list, second: list, told: str) -> None:
    X, y = pd.DataFrame({"x": [1, 2, 3]}, index=first), pd.Series([1, 2, 3], index=second)
    with pytest.raises(InputError, match=f"y and X have different indexes, .*{told}"):
        in_one_order(X=X, y=y)
    assert list(in_one_order(X=X, y=y.set_axis(first))[1]) == [1, 2, 3]


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], [1, 2, 3], [True, False, True], ["a", "b", "c"]])
def test_masks_are_gaps_in_labels_groups_and_features(values: list[Any]) -> None:
    mask = [False, True, False]
    masked = np.ma.array(values, mask=mask)
    gaps = [value if not hidden else None for value, hidden in zip(values, mask, strict=True)]
    for given in (masked, list(masked)):
        codes, classes = code_labels(given)
        expected, known = code_labels(gaps)
        assert codes.tolist() == expected.tolist() == [0, len(classes), len(classes) - 1]
        assert classes.tolist() == known.tolist()
    if len(set(gaps)) == 3:
        assert code_groups(masked).outcomes.tolist() == [0, 2, 1]
    table = as_frame(np.ma.array([values, values], mask=[mask, [False] * 3]))
    assert table.isna().to_numpy().tolist() == [mask, [False] * 3]
    assert np.asarray(unmasked(np.ma.array(values))).tolist() == values


@pytest.mark.parametrize("place", ["column 'x'", "y", "sensitive_features"])
def test_half_a_surrogate_pair_is_refused(place: str) -> None:
    lone = pd.Series(["\ud800", "a"] * 20, dtype=object)
    given = {
        "column 'x'": pd.DataFrame({"x": range(40)}),
        "y": ["no", "yes"] * 20,
        "sensitive_features": ["f", "m"] * 20,
    }
    given[place] = pd.DataFrame({"x": lone}) if place == "column 'x'" else lone
    X, y, a = given.values()
    with pytest.raises(InputError, match=rf"^{place} has text that is not valid Unicode"):
        tiny().fit(X, y, a)
