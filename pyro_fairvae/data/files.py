"""Tables of a user's own in files."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pandas as pd

from pyro_fairvae.data.stated import is_missing
from pyro_fairvae.errors import InputError, choose, require

SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*SEPARATORS, *(f"{ending}.gz" for ending in SEPARATORS), ".parquet")
SHOWN = 3  # faulty lines that are named


def read_table(path: Path, missing_values: Sequence[str] = ()) -> pd.DataFrame:
    """A table from a file; ``missing_values``, and all that pandas takes for a gap, become gaps."""
    ending = ending_of(path)
    choose(f"kind of table of {path}", ending, FORMATS)
    require(path.is_file(), f"there is no file {path}.")
    try:
        table = (
            _read_parquet(path, missing_values) if ending == ".parquet" else _read_lines(path, missing_values)
        )
    except UnicodeDecodeError as reason:
        raise InputError(
            f"{path} is not text in UTF-8 (byte {reason.start}: {reason.reason}); save it as UTF-8, for "
            "example by iconv -f latin1 -t utf8."
        ) from reason
    except (OSError, EOFError, zlib.error) as reason:
        raise InputError(f"cannot read {path}: {reason}.") from reason
    require(len(table) > 0, f"{path} has no rows.")
    return table


def ending_of(path: Path) -> str:
    """The ending that tells the kind of a table, in small letters."""
    suffixes = path.suffixes[-2:] if path.suffix.lower() == ".gz" else [path.suffix]
    return "".join(suffixes).lower()


def _read_parquet(path: Path, missing_values: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (ValueError, OSError) as reason:
        raise InputError(f"{path} is not a table in Parquet, or is broken: {reason}.") from reason
    _check_header(path, [str(name) for name in table.columns])
    if not missing_values:
        return table
    return pd.DataFrame({name: each.mask(is_missing(each, missing_values)) for name, each in table.items()})


def _read_lines(path: Path, missing_values: Sequence[str]) -> pd.DataFrame:
    ending = ending_of(path)
    separator = SEPARATORS[ending.removesuffix(".gz")]
    _check_lines(path, separator)
    try:
        table = pd.read_csv(
            path,
            sep=separator,
            skipinitialspace=True,
            index_col=False,
            na_values=list(missing_values),
            low_memory=False,
            compression="gzip" if ending.endswith(".gz") else None,
        )
    except pd.errors.ParserError as reason:
        raise InputError(f"{path} cannot be read as a table: {str(reason).strip()}.") from reason
    return table.rename(columns=str.strip)


def _check_header(path: Path, header: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(header).items() if count > 1)
    require(not twice, f"{path} has several columns called {', '.join(map(repr, twice))}; rename them.")


def _check_lines(path: Path, separator: str) -> None:
    """Every line must have as many values as the first has names, which pandas would not insist on."""
    faulty: list[str] = []
    count = 0
    with _open(path) as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        try:
            header = [name.strip() for name in next((fields for fields in lines if fields), [])]
            require(bool(header), f"{path} is empty.")
            _check_header(path, header)
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
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def take_columns(table: pd.DataFrame, names: Sequence[str], what: str) -> pd.DataFrame:
    """Columns by name, or an error that names the nearest."""
    there = [str(name) for name in table.columns]
    return table.iloc[:, [there.index(choose(f"column for the {what}", name, there)) for name in names]]
