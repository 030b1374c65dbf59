"""Reading of users' tables from files."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pandas as pd

from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.data.coded_columns import is_missing
from pyro_fairvae.data.parquet_rows import ENDING, ParquetRows, require_pyarrow

SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*SEPARATORS, *(f"{ending}.gz" for ending in SEPARATORS), ENDING)
CODE = re.compile(r"\s*[+-]?0\d")
WORDS_SHOWN = 3  # number of faulty lines to list
# Strings that text files use for missing values: those of pandas, and its string for a missing date.
GAPS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "NaT", "None", "n/a", "nan", "null",
)  # fmt: skip
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_table(
    path: Path,
    missing_values: Sequence[str] = (),
    values: Sequence[str] = (),
    as_text: Sequence[str] = (),
    names: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a table from a file.

    In text files the strings GAPS are missing values, except those in ``values``, and columns ``as_text`` are
    read as strings, such as 0010; the types of other columns are inferred. Columns ``names`` hold labels or
    groups: they are read as strings, too, if some value begins with a zero, since 01 and 1 would become one
    number. ``missing_values`` are missing, too. A first column without a name, in which pandas writes the
    numbers of rows, is left out.
    """
    ending = ending_of(path)
    if not (path.is_dir() and is_parquet(path)):
        choose(f"kind of table of {path}", ending, FORMATS)
        require(path.is_file(), f"there is no file {path}.")
    try:
        if is_parquet(path):
            table = _read_parquet(path, missing_values)
        else:
            gaps = [*missing_values, *(word for word in GAPS if word not in values)]
            table = _read_lines(path, gaps, as_text, names)
    except UnicodeDecodeError as reason:
        with path.open("rb") as file:
            utf16 = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
        raise InputError(
            f"{path} is not text in UTF-8 (byte {reason.start}: {reason.reason}); save it as UTF-8, for "
            f"example by iconv -f {'utf16' if utf16 else 'latin1'} -t utf8."
        ) from reason
    except (OSError, EOFError, zlib.error) as reason:
        raise InputError(f"cannot read {path}: {first_line(reason)}.") from reason
    require(len(table) > 0, f"{path} has no rows.")
    return table


