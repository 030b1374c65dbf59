"""Tables of an audit as records of JSON, and their numbers and intervals as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{key: plain(value) for key, value in line.items()} for line in table.to_dict("records")]


def plain(value: Any) -> Any:
    """A value as a plain JSON type; NaN becomes None."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def table_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """The table of :func:`records`, with NaN where JSON had null."""
    return pd.DataFrame(
        [{key: np.nan if value is None else value for key, value in line.items()} for line in records]
    )


def number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def intervals(table: pd.DataFrame, prefix: str) -> pd.Series:
    pairs = zip(table[f"{prefix}low"], table[f"{prefix}high"], strict=True)
    return pd.Series([f"[{number(low)}, {number(high)}]" for low, high in pairs], index=table.index)
