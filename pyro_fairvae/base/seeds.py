"""Seeded random numbers that leave the caller's generators unchanged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.base.threads import GENERATORS


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise unless all generators take the seed."""
    require(0 <= seed < 2**63, f"{name} must be within [0, 2^63), got {seed}.", name)


def derive_seed(*parts: int) -> int:
    """Derive a distinct seed from each combination of equally many parts, such as (seed, epoch, purpose)."""
    return int(np.random.SeedSequence(list(parts)).generate_state(1)[0])


class SeededDraws:
    """Draws on the CPU and on every CUDA device that depend on ``seed`` alone, and on earlier ones of these.

    They are made inside ``with draws.held():``, where other threads wait for their turn; each such block goes
    on where the last one ended.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: tuple[Tensor, list[Tensor]] | None = None  # of the CPU and of CUDA devices

    @contextmanager
    def held(self) -> Iterator[None]:
        """PyTorch's global generators make these draws inside the ``with`` block."""
        with GENERATORS.held(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            if self._states is None:
                torch.manual_seed(self._seed)
            else:
                of_cpu, of_cuda = self._states
                torch.set_rng_state(of_cpu)
                torch.cuda.set_rng_state_all(of_cuda)
            yield
            self._states = torch.get_rng_state(), torch.cuda.get_rng_state_all()


def seeded(seed: int) -> AbstractContextManager[None]:
    """Draws on the CPU and on every CUDA device depend on ``seed`` alone inside the ``with`` block."""
    return SeededDraws(seed).held()


class MemberNoise:
    """Random numbers of members; each depends only on the member's seed and on its earlier draws.

    Members with equal seeds draw equal numbers, and no member's numbers depend on how many others there are.
    Numbers of rows do not depend on how rows are divided between processes (:meth:`of_rows`).
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        distinct = list(dict.fromkeys(seeds))
        self._place = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        self._by_seed = [self._generator(derive_seed(seed, 0), device) for seed in distinct]
        self.ranks, self.rows = ALONE, 0
        # How many numbers a Dirichlet draw consumes depends on the concentration, so members cannot share.
        self._by_member = [self._generator(derive_seed(seed, 1), device) for seed in seeds]

    @staticmethod
    def _generator(seed: int, device: torch.device | str) -> torch.Generator:
        return torch.Generator(device).manual_seed(seed)

    def of_rows(self, ranks: Ranks, rows: int) -> MemberNoise:
        """The same noise, whose numbers of rows are those of this rank's part of ``rows`` rows.

        Numbers of all rows are drawn, as one process draws them, and the part is taken of them.
        """
        if ranks.count == 1:
            return self
        part = copy.copy(self)
        part.ranks, part.rows = ranks, rows
        return part

    def whole(self) -> MemberNoise:
        """The same noise, whose numbers are of all rows."""
        noise = copy.copy(self)
        noise.ranks, noise.rows = ALONE, 0
        return noise

    def normal(self, shape: Sequence[int], like: Tensor, rows: int | None = None) -> Tensor:
        """Standard normal numbers, (members, *shape); ``rows`` is the place in the shape of rows, if any."""
        whole = self._whole(shape, rows)
        draws = self._draw(lambda g: torch.randn(*whole, generator=g, dtype=like.dtype, device=like.device))
        return self._part(draws, rows)

    def uniform(self, shape: Sequence[int], like: Tensor, rows: int | None = None) -> Tensor:
        """Uniform numbers in [0, 1), (members, *shape)."""
        whole = self._whole(shape, rows)
        draws = self._draw(lambda g: torch.rand(*whole, generator=g, dtype=like.dtype, device=like.device))
        return self._part(draws, rows)

    def gumbel(self, shape: Sequence[int], like: Tensor, rows: int | None = None) -> Tensor:
        """Standard Gumbel numbers, (members, *shape)."""
        whole = self._whole(shape, rows)
        draws = self._draw(lambda g: -like.new_empty(*whole).exponential_(generator=g).log())
        return self._part(draws, rows)

    def dirichlet(self, concentration: Tensor) -> Tensor:
        """A Dirichlet draw of each member, with its gradient; ``concentration`` is (members, …, support)."""
        drawn: Tensor = _DirichletDraw.apply(concentration, self._by_member)
        return drawn

    def _whole(self, shape: Sequence[int], rows: int | None) -> list[int]:
        """A shape with all rows in place of this rank's."""
        whole = list(shape)
        if rows is not None and self.ranks.count > 1:
            whole[rows] = self.rows
        return whole

    def _part(self, draws: Tensor, rows: int | None) -> Tensor:
        return draws if rows is None else self.ranks.part(draws, rows + 1)

    def _draw(self, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        draws = torch.stack([draw(generator) for generator in self._by_seed])
        return draws.expand(len(self._place), *draws.shape[1:]) if len(draws) == 1 else draws[self._place]


class _DirichletDraw(torch.autograd.Function):
    """The reparametrised draw of :class:`torch.distributions.Dirichlet`, with a generator for each member."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generators: list[torch.Generator]) -> Tensor:
        pairs = zip(concentration, generators, strict=True)
        drawn = torch.stack(
            [torch._sample_dirichlet(alpha, generator=generator) for alpha, generator in pairs]
        )
        ctx.save_for_backward(drawn, concentration)
        return drawn

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        drawn, concentration = ctx.saved_tensors
        (grad,) = grads
        total = concentration.sum(-1, keepdim=True).expand_as(concentration)
        slope = torch._dirichlet_grad(drawn, concentration, total)
        return slope * (grad - (drawn * grad).sum(-1, keepdim=True)), None
