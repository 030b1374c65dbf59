"""Encoding of a user's table as features: numbers, categories, and the filling of missing values.

The learned encoding is a few numbers and strings in dataclasses, so that it can be written as JSON.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.coded_columns import distinct_words, shorten, word_of
from pyro_fairvae.data.given_rows import unmasked
from pyro_fairvae.data.number_columns import (
    NUMBER_KINDS,
    NUMBERS,
    PLAIN_NUMBERS,
    check_finite,
    is_number,
    kind_of_numbers,
    numbers_of,
    with_one_type,
)
from pyro_fairvae.schema.arrays import Floats
from pyro_fairvae.schema.observed import IS_MISSING, Columns

MOST_CATEGORIES = 64  # of a column, the most frequent; all others are merged into one
FEWEST_IN_CATEGORY = 5  # rows that a category needs to be kept, where a column has too many categories
FARTHEST = 1e6  # values are clipped at this many deviations from the mean; beyond it 32 bits would overflow
ROUNDING_ERROR = 16 * np.finfo(float).eps  # relative to the largest value; smaller differences count as none


@dataclass(frozen=True)
class Number:
    """A numeric column: the median fills gaps, with an indicator column if gaps occurred in fitting."""

    name: str
    median: float
    mean: float
    deviation: float
    gaps: bool
    kind: str = NUMBERS

    def standardised(self, column: pd.Series) -> np.ndarray:
        values = numbers_of(column)
        filled = np.where(np.isnan(values), self.median, values)
        # Halved, since the difference of huge numbers would overflow.
        with np.errstate(over="ignore"):
            scaled = (filled / 2 - self.mean / 2) / (self.deviation / 2)
        return np.clip(scaled, -FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Category:
    """A column of categories: ``values``, then a code for all others and one for gaps, if these occurred."""

    name: str
    values: tuple[str, ...]
    others: bool
    gaps: bool

    @property
    def width(self) -> int:
        return len(self.values) + self.others + self.gaps

    @property
    def words(self) -> tuple[str, ...]:
        """Each code in words."""
        return (*self.values, *["other"] * self.others, *["missing"] * self.gaps)

    @property
    def is_text(self) -> bool:
        """Whether it has strings that a file reader may parse as something else, such as 0010 as 10."""
        return any(_as_read(word) != word for word in self.values)

    def codes(self, column: pd.Series) -> np.ndarray:
        """Codes (rows,); −1 for values without a code, such as categories not seen in fitting.

        Warns if most values are such, since it is then probably not the same column.
        """
        missing = np.asarray(column.isna(), dtype=bool)
        which, words = distinct_words(column)
        of_words = pd.Index(self.values, dtype=object).get_indexer(pd.Index(words, dtype=object))
        place = np.where(missing, -1, np.append(of_words, -1)[which])
        strange = (place < 0) & ~missing
        if not self.others and strange.sum() > max(FEWEST_IN_CATEGORY, (~missing).sum() / 2):
            warnings.warn(
                f"{strange.sum()} of {(~missing).sum()} values of column {self.name!r} were never seen in "
                f"fitting, such as {words[which[strange][0]]!r}; known values are such as "
                f"{self.values[0]!r}.",
                stacklevel=2,
            )
        place[strange] = len(self.values) if self.others else -1
        place[missing] = self.width - 1 if self.gaps else -1
        return place


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of the columns of a table as features; ``left_out`` are uninformative columns."""

    names: tuple[str, ...]
    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    left_out: tuple[str, ...]

    @staticmethod
    def learn(
        table: pd.DataFrame,
        most_categories: int = MOST_CATEGORIES,
        keep_all: bool = False,
        warn: bool = True,
    ) -> TableEncoder:
        """Learn from a table; uninformative columns are left out, with a warning that names them.

        With ``keep_all`` the columns do not depend on which rows of a table are used: a categorical column
        has all the categories of its type, and a number that is constant in these rows is kept.
        """
        names = check_names(table)
        numbers: list[Number] = []
        categories: list[Category] = []
        left_out: dict[str, str] = {}
        for name, (_, given) in zip(names, table.items(), strict=True):
            column = with_one_type(given)
            if column.isna().all():
                left_out[name] = "all its values are missing"
            elif keep_all and isinstance(column.dtype, pd.CategoricalDtype):
                categories.append(_every_category(name, column))
            elif is_number(column):
                numbers += _learn_number(name, column, left_out, keep_all)
            else:
                categories += _learn_category(name, column, most_categories, left_out)
        return TableEncoder.of_learned(names, numbers, categories, left_out, warn)

    @staticmethod
    def of_learned(
        names: Sequence[str],
        numbers: Sequence[Number],
        categories: Sequence[Category],
        left_out: Mapping[str, str],
        warn: bool = True,
    ) -> TableEncoder:
        """Of columns that were learned; ``left_out`` says why, which is a warning."""
        if left_out and warn:
            reasons = "; ".join(f"{name!r}: {why}" for name, why in left_out.items())
            warnings.warn(f"columns that say nothing are left out: {reasons}.", stacklevel=6)
        require(
            bool(numbers or categories),
            f"none of the {len(names)} columns can be used ({shorten(names)}): "
            f"{'; '.join(left_out.values())}.",
        )
        return TableEncoder(tuple(names), tuple(numbers), tuple(categories), tuple(left_out))

    def kind_of(self, name: str) -> str:
        """The kind of a column of the table: number, category or left out."""
        if name in self.left_out:
            return "left out"
        return "number" if any(number.name == name for number in self.numbers) else "category"

    @property
    def blocks(self) -> tuple[tuple[str, int], ...]:
        """Name and width of each one-hot block: gaps of numbers, then the categories."""
        gaps = [(IS_MISSING.format(number.name), 2) for number in self.numbers if number.gaps]
        return (*gaps, *((category.name, category.width) for category in self.categories))

    @property
    def columns(self) -> Columns:
        names = [number.name for number in self.numbers] + [name for name, _ in self.blocks]
        values: list[tuple[str, ...]] = [("no", "yes") for number in self.numbers if number.gaps]
        values += [category.words for category in self.categories]
        widths = tuple(width for _, width in self.blocks)
        return Columns(len(self.numbers), widths, tuple(names), tuple(values))

    def encode(self, table: pd.DataFrame) -> Floats:
        """Features (rows, width) of a table with the columns seen in fitting."""
        numbers, codes = self.coded(table)
        x = np.zeros((len(table), self.columns.width), dtype=np.float32)
        x[:, : len(self.numbers)] = numbers
        every, start = np.arange(len(table)), len(self.numbers)
        for (_, width), code in zip(self.blocks, codes.T, strict=True):
            known = code >= 0
            x[every[known], start + code[known]] = 1
            start += width
        return x

    def coded(self, table: pd.DataFrame) -> tuple[Floats, np.ndarray]:
        """Numbers, (rows, numbers), and the code of each one-hot block, (rows, blocks); −1 for no code."""
        column_of = self.aligned(table)
        numbers = np.empty((len(table), len(self.numbers)), dtype=np.float32)
        for j, number in enumerate(self.numbers):
            numbers[:, j] = number.standardised(column_of[number.name])
        gaps = [np.isnan(numbers_of(column_of[number.name])) for number in self.numbers if number.gaps]
        of_categories = [category.codes(column_of[category.name]) for category in self.categories]
        codes = np.empty((len(table), len(self.blocks)), dtype=np.int32)
        for b, code in enumerate([*gaps, *of_categories]):
            codes[:, b] = code
        return numbers, codes

    def aligned(self, table: pd.DataFrame) -> dict[str, pd.Series]:
        """The columns by name, each checked; columns unknown to the encoder are ignored."""
        there = dict(zip(check_names(table), (column for _, column in table.items()), strict=True))
        lacking = [name for name in self.names if name not in there and name not in self.left_out]
        if lacking:
            unknown = [name for name in there if name not in self.names]
            listed = "; ".join(_lacking(name, unknown) for name in lacking)
            raise InputError(f"the table lacks columns that the model was fitted with: {listed}.")
        for number in self.numbers:
            there[number.name] = _numeric(number, there[number.name])
        return there

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(content: dict[str, Any]) -> TableEncoder:
        """The encoder from the output of :meth:`to_dict`; raises if the content is invalid."""
        encoder = TableEncoder(
            tuple(content["names"]),
            tuple(Number(**fields) for fields in content["numbers"]),
            tuple(
                Category(**fields | {"values": tuple(fields["values"])}) for fields in content["categories"]
            ),
            tuple(content["left_out"]),
        )
        words = [
            *encoder.names,
            *encoder.left_out,
            *(word for category in encoder.categories for word in category.values),
        ]
        learned = [number.name for number in encoder.numbers]
        learned += [category.name for category in encoder.categories]
        require(
            all(isinstance(word, str) for word in words)
            and sorted([*learned, *encoder.left_out]) == sorted(encoder.names)
            and all(len(set(category.values)) == len(category.values) for category in encoder.categories)
            and all(
                isinstance(flag, bool)
                for category in encoder.categories
                for flag in (category.others, category.gaps)
            )
            and all(
                isinstance(number.gaps, bool) and number.kind in NUMBER_KINDS for number in encoder.numbers
            )
            and all(math.isfinite(number.median) and math.isfinite(number.mean) for number in encoder.numbers)
            and all(0 < number.deviation < math.inf for number in encoder.numbers),
            "the description of the columns is not one that was learned from a table.",
        )
        return encoder


