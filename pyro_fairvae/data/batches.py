"""Batches of a table, read ahead by other processes where rows are images on a disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pyro_fairvae.schema.image_rows import PixelRows
from pyro_fairvae.schema.observed import Batch, Observed


@dataclass(frozen=True)
class _Stored(Dataset[Tensor]):
    """The bytes of one batch after another."""

    x: PixelRows
    keys: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, batch: int) -> Tensor:
        return self.x.bytes_of(self.keys[batch])


def batches(table: Observed, indices: Sequence[Tensor], workers: int = 0) -> Iterator[Batch]:
    """The rows of ``table`` at each of ``indices``, which are as :meth:`Observed.batch` takes them.

    With ``workers`` that many processes read images ahead, into pinned memory where they go to a GPU. Tables
    of numbers are in memory and need none.
    """
    if not isinstance(table.x, PixelRows):
        yield from map(table.batch, indices)
        return
    keys = [table.key(index) for index in indices]
    # What goes to other processes lives on the CPU, wherever the table does: CUDA does not survive a fork.
    stored_rows = _Stored(table.x.to("cpu"), [table.key(index.cpu()) for index in indices])
    on_gpu = table.x.device.type == "cuda"
    # With a generator of its own the loader leaves the run's noise alone.
    loader = DataLoader(
        stored_rows,
        batch_size=None,
        num_workers=workers,
        pin_memory=on_gpu,
        generator=torch.Generator(),
    )
    for key, stored in zip(keys, loader, strict=True):
        yield Batch(table.x.read(stored), table.y_obs[key], table.a_obs[key])
