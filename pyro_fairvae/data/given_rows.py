"""Rows as a caller gives them: masks become gaps, frames those of pandas, and orders one order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.frames import as_pandas


def unmasked(values: Any) -> Any:
    """A masked array as one with gaps, NaN among numbers with a point and None elsewhere; others as is.

    Frames and columns of other libraries become those of pandas.
    """
    values = as_pandas(values)
    if isinstance(values, list | tuple) and any(value is np.ma.masked for value in values):
        return [None if value is np.ma.masked else value for value in values]
    if not isinstance(values, np.ma.MaskedArray):
        return values
    if not np.ma.getmaskarray(values).any():
        return np.asarray(values)
    if values.dtype.kind == "f":
        return values.filled(np.nan)
    filled = np.array(values, dtype=object)
    filled[np.ma.getmaskarray(values)] = None
    return filled


@contextmanager
def in_unicode(what: str) -> Iterator[None]:
    """Refuse half of a surrogate pair, which pandas cannot hold, in text that the block converts."""
    try:
        yield
    except UnicodeEncodeError as reason:
        raise InputError(
            f"{what} has text that is not valid Unicode, {reason.object[reason.start : reason.end]!r}; "
            "decode it from its bytes with the right encoding."
        ) from reason


def in_one_order(**given: Any) -> tuple[Any, ...]:
    """Tables, columns and arrays about the same rows, in the order of the first that has an index.

    What has the same index, or none, is taken as it is. What has the same index values in another order is
    put into the order of the first. Where one of two has the index 0, 1, … of a table made from an array, and
    the other has other values, rows are taken by their place. Anything else is refused, since it is unclear
    which rows belong together; so is a repeated value in another order.
    """
    reference: tuple[str, pd.Index] | None = None
    ordered = []
    for name, values in given.items():
        values = as_pandas(values, name)
        index = values.index if isinstance(values, pd.DataFrame | pd.Series) else None
        if index is not None and reference is not None and len(index) == len(reference[1]):
            places = _places(index, reference[1])
            if places is not None:
                values = values.iloc[places]
            elif _by_place(reference[1]):
                reference = name, index  # it tells more of the rows
            elif not _by_place(index):
                raise InputError(
                    f"{name} and {reference[0]} have different indexes, and it is unclear which rows belong "
                    f"together: {_difference(index, reference[1])}. Give both the same index, or arrays, "
                    "whose rows are taken in order."
                )
        elif index is not None and reference is None:
            reference = name, index
        ordered.append(values)
    return tuple(ordered)


def _by_place(index: pd.Index) -> bool:
    """Whether an index only counts the rows."""
    return index.equals(pd.RangeIndex(len(index)))


def _places(index: pd.Index, wanted: pd.Index) -> np.ndarray | slice | None:
    """Where the values of ``wanted`` are in ``index``; None unless both have the same, each once."""
    if index.equals(wanted):
        return slice(None)
    if not (index.is_unique and wanted.is_unique):
        return None
    try:
        places = index.get_indexer(wanted)
    except (TypeError, ValueError):  # of kinds that cannot be compared
        return None
    return places if (places >= 0).all() else None


def _difference(index: pd.Index, wanted: pd.Index) -> str:
    if not (index.is_unique and wanted.is_unique):
        return "values are repeated, in another order"
    missing = wanted[~wanted.isin(index)].tolist()
    return f"{len(missing)} of {len(wanted)} values are in one alone, such as {missing[0]!r}"
