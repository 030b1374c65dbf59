"""Tables of people in Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.support.user_tables import made_table

FEATURES = ("n", "town", *(f"x{j}" for j in range(8)), "c")


def people(rows: int, seed: int = 0) -> pd.DataFrame:
    """Numbers and categories with gaps, a label and a group that some withhold."""
    made, draw = made_table(rows, seed), np.random.default_rng([seed, 2])
    table = made.X.assign(hired=made.y_obs, sex=made.a_obs)
    table.insert(0, "n", np.where(draw.random(rows) < 0.1, np.nan, draw.normal(5, 3, rows)))
    table.insert(1, "town", draw.choice(np.array(["Oslo", "Rome", "Bonn", None], dtype=object), rows))
    table["age"] = draw.integers(18, 90, size=rows)
    return table


def write_people(path: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """A file of them, in several row groups."""
    table = people(rows, seed)
    table.to_parquet(path, row_group_size=max(rows // 5, 1))
    return pd.read_parquet(path)
