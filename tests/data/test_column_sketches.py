"""Columns that are learned in pieces are those that are learned at once."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import column_sketches
from pyro_fairvae.data.column_sketches import ColumnSketch
from pyro_fairvae.data.table_encoder import Number, TableEncoder

ROWS = 700


def sketched(column: pd.Series, piece: int = 64) -> ColumnSketch:
    sketch = ColumnSketch("c", len(column))
    for first in range(0, len(column), piece):
        sketch.add(column.iloc[first : first + piece].reset_index(drop=True))
    return sketch


def draw(of: Callable[[np.random.Generator], Any]) -> pd.Series:
    return pd.Series(of(np.random.default_rng(0)), name="c")


COLUMNS = {
    "numbers": draw(lambda d: d.normal(3, 2, ROWS)),
    "numbers with gaps": draw(lambda d: np.where(d.random(ROWS) < 0.3, np.nan, d.exponential(size=ROWS))),
    "far from 0": draw(lambda d: 1e9 + d.random(ROWS)),
    "huge": draw(lambda d: d.normal(size=ROWS) * 1e300),
    "tiny": draw(lambda d: d.normal(size=ROWS) * 1e-300),
    "whole": draw(lambda d: d.integers(100, size=ROWS)),
    "booleans with gaps": draw(lambda d: d.choice(np.array([True, False, None]), ROWS)),
    "dates": draw(lambda d: np.datetime64("2020-01-01") + d.integers(900, size=ROWS)),
    "days": draw(lambda d: [datetime.date(2020, 1, 1 + int(k)) for k in d.integers(28, size=ROWS)]),
    "words with gaps": draw(lambda d: d.choice(np.array(["a", "b", "cc", None], dtype=object), ROWS)),
    "many words": draw(lambda d: [f"w{int(k)}" for k in 90 * d.random(ROWS) ** 2]),
    "one number": pd.Series(np.full(ROWS, 7.0), name="c"),
    "identifiers": pd.Series([f"id {k}" for k in range(ROWS)], name="c"),
    "gaps alone": pd.Series([None] * ROWS, name="c"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_it_is_what_a_whole_column_gives(name: str) -> None:
    column = COLUMNS[name]
    beside = pd.Series(np.arange(ROWS), name="beside")  # of which an encoder can be made
    encoder = TableEncoder.learn(pd.concat([column, beside], axis=1), warn=False)
    expected = [of for of in (*encoder.numbers, *encoder.categories) if of.name == "c"]
    reasons: dict[str, str] = {}
    sketch = sketched(column)
    found = sketch.learned(reasons)
    assert sketch.missing == column.isna().sum()
    assert ("c" in reasons) == ("c" in encoder.left_out)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if not isinstance(one, Number):
            assert one == other
            continue
        assert isinstance(other, Number)
        assert (one.gaps, one.kind, one.median) == (other.gaps, other.kind, other.median)
        assert one.mean == pytest.approx(other.mean, rel=1e-12, abs=1e-12 * other.deviation)
        assert one.deviation == pytest.approx(other.deviation, rel=1e-9 if name == "far from 0" else 1e-12)
    assert sketch.values == column.dropna().nunique()


def test_words_beyond_the_limit_are_counted_nearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count is at most rows / limit too small, and never too large."""
    monkeypatch.setattr(column_sketches, "MOST_WORDS", 20)
    generator = np.random.default_rng(1)
    words = [f"w{k}" for k in (generator.pareto(1.0, 4000) * 5).astype(int)]
    sketch = sketched(pd.Series(words), piece=100)
    true = pd.Series(words).value_counts()
    assert len(sketch.words) <= 40 < len(true)
    off = {word: int(true[word]) - sketch.words[word] for word in true.index}
    assert min(off.values()) >= 0
    assert max(off.values()) <= 4000 / 20


def test_many_different_numbers_are_counted_to_about_one_percent() -> None:
    generator = np.random.default_rng(2)
    sketch = sketched(pd.Series(generator.permutation(np.repeat(np.arange(60_000.0), 2))), piece=20_000)
    assert sketch.values == pytest.approx(60_000, rel=0.03)


def test_the_median_of_many_rows_is_of_evenly_spaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_sketches, "MEDIAN_ROWS", 100)
    values = np.random.default_rng(3).normal(size=1050)
    values[::50] = np.nan
    (found,) = sketched(pd.Series(values), piece=64).learned({})
    assert isinstance(found, Number)
    assert found.median == np.nanmedian(values[::11])
    late = np.full(1050, np.nan)
    late[[5, 6, 8]] = 1.0, 2.0, 3.0  # none of the spaced rows has a number
    (found,) = sketched(pd.Series(late)).learned({})
    assert isinstance(found, Number)
    assert found.median == 2.0


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(InputError, match="'c' holds numbers in some rows and words in others"):
        sketched(pd.Series([1.0] * 64 + ["x"] * 64, dtype=object))
    with pytest.raises(InputError, match="contains infinity"):
        sketched(pd.Series([1.0, np.inf]))
