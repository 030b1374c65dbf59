"""The loop of plain networks against steps taken by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pyro_fairvae.inference.minimising import minimise

EPOCHS, RATES = 3, (0.5, 0.1)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_steps_are_those_of_gradient_descent_with_falling_rates(clip: float | None) -> None:
    """Two members, of which each minimises Σ (w − x)² / 2 over the rows of a batch, and b² / 2."""
    x = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64)
    w = nn.Parameter(torch.tensor([[0.0], [3.0]], dtype=torch.float64))
    b = nn.Parameter(torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    groups = [{"params": [w], "lr": RATES[0]}, {"params": [b], "lr": RATES[1]}]
    shares: list[float] = []

    def loss(index: Tensor, done: float) -> Tensor:
        shares.append(done)
        return ((w - x[index]).square().sum(-1) + b.square().sum(-1)) / 2

    def batches(epoch: int) -> tuple[Tensor, ...]:
        return torch.arange(5).roll(epoch).tensor_split(2)

    minimise(torch.optim.SGD(groups), loss, batches, EPOCHS, lambda epoch: epoch, clip)
    expected = np.array([[0.0, 1.0], [3.0, 2.0]])  # w and b of each member
    for epoch in range(EPOCHS):
        for step, index in enumerate(batches(epoch)):
            done = (epoch + step / 2) / EPOCHS
            slope = np.stack([(expected[:, :1] - x[index].numpy()).sum(1), expected[:, 1]], axis=1)
            if clip is not None:
                slope *= np.minimum(1, clip / np.linalg.norm(slope, axis=1, keepdims=True))
            expected = expected - np.array(RATES) * 0.5 * (1 + math.cos(math.pi * done)) * slope
    np.testing.assert_allclose(torch.cat([w, b], dim=1).detach().numpy(), expected)
    assert shares == [0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6]


def test_noise_of_an_epoch_is_its_own() -> None:
    weight = nn.Parameter(torch.zeros(1))
    drawn: list[float] = []

    def loss(index: Tensor, done: float) -> Tensor:
        drawn.append(float(torch.rand(())))
        return weight * 0

    seeds = [7, 8, 7]
    minimise(
        torch.optim.SGD([weight], lr=0.1), loss, lambda _: torch.arange(2).split(1), 3, lambda e: seeds[e]
    )
    assert drawn[:2] == drawn[4:]
    assert drawn[:2] != drawn[2:4]