def read_words(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """Some columns as strings, unparsed, in the order of ``names``; from Parquet as stored."""
    if is_parquet(path):
        return _stored(path).rename(columns=str)[list(names)].reset_index(drop=True)
    with _open(path) as file:
        header = _names(csv.reader(file, delimiter=_separator(path), skipinitialspace=True))
    return _parsed(path, header, [], str, names)[list(names)]


def is_parquet(path: Path) -> bool:
    """Whether it is a Parquet file, or a folder of them."""
    ending = ending_of(path)
    return ending == ENDING or (path.is_dir() and ending not in FORMATS)


def ending_of(path: Path) -> str:
    """The file name ending that determines the format of a table, in lower case."""
    suffixes = path.suffixes[-2:] if path.suffix.lower() == ".gz" else [path.suffix]
    return "".join(suffixes).lower()


def _read_parquet(path: Path, missing_values: Sequence[str]) -> pd.DataFrame:
    table = _stored(path)
    _check_header(path, [str(name) for name in table.columns])
    if not missing_values:
        return table
    return pd.DataFrame(
        {name: column.mask(is_missing(column, missing_values)) for name, column in table.items()}
    )


def _stored(path: Path) -> pd.DataFrame:
    """Read a table in Parquet, which needs the extra ``parquet``."""
    require_pyarrow(path)
    if path.is_dir():
        whole = ParquetRows.open(path)
        return pd.concat([frame for _, frame in whole.frames()], ignore_index=True)
    import pyarrow

    try:
        table = pd.read_parquet(path)
        for _, column in table.items():
            if isinstance(column.dtype, pd.StringDtype):  # else decoded where it is used
                pyarrow.array(column).validate(full=True)
        return table
    except Exception as reason:  # columns that contradict the file's own metadata can raise almost any
        raise InputError(f"{path} is not a table in Parquet, or is broken: {first_line(reason)}.") from reason


def _read_lines(
    path: Path, gaps: Sequence[str], as_text: Sequence[str], names: Sequence[str]
) -> pd.DataFrame:
    header, codes = _check_lines(path, _separator(path), names)
    types = dict.fromkeys([*as_text, *codes], str)
    return _parsed(path, header, gaps, types, header).drop(columns="", errors="ignore")


def _separator(path: Path) -> str:
    return SEPARATORS[ending_of(path).removesuffix(".gz")]


def _names(lines: Iterator[list[str]]) -> list[str]:
    """The names in the first line that is not empty."""
    return [name.strip() for name in next((fields for fields in lines if fields), [])]


def _parsed(
    path: Path, header: Sequence[str], gaps: Sequence[str], types: Any, only: Sequence[str]
) -> pd.DataFrame:
    """The columns ``only`` of a text file whose columns are named ``header``."""
    try:
        return pd.read_csv(
            path,
            sep=_separator(path),
            skipinitialspace=True,
            index_col=False,
            header=0,
            names=list(header),
            usecols=list(only),
            dtype=types,
            na_values=list(gaps),
            keep_default_na=False,
            low_memory=False,
            compression="gzip" if ending_of(path).endswith(".gz") else None,
        )
    except (pd.errors.ParserError, OverflowError) as reason:
        raise InputError(f"{path} cannot be read as a table: {first_line(reason)}.") from reason


def _check_header(path: Path, header: Sequence[str]) -> None:
    nameless = [place for place, name in enumerate(header, start=1) if not name and place > 1]
    require(
        not nameless,
        f"{path} has no name for column {', '.join(map(str, nameless))}; name it, or leave it out.",
    )
    twice = sorted(name for name, count in Counter(header).items() if count > 1)
    require(not twice, f"{path} has several columns called {', '.join(map(repr, twice))}; rename them.")


def _check_lines(path: Path, separator: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names in the first line, and those among ``names`` that hold codes such as 01.

    Raises unless all lines have as many values; pandas does not check it.
    """
    codes: set[str] = set()
    faulty: list[str] = []
    count = 0
    with _open(path) as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        try:
            header = _names(lines)
            require(bool(header), f"{path} is empty.")
            for other, called in OTHER_SEPARATORS.items():
                require(
                    len(header) > 1 or other not in header[0],
                    f"{path} has one column, {header[0][:60]!r}: its values seem to be separated by "
                    f"{called}. Save it with commas, and with points in numbers, or with tabs as .tsv.",
                )
            _check_header(path, header)
            places = [(place, name) for place, name in enumerate(header) if name in names]
            for fields in lines:
                codes |= {name for place, name in places if len(fields) > place and CODE.match(fields[place])}
                if fields and len(fields) != len(header):
                    count += 1
                    if count <= WORDS_SHOWN:
                        faulty.append(f"line {lines.line_num} has {len(fields)}")
        except csv.Error as reason:
            raise InputError(f"{path}, line {lines.line_num}: {first_line(reason)}.") from reason
    require(
        count == 0,
        f"{path} has {len(header)} columns, but {count} lines have another number of values: "
        f"{', '.join(faulty)}{' and so on' if count > WORDS_SHOWN else ''}. Quote values that contain "
        f"{separator!r}, or correct the lines.",
    )
    return header, sorted(codes)


def _open(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return io.TextIOWrapper(gzip.open(path, "rb"), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def take_columns(table: pd.DataFrame, names: Sequence[str], what: str) -> pd.DataFrame:
    """Columns by name; an unknown name raises an error with the nearest name."""
    there = [str(name) for name in table.columns]
    return table.iloc[:, [there.index(choose(f"column for the {what}", name, there)) for name in names]]
