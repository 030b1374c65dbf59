"""Tables and columns of other libraries, such as polars and pyarrow, as those of pandas, and back.

Everything inside works on tables of pandas. Any eager frame or column that narwhals knows becomes one here,
with the same kinds of columns: numbers, truth values, categories, dates and durations stay what they are, and
nulls become gaps. Nothing but narwhals is needed for it.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pandas as pd
from narwhals.exceptions import NarwhalsError

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line


def as_pandas(values: Any, what: str = "the table") -> Any:
    """A frame or column of another library as one of pandas, its rows numbered from 0; all else as it is."""
    known = _known(values, what)
    if isinstance(known, nw.DataFrame):
        return pd.DataFrame({name: _column(known[name]) for name in known.columns}, index=range(len(known)))
    if isinstance(known, nw.Series):
        return _column(known).rename(known.name or None)
    return values


def like(table: pd.DataFrame, given: Any) -> Any:
    """A table as a frame of the kind that was given; of pandas unless that is a frame of another library."""
    known = _known(given, "the table")
    if not isinstance(known, nw.DataFrame | nw.Series):
        return table
    return of_kind(table, kind_of(given))


def kind_of(*given: Any) -> str | None:
    """The library of the first frame or column that is not of pandas; None without one."""
    for values in given:
        known = _known(values, "the table")
        if isinstance(known, nw.DataFrame | nw.Series):
            return str(known.implementation).rpartition(".")[2].lower()
    return None


def of_kind(table: pd.DataFrame, kind: str | None) -> Any:
    """A table as a frame of a library, by its name in narwhals; with None, of pandas."""
    if kind is None or kind == "pandas":
        return table
    columns = {
        str(name): [None if missing else value for value, missing in zip(column.tolist(), gaps, strict=True)]
        for (name, column), gaps in zip(table.items(), table.isna().to_numpy().T, strict=True)
    }
    try:
        backend: Any = kind
        return nw.from_dict(columns, backend=backend).to_native()
    except (NarwhalsError, ImportError, ValueError, TypeError) as reason:
        raise InputError(f"a table of {kind!r} cannot be made: {first_line(reason)}.") from reason


def _known(values: Any, what: str) -> Any:
    """What narwhals makes of a frame or column of another library than pandas; None of all else."""
    if values is None or isinstance(values, pd.DataFrame | pd.Series | list | tuple | str):
        return None
    if isinstance(values, nw.DataFrame | nw.LazyFrame | nw.Series):
        known: Any = values
    else:
        known = nw.from_native(values, pass_through=True, allow_series=True)
    require(
        not isinstance(known, nw.LazyFrame),
        f"{what} is a lazy frame, whose rows are not there yet; collect it first, such as by .collect().",
    )
    return known if isinstance(known, nw.DataFrame | nw.Series) else None


def _column(column: Any) -> pd.Series:
    """A column of narwhals as one of pandas."""
    kind, gaps = column.dtype, bool(column.is_null().any())
    if kind == nw.Categorical or kind == nw.Enum:
        words = column.cast(nw.String).to_list()
        return pd.Series(pd.Categorical(words, categories=getattr(kind, "categories", None) or None))
    if kind.is_integer() and gaps:
        width = "Int64" if kind.is_signed_integer() else "UInt64"
        return pd.Series(pd.array(column.to_list(), dtype=width))
    if kind == nw.Boolean and gaps:
        return pd.Series(pd.array(column.to_list(), dtype="boolean"))
    if kind.is_float():
        numbers = [float("nan") if value is None else value for value in column.to_list()]
        return pd.Series(numbers, dtype="float64")
    if kind == nw.Date or kind == nw.Datetime:
        return pd.Series(pd.to_datetime(pd.Series(column.to_list(), dtype=object)))
    if kind == nw.Duration:
        return pd.Series(pd.to_timedelta(pd.Series(column.to_list(), dtype=object)))
    values = column.to_list()
    return pd.Series(values, dtype=object).infer_objects() if gaps or not values else pd.Series(values)
