"""Training loop for plain networks: batches in random order, learning rates on a cosine schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import SeededDraws
from pyro_fairvae.inference.optimizer import clip_members


def minimise(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, float], Tensor],
    batches: Callable[[int], Sequence[Tensor]],
    epochs: int,
    noise: Callable[[int], int],
    clip: float | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Take a step of ``optimizer`` for each batch of each epoch; its current rates are the initial rates.

    ``batches`` returns the rows of each step of an epoch, and ``noise`` the seed of the epoch's randomness.
    ``loss`` takes rows and the share of training done, and returns (members,). With ``clip`` each member's
    gradient is scaled to at most that norm. Gradients of ``ranks``, whose losses are of their own rows, are
    added up.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    trained = [param for group in optimizer.param_groups for param in group["params"]]
    for epoch in range(epochs):
        steps = batches(epoch)
        draws = SeededDraws(noise(epoch))
        for step, index in enumerate(steps):
            done = (epoch + step / len(steps)) / epochs
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * cosine_share(done)
            optimizer.zero_grad()
            with draws.held():
                loss(index, done).sum().backward()
            grads = [param.grad for param in trained if param.grad is not None]
            ranks.add_up(grads)
            if clip is not None:
                clip_members(grads, clip)
            optimizer.step()
