"""Rows of a Parquet file, or of all Parquet files of a folder, read some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.data.coded_columns import is_missing

ENDING = ".parquet"
AT_ONCE = 1 << 15  # rows
BUFFER = 1 << 20  # bytes read ahead of each column


@dataclass(frozen=True)
class ParquetRows:
    """Rows of files with the same columns, in the order of their names.

    ``missing`` are words that mean a gap, besides null; ``columns`` are those that are read, or all.
    """

    where: Path
    files: tuple[Path, ...]
    rows: int
    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    types: Mapping[str, Any] = field(default_factory=dict, compare=False)  # of pyarrow

    @staticmethod
    def open(where: Path, missing: Sequence[str] = ()) -> ParquetRows:
        """The rows of a file or folder, none of which is read; raises unless all files have one schema."""
        require_pyarrow(where)
        import pyarrow.parquet as pq

        files = _files_of(where)
        rows, names = 0, list[str]()
        first: Any = None
        for path in files:
            with _readable(path), pq.ParquetFile(path) as file:
                rows += file.metadata.num_rows
                schema = file.schema_arrow
                if first is None:
                    first = schema
                    empty = schema.empty_table().to_pandas()  # without columns that hold an index
                    names += map(str, empty.columns)
            _check_schema(files[0], first, path, schema)
        require(rows > 0, f"{where} has no rows.")
        types = dict(zip(first.names, first.types, strict=True))
        return ParquetRows(where, files, rows, tuple(names), tuple(missing), types=types)

    def only(self, columns: Sequence[str]) -> ParquetRows:
        """The same rows, of which some columns are read."""
        return replace(self, columns=tuple(columns))

    def pieces(self, rows: int = AT_ONCE) -> Iterator[tuple[int, Any]]:
        """The number of the first row, and a pyarrow batch, of which :meth:`frame` makes a table."""
        import pyarrow.parquet as pq

        first = 0
        for path in self.files:
            with _readable(path), pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                columns = None if self.columns is None else list(self.columns)
                for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                    yield first, batch
                    first += batch.num_rows

    def frame(self, batch: Any) -> pd.DataFrame:
        """A batch as a table, with its gaps."""
        return self.with_gaps(self._stored(batch))

    def _stored(self, batch: Any) -> pd.DataFrame:
        """A batch as a table, with null as its only gap."""
        with _readable(self.where):
            for column in batch.columns:
                column.validate(full=True)
            table: pd.DataFrame = batch.to_pandas().rename(columns=str).reset_index(drop=True)
        return table

    def with_gaps(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table in which ``missing`` words are gaps, too."""
        if not self.missing:
            return table
        return pd.DataFrame(
            {name: column.mask(is_missing(column, self.missing)) for name, column in table.items()}
        )

    def frames(self, rows: int = AT_ONCE) -> Iterator[tuple[int, pd.DataFrame]]:
        """The number of the first row, and some rows as a table."""
        for first, batch in self.pieces(rows):
            yield first, self.frame(batch)

    def stored(self, rows: int = AT_ONCE) -> Iterator[tuple[int, pd.DataFrame]]:
        """As :meth:`frames`, with null as the only gap."""
        for first, batch in self.pieces(rows):
            yield first, self._stored(batch)

    def chosen(self, mask: np.ndarray) -> pd.DataFrame:
        """Some of the rows as one table; batches without such rows are not converted."""
        found: list[pd.DataFrame] = []
        for first, batch in self.pieces():
            inside = np.flatnonzero(mask[first : first + batch.num_rows])
            if len(inside) or not found:  # an empty one has the columns
                found.append(self.frame(batch.take(inside)))
        return pd.concat(found, ignore_index=True)

    def mark(self) -> str:
        """A string that changes when a file changes, computed without reading it."""
        status = [(path.name, path.stat()) for path in self.files]
        return " ".join(f"{name} {of.st_size} {of.st_mtime_ns}" for name, of in status)


def require_pyarrow(where: Path) -> None:
    """Raise unless the extra ``parquet`` is installed."""
    require(
        find_spec("pyarrow") is not None,
        f"{where} is in Parquet, which needs pyarrow; install it by pip install 'pyro_fairvae[parquet]', or "
        "give the table as CSV.",
    )


def _files_of(where: Path) -> tuple[Path, ...]:
    """The file itself, or the Parquet files of a folder in the order of their names."""
    if not where.is_dir():
        require(where.is_file(), f"there is no file {where}.")
        return (where,)
    there = [path for path in sorted(where.iterdir()) if not path.name.startswith((".", "_"))]
    folders = [path.name for path in there if path.is_dir()]
    require(
        not folders,
        f"{where} has folders in it, such as {folders[0] if folders else ''}; give a folder that holds "
        "Parquet files alone.",
    )
    files = [path for path in there if path.suffix.lower() == ENDING]
    others = [path.name for path in there if path not in files]
    require(
        bool(files),
        f"{where} is a folder without Parquet files"
        + (f" (it has {others[0]})" if others else ", and empty")
        + f"; give a table, or a folder of files that end in {ENDING}.",
    )
    return tuple(files)


def _check_schema(first: Path, expected: Any, path: Path, schema: Any) -> None:
    """Raise unless two files have the same columns; of numbers the types may differ."""
    _check_names(path, schema.names)
    for name in expected.names:
        require(
            name in schema.names,
            f"{path} has no column {name!r}, which {first} has; files of a folder must have the same "
            "columns.",
        )
    for name in schema.names:
        require(
            name in expected.names,
            f"{path} has a column {name!r}, which {first} has not; files of a folder must have the same "
            "columns.",
        )
        one, other = expected.field(name).type, schema.field(name).type
        kinds = {_kind(one), _kind(other)} - {"null"}
        require(
            len(kinds) < 2,
            f"column {name!r} of {path} holds {other}, but that of {first} holds {one}; give it one type in "
            "all files.",
        )


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    require(not twice, f"{path} has several columns called {', '.join(map(repr, twice))}; rename them.")


def _kind(of: Any) -> str:
    """What of a type matters: numbers of all sizes are alike, and so are strings."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(of):
        return _kind(of.value_type)
    if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of):
        return "number"
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return "text"
    if types.is_timestamp(of) or types.is_date(of):
        return "date"
    return "null" if types.is_null(of) else str(of)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as reason:  # columns that contradict the file's own metadata can raise almost any
        raise InputError(f"{path} is not a table in Parquet, or is broken: {first_line(reason)}.") from reason
