"""Coding of sensitive features: columns of groups, or a number, which is cut into levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import (
    StatedGroups,
    code_groups,
    group_columns,
    is_missing,
    shorten,
    word_of,
)
from pyro_fairvae.data.number_columns import is_number, numbers_of, with_one_type
from pyro_fairvae.schema.arrays import Floats
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import FEWEST_LEVELS, FEWEST_STATED, MOST_LEVELS, Levels


def code_sensitive(
    sensitive_features: Any,
    missing_values: Sequence[Any] = (),
    known: Attributes | None = None,
    levels: int | None = None,
    what: str = "sensitive_features",
) -> StatedGroups:
    """Code columns of groups, or, with ``levels``, a number as so many levels at most.

    ``known`` are the attributes of a model.
    """
    given = levels if known is None else known.levels
    if given is None:
        return code_groups(sensitive_features, missing_values, known, what)
    return _code_number(sensitive_features, missing_values, given, what)


def _code_number(
    sensitive_features: Any, missing_values: Sequence[Any], levels: int | Levels, what: str
) -> StatedGroups:
    table = group_columns(sensitive_features, what)
    require(
        table.shape[1] == 1,
        f"{what} has {table.shape[1]} columns, but a number that is cut into levels is a single one.",
    )
    name = str(table.columns[0])
    numbers = _numbers(table.iloc[:, 0], missing_values, f"{name!r} of {what}")
    missing = np.isnan(numbers)
    if not isinstance(levels, Levels):
        levels = _learn(numbers[~missing], levels, f"{name!r} of {what}")
    outcomes = np.where(missing, len(levels.centres), levels.code(np.where(missing, 0, numbers)))
    return StatedGroups(outcomes.astype(np.int64), Attributes.of_number(levels, name))


def _numbers(column: pd.Series, missing_values: Sequence[Any], what: str) -> Floats:
    """Numbers, NaN where they are missing; strings of a file are read as numbers."""
    column = column.mask(is_missing(column, missing_values))
    column = with_one_type(column.astype(object))
    if not is_number(column):
        found = pd.to_numeric(column, errors="coerce")
        text = column[found.isna() & column.notna()]
        require(
            text.empty,
            f"{what} is text where a number was expected: {shorten(sorted(set(map(word_of, text))))}. Name "
            "words that mean not stated in missing_values, or leave group_levels out if values are groups.",
        )
        column = found
    numbers = numbers_of(column)
    infinite = int(np.isinf(numbers).sum())
    require(infinite == 0, f"{what} contains infinity in {infinite} rows; replace it by a number, or by NaN.")
    return numbers


def in_ranges(groups: StatedGroups, most: int) -> StatedGroups:
    """Groups that are levels of a number, merged into at most ``most`` ranges; other groups as they are."""
    levels = groups.attributes.levels
    if levels is None:
        return groups
    merged = levels.merged(most)
    of = np.append(merged.code(np.array(levels.centres)), len(merged.centres))
    (name,) = groups.attributes.names
    return StatedGroups(of[groups.outcomes], Attributes.of_number(merged, name))


def summed_over(probabilities: np.ndarray, levels: Levels, ranges: Levels) -> np.ndarray:
    """Probabilities of levels, (rows, levels), as those of the ranges that they were merged into."""
    summed = np.zeros((len(probabilities), len(ranges.centres)))
    np.add.at(summed.T, ranges.code(np.array(levels.centres)), probabilities.T)
    return summed


def check_levels(levels: Any) -> None:
    """Refuse what is no number of levels; None stands for groups."""
    whole = isinstance(levels, (int, np.integer)) and not isinstance(levels, bool)
    require(
        levels is None or (whole and FEWEST_LEVELS <= levels <= MOST_LEVELS),
        f"group_levels must be a whole number from {FEWEST_LEVELS} to {MOST_LEVELS}, got {levels!r}.",
        "group_levels",
    )


def _learn(stated: Floats, most: int, what: str) -> Levels:
    check_levels(most)
    require(
        len(stated) >= FEWEST_STATED,
        f"{what} is stated in {len(stated)} rows; levels of a number need {FEWEST_STATED} or more.",
    )
    distinct = len(np.unique(stated))
    require(
        distinct > 2,
        f"{what} has {distinct} different number{'s' * (distinct > 1)}, which cannot be cut into levels; "
        "leave group_levels out, so that values are groups.",
    )
    return Levels.of(stated, most)
