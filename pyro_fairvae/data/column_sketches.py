r"""What a table encoder learns of a column, from some rows at a time.

Moments are exact: those of two parts add up as

.. math:: n = n_1 + n_2, \quad \mu = \mu_1 + \delta n_2 / n, \quad S = S_1 + S_2 + \delta^2 n_1 n_2 / n,

with δ the difference of their means (Chan, Golub and LeVeque 1983). The median is that of evenly spaced rows,
:data:`MEDIAN_ROWS` at most. Words are counted exactly up to :data:`MOST_WORDS` different ones; with more,
counts are too small by at most rows / MOST_WORDS (Misra and Gries 1982), and only of words that rare.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import distinct_words
from pyro_fairvae.data.number_columns import (
    check_finite,
    is_number,
    kind_of_numbers,
    numbers_of,
    with_one_type,
)
from pyro_fairvae.data.table_encoder import (
    MOST_CATEGORIES,
    Category,
    Moments,
    Number,
    learned_category,
    learned_number,
    median_of,
)

MEDIAN_ROWS = 1 << 17
MOST_WORDS = 100_000
HASHES = 1 << 14  # different numbers that are counted exactly; more are estimated to about 1 %
FALLBACK = 1000  # first numbers, whose median is taken where evenly spaced rows have gaps alone


class ColumnSketch:
    """One column, of which rows are added; ``rows`` is how many there will be."""

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.every = -(-rows // MEDIAN_ROWS)
        self.rows = self.missing = 0
        self.kind: str | None = None  # of numbers; "words" for a category
        self.value: Any = None  # one that is not missing
        self.words: Counter[str] = Counter()
        self._hashes = np.empty(0, dtype=np.uint64)
        self._sum = _Sum()
        self._spaced: list[np.ndarray] = []
        self._first = np.empty(0)

    def add(self, given: pd.Series) -> None:
        """Add the next rows."""
        column = with_one_type(given)
        missing = np.asarray(column.isna(), dtype=bool)
        if not missing.all():
            kind = kind_of_numbers(column) if is_number(column) else "words"
            require(
                self.kind in (None, kind),
                f"column {self.name!r} holds {self.kind} in some rows and {kind} in others; give one type of "
                "values.",
            )
            if self.kind is None:
                self.kind, self.value = kind, column[~missing].iloc[0]
            if kind == "words":
                self._add_words(column)
            else:
                self._add_numbers(column)
        elif self.kind != "words":
            self._skip(len(column))
        self.rows += len(column)
        self.missing += int(missing.sum())

    def _skip(self, rows: int) -> None:
        place = -self.rows % self.every
        self._spaced.append(np.full(len(range(place, rows, self.every)), np.nan))

    def _add_numbers(self, column: pd.Series) -> None:
        values = numbers_of(column)
        check_finite(self.name, values)
        self._spaced.append(values[-self.rows % self.every :: self.every].copy())
        present = values[~np.isnan(values)]
        if len(self._first) < FALLBACK:
            self._first = np.append(self._first, present[: FALLBACK - len(self._first)])
        self._sum.add(present)
        found = pd.util.hash_array(np.unique(present))
        self._hashes = np.union1d(self._hashes, found)[:HASHES]

    def _add_words(self, column: pd.Series) -> None:
        which, words = distinct_words(column)
        counts = np.bincount(which[which >= 0], minlength=len(words))
        for word, count in zip(words, counts.tolist(), strict=True):
            self.words[word] += count
        if len(self.words) > 2 * MOST_WORDS:
            least = np.partition(np.fromiter(self.words.values(), int), -MOST_WORDS - 1)[-MOST_WORDS - 1]
            self.words = Counter(
                {word: count - int(least) for word, count in self.words.items() if count > least}
            )

    @property
    def values(self) -> int:
        """Number of different values, estimated where there are many."""
        if self.kind == "words":
            return len(self.words)
        if len(self._hashes) < HASHES:
            return len(self._hashes)
        return round((HASHES - 1) / (float(self._hashes[-1]) / 2.0**64))

    def learned(self, left_out: dict[str, str], most: int = MOST_CATEGORIES) -> list[Number | Category]:
        """The column as an encoder has it, or none and the reason."""
        if self.kind is None:
            left_out[self.name] = "all its values are missing"
            return []
        if self.kind == "words":
            return list(learned_category(self.name, self.words, self.missing > 0, most, left_out))
        spaced = np.concatenate(self._spaced)
        present = spaced[~np.isnan(spaced)]
        median = median_of(present if len(present) else self._first)
        filled = copy.copy(self._sum)
        filled.add_constant(median, self.missing)
        moments = Moments(
            median, filled.mean, filled.deviation, filled.low, filled.high, self.missing > 0
        )  # fmt: skip
        return list(learned_number(self.name, moments, self.kind, self.value, left_out))


class _Sum:
    """Mean and sum of squares around it, in the widest numbers there are: squares must not overflow."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = self._squares = np.longdouble(0)
        self.low, self.high = np.inf, -np.inf

    def add(self, values: np.ndarray) -> None:
        if len(values):
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
            wide = values.astype(np.longdouble)
            mean = wide.mean()
            self._merge(len(values), mean, ((wide - mean) ** 2).sum())

    def add_constant(self, value: float, times: int) -> None:
        if times:
            self._merge(times, np.longdouble(value), np.longdouble(0))

    def _merge(self, count: int, mean: Any, squares: Any) -> None:
        total, apart = self.count + count, mean - self._mean
        self._squares = self._squares + squares + apart**2 * (self.count * (count / total))
        self._mean = self._mean + apart * (np.longdouble(count) / total)
        self.count = total

    @property
    def mean(self) -> float:
        return float(self._mean)

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self._squares / self.count))
