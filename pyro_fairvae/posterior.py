"""What was learned about who withholds: posteriors of the channels' rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.channels import Channel
from pyro_fairvae.seeds import seeded
from pyro_fairvae.training import Fit

INTERVAL = (0.05, 0.95)


@torch.no_grad()
def channel_draws(fit: Fit, channel: Channel, draws: int = 4000, seed: int = 0) -> Tensor:
    """Draws of P(observed | latent) at the chosen epochs, (draws, members, values, outcomes)."""
    with fit.at_chosen_epoch() as program, seeded(seed):
        sites = program.guide.sites
        rows = [
            sites.distribution(channel.site(value)).sample(torch.Size([draws]))
            for value in range(channel.values)
        ]
        return channel.matrix(rows).squeeze(-3).cpu()


def summarise(fit: Fit) -> dict[str, Any]:
    """Mean and 90 % interval of every outcome of every channel, as ``posterior.json`` holds it.

    At the top, ``a`` and ``y`` pool all members with equal weight; ``members`` has each member's own.
    Rows are keyed by latent value, outcomes by value or ``unavailable``. Intervals hold h(a|x) and
    g(y|x) fixed; they do not carry the uncertainty of the networks.
    """
    guide = fit.program.guide
    draws = {channel.name: channel_draws(fit, channel) for channel in (guide.channel_a, guide.channel_y)}
    channels = {channel.name: channel for channel in (guide.channel_a, guide.channel_y)}
    members = [
        {
            "weight": weight,
            "epoch": fit.chosen_epoch[k],
            **{name: _rows(channel, draws[name][:, k]) for name, channel in channels.items()},
        }
        for k, weight in enumerate(fit.weights_of_risk)
    ]
    return {
        "describes": "all members pooled with equal weight; intervals are 5 % to 95 %, given h and g",
        **{name: _rows(channel, draws[name].flatten(0, 1)) for name, channel in channels.items()},
        "members": members,
    }


def _rows(channel: Channel, draws: Tensor) -> dict[str, dict[str, dict[str, float]]]:
    """Summaries of draws (draws, values, outcomes) on the support of each row."""
    names = {outcome: str(outcome) for outcome in range(channel.values)}
    names[channel.unavailable] = "unavailable"
    return {
        str(value): {
            names[outcome]: _summary(draws[:, value, outcome].double().numpy())
            for outcome in channel.support(value)
        }
        for value in range(channel.values)
    }


def _summary(values: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(values, INTERVAL)
    return {"mean": float(values.mean()), "q05": float(low), "q95": float(high)}
