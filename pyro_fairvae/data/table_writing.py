"""Tables that are written in pieces, and are there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pandas as pd
from pandas.api.types import is_float_dtype

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.files import frame_text, writing_whole
from pyro_fairvae.data.parquet_rows import ENDING, require_pyarrow
from pyro_fairvae.data.table_files import FORMATS, ending_of

Write = Callable[[pd.DataFrame, pd.DataFrame], None]  # called with columns as they are, and with results
DIGITS = "{:.6g}"  # of numbers in text


def check_format(path: Path) -> None:
    """Raise unless a table can be written to this file."""
    require(
        ending_of(path) not in set(FORMATS) - {".csv", ENDING},
        f"predictions are written as CSV or Parquet, got --out {path}; name a file that ends in .csv or "
        f"{ENDING}.",
    )
    if ending_of(path) == ENDING:
        require_pyarrow(path)


@contextmanager
def writing_table(path: Path, types: Mapping[str, Any]) -> Iterator[Write]:
    """Write a table in pieces, as Parquet if the name ends so, else as CSV.

    Numbers among results have six digits in CSV. ``types`` are those of columns of Parquet, if known.
    """
    with writing_whole(path) as file:
        writer = _Parquet(file, types) if ending_of(path) == ENDING else _Text(file)
        try:
            yield writer.write
            writer.close()
        except BaseException:
            with suppress(Exception):  # what is wrong with the file has been raised already
                writer.close()
            raise


class _Text:
    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.header = file, True

    def write(self, kept: pd.DataFrame, results: pd.DataFrame) -> None:
        shown = results.apply(lambda column: column.map(DIGITS.format) if is_float_dtype(column) else column)
        whole = pd.concat([kept.reset_index(drop=True), shown], axis=1)
        self.file.write(frame_text(whole, self.header).encode())
        self.header = False

    def close(self) -> None:
        """Nothing is left to write."""


class _Parquet:
    def __init__(self, file: IO[bytes], types: Mapping[str, Any]) -> None:
        self.file, self.types = file, types
        self.writer: Any = None

    def write(self, kept: pd.DataFrame, results: pd.DataFrame) -> None:
        import pyarrow
        import pyarrow.parquet as pq

        whole = pd.concat([kept.reset_index(drop=True), results], axis=1)
        if self.writer is None:
            schema = pyarrow.Table.from_pandas(whole, preserve_index=False).schema
            for place, name in enumerate(schema.names):
                if name in kept.columns and name in self.types:  # gaps alone do not tell it
                    schema = schema.set(place, pyarrow.field(name, self.types[name]))
            self.writer = pq.ParquetWriter(self.file, schema)
        table = pyarrow.Table.from_pandas(whole, schema=self.writer.schema, preserve_index=False)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
