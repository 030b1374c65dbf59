"""Numbers as groups: coded as levels, and refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.number_groups import code_sensitive
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels

AGES = np.random.default_rng(0).gamma(5, 8, size=2000).round()


@pytest.mark.parametrize("most", [3, 12, 40])
def test_levels_hold_what_they_say(most: int) -> None:
    levels = Levels.of(AGES, most)
    assert 3 <= len(levels.centres) <= most
    codes = levels.code(AGES)
    assert np.bincount(codes).min() >= 10
    edges = [-np.inf, *levels.edges, np.inf]
    for k, centre in enumerate(levels.centres):
        inside = AGES[(edges[k] <= AGES) & (edges[k + 1] > AGES)]
        assert centre == pytest.approx(inside.mean())
        assert (codes[(edges[k] <= AGES) & (edges[k + 1] > AGES)] == k).all()


def test_bends_are_second_differences() -> None:
    even = Levels((0.5, 1.5, 2.5), (0.0, 1.0, 2.0, 3.0))
    step = 1 / 3
    assert even.bends @ np.array([0.0, 0.0, 1.0, 1.0]) == pytest.approx(np.array([1, -1]) / step**1.5)
    uneven = Levels((0.5, 1.5, 5.0), (0.0, 1.0, 3.0, 7.0))
    assert uneven.bends @ (2 - 3 * np.array(uneven.centres)) == pytest.approx(0, abs=1e-12)  # a line


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(AGES).mask(AGES < 20),
        pd.Series(AGES).mask(AGES < 20).astype("Int64"),
        np.where(AGES < 20, "secret", AGES.astype(int).astype(str)),
        pd.Series(AGES).mask(AGES < 20).astype("double[pyarrow]"),
        np.ma.masked_array(AGES, AGES < 20),
        [None if age < 20 else age for age in AGES],
    ],
)
def test_numbers_of_any_type_are_coded_alike(column: Any) -> None:
    found = code_sensitive(column, ["secret"], levels=12)
    levels = Levels.of(AGES[AGES >= 20], 12)
    assert found.attributes.levels == levels
    assert np.array_equal(found.outcomes, np.where(AGES < 20, len(levels.centres), levels.code(AGES)))
    again = code_sensitive(column, ["secret"], known=found.attributes)
    assert np.array_equal(again.outcomes, found.outcomes)


@pytest.mark.parametrize(
    ("column", "levels", "told"),
    [
        (["old", "young"] * 40, 5, "'group' of sensitive_features is text where a number was expected"),
        (AGES[:40], 5, "is stated in 40 rows; levels of a number need 50"),
        (np.full(80, 3.0), 5, "has 1 different number, which cannot"),
        ([0, 1] * 60, 5, "has 2 different numbers, which cannot"),
        (np.r_[AGES, np.inf], 5, "contains infinity in 1 rows"),
        (AGES, 2, "group_levels must be a whole number from 3 to 64, got 2"),
        (AGES, 65, "got 65"),
        (np.stack([AGES, AGES], axis=1), 5, "has 2 columns, but a number"),
        (np.r_[np.zeros(2000), 1.0, 2.0], 5, "cannot be cut into three levels"),
    ],
)
def test_what_is_no_number_is_refused(column: Any, levels: int, told: str) -> None:
    with pytest.raises(InputError, match=told):
        code_sensitive(column, levels=levels)


def test_attributes_of_a_number_have_its_levels() -> None:
    levels = Levels((1.0, 2.0), (0.5, 1.5, 2.5))
    assert Attributes.of_number(levels, "age").group_names == ("below 1", "1 to 2", "2 and above")
    with pytest.raises(InputError, match="levels are those of a single attribute"):
        Attributes(("age",), (("young", "old"),), levels)
    with pytest.raises(InputError, match="increasing edges"):
        Levels((2.0, 1.0), (0.5, 1.5, 2.5))
