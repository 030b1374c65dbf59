"""A user's own table as rows to train and to validate on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import is_missing, word_of
from pyro_fairvae.data.table_encoder import FrameEncoder
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.attributes import UNAVAILABLE, Attributes
from pyro_fairvae.schema.observed import Observed


@dataclass(frozen=True)
class OwnTable:
    """Features, and what rows state of label and group, in codes; ∅ is the last of each."""

    x: Floats
    y_obs: Integers
    a_obs: Integers
    encoder: FrameEncoder
    classes: np.ndarray
    attributes: Attributes

    def observed(self, rows: Integers | slice = slice(None)) -> Observed:
        """Some of the rows, or all, as training takes them."""
        return Observed(
            torch.from_numpy(self.x[rows]),
            torch.from_numpy(self.y_obs[rows]),
            torch.from_numpy(self.a_obs[rows]),
            self.encoder.columns,
            len(self.classes),
            self.attributes.groups,
            self.attributes,
            tuple(word_of(each) for each in self.classes),
        )

    def parts(self, share: float, seed: int) -> tuple[Integers, Integers]:
        """Rows to train and to validate on, alike in what they state; ``share`` of them are the latter."""
        require(0 < share < 1, f"validation_fraction must be within (0, 1), got {share}.")
        draw = np.random.default_rng(seed)
        # In the order of what is stated, at random within, every so many rows one is held out.
        order = np.lexsort((draw.random(len(self.x)), self.a_obs, self.y_obs))
        wanted = min(max(round(share * len(order)), 2), len(order) - 2)
        place = ((np.arange(wanted) + draw.random()) * len(order) / wanted).astype(int)
        held_out = np.zeros(len(order), dtype=bool)
        held_out[order[np.minimum(place, len(order) - 1)]] = True
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def digest(self) -> str:
        """A fingerprint of all rows, by which a checkpoint knows its own."""
        found = hashlib.sha256()
        for part in (self.x, self.y_obs, self.a_obs):
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def summary(self, table: pd.DataFrame) -> dict[str, Any]:
        """What the table from which the features were made held, for the report of a model."""
        labels = [*map(word_of, self.classes), UNAVAILABLE]
        return {
            "rows": len(table),
            "labels": counted(labels, self.y_obs),
            "groups": counted(self.attributes.outcome_names, self.a_obs),
            "columns": [
                {
                    "name": name,
                    "kind": self.encoder.kind_of(name),
                    "missing": int(is_missing(column).sum()),
                    "values": column.dropna().astype(object).map(word_of).nunique(),
                }
                for name, (_, column) in zip(self.encoder.names, table.items(), strict=True)
            ],
        }


def counted(names: list[str] | tuple[str, ...], codes: Integers) -> dict[str, int]:
    """How many rows have each code, by its name."""
    return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
