"""Tables of a user's own in files."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pandas as pd

from pyro_fairvae.errors import InputError, choose, require

SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*SEPARATORS, *(f"{ending}.gz" for ending in SEPARATORS), ".parquet")
SHOWN = 3  # faulty lines that are named


def read_table(path: Path, missing_values: Sequence[str] = ()) -> pd.DataFrame:
    """A table from a file; ``missing_values``, and all that pandas takes for a gap, become gaps."""
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    choose(f"kind of table of {path}", ending, FORMATS)
    require(path.is_file(), f"there is no file {path}.")
    try:
        table = (
            _read_parquet(path, missing_values) if ending == ".parquet" else _read_lines(path, missing_values)
        )
    except (OSError, UnicodeDecodeError) as reason:
        raise InputError(f"cannot read {path}: {reason}.") from reason
    require(len(table) > 0, f"{path} has no rows.")
    return table


def _read_parquet(path: Path, missing_values: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (ValueError, OSError) as reason:
        raise InputError(f"{path} is not a table in Parquet, or is broken: {reason}.") from reason
    return table.mask(table.isin(list(missing_values))) if missing_values else table


def _read_lines(path: Path, missing_values: Sequence[str]) -> pd.DataFrame:
    separator = SEPARATORS[path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix]
    _check_lines(path, separator)
    return pd.read_csv(
        path, sep=separator, skipinitialspace=True, na_values=list(missing_values), low_memory=False
    )


def _check_lines(path: Path, separator: str) -> None:
    """Every line must have as many values as the first has names, which pandas would not insist on."""
    faulty: list[str] = []
    count = 0
    with _open(path) as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        header = [name.strip() for name in next(lines, [])]
        require(bool(header), f"{path} is empty.")
        twice = sorted({name for name in header if header.count(name) > 1})
        require(not twice, f"{path} has several columns called {', '.join(map(repr, twice))}; rename them.")
        try:
            for fields in lines:
                if fields and len(fields) != len(header):
                    count += 1
                    if count <= SHOWN:
                        faulty.append(f"line {lines.line_num} has {len(fields)}")
        except csv.Error as reason:
            raise InputError(f"{path}, line {lines.line_num}: {reason}.") from reason
    require(
        count == 0,
        f"{path} has {len(header)} columns, but {count} lines have another number of values: "
        f"{', '.join(faulty)}{' and so on' if count > SHOWN else ''}. Quote values that contain "
        f"{separator!r}, or mend the lines.",
    )


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def take_columns(table: pd.DataFrame, names: Sequence[str], what: str) -> pd.DataFrame:
    """Columns by name, or an error that names the nearest."""
    there = [str(name) for name in table.columns]
    return table.iloc[:, [there.index(choose(f"column for the {what}", name, there)) for name in names]]
