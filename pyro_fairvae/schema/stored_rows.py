"""Rows that stay in a mapped file until they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require


@dataclass(frozen=True)
class StoredRows(ABC):
    """Rows (rows, width), or (members, rows, width), of a mapped file; an index reads them as a tensor.

    ``stored`` is (stored rows, bytes), mapped from a file, so memory does not grow with the rows; ``index``
    is the stored row of each row.
    """

    stored: Tensor
    index: Tensor
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns of a row that is read."""

    @abstractmethod
    def read(self, stored: Tensor) -> Tensor:
        """Convert stored bytes to numbers on the device."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size([*self.index.shape, self.width])

    def dim(self) -> int:
        return self.index.dim() + 1

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        return replace(self, device=torch.device(device), dtype=dtype or self.dtype)

    def take(self, key: Any) -> Self:
        """Some of the rows, without reading them from disk."""
        return replace(self, index=self.index[_on_cpu(key)])

    def bytes_of(self, key: Any) -> Tensor:
        """Some of the rows as stored bytes."""
        chosen = self.index[_on_cpu(key)]
        return self.stored[chosen.flatten()].reshape(*chosen.shape, -1)

    def __getitem__(self, key: Any) -> Tensor:
        return self.read(self.bytes_of(key))

    @classmethod
    def stack(cls, parts: Sequence[Self]) -> Self:
        """Stack rows so that each member has its own, (members, rows, width)."""
        require(
            all(part.stored.data_ptr() == parts[0].stored.data_ptr() for part in parts),
            "members must share one mapped file; build their rows from the same stored rows.",
        )
        return replace(parts[0], index=torch.stack([part.index for part in parts]))


def _on_cpu(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_on_cpu(part) for part in key)
    return key.cpu() if isinstance(key, Tensor) else key
