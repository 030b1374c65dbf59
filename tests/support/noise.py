"""Noise that belongs to a member, whoever it is trained with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.distributions import Dirichlet, Normal

_dirichlet = Dirichlet.rsample


@contextmanager
def noise_of(members: Sequence[int]) -> Iterator[None]:
    """Every draw of slice ``k`` depends on ``members[k]`` and on how many draws came before it."""
    calls = 0

    def seeded(draw):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        slices = []
        for k, member in enumerate(members):
            with torch.random.fork_rng():
                torch.manual_seed(7919 * calls + member)
                slices.append(draw(k))
        return torch.stack(slices)

    def normal(self: Normal, sample_shape: tuple[int, ...] = ()) -> Tensor:
        noise = seeded(lambda k: torch.randn(self.loc.shape[1:], dtype=self.loc.dtype))
        return self.loc + self.scale * noise

    def dirichlet(self: Dirichlet, sample_shape: tuple[int, ...] = ()) -> Tensor:
        return seeded(lambda k: _dirichlet(Dirichlet(self.concentration[k])))

    def uniform(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        return seeded(lambda k: torch.empty(shape[1:], dtype=dtype).uniform_())

    with (
        mock.patch.object(Normal, "rsample", normal),
        mock.patch.object(Dirichlet, "rsample", dirichlet),
        mock.patch.object(torch, "rand", uniform),
    ):
        yield
