"""Batches of a table, prefetched by other processes where rows are images on disk."""

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
    """The bytes of each batch, by its number."""

    x: PixelRows
    keys: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, batch: int) -> Tensor:
        return self.x.bytes_of(self.keys[batch])


def batches(table: Observed, indices: Sequence[Tensor], workers: int = 0) -> Iterator[Batch]:
    """The rows of ``table`` at each of ``indices``, shaped as for :meth:`Observed.batch`.

    ``workers`` processes prefetch images, into pinned memory if they go to a GPU. Tables
    of numbers are in memory and need none.
    """
    if not isinstance(table.x, PixelRows):
        yield from map(table.batch, indices)
        return
    keys = [table.key(index) for index in indices]
    # Tensors for other processes are on the CPU, even if the table is not: CUDA does not work after a fork.
    on_cpu = torch.cat(list(indices), dim=-1).cpu().split([index.shape[-1] for index in indices], dim=-1)
    stored_rows = _Stored(table.x.to("cpu"), [table.key(index) for index in on_cpu])
    on_gpu = table.x.device.type == "cuda"
    # A separate generator, so that the loader does not change the random numbers of the run.
    loader = DataLoader(
        stored_rows,
        batch_size=None,
        num_workers=workers,
        pin_memory=on_gpu,
        generator=torch.Generator(),
    )
    for key, stored in zip(keys, loader, strict=True):
        u = None if table.u is None else table.u[key]
        weight = None if table.weight is None else table.weight[key]
        yield Batch(table.x.read(stored), table.y_obs[key], table.a_obs[key], u, weight=weight)
