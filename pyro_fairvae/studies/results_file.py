"""The results of studies as one Parquet file, from which tables and figures are made.

Every line belongs to a table, the column ``table``: ``results`` (a line for each panel, method, seed and
weight),
``recovery``, ``printed`` (the same rates by the method as printed), ``ladder``, ``failures`` and ``about``
(settings and versions by name); lines of one table and data set are replaced together.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import make_folder, write_whole
from pyro_fairvae.base.messages import first_line

FILE = "results.parquet"
MEASUREMENTS = ("results", "ladder")
TABLES = ("results", "recovery", "printed", "ladder", "failures", "about")
# Measured shares and times, of which seven digits are plenty.
MEASURED = (
    "error",
    "disparity",
    "val_error",
    "val_disparity",
    "floor",
    "positive_rate",
    "seconds",
    "constant_error",
)

Tables = dict[str, pd.DataFrame]


def check_parquet() -> None:
    """Raise unless Parquet files can be read and written."""
    require(
        find_spec("pyarrow") is not None,
        "results are stored in Parquet, which needs pyarrow; install pyarrow, or 'pyro_fairvae[parquet]'.",
    )


def read_tables(folder: Path) -> Tables:
    """The tables of ``results.parquet`` in a folder, by name; empty ones are left out."""
    check_parquet()
    path = folder / FILE
    require(path.is_file(), f"{folder} has no {FILE}; reproduce --store {folder} makes it.")
    try:
        whole = pd.read_parquet(path)
    except Exception as reason:  # a file that contradicts its own metadata can raise almost any
        raise InputError(f"{path} is not a table in Parquet, or is broken: {first_line(reason)}.") from reason
    require("table" in whole, f"{path} has no column 'table': it is not a file of results.")
    found: Tables = {}
    for name in TABLES:
        lines = whole[whole["table"] == name].drop(columns="table").dropna(axis=1, how="all")
        if len(lines):
            lines = lines.reset_index(drop=True).infer_objects()
            if name in MEASUREMENTS:
                lines = lines.assign(**{column: float("nan") for column in MEASURED if column not in lines})
            found[name] = lines.astype(
                {column: "float64" for column in lines if lines[column].dtype == "float32"}
            )
    return found


def store_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> Path:
    """Put tables into the file of a folder; those of other data sets that it has stay."""
    check_parquet()
    unknown = set(tables) - set(TABLES)
    require(not unknown, f"unknown tables {sorted(unknown)}; expected {', '.join(TABLES)}.")
    make_folder(folder)
    path = folder / FILE
    before = read_tables(folder) if path.is_file() else {}
    pieces = []
    for name in TABLES:
        new = tables.get(name, pd.DataFrame())
        old = before.get(name, pd.DataFrame())
        if len(new) and len(old):
            old = old[~old["dataset"].isin(new["dataset"])]
        pieces += [lines.assign(table=name) for lines in (old, new) if len(lines)]
    require(len(pieces) > 0, "there are no results to store.")
    whole = pd.concat(pieces, ignore_index=True)
    whole = whole.astype({name: "float32" for name in MEASURED if name in whole})
    buffer = io.BytesIO()
    whole.to_parquet(buffer, index=False, compression="zstd")
    write_whole(path, buffer.getvalue())
    return path


def about(dataset: str, values: Mapping[str, object]) -> pd.DataFrame:
    """Settings and versions as lines."""
    shown = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }
    return pd.DataFrame([{"dataset": dataset, "name": name, "value": value} for name, value in shown.items()])