def as_frame(X: Any) -> pd.DataFrame:
    """Convert any X that scikit-learn accepts to a table, and infer the types of its columns."""
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    if sparse.issparse(X):
        raise TypeError("X is a sparse matrix, but a dense table is expected; convert it by X.toarray().")
    X = unmasked(X)
    if isinstance(X, pd.DataFrame):
        return X
    array = np.asarray(X)
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        array = np.asarray(X, dtype=object)  # numpy converts numbers in a list to strings if it has strings
    if np.iscomplexobj(array):
        raise InputError(f"Complex data not supported: X has the type {array.dtype}.")
    if array.ndim != 2:
        raise InputError(
            f"X has the shape {array.shape}; expected a 2D array or table, (rows, columns). Reshape your "
            "data using X.reshape(-1, 1) if it has a single feature or X.reshape(1, -1) if it is a single "
            "sample."
        )
    require(
        array.shape[1] > 0,
        f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required; give some columns.",
    )
    frame = pd.DataFrame(array)
    return frame.infer_objects() if array.dtype == object else frame


def without_columns(X: Any, names: Collection[str]) -> Any:
    """X without the columns of these names, which it may lack; columns of an array are called 0, 1, …."""
    if not names:
        return X
    table = X if isinstance(X, pd.DataFrame) else as_frame(X)
    return table.loc[:, [str(name) not in names for name in table.columns]]


