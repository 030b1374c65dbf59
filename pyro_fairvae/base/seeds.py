"""Seeded random numbers that leave the caller's generators unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
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
    """

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu") -> None:
        distinct = list(dict.fromkeys(seeds))
        self._place = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        self._by_seed = [self._generator(derive_seed(seed, 0), device) for seed in distinct]
        # How many numbers a Dirichlet draw consumes depends on the concentration, so members cannot share.
        self._by_member = [self._generator(derive_seed(seed, 1), device) for seed in seeds]

    @staticmethod
    def _generator(seed: int, device: torch.device | str) -> torch.Generator:
        return torch.Generator(device).manual_seed(seed)

    def normal(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard normal numbers, (members, *shape)."""
        return self._draw(lambda g: torch.randn(*shape, generator=g, dtype=like.dtype, device=like.device))

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Uniform numbers in [0, 1), (members, *shape)."""
        return self._draw(lambda g: torch.rand(*shape, generator=g, dtype=like.dtype, device=like.device))

    def gumbel(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Standard Gumbel numbers, (members, *shape)."""
        return self._draw(lambda g: -like.new_empty(*shape).exponential_(generator=g).log())

    def dirichlet(self, concentration: Tensor) -> Tensor:
        """A Dirichlet draw of each member, with its gradient; ``concentration`` is (members, …, support)."""
        drawn: Tensor = _DirichletDraw.apply(concentration, self._by_member)
        return drawn

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
