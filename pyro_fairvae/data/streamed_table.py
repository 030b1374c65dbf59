"""A user's table that is larger than memory: learned in one pass over its file, and encoded in another.

What stays in memory are two bytes a row for the label and two for the group. Features are in a mapped file,
:class:`~pyro_fairvae.schema.coded_rows.CodedRows`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.coded_columns import code_labels, word_of
from pyro_fairvae.data.column_sketches import ColumnSketch
from pyro_fairvae.data.mapped_store import (
    BLOCKS,
    NOT_WRITTEN,
    Store,
    build,
    cache_home,
    put,
    record,
    refuse_full_disk,
)
from pyro_fairvae.data.number_groups import code_sensitive
from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.splits import stratified_share
from pyro_fairvae.data.table_encoder import Category, Number, TableEncoder
from pyro_fairvae.data.user_table import counted
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import UNAVAILABLE, Attributes
from pyro_fairvae.schema.coded_rows import FLOAT, MOST_CODES, UNKNOWN, CodedRows
from pyro_fairvae.schema.observed import Observed

CODED_FORMAT = 1  # increase it whenever the same rows would give other bytes
BLOCK_ROWS = 1 << 16  # rows that are digested and recorded together
MOST_VALUES = 10_000  # different labels, or values of a group, before they count as numbers or identifiers
VALIDATED = 50_000  # rows held out of training, at most


@dataclass(frozen=True)
class StreamedTable:
    """Rows of Parquet files, apart from those that are only audited.

    ``y_obs`` and ``a_obs`` are codes of label and group, the last of which is ∅. ``first`` are the first
    rows, as they were read, by which roles of columns are checked.
    """

    source: ParquetRows
    label: str
    group_names: tuple[str, ...]
    features: tuple[str, ...]
    left_out: np.ndarray  # of the source's rows, those that are only audited
    encoder: TableEncoder
    classes: np.ndarray
    attributes: Attributes
    y_obs: np.ndarray
    a_obs: np.ndarray
    described: list[dict[str, Any]]
    first: pd.DataFrame
    show: bool = False
    _mapped: list[torch.Tensor] = field(default_factory=list)
    proxies: ClassVar[None] = None

    @staticmethod
    def learn(
        source: ParquetRows,
        label: str,
        groups: Sequence[str],
        features: Sequence[str],
        left_out: np.ndarray,
        missing_values: Sequence[Any] = (),
        levels: int | None = None,
        show: bool = False,
    ) -> StreamedTable:
        """Learn columns, classes and groups in one pass; nothing is written."""
        source = source.only(list(dict.fromkeys([label, *groups, *features])))
        rows = int((~left_out).sum())
        sketches = {name: ColumnSketch(name, rows) for name in features}
        stated = {name: _Values(name, rows) for name in dict.fromkeys([label, *groups])}
        with _bar(source.rows, "learning columns", show) as bar:
            first = _one_pass(_kept(source, left_out, bar), [sketches, stated])
        reasons: dict[str, str] = {}
        learned = [column for sketch in sketches.values() for column in sketch.learned(reasons)]
        numbers = [column for column in learned if isinstance(column, Number)]
        categories = [column for column in learned if isinstance(column, Category)]
        encoder = TableEncoder.of_learned(tuple(features), numbers, categories, reasons)
        y_of_value, classes = code_labels(stated[label].distinct)
        a_obs, attributes = _coded_groups([stated[name] for name in groups], missing_values, levels)
        described = [
            {"name": name, "kind": encoder.kind_of(name), "missing": sketch.missing, "values": sketch.values}
            for name, sketch in sketches.items()
        ]
        y_obs = np.append(y_of_value, len(classes)).astype(np.int16)[stated[label].codes]
        names = tuple(groups)
        return StreamedTable(
            source, label, names, tuple(features), left_out, encoder, classes, attributes, y_obs, a_obs,
            described, first, show,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        return len(self.y_obs)

    @property
    def widest(self) -> int:
        return max((width for _, width in self.encoder.blocks), default=0)

    def observed(self, rows: Integers) -> Observed:
        """Some of the rows, whose features are on disk."""
        columns = self.encoder.columns
        features = CodedRows(
            self._encoded(), torch.from_numpy(rows), numbers=columns.numbers, blocks=columns.blocks
        )  # fmt: skip
        return Observed(
            features,
            torch.from_numpy(self.y_obs[rows]).long(),
            torch.from_numpy(self.a_obs[rows]).long(),
            columns,
            len(self.classes),
            self.attributes.groups,
            self.attributes,
            tuple(word_of(label) for label in self.classes),
        )

    def parts(self, share: float, seed: int) -> tuple[Integers, Integers]:
        """Training and validation rows; ``share`` are for validation, at most :data:`VALIDATED`."""
        require(0 < share < 1, f"validation_fraction must be within (0, 1), got {share}.")
        held_out = stratified_share(self.y_obs, self.a_obs, min(share, VALIDATED / self.rows), seed)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def digest(self) -> str:
        """A hash of all rows, by which a checkpoint recognises its data."""
        self._encoded()
        digest = hashlib.sha256(self._store().note()["sha256"].encode())
        digest.update(self.y_obs.data)
        digest.update(self.a_obs.data)
        return digest.hexdigest()

    def summary(self, training_rows: int) -> dict[str, Any]:
        """Counts of the table, of which so many rows were trained on."""
        return {
            "rows": self.rows,
            "labels": counted([*map(word_of, self.classes), UNAVAILABLE], self.y_obs.astype(np.int64)),
            "groups": counted(self.attributes.outcome_names, self.a_obs.astype(np.int64)),
            "columns": self.described,
            "training_rows": training_rows,
            "held_out_rows": self.rows - training_rows,
        }

    def discard(self) -> None:
        """Delete the mapped file; its rows can be read as long as they are in use."""
        for ending in ("json", "u8"):
            self._store().path(ending).unlink(missing_ok=True)

    def _row_bytes(self) -> int:
        return FLOAT * len(self.encoder.numbers) + len(self.encoder.blocks)

    def _store(self) -> Store:
        content = [CODED_FORMAT, self.source.mark(), self.source.missing, self.encoder.to_dict(), self.rows]
        digest = hashlib.sha256(json.dumps(content).encode())
        digest.update(np.packbits(self.left_out).data)
        at_once = min(BLOCK_ROWS, self.rows)
        width = at_once * self._row_bytes()
        folder = cache_home() / "tables"
        return Store(folder, f"rows-{digest.hexdigest()[:24]}", -(-self.rows // at_once), width, BLOCKS)

    def _encoded(self) -> torch.Tensor:
        """All rows as they are stored, (rows, bytes); encoded once."""
        if not self._mapped:
            require(self.widest <= MOST_CODES, f"a column has {self.widest} categories, above {MOST_CODES}.")
            store = self._store()
            if not store.is_whole():
                about = {"rows": self.rows, "row_bytes": self._row_bytes(), "format": CODED_FORMAT}
                build(store, partial(self._fill, store), lambda bad: "; ".join(bad), about)
            self._mapped.append(store.mapped().view(-1, self._row_bytes()))
        return self._mapped[0]

    def _fill(self, store: Store, file: IO[bytes], written: np.ndarray) -> list[str]:
        """Encode the blocks that are missing in the part file."""
        classes, groups = len(self.classes), self.attributes.groups
        needed = FLOAT * self.rows * (classes + groups + classes * groups)
        needed += int((written == NOT_WRITTEN).sum()) * store.width
        refuse_full_disk(store.folder, needed, f"{self.rows} rows, their scores and imputations need")
        waiting, at_once, number = written == NOT_WRITTEN, min(BLOCK_ROWS, self.rows), 0
        pending: list[np.ndarray] = []
        held = first = 0
        with _bar(self.source.rows, "encoding", self.show) as bar:
            for start, batch in self.source.pieces():
                bar.update(batch.num_rows)
                inside = np.flatnonzero(~self.left_out[start : start + batch.num_rows])
                blocks = slice(first // at_once, (first + len(inside) - 1) // at_once + 1)
                first += len(inside)
                coded = np.empty((len(inside), self._row_bytes()), dtype=np.uint8)
                if waiting[blocks].any():
                    coded = self._bytes_of(self.source.frame(batch).iloc[inside])
                pending.append(coded)
                held += len(inside)
                while held >= at_once or (held and first == self.rows):
                    together = np.concatenate(pending)
                    item, rest = together[:at_once], together[at_once:]
                    if waiting[number]:
                        whole = item.tobytes().ljust(store.width, b"\0")
                        put(file, store, written, number, whole)
                        record(file, store, written)
                    pending, held, number = [rest], len(rest), number + 1
        require(number == store.items, f"{self.source.where} changed while it was read; run it again.")
        return []

    def _bytes_of(self, frame: pd.DataFrame) -> np.ndarray:
        """Rows as they are stored, (rows, bytes)."""
        numbers, codes = self.encoder.coded(frame)
        known = np.where(codes >= 0, codes, UNKNOWN).astype(np.uint8)
        return np.concatenate([numbers.view(np.uint8).reshape(len(frame), -1), known], axis=1)


class _Values:
    """The value of each row, by its number among those that occur; −1 where it is missing."""

    def __init__(self, name: str, rows: int) -> None:
        self.name, self.codes, self.rows = name, np.full(rows, -1, dtype=np.int16), 0
        self._numbers: dict[Any, int] = {}
        self._types: list[pd.Series] = []

    def add(self, column: pd.Series) -> None:
        codes, values = pd.factorize(column)
        for value in (there := list(values)):
            self._numbers.setdefault(value, len(self._numbers))
        require(
            len(self._numbers) <= MOST_VALUES,
            f"{self.name!r} has more than {MOST_VALUES} values; numbers and identifiers are neither classes "
            "nor groups. Give another column.",
        )
        number = np.array([self._numbers[value] for value in there] + [-1], dtype=np.int16)
        self.codes[self.rows : self.rows + len(codes)] = number[codes]
        self.rows += len(codes)
        if all(column.dtype != one.dtype for one in self._types):
            self._types.append(column.iloc[:0])

    @property
    def distinct(self) -> pd.Series:
        """The values by their numbers, in the type that the whole column would have."""
        of_all = pd.concat(self._types).dtype
        try:
            return pd.Series(list(self._numbers), dtype=of_all, name=self.name)
        except (TypeError, ValueError) as reason:
            raise InputError(f"{self.name!r} mixes values that cannot be compared: {reason}.") from reason

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self._numbers))


def _coded_groups(
    stated: Sequence[_Values], missing_values: Sequence[Any], levels: int | None
) -> tuple[np.ndarray, Attributes]:
    """The group outcome of each row, and the attributes; combinations of values are coded once."""
    known = None
    if levels is not None and len(stated) == 1:  # which are learned from all rows
        (only,) = stated
        whole = only.distinct.repeat(only.counts).reset_index(drop=True)
        known = code_sensitive(whole.to_frame(), missing_values, None, levels).attributes
    sizes = [len(of.distinct) + 1 for of in stated]
    codes = tuple(of.codes.astype(np.int64) % size for of, size in zip(stated, sizes, strict=True))
    place = np.ravel_multi_index(codes, sizes)
    used = np.unique(place)
    parts = np.unravel_index(used, sizes)
    columns = {
        of.name: of.distinct.reindex(np.where(part < size - 1, part, -1)).reset_index(drop=True)
        for of, part, size in zip(stated, parts, sizes, strict=True)
    }
    groups = code_sensitive(pd.DataFrame(columns), missing_values, known, levels)
    return groups.outcomes.astype(np.int16)[np.searchsorted(used, place)], groups.attributes


def _one_pass(
    frames: Iterator[pd.DataFrame], learners: Sequence[Mapping[str, ColumnSketch | _Values]]
) -> pd.DataFrame:
    """Add all rows to what learns columns by name; returns the first ones."""
    first = pd.DataFrame()
    for frame in frames:
        first = frame if first.empty else first
        for by_name in learners:
            for name, learner in by_name.items():
                learner.add(frame[name])
    return first


def _kept(source: ParquetRows, left_out: np.ndarray, bar: Any) -> Iterator[pd.DataFrame]:
    """The rows that are learned from."""
    for first, frame in source.frames():
        bar.update(len(frame))
        kept = frame[~left_out[first : first + len(frame)]]
        if len(kept):
            yield kept.reset_index(drop=True)


def _bar(rows: int, words: str, show: bool) -> Any:
    return tqdm(total=rows, unit="row", desc=words, disable=not show, unit_scale=True)