def names_of(given: Any) -> tuple[str, ...]:
    """Names of columns as strings, each once; a single name counts as a list of one."""
    names = [given] if isinstance(given, (str, int)) else given or ()
    return tuple(dict.fromkeys(map(str, names)))


def check_names(table: pd.DataFrame) -> tuple[str, ...]:
    """The names of the columns as strings, which must be distinct."""
    names = tuple(map(str, table.columns))
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    require(
        not twice, f"several columns are called {', '.join(map(repr, twice))}; give each a name of its own."
    )
    return names


def _numeric(number: Number, column: pd.Series) -> pd.Series:
    """The values of a column that was numeric in fitting; raises unless it is numeric again."""
    if column.isna().all():
        return pd.Series(np.full(len(column), np.nan))
    typed = with_one_type(column.astype(object) if isinstance(column.dtype, pd.CategoricalDtype) else column)
    kept = is_number(typed) and not pd.api.types.is_complex_dtype(typed)
    if not kept or kind_of_numbers(typed) != number.kind:
        present = typed.dropna()
        strange = [value for value in present if not isinstance(value, PLAIN_NUMBERS)]
        raise InputError(
            f"column {number.name!r} held {number.kind} when the model was fitted, but now holds values such "
            f"as {str((strange or list(present))[0])!r}; give {number.kind}, or NaN where it is unknown."
        )
    values = numbers_of(typed)
    check_finite(number.name, values)
    return pd.Series(values)


