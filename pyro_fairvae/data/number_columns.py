"""Columns that hold numbers, truth values, dates or durations, in any type that a table may use."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.given_rows import in_unicode

NUMBER_KINDS = NUMBERS, DATES, DURATIONS = "numbers", "dates", "durations"
PLAIN_NUMBERS = (Real, Decimal, np.bool_)  # types that count as numbers in a column of objects


def with_one_type(column: pd.Series) -> pd.Series:
    """Convert a column of objects, all numbers, booleans or dates, to that type; others are unchanged."""
    if isinstance(column.dtype, pd.ArrowDtype):
        column = column.astype(object)
    if column.dtype != object:
        return column
    with in_unicode(f"column {column.name!r}"):
        column = column.infer_objects()
    present = column.dropna()
    if column.dtype != object or present.empty:
        return column
    if all(isinstance(value, PLAIN_NUMBERS) for value in present):
        numbers = np.full(len(column), np.nan)
        numbers[column.notna().to_numpy()] = [_float(value) for value in present]
        return pd.Series(numbers, index=column.index)
    if all(type(value) is datetime.date for value in present):
        days = [None if missing else day for day, missing in zip(column, column.isna(), strict=True)]
        return pd.Series(np.array(days, dtype="datetime64[s]"), index=column.index)
    return column


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def is_number(column: pd.Series) -> bool:
    """Whether a column holds numbers, booleans, dates or durations."""
    kinds = pd.api.types
    return kinds.is_numeric_dtype(column) or kinds.is_bool_dtype(column) or kind_of_numbers(column) != NUMBERS


def kind_of_numbers(column: pd.Series) -> str:
    """The kind of a numeric column: numbers, dates or durations."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return DATES
    return DURATIONS if pd.api.types.is_timedelta64_dtype(column) else NUMBERS


def check_finite(name: str, values: np.ndarray) -> None:
    infinite = int(np.isinf(values).sum())
    require(
        infinite == 0,
        f"column {name!r} contains infinity in {infinite} rows; replace it by a number, or by NaN where "
        "the value is unknown.",
    )


def numbers_of(column: pd.Series) -> np.ndarray:
    """Values as floating-point numbers, dates and durations in days."""
    # The unit of times differs between tables: seconds, milliseconds and so on. A missing time becomes NaN.
    kind, day = kind_of_numbers(column), np.timedelta64(1, "D")
    if kind == DATES:
        return np.asarray((np.asarray(column, dtype="datetime64[us]") - np.datetime64(0, "us")) / day)
    if kind == DURATIONS:
        return np.asarray(column.to_numpy() / day)
    return np.asarray(column.to_numpy(float, na_value=np.nan))
