"""Images as rows of a table: the layout of an image in a row, and rows that stay on disk until read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require


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
class PixelRows:
    """Rows (rows, width), or (members, rows, width), of stored images; an index reads them as a tensor.

    ``stored`` is (images, width) in bytes, mapped from a file, so memory does not grow with the rows;
    ``index`` is the image of each row. Reading maps a byte b to b / 127.5 − 1, in [−1, 1], on ``device``.
    """

    stored: Tensor
    index: Tensor
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> torch.Size:
        return torch.Size([*self.index.shape, self.stored.shape[-1]])

    def dim(self) -> int:
        return self.index.dim() + 1

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> PixelRows:
        return replace(self, device=torch.device(device), dtype=dtype or self.dtype)

    def take(self, key: Any) -> PixelRows:
        """Some of the rows, without reading them from disk."""
        return replace(self, index=self.index[_on_cpu(key)])

    def bytes_of(self, key: Any) -> Tensor:
        """Some of the rows as stored bytes."""
        chosen = self.index[_on_cpu(key)]
        return self.stored[chosen.flatten()].reshape(*chosen.shape, -1)

    def __getitem__(self, key: Any) -> Tensor:
        return self.read(self.bytes_of(key))

    def read(self, stored: Tensor) -> Tensor:
        """Convert stored bytes to numbers on the device."""
        return stored.to(self.device, non_blocking=True).to(self.dtype).div_(127.5).sub_(1)

    @staticmethod
    def stack(parts: Sequence[PixelRows]) -> PixelRows:
        """Stack rows so that each member has its own, (members, rows, width)."""
        require(
            all(part.stored.data_ptr() == parts[0].stored.data_ptr() for part in parts),
            "members must share one image store; build their rows from the same stored images.",
        )
        return replace(parts[0], index=torch.stack([part.index for part in parts]))


def _on_cpu(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_on_cpu(part) for part in key)
    return key.cpu() if isinstance(key, Tensor) else key