def _learn_number(
    name: str, column: pd.Series, left_out: dict[str, str], keep_all: bool = False
) -> list[Number]:
    require(
        not pd.api.types.is_complex_dtype(column),
        f"Complex data not supported: column {name!r} has the type {column.dtype}.",
    )
    values = numbers_of(column)
    check_finite(name, values)
    gaps = np.isnan(values)
    median = median_of(values[~gaps])
    filled = np.where(gaps, median, values)
    low, high = float(filled.min()), float(filled.max())
    scale = scale_of(low, high)
    scaled = filled / scale
    # Relative to the median, since a large mean would leave few digits for the differences.
    around = scaled - median / scale
    mean = (median / scale + float(around.mean())) * scale
    moments = Moments(median, mean, float(around.std()) * scale, low, high, bool(gaps.any()))
    value = column.dropna().iloc[0]
    return learned_number(name, moments, kind_of_numbers(column), value, left_out, keep_all)


@dataclass(frozen=True)
class Moments:
    """What is learned of a number: of its gaps filled by the median, except for that itself."""

    median: float
    mean: float
    deviation: float
    low: float
    high: float
    gaps: bool


def scale_of(low: float, high: float) -> float:
    """A power of two near the largest value: it scales without rounding, and squares do not overflow."""
    return float(2.0 ** (math.frexp(max(abs(low), abs(high)))[1] - 1))


def learned_number(
    name: str, of: Moments, kind: str, value: Any, left_out: dict[str, str], keep_all: bool = False
) -> list[Number]:
    """The column, or none and the reason where all its values are like ``value``."""
    scale, largest = scale_of(of.low, of.high), max(abs(of.low), abs(of.high))
    alike = of.high / scale - of.low / scale <= max(ROUNDING_ERROR * largest / scale, 1e-300 / scale)
    if alike and not (keep_all or of.gaps):
        left_out[name] = f"it has one value, {word_of(value)}"
        return []
    return [Number(name, of.median, of.mean, 1.0 if alike else of.deviation, of.gaps, kind)]


def median_of(values: np.ndarray) -> float:
    """The median, computed from halves, since the sum of two huge numbers would overflow."""
    return float(np.median(values / 2)) * 2


def _learn_category(name: str, column: pd.Series, most: int, left_out: dict[str, str]) -> list[Category]:
    which, words = distinct_words(column)
    counts: Counter[str] = Counter()
    for word, count in zip(words, np.bincount(which[which >= 0], minlength=len(words)), strict=True):
        counts[word] += int(count)
    return learned_category(name, counts, bool(column.isna().any()), most, left_out)


def learned_category(
    name: str,
    counts: Mapping[str, int],
    gaps: bool,
    most: int,
    left_out: dict[str, str],
) -> list[Category]:
    """The column by the rows of each word, or none and the reason where it says nothing."""
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    kept = (
        ordered
        if len(ordered) <= most
        else [word for word in ordered[:most] if counts[word] >= FEWEST_IN_CATEGORY]
    )
    category = Category(name, tuple(sorted(kept)), len(kept) < len(ordered), gaps)
    if category.width > 1:
        return [category]
    left_out[name] = (
        f"it has one value, {ordered[0]!r}"
        if kept
        else f"nearly every row has a value of its own ({len(ordered)})"
    )
    return []


def _every_category(name: str, column: pd.Series) -> Category:
    values = tuple(word_of(value) for value in column.cat.categories)
    return Category(name, values, False, bool(column.isna().any()))


def _as_read(word: str) -> str:
    """The string after a file reader has parsed a number or a boolean in it."""
    if word.lower() in ("true", "false"):
        return word.capitalize()
    try:
        return word_of(float(word))
    except ValueError:
        return word


def _lacking(name: str, others: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, others, n=1)
    return f"{name!r}" + (f" (is it {near[0]!r} now?)" if near else "")
