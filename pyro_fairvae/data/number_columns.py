"""Columns that hold numbers, truth values, dates or durations, in whatever type a table keeps them."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require

NUMBER_KINDS = NUMBERS, DATES, DURATIONS = "numbers", "dates", "durations"
PLAIN_NUMBERS = (Real, Decimal, np.bool_)  # what counts as a number among objects


def with_one_type(column: pd.Series) -> pd.Series:
    """A column of objects that are all numbers, truth values or dates as one of those; others as they are."""
    if isinstance(column.dtype, pd.ArrowDtype):
        column = column.astype(object)
    if column.dtype != object:
        return column
    column = column.infer_objects()
    present = column.dropna()
    if column.dtype != object or present.empty:
        return column
    if all(isinstance(value, PLAIN_NUMBERS) for value in present):
        found = np.full(len(column), np.nan)
        found[column.notna().to_numpy()] = [_float(value) for value in present]
        return pd.Series(found, index=column.index)
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
    """Whether a column holds numbers, truth values or dates."""
    kinds = pd.api.types
    return kinds.is_numeric_dtype(column) or kinds.is_bool_dtype(column) or kind_of_numbers(column) != NUMBERS


def kind_of_numbers(column: pd.Series) -> str:
    """Whether what counts as a number is a date or a duration."""
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
    # Tables keep times in seconds, or in thousandths of them, and so on; a gap is divided into NaN.
    kind, day = kind_of_numbers(column), np.timedelta64(1, "D")
    if kind == DATES:
        return np.asarray((np.asarray(column, dtype="datetime64[us]") - np.datetime64(0, "us")) / day)
    if kind == DURATIONS:
        return np.asarray(column.to_numpy() / day)
    return np.asarray(column.to_numpy(float, na_value=np.nan))
