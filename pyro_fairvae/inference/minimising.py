"""The loop that trains plain networks: batches in a random order, and rates that fall along a cosine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.inference.optimizer import clip_members


def minimise(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, float], Tensor],
    batches: Callable[[int], Sequence[Tensor]],
    epochs: int,
    noise: Callable[[int], int],
    clip: float | None = None,
) -> None:
    """Take a step of ``optimizer`` for each batch of each epoch; the rates it has now are those at the start.

    ``batches`` says the rows of each step of an epoch, and ``noise`` the seed of what is random in it.
    ``loss`` is given rows and the share of training done, and says (members,). With ``clip`` each member's
    gradient is scaled to at most that norm.
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for epoch in range(epochs):
        steps = batches(epoch)
        with seeded(noise(epoch)):
            for step, index in enumerate(steps):
                done = (epoch + step / len(steps)) / epochs
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * cosine_share(done)
                optimizer.zero_grad()
                loss(index, done).sum().backward()
                if clip is not None:
                    clip_members([each.grad for each in trained if each.grad is not None], clip)
                optimizer.step()
