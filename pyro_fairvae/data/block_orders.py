"""Orders of the rows of a mapped file: blocks at random, and rows at random within some blocks at a time.

An order of all rows would take eight bytes a row, and more for each member with rows of its own. Blocks of
neighbouring rows are drawn in random order instead, and those of a window are mixed: a batch has rows from
all over the file, memory does not grow with the rows, and rows are read from neighbouring places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.schema.observed import Observed

BLOCK = 256  # rows side by side
WINDOW = 1 << 16  # rows that are mixed; tables with no more are in a wholly random order


@dataclass(frozen=True)
class BlockOrders:
    """The order of rows in each epoch; with ``fold`` member k has the rows outside fold k."""

    rows: int
    batch: int
    members: int
    fold: np.ndarray | None = None

    @staticmethod
    def of(train: Observed, fold: Tensor | None, members: int, batch: int) -> BlockOrders | None:
        """Those of a large table on disk that members share; None for any other."""
        if not train.on_disk or train.members is not None or train.rows <= WINDOW:
            return None
        return BlockOrders(train.rows, batch, members, None if fold is None else fold.cpu().numpy())

    def of_epoch(self, seed: int, device: torch.device) -> EpochOrder:
        """The rows of each step, (rows,), or (members, rows) with folds."""
        blocks = np.random.default_rng(seed).permutation(-(-self.rows // BLOCK))
        windows = np.array_split(blocks, max(1, self.rows // WINDOW))
        return EpochOrder(self, seed, windows, device)

    def window(self, blocks: np.ndarray, seed: int) -> np.ndarray:
        """Rows of some blocks in random order, (rows,) or (members, rows)."""
        draw = np.random.default_rng(seed)
        rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        rows = draw.permutation(rows[rows < self.rows])
        if self.fold is None:
            return rows
        of = self.fold[rows]
        own = [rows[of != k] for k in range(self.members)]
        # Every member has as many; the one with all rows has a random part of them.
        return np.stack([several[: min(map(len, own))] for several in own])


@dataclass
class EpochOrder(Sequence[Tensor]):
    """The rows of each step of an epoch, made a window at a time when they are asked for."""

    orders: BlockOrders
    seed: int
    windows: list[np.ndarray]
    device: torch.device
    _made: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ends = np.cumsum([self._steps_of(blocks) for blocks in self.windows])

    def on_cpu(self) -> EpochOrder:
        """The same order on the CPU."""
        return EpochOrder(self.orders, self.seed, self.windows, torch.device("cpu"))

    def _steps_of(self, blocks: np.ndarray) -> int:
        """Steps of a window, by the rows that a member has of it on average."""
        rows = len(blocks) * BLOCK
        if self.orders.fold is not None:
            folds = int(self.orders.fold.max()) + 1
            rows = round(rows * (1 - 1 / folds))
        return max(1, round(rows / self.orders.batch))

    def __len__(self) -> int:
        return int(self._ends[-1])

    @overload
    def __getitem__(self, step: int) -> Tensor: ...
    @overload
    def __getitem__(self, step: slice) -> list[Tensor]: ...
    def __getitem__(self, step: int | slice) -> Tensor | list[Tensor]:
        if isinstance(step, slice):
            return [self[place] for place in range(*step.indices(len(self)))]
        if not 0 <= step < len(self):
            raise IndexError(step)
        number = int(np.searchsorted(self._ends, step, side="right"))
        first = int(self._ends[number - 1]) if number else 0
        return self._window(number)[step - first].to(self.device)

    def _window(self, number: int) -> tuple[Tensor, ...]:
        if number not in self._made:
            self._made = {place: made for place, made in self._made.items() if place >= number - 1}
            rows = self.orders.window(self.windows[number], derive_seed(self.seed, number))
            steps = int(self._ends[number]) - (int(self._ends[number - 1]) if number else 0)
            self._made[number] = torch.from_numpy(rows).tensor_split(steps, dim=-1)
        return self._made[number]
