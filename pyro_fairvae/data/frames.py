"""A user's own table as features: which columns are numbers, which are categories, and what fills gaps.

What is learned of a table is a few numbers and words in dataclasses, so that it can be written as JSON.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pyro_fairvae.batch import Columns
from pyro_fairvae.data.stated import word_of
from pyro_fairvae.data.tables import Floats
from pyro_fairvae.errors import InputError, require

MOST_CATEGORIES = 64  # of a column, the commonest; all others count as one
FEWEST = 5  # rows that a category must have to count as one of its own, where a column has too many


@dataclass(frozen=True)
class Number:
    """A numeric column: a gap takes the median, and says so in a column of its own where gaps were seen."""

    name: str
    median: float
    mean: float
    deviation: float
    gaps: bool

    def standardised(self, column: pd.Series) -> np.ndarray:
        values = numbers_of(column)
        return (np.where(np.isnan(values), self.median, values) - self.mean) / self.deviation


@dataclass(frozen=True)
class Category:
    """A column of words: ``values``, then one place for all others and one for gaps, where such were seen."""

    name: str
    values: tuple[str, ...]
    others: bool
    gaps: bool

    @property
    def width(self) -> int:
        return len(self.values) + self.others + self.gaps

    def codes(self, column: pd.Series) -> np.ndarray:
        """Places (rows,); −1 for what has none, such as a category that was never seen."""
        missing = column.isna().to_numpy()
        place = pd.Index(self.values).get_indexer(pd.Index(column.map(word_of), dtype=object))
        strange = (place < 0) & ~missing
        place[strange] = len(self.values) if self.others else -1
        place[missing] = self.width - 1 if self.gaps else -1
        return place


@dataclass(frozen=True)
class FrameEncoder:
    """How the columns of a table become features; ``left_out`` are those that say nothing."""

    names: tuple[str, ...]
    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    left_out: tuple[str, ...]

    @staticmethod
    def learn(table: pd.DataFrame, most_categories: int = MOST_CATEGORIES) -> FrameEncoder:
        """Learn from a table; columns that say nothing are left out, with a warning that names them."""
        names = check_names(table)
        numbers: list[Number] = []
        categories: list[Category] = []
        left_out: dict[str, str] = {}
        for name, (_, column) in zip(names, table.items(), strict=True):
            if column.isna().all():
                left_out[name] = "all its values are missing"
            elif is_number(column):
                numbers += _learn_number(name, column, left_out)
            else:
                categories += _learn_category(name, column, most_categories, left_out)
        if left_out:
            told = "; ".join(f"{name!r}: {why}" for name, why in left_out.items())
            warnings.warn(f"columns that say nothing are left out: {told}.", stacklevel=3)
        require(
            bool(numbers or categories),
            f"none of the {len(names)} columns can be used as a feature: {'; '.join(left_out.values())}.",
        )
        return FrameEncoder(names, tuple(numbers), tuple(categories), tuple(left_out))

    def kind_of(self, name: str) -> str:
        """What a column of the table counts as."""
        if name in self.left_out:
            return "left out"
        return "number" if any(each.name == name for each in self.numbers) else "category"

    @property
    def blocks(self) -> tuple[tuple[str, int], ...]:
        """Name and width of each one-hot block: gaps of numbers, then the categories."""
        gaps = [(f"{each.name} is missing", 2) for each in self.numbers if each.gaps]
        return (*gaps, *((each.name, each.width) for each in self.categories))

    @property
    def columns(self) -> Columns:
        names = [each.name for each in self.numbers] + [name for name, _ in self.blocks]
        return Columns(len(self.numbers), tuple(width for _, width in self.blocks), tuple(names))

    def encode(self, table: pd.DataFrame) -> Floats:
        """Features (rows, width) of a table with the columns that were learned from."""
        of = self.aligned(table)
        x = np.zeros((len(table), self.columns.width), dtype=np.float32)
        every = np.arange(len(table))
        for j, number in enumerate(self.numbers):
            x[:, j] = number.standardised(of[number.name])
        start = len(self.numbers)
        for number in self.numbers:
            if number.gaps:
                x[every, start + np.isnan(numbers_of(of[number.name]))] = 1
                start += 2
        for category in self.categories:
            place = category.codes(of[category.name])
            known = place >= 0
            x[every[known], start + place[known]] = 1
            start += category.width
        return x

    def aligned(self, table: pd.DataFrame) -> dict[str, pd.Series]:
        """The columns by name, each checked; columns that the encoder does not know are not looked at."""
        there = dict(zip(check_names(table), (column for _, column in table.items()), strict=True))
        lacking = [name for name in self.names if name not in there and name not in self.left_out]
        if lacking:
            told = "; ".join(
                _lacking(name, [each for each in there if each not in self.names]) for name in lacking
            )
            raise InputError(f"the table lacks columns that the model was fitted with: {told}.")
        for number in self.numbers:
            column = there[number.name]
            if column.isna().all():
                there[number.name] = column.astype(float)
            elif not is_number(column):
                raise InputError(
                    f"column {number.name!r} held numbers when the model was fitted, but now holds values "
                    f"such as {column.dropna().iloc[0]!r}."
                )
            check_finite(number.name, column)
        return there

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(content: dict[str, Any]) -> FrameEncoder:
        return FrameEncoder(
            tuple(content["names"]),
            tuple(Number(**each) for each in content["numbers"]),
            tuple(Category(**each | {"values": tuple(each["values"])}) for each in content["categories"]),
            tuple(content["left_out"]),
        )


def as_frame(X: Any) -> pd.DataFrame:
    """A table of whatever scikit-learn users pass for X, its columns' kinds found."""
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    if sparse.issparse(X):
        raise TypeError("X is a sparse matrix, but a dense table is expected; convert it by X.toarray().")
    array = np.asarray(X)
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


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers, truth values or dates."""
    kinds = pd.api.types
    return (
        kinds.is_numeric_dtype(column)
        or kinds.is_bool_dtype(column)
        or kinds.is_datetime64_any_dtype(column)
        or kinds.is_timedelta64_dtype(column)
    )


def check_names(table: pd.DataFrame) -> tuple[str, ...]:
    """The names of the columns as words, which must differ."""
    names = tuple(map(str, table.columns))
    twice = sorted({name for name in names if names.count(name) > 1})
    require(
        not twice, f"several columns are called {', '.join(map(repr, twice))}; give each a name of its own."
    )
    return names


def check_finite(name: str, column: pd.Series) -> None:
    if pd.api.types.is_float_dtype(column):
        infinite = int(np.isinf(column.to_numpy(float, na_value=np.nan)).sum())
        require(
            infinite == 0,
            f"column {name!r} contains infinity in {infinite} rows; replace it by a number, or by NaN where "
            "the value is unknown.",
        )


def numbers_of(column: pd.Series) -> np.ndarray:
    """Values as floating-point numbers, dates in days."""
    if pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
        values = column.astype("int64").to_numpy(float) / 8.64e13
        return np.where(column.isna(), np.nan, values)
    return column.to_numpy(float, na_value=np.nan)


def _learn_number(name: str, column: pd.Series, left_out: dict[str, str]) -> list[Number]:
    check_finite(name, column)
    values = numbers_of(column)
    gaps = np.isnan(values)
    median = float(np.median(values[~gaps]))
    filled = np.where(gaps, median, values)
    # Sums of squares of huge numbers would overflow.
    scale = float(np.abs(filled).max()) or 1.0
    deviation = float((filled / scale).std()) * scale
    if deviation > 1e-12 * scale or gaps.any():
        return [
            Number(name, median, float((filled / scale).mean()) * scale, deviation or 1.0, bool(gaps.any()))
        ]
    left_out[name] = f"it has one value, {word_of(values[0])}"
    return []


def _learn_category(name: str, column: pd.Series, most: int, left_out: dict[str, str]) -> list[Category]:
    counts = column.dropna().map(word_of).value_counts()
    ordered = sorted(counts.index, key=lambda word: (-counts[word], word))
    kept = ordered if len(ordered) <= most else [word for word in ordered[:most] if counts[word] >= FEWEST]
    found = Category(name, tuple(sorted(kept)), len(kept) < len(ordered), bool(column.isna().any()))
    if found.width > 1:
        return [found]
    left_out[name] = (
        f"it has one value, {ordered[0]!r}"
        if kept
        else f"nearly every row has a value of its own ({len(ordered)})"
    )
    return []


def _lacking(name: str, others: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, others, n=1)
    return f"{name!r}" + (f" (is it {near[0]!r} now?)" if near else "")
