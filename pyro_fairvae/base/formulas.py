"""Cells of CSV files that a spreadsheet would run as formulas, written as text where this is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

STARTS = ("=", "+", "-", "@", "\t", "\r")

_escaping: ContextVar[bool] = ContextVar("escaping", default=False)


@contextmanager
def escaping_formulas(on: bool) -> Iterator[None]:
    """Inside the ``with`` block :func:`as_cell` puts ' before text that begins as a formula does."""
    token = _escaping.set(on)
    try:
        yield
    finally:
        _escaping.reset(token)


def are_escaped() -> bool:
    """Whether formulas are escaped here."""
    return _escaping.get()


def as_cell(value: Any) -> Any:
    """A value as it is written into a CSV file; numbers, also those in text, are never changed."""
    if not (are_escaped() and isinstance(value, str) and value.startswith(STARTS)):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
