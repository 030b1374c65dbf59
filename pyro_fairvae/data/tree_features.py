"""Tables as boosted trees take them: numbers and their gaps as they are, categories as codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pyro_fairvae.data.table_encoder import TableEncoder, numbers_of


@dataclass(frozen=True)
class TreeFeatures:
    """The columns that an encoder has learned, for trees."""

    encoder: TableEncoder

    @property
    def categorical(self) -> np.ndarray:
        """Which columns are codes of categories."""
        return np.repeat([False, True], [len(self.encoder.numbers), len(self.encoder.categories)])

    def encode(self, table: pd.DataFrame) -> np.ndarray:
        """(rows, columns), NaN where a value is missing or unknown."""
        aligned = self.encoder.aligned(table)
        numbers = [numbers_of(aligned[column.name]) for column in self.encoder.numbers]
        categories = (column.codes(aligned[column.name]) for column in self.encoder.categories)
        codes = [np.where(code < 0, np.nan, code) for code in categories]
        return np.stack([*numbers, *codes], axis=1).astype(float)
