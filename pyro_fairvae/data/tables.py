"""Tables with known truth: before values are hidden, and for the final test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Columns, Features


class Labelled:
    """Rows whose class and group are known."""

    y: Integers
    attributes: Attributes

    @property
    def groups(self) -> tuple[str, ...]:
        return self.attributes.group_names

    @property
    def rows(self) -> int:
        return len(self.y)

    def drawn(self, rows: int, seed: int) -> Integers:
        """Sorted indices of ``rows`` rows drawn at random without replacement."""
        require(0 < rows <= self.rows, f"{rows} rows were requested, but the table has {self.rows}.")
        return np.sort(np.random.default_rng(seed).permutation(self.rows)[:rows])


@dataclass(frozen=True)
class Complete(Labelled):
    """Features with the true class and group of every row.

    Deliberately unlike :class:`~pyro_fairvae.schema.observed.Observed`: training takes no ``Complete``.
    """

    x: Floats | PixelRows
    y: Integers
    a: Integers
    columns: Columns | Pixels
    classes: tuple[str, ...]
    attributes: Attributes
    encoder: TableEncoder | None = None  # the encoder that computed x from a table
    stated: Integers | None = None  # ã as recorded, where withholding is real
    u: Floats | None = None  # proxies of the group
    u_encoder: TableEncoder | None = None  # the encoder that computed u
    number: Floats | None = None  # where the group is a number: the number itself

    @property
    def u_columns(self) -> Columns | None:
        """Layout of the columns of u."""
        return None if self.u_encoder is None else self.u_encoder.columns

    @property
    def features(self) -> Features:
        """x as a tensor or as image rows, the input of classifiers."""
        return self.x if isinstance(self.x, PixelRows) else torch.from_numpy(self.x)

    def yardstick(self) -> np.ndarray | None:
        """P(ã|a) as counted, (groups, outcomes), where withholding is real; NaN for a group without rows."""
        if self.stated is None:
            return None
        counts = np.zeros((len(self.groups), self.attributes.outcomes))
        np.add.at(counts, (self.a, self.stated), 1)
        rows = counts.sum(1, keepdims=True)
        return np.divide(counts, rows, out=np.full_like(counts, np.nan), where=rows > 0)


@dataclass(frozen=True)
class Table(Labelled):
    """A raw table: numbers and categories still as read, class and group as codes.

    Where withholding is real, ``stated`` is ã as recorded, whose last code is ∅, and ``a`` is a yardstick of
    the group, which serves as the truth in tests. ``proxies`` are columns that may be named as proxies.
    """

    numbers: pd.DataFrame
    categories: pd.DataFrame
    y: Integers
    a: Integers
    classes: tuple[str, ...]
    attributes: Attributes
    stated: Integers | None = None
    proxies: pd.DataFrame | None = None
    number: Floats | None = None  # where the group is a number: the number itself, whose level is ``a``

    def with_levels(self, attributes: Attributes) -> Table:
        """The same rows, their number cut into other levels."""
        assert attributes.levels is not None
        assert self.number is not None
        return replace(self, a=attributes.levels.code(self.number), attributes=attributes)

    def take(self, rows: int, seed: int) -> Table:
        """A table of ``rows`` rows drawn at random without replacement."""
        chosen = self.drawn(rows, seed)
        return replace(
            self,
            numbers=self.numbers.iloc[chosen],
            categories=self.categories.iloc[chosen],
            y=self.y[chosen],
            a=self.a[chosen],
            stated=None if self.stated is None else self.stated[chosen],
            proxies=None if self.proxies is None else self.proxies.iloc[chosen],
            number=None if self.number is None else self.number[chosen],
        )

    @property
    def frame(self) -> pd.DataFrame:
        """The features as they were read."""
        return pd.concat([self.numbers, self.categories], axis=1)

    def encode(
        self, parts: dict[str, Integers], standard: str, proxies: Sequence[str] = ()
    ) -> dict[str, Complete]:
        """The rows of each part, numbers standardised by mean and deviation of part ``standard``.

        Categories become one one-hot block each, over all values of the whole table, so that parts
        have the same columns. The columns ``proxies`` are encoded likewise as ``u``.
        """
        frame = self.frame
        encoder = TableEncoder.learn(frame.iloc[parts[standard]], keep_all=True)
        x = encoder.encode(frame)
        u, u_encoder = self._encode_proxies(proxies, parts[standard])
        return {
            name: Complete(
                x[rows],
                self.y[rows],
                self.a[rows],
                encoder.columns,
                self.classes,
                self.attributes,
                encoder,
                None if self.stated is None else self.stated[rows],
                None if u is None else u[rows],
                u_encoder,
                None if self.number is None else self.number[rows],
            )
            for name, rows in parts.items()
        }

    def _encode_proxies(
        self, names: Sequence[str], standard: Integers
    ) -> tuple[Floats, TableEncoder] | tuple[None, None]:
        if not names:
            return None, None
        known = () if self.proxies is None else tuple(self.proxies)
        require(bool(known), f"proxies {list(names)} were given, but this table has none; leave them out.")
        assert self.proxies is not None
        chosen = self.proxies[[choose("proxy", name, known) for name in dict.fromkeys(names)]]
        encoder = TableEncoder.learn(chosen.iloc[standard], keep_all=True)
        return encoder.encode(chosen), encoder
