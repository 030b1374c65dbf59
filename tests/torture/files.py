"""Hostile tables as CSV, TSV and Parquet, read by the commands."""

from __future__ import annotations

import gzip
import io
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from tests.torture.cases import Case, drawn
from tests.torture.forked import Ended, command
from tests.torture.frames import COLUMNS, HEADERS
from tests.torture.subjects import COLUMNS as ROLES
from tests.torture.subjects import FIT, Subjects
from tests.torture.verdict import wrong_with
from tests.torture.words import LONG, words

READERS = ("predict", "predict", "audit", "decide", "fit")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "utf-7", "cp037")


@dataclass(frozen=True)
class Table:
    """What is done to the lines of a table: each change has a name and a word or a place."""

    changes: tuple[tuple[str, int, str], ...]
    encoding: str
    bytes_changed: tuple[tuple[str, int, bytes], ...]
    ending: str
    compressed: str

    def write(self, people: Path, folder: Path) -> Path:
        cells = [line.split(",") for line in people.read_text().splitlines()]
        line_end = "\n"
        separator = "\t" if self.ending == ".tsv" else ","
        for change, place, word in self.changes:
            cells = CHANGES[change](cells, place, word)
            line_end = {"carriage returns": "\r\n", "old line ends": "\r"}.get(change, line_end)
            separator = {"semicolons": ";", "bars": "|"}.get(change, separator)
        text = line_end.join(separator.join(line) for line in cells) + line_end
        content = bytearray(text.encode(self.encoding, "replace"))
        for change, place, given in self.bytes_changed:
            place %= len(content) + 1
            if change == "insert":
                content[place:place] = given
            elif change == "cut":
                del content[place:]
            else:
                content[place : place + len(given)] = given
        written = bytes(content)
        if self.compressed != "plain":
            written = gzip.compress(written)
            written = {
                "whole": written,
                "cut": written[:-9],
                "twice": gzip.compress(written),
                "not": bytes(content),
            }[self.compressed]
        path = folder / f"table{self.ending}{'' if self.compressed == 'plain' else '.gz'}"
        path.write_bytes(written)
        return path


Cells = list[list[str]]


def _changed(cells: Cells, line: int, column: int, word: str) -> Cells:
    copy = [list(each) for each in cells]
    row = copy[line % len(copy)] if copy else []
    if row:
        row[column % len(row)] = word
    return copy


CHANGES: dict[str, Callable[[Cells, int, str], Cells]] = {
    "cell": lambda cells, place, word: _changed(cells, 1 + place, place // 7, word),
    "quoted cell": lambda cells, place, word: _changed(cells, 1 + place, place // 7, f'"{word}'),
    "column": lambda cells, place, word: cells[:1] + [
        [word if k == place % len(line) else cell for k,
        cell in enumerate(line)] for line in cells[1:] if line
    ],
    "name": lambda cells, place, word: _changed(cells, 0, place, word),
    "same names": lambda cells, place, word: _changed(cells, 0, place,
    cells[0][0]) if cells and cells[0] else cells,
    "no header": lambda cells, place, word: cells[1:],
    "header alone": lambda cells, place, word: cells[:1],
    "one row": lambda cells, place, word: cells[:2],
    "longer line": lambda cells, place, word: [
        [*line, word] if k == place % len(cells) else line for k, line in enumerate(cells)
    ],
    "shorter line": lambda cells, place, word: [
        line[:-1] if k == place % len(cells) else line for k, line in enumerate(cells)
    ],
    "empty line": lambda cells, place, word: [*cells[: place % (len(cells) + 1)], [""],
    *cells[place % (len(cells) + 1) :]],
    "lacks a column": lambda cells, place, word: [
        [cell for k, cell in enumerate(line) if k != place % max(len(line), 1)] for line in cells
    ],
    "another order": lambda cells, place, word: [line[::-1] for line in cells],
    "another column": lambda cells, place, word: [line + ([word] if k else ["more"]) for k,
    line in enumerate(cells)],
    "nothing": lambda cells, place, word: [],
    "comment": lambda cells, place, word: [[f"# {word}"], *cells],
    "long cell": lambda cells, place, word: _changed(cells, 1 + place, place // 7, LONG),
    **{name: (lambda cells, place, word: cells) for name in (
        "carriage returns", "old line ends", "semicolons", "bars",
    )},
}  # fmt: skip

changes = st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, 500), words)
changed_bytes = st.tuples(
    st.sampled_from(["insert", "cut", "replace"]),
    st.integers(0, 9000),
    st.one_of(
        st.binary(min_size=1, max_size=8),
        st.sampled_from([b"\x00", b"\xff\xfe", b'"', b"\n", b"\x1a", b"\r"]),
    ),
)
tables = st.builds(
    Table,
    st.lists(changes, max_size=3).map(tuple),
    st.one_of(st.just("utf-8"), st.sampled_from(ENCODINGS)),
    st.lists(changed_bytes, max_size=2).map(tuple),
    st.sampled_from([".csv", ".csv", ".tsv"]),
    st.one_of(st.just("plain"), st.sampled_from(["plain", "whole", "cut", "twice", "not"])),
)


@dataclass(frozen=True)
class Parquet:
    """A table in Parquet with columns of odd types, odd names or metadata that contradict it."""

    columns: tuple[tuple[int, str], ...]  # places, and the kinds of values that they get
    header: tuple[int, object]
    metadata: str
    flipped: tuple[int, ...]
    rows: int
    seed: int

    def write(self, people: Path, folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table, draw = pd.read_csv(people), np.random.default_rng(self.seed)
        table = table.iloc[: self.rows]
        for place, kind in self.columns:
            table[table.columns[place % table.shape[1]]] = pd.Series(COLUMNS[kind](len(table), draw))
        place, name = self.header
        if name is not None:
            table = table.set_axis([name if k == place else c for k, c in enumerate(table)], axis=1)
        path = folder / "table.parquet"
        buffer = io.BytesIO()
        try:
            warnings.simplefilter("ignore")
            arrow = pa.Table.from_pandas(table)
            about = json.loads(arrow.schema.metadata[b"pandas"])
            METADATA[self.metadata](about)
            arrow = arrow.replace_schema_metadata({b"pandas": json.dumps(about).encode()})
            if self.metadata == "twice":
                arrow = arrow.append_column(arrow.column_names[0], arrow.column(1))
            pq.write_table(arrow, buffer)
        except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError):
            buffer = io.BytesIO(b"PAR1" + self.seed.to_bytes(4, "little") + b"PAR1")  # it cannot be written
        content = bytearray(buffer.getvalue())
        for at in self.flipped:
            content[at % len(content)] ^= 1 << (at % 8)
        path.write_bytes(bytes(content))
        return path


def _types(about: dict[str, list[dict[str, object]]]) -> None:
    for column in about["columns"]:
        column.update(
            pandas_type="categorical", numpy_type="int8", metadata={"num_categories": 3, "ordered": False}
        )


def _zones(about: dict[str, list[dict[str, object]]]) -> None:
    for column in about["columns"]:
        column.update(
            pandas_type="datetimetz", numpy_type="datetime64[ns]", metadata={"timezone": "No/Where"}
        )


METADATA: dict[str, Callable[[dict], object]] = {
    "own": lambda about: None,
    "types": _types,
    "zones": _zones,
    "index": lambda about: about.update(index_columns=["no such column"]),
    "range": lambda about: about.update(index_columns=[{"kind": "range", "name": None, "start": 0,
    "stop": 10**18, "step": 1}]),
    "columns": lambda about: about.update(columns=None),
    "names": lambda about: about.update(column_indexes=[{"name": "x", "field_name": "x",
    "pandas_type": "datetime",
                                                          "numpy_type": "datetime64[ns]", "metadata": None}]),
    "empty": lambda about: about.clear(),
    "twice": lambda about: None,
}  # fmt: skip
parquets = st.builds(
    Parquet,
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(sorted(COLUMNS))), max_size=3).map(tuple),
    st.tuples(st.integers(0, 12), st.one_of(st.none(), st.sampled_from(HEADERS))),
    st.one_of(st.just("own"), st.sampled_from(sorted(METADATA))),
    st.one_of(st.just(()), st.lists(st.integers(0, 20_000), max_size=3).map(tuple)),
    st.integers(0, 60),
    st.integers(0, 99),
)


