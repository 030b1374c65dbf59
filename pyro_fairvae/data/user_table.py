"""A user's table, split into training and validation rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import is_missing, word_of
from pyro_fairvae.data.number_groups import code_sensitive
from pyro_fairvae.data.row_weights import scaled_weights
from pyro_fairvae.data.splits import stratified_share
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.attributes import UNAVAILABLE, Attributes
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Observed


@dataclass(frozen=True)
class CodedTable:
    """Features, and the stated label and group of each row as codes; the last code is ∅.

    ``u`` are encoded proxies of the group, and ``proxies`` is their encoder. Where the label is a number,
    classes are its levels, and ``outcome`` is it, standardised.
    """

    x: Floats
    y_obs: Integers
    a_obs: Integers
    encoder: TableEncoder
    classes: np.ndarray
    attributes: Attributes
    u: Floats | None = None
    proxies: TableEncoder | None = None
    number: NumberOutcome | None = None
    outcome: np.ndarray | None = None
    weight: np.ndarray | None = None  # of the rows, positive

    def observed(self, rows: Integers | slice = slice(None)) -> Observed:
        """Some of the rows, or all, as a table for training."""
        return Observed(
            torch.from_numpy(self.x[rows]),
            torch.from_numpy(self.y_obs[rows]),
            torch.from_numpy(self.a_obs[rows]),
            self.encoder.columns,
            len(self.classes),
            self.attributes.groups,
            self.attributes,
            tuple(word_of(label) for label in self.classes),
            None if self.u is None else torch.from_numpy(self.u[rows]),
            None if self.proxies is None else self.proxies.columns,
            self.number,
            None if self.outcome is None else torch.from_numpy(self.outcome[rows]).to(torch.float32),
            self._weights(rows),
        )

    def _weights(self, rows: Integers | slice) -> torch.Tensor | None:
        """Those of some rows, with the mean 1; None where all are equal."""
        weight = None if self.weight is None else scaled_weights(self.weight[rows])
        return None if weight is None else torch.from_numpy(weight).to(torch.float32)

    def parts(self, share: float, seed: int) -> tuple[Integers, Integers]:
        """Training and validation rows, stratified by stated values; ``share`` are for validation."""
        require(0 < share < 1, f"validation_fraction must be within (0, 1), got {share}.")
        held_out = stratified_share(self.y_obs, self.a_obs, share, seed)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def digest(self) -> str:
        """A hash of all rows, by which a checkpoint recognises its data."""
        digest = hashlib.sha256()
        optional = [part for part in (self.u, self.outcome, self.weight) if part is not None]
        for part in (self.x, self.y_obs, self.a_obs, *optional):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def summary(self, table: pd.DataFrame, proxies: pd.DataFrame | None = None) -> dict[str, Any]:
        """Counts of the original table and its proxies, for the report of a model."""
        labels = [*map(word_of, self.classes), UNAVAILABLE]
        return {
            "rows": len(table),
            "labels": counted(labels, self.y_obs),
            "groups": counted(self.attributes.outcome_names, self.a_obs),
            "columns": _described(table, self.encoder)
            + (
                []
                if proxies is None or self.proxies is None
                else _described(proxies, self.proxies, "proxy ({})")
            ),
        }


def stated_rows(
    x: torch.Tensor,
    sensitive_features: Any,
    encoder: TableEncoder,
    classes: np.ndarray,
    attributes: Attributes,
    missing_values: Sequence[Any] = (),
    recorded: tuple[Integers, np.ndarray | None] | None = None,
    number: NumberOutcome | None = None,
) -> Observed:
    """Encoded rows of a model's table, with labels and groups, where they are given, as the model knows them.

    ``x`` may have further columns, which are left out. ``recorded`` are codes of labels and, where they are
    numbers, these, standardised.
    """
    outcome = None if number is None else np.zeros(len(x))
    y_obs, a_obs = np.full(len(x), len(classes)), np.full(len(x), attributes.outcomes - 1)
    if recorded is not None:
        y_obs, outcome = recorded
        require(len(y_obs) == len(x), f"X has {len(x)} rows, but y {len(y_obs)}.")
    if sensitive_features is not None:
        a_obs = code_sensitive(sensitive_features, missing_values, attributes).outcomes
        require(len(a_obs) == len(x), f"X has {len(x)} rows, but sensitive_features {len(a_obs)}.")
    known = x[:, : encoder.columns.width].numpy()
    return CodedTable(
        known, y_obs, a_obs, encoder, classes, attributes, number=number, outcome=outcome
    ).observed()


def _described(table: pd.DataFrame, encoder: TableEncoder, kind: str = "{}") -> list[dict[str, Any]]:
    """Name, kind, gaps and distinct values of each column."""
    return [
        {
            "name": name,
            "kind": kind.format(encoder.kind_of(name)),
            "missing": int(is_missing(column).sum()),
            "values": column.dropna().astype(object).map(word_of).nunique(),
        }
        for name, (_, column) in zip(encoder.names, table.items(), strict=True)
    ]


def counted(names: list[str] | tuple[str, ...], codes: Integers) -> dict[str, int]:
    """How many rows have each code, by its name."""
    return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
