"""Coding of users' label and group columns, with missing values, as integers."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.given_rows import in_unicode, unmasked
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import RESERVED, Attributes

TOLERANCE = 1e-3  # of a probability, and of the sum of a row's
TIMES = (
    datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period, pd.Interval,
)  # fmt: skip
MANY = 20  # number of classes or groups that is always allowed, however few rows state them
WRITTEN_GAPS = ("nan", "NaN", "<NA>", "NaT")  # strings that missing values become when converted to text


def as_column(values: Any, what: str) -> pd.Series:
    """One column, without its index; a table of a single column counts as one."""
    values = unmasked(values)
    if isinstance(values, pd.DataFrame):
        require(values.shape[1] == 1, f"{what} has {values.shape[1]} columns, expected one.")
        values = values.iloc[:, 0]
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    # As objects, since numpy would turn None in a list into a string, or booleans next to NaN into numbers.
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    require(array.ndim == 1, f"{what} has the shape {array.shape}, expected one value for each row.")
    return pd.Series(array)


def is_missing(column: pd.Series, missing_values: Iterable[Any] = ()) -> np.ndarray:
    """Which values are missing: NaN, None, NA, and ``missing_values``, compared by :func:`word_of`."""
    given = [missing_values] if isinstance(missing_values, str) else list(missing_values)
    missing = np.asarray(column.isna(), dtype=bool)
    if not given:
        return missing
    words = {word_of(value) for value in given}
    return missing | np.array([word_of(value) in words for value in column], dtype=bool)


def code_labels(values: Any, known: np.ndarray | None = None, what: str = "y") -> tuple[Integers, np.ndarray]:
    """Codes (rows,) of labels, and the classes in order; a gap is coded as the number of classes.

    The classes are those ``known``, or all that occur.
    """
    column = as_column(values, what)
    missing = is_missing(column)
    # Without missing values, the rest may be all integers or all booleans.
    with in_unicode(what):
        present = column[~missing].infer_objects()
    infinite = pd.api.types.is_float_dtype(present) and bool(np.isinf(present.to_numpy(float)).any())
    require(not infinite, f"Input {what} contains infinity; a label must be a value, or NaN where unknown.")
    _refuse_times(present, what)
    classes = _distinct(present, what) if known is None else known
    if known is None:
        _refuse_written_gaps(classes.tolist(), what, "give None or NaN itself where a label is unknown")
    places = _places(present, classes)
    if (places < 0).any():
        strange = sorted({str(value) for value in present[places < 0]})
        raise InputError(
            f"{what} has labels that the model does not know: {shorten(strange)}; it knows "
            f"{shorten([str(c) for c in classes])}."
        )
    codes = np.full(len(column), len(classes))
    codes[~missing] = places
    return codes, classes


def _places(present: pd.Series, classes: np.ndarray) -> Integers:
    """Index of each value among the classes, by value or else by :func:`word_of`; −1 if not found."""
    by_value = {value: code for code, value in enumerate(classes.tolist())}
    by_word = {word_of(value): code for value, code in by_value.items()}
    which, distinct = pd.factorize(present.to_numpy())
    places = [by_value.get(value, by_word.get(word_of(value), -1)) for value in distinct.tolist()]
    return np.array(places, dtype=np.int64)[which]


def _refuse_times(present: pd.Series, what: str) -> None:
    """Refuse dates, times and durations of any resolution, which are no classes."""
    kind = getattr(present.to_numpy().dtype, "kind", "O")
    times = [kind in "mM"] if kind != "O" else (isinstance(value, TIMES) for value in present)
    require(
        not any(times),
        f"{what} holds dates, times or durations, which cannot be labels; give classes, such as the year as "
        "a whole number, or words.",
    )


def _distinct(present: pd.Series, what: str) -> np.ndarray:
    values = present.to_numpy()
    kinds = {type(value).__name__ for value in values} if values.dtype == object else set()
    if kinds and kinds <= {"str", "str_"}:
        return np.array(sorted(map(str, set(values))), dtype=object)
    require(
        len(kinds) < 2,
        f"{what} mixes values of the kinds {', '.join(sorted(kinds))}; give all of one kind, such as words.",
    )
    try:
        pd.factorize(values)
        return np.unique(values)
    except TypeError as reason:
        raise InputError(f"{what} holds {', '.join(kinds)}, which cannot be labels; give words.") from reason


@dataclass(frozen=True)
class StatedGroups:
    """The stated group of each row: ``outcomes`` (rows,) are numbered as in :class:`Attributes`."""

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

    Values are compared by :func:`word_of`: 1, 1.0 and "1" are the same. ``known`` are the attributes
    of a model.
    """
    table = group_columns(sensitive_features, what)
    if known is not None:
        require(
            table.shape[1] == len(known.names),
            f"{what} has {table.shape[1]} columns, but the model knows {len(known.names)}: "
            f"{', '.join(known.names)}.",
        )
        if isinstance(sensitive_features, pd.DataFrame) and table.shape[1] > 1:
            table = _in_order(table, known.names, what)
    names, values, parts = [], [], []
    for j, (name, column) in enumerate(table.items()):
        missing = is_missing(column, missing_values)
        with in_unicode(what):
            words = column.astype(object).map(word_of).astype(object)
        there = sorted(set(words[~missing]), key=_place_in_order)
        if known is None:
            _refuse_written_gaps(
                there, f"{name!r} of {what}", "give None or NaN itself, or name it in missing_values"
            )
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
                f"{name!r} of {what} has groups that the model does not know: {shorten(strange)}; it knows "
                f"{shorten(known.values[j])}. Rename them, or blank them as not stated.",
            )
            there = list(known.values[j])
        code = words.map({word: v for v, word in enumerate(there)})
        parts.append(np.where(missing, len(there), code.fillna(0)).astype(np.int64))
        names.append(str(name))
        values.append(tuple(there))
    attributes = known or Attributes(tuple(names), tuple(values))
    outcomes = np.ravel_multi_index(tuple(parts), [len(choices) + 1 for choices in attributes.values])
    return StatedGroups(outcomes.astype(np.int64), attributes)


