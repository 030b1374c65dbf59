"""Fits of tables that are larger than memory: which they are, and their rows.

Columns are learned from all rows that are not audited, and networks are trained on all of these but those
that select a member. What needs rows in memory sees a part of them: boosted trees, imputations and who
withholds :data:`~pyro_fairvae.schema.observed.SAMPLED` evenly spaced ones, the choice of a member
:data:`~pyro_fairvae.data.streamed_table.VALIDATED`, and the audit :data:`AUDITED`, at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.messages import printable
from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.splits import random_share
from pyro_fairvae.data.streamed_table import StreamedTable
from pyro_fairvae.data.table_encoder import names_of
from pyro_fairvae.data.table_files import is_parquet, take_columns
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.schema.observed import SAMPLED

STREAMING = ("auto", "always", "never")
IN_MEMORY = 4e9  # bytes that a fit in memory may take, by this estimate, before rows stay on disk
BYTES_OF_ROW, BYTES_OF_VALUE = 3000, 150
LARGEST_TEXT = 2e9  # bytes of a text file that is read into memory
AUDITED = 100_000  # rows kept out of fitting, at most

Say = Callable[[str], None]


def streams(
    path: Path,
    streaming: str,
    model: Any,
    proxy_proba: Mapping[str, str] | None,
    say: Say,
    weights: str | None = None,
) -> bool:
    """Whether the rows of a fit stay on disk; raises if they should and cannot."""
    choose("streaming", streaming, STREAMING)
    if streaming == "never" or not path.exists():
        return False
    if not is_parquet(path):
        size = path.stat().st_size
        require(
            streaming == "auto" and size <= LARGEST_TEXT,
            f"{path} is text of {size / 1e9:.1f} GB, which has to be read into memory; rows are streamed "
            "from Parquet alone. Convert it, for example by pyarrow.csv.open_csv and "
            "pyarrow.parquet.ParquetWriter, or give streaming='never' where memory suffices.",
            "streaming",
        )
        return False
    lacking = _not_streamed(model, proxy_proba, weights)
    require(
        streaming == "auto" or not lacking,
        f"{lacking} need all rows in memory, which streaming='always' excludes; give streaming='never', or "
        "leave them out.",
        "streaming",
    )
    if streaming == "always":
        return True
    source = ParquetRows.open(path)
    needed = source.rows * (BYTES_OF_ROW + BYTES_OF_VALUE * len(source.names))
    if needed > IN_MEMORY and lacking:
        say(f"{lacking} need all {source.rows} rows in memory, about {needed / 1e9:.0f} GB.")
    return needed > IN_MEMORY and not lacking


def _not_streamed(model: Any, proxy_proba: Mapping[str, str] | None, weights: str | None) -> str:
    """What cannot be streamed, in words."""
    if isinstance(model, FairSSVAERegressor):
        return "labels that are numbers"
    if names_of(getattr(model, "proxies", ())) or proxy_proba:
        return "proxies"
    if weights is not None:
        return "weights of rows"
    return ""


@dataclass(frozen=True)
class StreamedUserTable:
    """A user's table on disk, split into label, groups and features."""

    rows: ParquetRows
    label: str
    groups: tuple[str, ...]
    features: tuple[str, ...]
    values: tuple[str, ...]
    _learned: list[StreamedTable] = field(default_factory=list)

    @staticmethod
    def open(
        path: Path,
        label: str,
        groups: Sequence[str],
        missing: Sequence[str],
        values: Sequence[str],
        drop: Sequence[str],
    ) -> StreamedUserTable:
        """The table, none of whose rows is read; raises unless it has the columns that are named."""
        rows = ParquetRows.open(path, missing)
        names = pd.DataFrame(columns=pd.Index(rows.names))
        for given, what in (([label], "label"), (groups, "group"), (drop, "columns to drop")):
            take_columns(names, given, what)
        features = tuple(name for name in rows.names if name not in (label, *groups, *drop))
        require(bool(features), f"{path} has no columns left to use as features.")
        return StreamedUserTable(rows, label, tuple(groups), features, tuple(values))

    @property
    def source(self) -> dict[str, object]:
        """How the table was read, so that a model can read other tables in the same way."""
        return {
            "label": self.label,
            "groups": list(self.groups),
            "missing": list(self.rows.missing),
            "values": list(self.values),
            "data": printable(self.rows.where.name),
            "weights": "",
        }

    def audited(self, holdout: float, seed: int) -> np.ndarray:
        """Which rows are only audited, :data:`AUDITED` at most."""
        return random_share(self.rows.rows, min(holdout, AUDITED / self.rows.rows), seed)

    def counted(self, rows: np.ndarray) -> None:
        """Rows on disk all count alike."""

    def fitted(self, rows: np.ndarray, model: Any, say: Say) -> tuple[Any, ...]:
        """The arguments of a fit to some of the rows, which stay on disk.

        Of boosted trees by themselves, which would have no use for more, those of a part of them in memory.
        """
        count = int(rows.sum())
        if isinstance(model, FairDecisions):
            kept = np.zeros_like(rows)
            kept[np.flatnonzero(rows)[:: -(-count // SAMPLED)]] = True
            if kept.sum() < count:
                say(f"Boosted trees are grown on {kept.sum()} evenly spaced rows of {count}.")
            return self.some(kept)
        table = StreamedTable.learn(
            self.rows,
            self.label,
            self.groups,
            self.features,
            ~rows,
            model.missing_values,
            model.group_levels,
            show=model.verbose > 0,
        )
        self._learned.append(table)
        if count > SAMPLED:
            say(
                f"{count} rows stay on disk; networks see all of them, and boosted trees, imputations and "
                f"who withholds are learned from {SAMPLED} of them at most."
            )
        return table, self.label, self.groups

    def some(self, rows: np.ndarray) -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
        """Features, label and groups of some rows, in memory."""
        only = self.rows.only(list(dict.fromkeys([self.label, *self.groups, *self.features])))
        table = only.chosen(rows)
        return table[list(self.features)], table[self.label], table[list(self.groups)]

    def discard(self) -> None:
        """Delete the mapped file."""
        for table in self._learned:
            table.discard()
