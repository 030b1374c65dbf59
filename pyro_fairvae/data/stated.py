"""Columns with gaps as people have them, and the codes that the library works with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.attributes import RESERVED, Attributes
from pyro_fairvae.data.tables import Integers
from pyro_fairvae.errors import InputError, require


def as_column(values: Any, what: str) -> pd.Series:
    """One column, without its index; a table of a single column counts as one."""
    if isinstance(values, pd.DataFrame):
        require(values.shape[1] == 1, f"{what} has {values.shape[1]} columns, expected one.")
        values = values.iloc[:, 0]
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    array = values if isinstance(values, np.ndarray) else _array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    require(array.ndim == 1, f"{what} has the shape {array.shape}, expected one value for each row.")
    return pd.Series(array)


def _array(values: Any) -> np.ndarray:
    """An array of what is in a list: of objects where numpy would turn None or numbers into words."""
    array = np.asarray(values)
    return np.asarray(values, dtype=object) if array.dtype.kind in "US" else array


def is_missing(column: pd.Series, missing_values: Iterable[Any] = ()) -> np.ndarray:
    """Where a column says nothing: NaN, None, NA, and what else is said to mean that."""
    return np.asarray(column.isna() | column.isin(list(missing_values)), dtype=bool)


def code_labels(values: Any, known: np.ndarray | None = None, what: str = "y") -> tuple[Integers, np.ndarray]:
    """Codes (rows,) of labels, and the classes in order; a gap is coded as the number of classes.

    The classes are those ``known``, or all that occur.
    """
    column = as_column(values, what)
    infinite = pd.api.types.is_float_dtype(column) and bool(np.isinf(column.to_numpy(float)).any())
    require(not infinite, f"Input {what} contains infinity; a label must be a value, or NaN where unknown.")
    missing = is_missing(column)
    present = column[~missing]
    classes = _distinct(present, what) if known is None else known
    codes = np.full(len(column), len(classes))
    found = (
        pd.Index(classes).get_indexer(pd.Index(present.to_numpy(), dtype=pd.Index(classes).dtype))
        if len(present)
        else np.empty(0, int)
    )
    if (found < 0).any():
        strange = sorted({str(value) for value in present[found < 0]})
        raise InputError(
            f"{what} has labels that the model does not know: {_some(strange)}; it knows "
            f"{_some([str(c) for c in classes])}."
        )
    codes[~missing] = found
    return codes, classes


def _distinct(present: pd.Series, what: str) -> np.ndarray:
    try:
        return np.unique(present.to_numpy())
    except TypeError as reason:
        kinds = sorted({type(value).__name__ for value in present})
        raise InputError(
            f"{what} mixes values of the kinds {', '.join(kinds)}; give all of one kind, such as words."
        ) from reason


@dataclass(frozen=True)
class StatedGroups:
    """What rows state of their group: ``outcomes`` (rows,) are numbered as in :class:`Attributes`."""

    outcomes: Integers
    attributes: Attributes

    @property
    def stated(self) -> np.ndarray:
        """Whether a row names a value of every attribute, (rows,)."""
        return np.asarray(self.attributes.stated[self.outcomes])

    @property
    def codes(self) -> Integers:
        """The group of each row that is stated in full, else the number of groups."""
        parts = self.attributes.outcome_parts[self.outcomes]
        sizes = [len(values) for values in self.attributes.values]
        inside = np.minimum(parts, np.array(sizes) - 1)
        codes = np.ravel_multi_index(tuple(inside.T), sizes)
        return np.where(self.stated, codes, self.attributes.groups)


def code_groups(
    sensitive_features: Any,
    missing_values: Sequence[Any] = (),
    known: Attributes | None = None,
    what: str = "sensitive_features",
) -> StatedGroups:
    """Code one column of groups, or several, whose combinations are then the groups.

    Values are known by their words: 1, 1.0 and "1" are the same. ``known`` attributes are those of a model.
    """
    table = _columns(sensitive_features, what)
    if known is not None:
        require(
            table.shape[1] == len(known.names),
            f"{what} has {table.shape[1]} columns, but the model knows {len(known.names)}: "
            f"{', '.join(known.names)}.",
        )
    names, values, parts = [], [], []
    for j, name in enumerate(table):
        column = table[name]
        missing = is_missing(column, missing_values)
        words = column.map(word_of).astype(object)
        there = sorted(set(words[~missing]))
        if known is None:
            require(
                len(there) > 0,
                f"nobody states {name!r} of {what}: all {len(table)} values are missing. At least two of its "
                "values must be stated by somebody.",
            )
            require(
                len(there) > 1,
                f"{name!r} of {what} has one value, {there[0]!r}; at least two must be stated by somebody.",
            )
        else:
            strange = sorted(set(there) - set(known.values[j]))
            require(
                not strange,
                f"{name!r} of {what} has groups that the model does not know: {_some(strange)}; it knows "
                f"{_some(known.values[j])}. Rename them, or blank them as not stated.",
            )
            there = list(known.values[j])
        code = words.map({word: v for v, word in enumerate(there)})
        parts.append(np.where(missing, len(there), code.fillna(0)).astype(np.int64))
        names.append(str(name))
        values.append(tuple(there))
    attributes = known or Attributes(tuple(names), tuple(values))
    outcomes = np.ravel_multi_index(tuple(parts), [len(each) + 1 for each in attributes.values])
    return StatedGroups(outcomes.astype(np.int64), attributes)


def _columns(sensitive_features: Any, what: str) -> pd.DataFrame:
    """One or several columns of groups, under different names."""
    if isinstance(sensitive_features, pd.DataFrame):
        table = sensitive_features.reset_index(drop=True)
        twice = sorted({str(name) for name in table.columns[table.columns.duplicated()]})
        require(not twice, f"{what} has several columns called {_some(twice)}.")
    elif isinstance(sensitive_features, np.ndarray) and sensitive_features.ndim == 2:
        width = sensitive_features.shape[1]
        names = ["group"] if width == 1 else [f"group {j}" for j in range(width)]
        table = pd.DataFrame(sensitive_features, columns=names)
    else:
        column = as_column(sensitive_features, what)
        table = column.to_frame(column.name if column.name is not None else "group")
    require(table.shape[1] > 0, f"{what} has no column.")
    return table


def word_of(value: Any) -> str:
    """A value as a word, the same for 1, 1.0 and "1"; words that priors reserve go into quotes."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    word = str(value)
    return f"'{word}'" if word in RESERVED else word


def _some(words: Sequence[str], most: int = 8) -> str:
    """Some of the words, and how many more there are."""
    shown = ", ".join(map(repr, words[:most]))
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
