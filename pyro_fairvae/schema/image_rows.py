"""Images as rows of a table: the layout of an image in a row, and rows that stay on disk until read."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pyro_fairvae.schema.stored_rows import StoredRows


@dataclass(frozen=True)
class Pixels:
    """Columns that are the pixels of a square image, channel by channel and row by row.

    Stands in for :class:`~pyro_fairvae.schema.observed.Columns`: every column is a number without a name.
    """

    channels: int
    side: int

    blocks = ()
    names = ()

    @property
    def width(self) -> int:
        return self.channels * self.side**2

    @property
    def decoded(self) -> int:
        return self.width

    @property
    def numbers(self) -> int:
        return self.width

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.side, self.side


@dataclass(frozen=True)
class PixelRows(StoredRows):
    """Rows of stored images, which reading maps from a byte b to b / 127.5 − 1, in [−1, 1]."""

    @property
    def width(self) -> int:
        return self.stored.shape[-1]

    def read(self, stored: Tensor) -> Tensor:
        """Convert stored bytes to numbers on the device."""
        return stored.to(self.device, non_blocking=True).to(self.dtype).div_(127.5).sub_(1)