def by_group(values: Any, rows: int, attributes: Attributes, what: str) -> np.ndarray:
    """Probabilities (rows, groups), or NaN: a table names the groups, an array has them in order."""
    values = unmasked(values)
    index = values.index if isinstance(values, pd.DataFrame) else range(rows)
    names = ", ".join(attributes.group_names)
    wanted = f"expected a number for each of {rows} rows and the groups {names}"
    if isinstance(values, pd.DataFrame) and not isinstance(values.columns, pd.RangeIndex):
        columns = [word_of(name) for name in values.columns]
        require(
            sorted(columns) == sorted(attributes.group_names),
            f"{what} has the columns {shorten(columns)}; {wanted}, with these names.",
        )
        values = values.iloc[:, [columns.index(name) for name in attributes.group_names]]
    try:
        table = isinstance(values, pd.DataFrame)
        given = values.to_numpy(float, na_value=np.nan) if table else np.asarray(values, dtype=float)
    except (TypeError, ValueError) as reason:
        raise InputError(f"{what} is not all numbers; {wanted}.") from reason
    require(
        given.shape == (rows, attributes.groups),
        f"{what} has the shape {given.shape}; {wanted}, one column for each group in this order.",
    )
    wrong = np.any((given < -TOLERANCE) | (given > 1 + TOLERANCE), axis=1)
    require(
        not wrong.any(),
        f"{what} is outside of [0, 1] in {first_row(wrong, index)}; give probabilities, not percentages or "
        "scores.",
    )
    return given


def first_row(where: np.ndarray, index: Sequence[Any]) -> str:
    """The first of some rows by its name in the index, and the number of the others."""
    count = int(where.sum())
    return f"row {index[int(where.argmax())]}" + (f" and {count - 1} more" if count > 1 else "")


def group_columns(sensitive_features: Any, what: str) -> pd.DataFrame:
    """One or several columns of groups, under different names."""
    sensitive_features = unmasked(sensitive_features)
    if isinstance(sensitive_features, pd.DataFrame):
        table = sensitive_features.reset_index(drop=True)
        twice = sorted({str(name) for name in table.columns[table.columns.duplicated()]})
        require(not twice, f"{what} has several columns called {shorten(twice)}.")
    elif isinstance(sensitive_features, np.ndarray) and sensitive_features.ndim == 2:
        width = sensitive_features.shape[1]
        names = ["group"] if width == 1 else [f"group {j}" for j in range(width)]
        table = pd.DataFrame(sensitive_features, columns=names)
    else:
        column = as_column(sensitive_features, what)
        table = column.to_frame(column.name if column.name is not None else "group")
    require(table.shape[1] > 0, f"{what} has no column.")
    return table


def _in_order(table: pd.DataFrame, names: Sequence[str], what: str) -> pd.DataFrame:
    """Reorder the columns as in the model."""
    there = [str(name) for name in table.columns]
    require(
        sorted(there) == sorted(names),
        f"{what} has the columns {shorten(there)}, but the model knows {shorten(names)}; rename them.",
    )
    return table.iloc[:, [there.index(name) for name in names]]


def _refuse_written_gaps(values: Sequence[Any], what: str, remedy: str) -> None:
    for value in values:
        require(
            value not in WRITTEN_GAPS,
            f"{what} has the word {value!r}, which is what a gap becomes as a word; {remedy}.",
        )


def _place_in_order(word: str) -> tuple[bool, float, str]:
    """Sort key: numbers by value, then strings alphabetically, without the quotes of :func:`word_of`."""
    plain = word.strip("'")
    try:
        return False, float(plain), plain
    except ValueError:
        return True, 0.0, plain


def word_of(value: Any) -> str:
    """A value as a string, the same for 1, 1.0 and "1"; keywords of priors are put into quotes."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    word = str(value)
    return f"'{word}'" if word in RESERVED else word


def distinct_words(column: pd.Series) -> tuple[Integers, np.ndarray]:
    """The code of each value, −1 where it is missing, and the words of the codes, which may repeat."""
    if column.dtype == object:  # in which equal values can have different words, as 1 and True do
        words = column.astype(object).map(word_of).mask(column.isna())
        codes, values = pd.factorize(words)
        return codes.astype(np.int64), np.asarray(values, dtype=object)
    codes, values = pd.factorize(column)
    return codes.astype(np.int64), np.array([word_of(value) for value in values], dtype=object)


def shorten(words: Sequence[str], most: int = 8) -> str:
    """The first words, and the number of further ones."""
    shown = ", ".join(map(repr, words[:most]))
    return shown if len(words) <= most else f"{shown} and {len(words) - most} more"