@dataclass(frozen=True)
class Strange:
    """Something that is no table at all."""

    kind: str

    def write(self, people: Path, folder: Path) -> Path:
        path = folder / "table.csv"
        STRANGE[self.kind](path)
        return folder / ("y" * 300 + ".csv") if self.kind == "long name" else path


STRANGE: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: path.mkdir(),
    "absent": lambda path: None,
    "pipe": lambda path: os.mkfifo(path),
    "circle": lambda path: path.symlink_to(path),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "nothing": lambda path: path.touch(),
    "zeros": lambda path: path.write_bytes(bytes(5000)),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "one line": lambda path: path.write_text("a" * 2_000_000),
    "many columns": lambda path: path.write_text(",".join(map(str, range(20_000))) + "\n"),
    "long name": lambda path: None,
}
strange = st.builds(Strange, st.sampled_from(sorted(STRANGE)))


def file_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    kinds = st.one_of(tables, tables, parquets, strange)
    subjects.make("people", "few")
    models = st.sampled_from([subjects.network, subjects.trees, subjects.run])
    examples = drawn(st.tuples(st.sampled_from(READERS), models, kinds), count, seed, "files")

    def tried(command_name: str, model: Path, given: Table | Parquet | Strange, folder: Path) -> str:
        path = given.write(subjects.people, folder)
        if command_name == "fit":
            return wrong_with(command(("fit", path, *FIT, "--out", "model"), folder))
        if command_name == "audit":
            return wrong_with(command(("audit", model, path, *ROLES), folder))
        if command_name == "decide":
            return wrong_with(command(("decide", model, path, "--draws", "3", "--out", "made.csv"), folder))
        ended = command(("predict", model, path, "--groups", "--out", "made.csv"), folder)
        return wrong_with(ended, lambda: wrong_predictions(folder / "made.csv", ended))

    return [
        Case(
            f"{name} {model.name} {given}"[:600],
            lambda folder, *, n=name, m=model, g=given: tried(n, m, g, folder),
        )
        for name, model, given in examples
    ]


def wrong_predictions(path: Path, ended: Ended) -> str:
    """What is wrong with a file of predictions: rows, or probabilities."""
    table = pd.read_csv(path)
    if not ended.out.startswith(f"{len(table)} rows decided"):
        return f"{len(table)} rows are in the file, but it says: {ended.out.splitlines()[0]}"
    chances = table[[name for name in table if name.startswith("P(") and "=" not in name]].to_numpy(float)
    if not (np.isfinite(chances).all() and np.allclose(chances.sum(1), 1, atol=1e-4)):
        return "probabilities do not sum to 1"
    return ""
