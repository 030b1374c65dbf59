"""Sets of images whose labels and groups are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.tables import Complete, Labelled
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import PixelRows, Pixels


@dataclass(frozen=True)
class ImageTable(Labelled):
    """A table with a row for each image, like :class:`~pyro_fairvae.data.tables.Table` for persons."""

    stored: Tensor  # (images, width) in bytes, mapped from a file
    index: Integers  # the image of each row
    y: Integers
    a: Integers
    classes: tuple[str, ...]
    attributes: Attributes
    pixels: Pixels
    people: Integers | None = None  # the person in each image, if known

    def take(self, rows: int, seed: int) -> ImageTable:
        """A table of ``rows`` rows drawn at random without replacement."""
        chosen = self.drawn(rows, seed)
        return replace(
            self,
            index=self.index[chosen],
            y=self.y[chosen],
            a=self.a[chosen],
            people=None if self.people is None else self.people[chosen],
        )

    def encode(
        self, parts: dict[str, Integers], standard: str, proxies: Sequence[str] = ()
    ) -> dict[str, Complete]:
        """The rows of each part; ``standard`` is not used, since bytes need no standardisation."""
        require(not proxies, f"proxies {list(proxies)} were given, but images have none; leave them out.")
        return {
            name: Complete(
                PixelRows(self.stored, torch.from_numpy(self.index[rows])),
                self.y[rows],
                self.a[rows],
                self.pixels,
                self.classes,
                self.attributes,
            )
            for name, rows in parts.items()
        }
