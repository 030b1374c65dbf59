"""Rows of a table as codes in a mapped file, expanded to one-hot blocks when they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.devices import Constant
from pyro_fairvae.schema.stored_rows import StoredRows

UNKNOWN = 255  # code of a category that the encoder does not know: all zeros
MOST_CODES = UNKNOWN  # of a block
FLOAT = 4  # bytes of a number


@dataclass(frozen=True)
class CodedRows(StoredRows):
    """Rows of a table: numbers, a byte for each one-hot block, and scores from a second mapped tensor.

    A stored row is its numbers in 32 bits, then a code for each block, then bytes that are not features.
    ``scores`` is (stored rows, columns), which follow the blocks.
    """

    numbers: int = 0
    blocks: tuple[int, ...] = ()
    scores: Tensor | None = None

    def __post_init__(self) -> None:
        starts = np.array(self.numbers + np.cumsum([0, *self.blocks])[:-1], dtype=np.int64)
        object.__setattr__(self, "_starts", Constant(starts))

    @property
    def width(self) -> int:
        return self.numbers + sum(self.blocks) + (0 if self.scores is None else self.scores.shape[-1])

    def with_scores(self, scores: Tensor) -> CodedRows:
        """The rows with further columns, (stored rows, columns)."""
        return replace(self, scores=scores)

    def bytes_of(self, key: Any) -> Tensor:
        """Some of the rows as stored bytes, with those of their scores at the end."""
        found = super().bytes_of(key)[..., : FLOAT * self.numbers + len(self.blocks)]
        if self.scores is None:
            return found
        chosen = self.index[key.cpu() if isinstance(key, Tensor) else key]
        scores = self.scores[chosen.flatten()].view(torch.uint8)
        return torch.cat([found, scores.reshape(*chosen.shape, -1)], dim=-1)

    def read(self, stored: Tensor) -> Tensor:
        """Numbers, one-hot blocks and scores of stored rows, on the device."""
        stored = stored.to(self.device, non_blocking=True)
        codes_end = FLOAT * self.numbers + len(self.blocks)
        x = stored.new_zeros(*stored.shape[:-1], self.width, dtype=self.dtype)
        x[..., : self.numbers] = _floats(stored[..., : FLOAT * self.numbers])
        if self.blocks:
            codes = stored[..., FLOAT * self.numbers : codes_end]
            known = codes != UNKNOWN
            starts: Tensor = self._starts.on(codes.device)  # type: ignore[attr-defined]
            x.scatter_(-1, starts + torch.where(known, codes, 0), known.to(x.dtype))
        if self.scores is not None:
            x[..., self.numbers + sum(self.blocks) :] = _floats(stored[..., codes_end:])
        return x


def _floats(stored: Tensor) -> Tensor:
    return stored.contiguous().view(torch.float32)
