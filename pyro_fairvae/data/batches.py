"""Batches of a table, prefetched by other processes where rows are on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pyro_fairvae.data.block_orders import EpochOrder
from pyro_fairvae.schema.observed import Batch, Observed
from pyro_fairvae.schema.stored_rows import StoredRows


@dataclass(frozen=True)
class _Stored(Dataset[Tensor]):
    """The bytes of each batch, by its number."""

    x: StoredRows
    keys: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, batch: int) -> Tensor:
        return self.x.bytes_of(self.keys[batch])


def batches(table: Observed, indices: Sequence[Tensor], workers: int = 0) -> Iterator[Batch]:
    """The rows of ``table`` at each of ``indices``, shaped as for :meth:`Observed.batch`.

    ``workers`` processes prefetch rows on disk, into pinned memory if they go to a GPU. Tables of numbers are
    in memory and need none.
    """
    if not isinstance(table.x, StoredRows):
        yield from map(table.batch, indices)
        return
    keys, on_cpu = _keys(table, indices)
    on_gpu = table.x.device.type == "cuda"
    # A separate generator, so that the loader does not change the random numbers of the run.
    loader = DataLoader(
        _Stored(table.x.to("cpu"), on_cpu),
        batch_size=None,
        num_workers=workers,
        pin_memory=on_gpu,
        generator=torch.Generator(),
    )
    for key, stored in zip(keys, loader, strict=True):
        u = None if table.u is None else table.u[key]
        weight = None if table.weight is None else table.weight[key]
        yield Batch(table.x.read(stored), table.y_obs[key], table.a_obs[key], u, weight=weight)


def _keys(table: Observed, indices: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The key of each batch, and the same on the CPU for other processes: CUDA does not work after a fork."""
    if isinstance(indices, EpochOrder):
        return indices, indices.on_cpu()
    on_cpu = torch.cat(list(indices), dim=-1).cpu().split([index.shape[-1] for index in indices], dim=-1)
    return [table.key(index) for index in indices], [table.key(index) for index in on_cpu]
