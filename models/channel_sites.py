"""Channels as sites of a Pyro program, of this library's models and of anybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel


def sample_channel(
    channel: Channel, of: Callable[[str], Any] | None = None, like: Tensor | None = None
) -> Tensor:
    """P(observed | latent), (…, values, outcomes), with a Pyro site for each row of the channel.

    Call it in a model, where rows have their Dirichlet priors, and in its guide, with ``of``.

    Parameters
    ----------
    channel : Channel
        Of :func:`pyro_fairvae.channel`.
    of : callable, optional
        The distribution of a site, by its name; by default the prior of the row.
    like : Tensor, optional
        Whose dtype and device the priors have; PyTorch's defaults unless given.

    Returns
    -------
    Tensor
        The probabilities, differentiable in what the sites drew.

    Examples
    --------
    >>> import pyro
    >>> from pyro_fairvae import Attributes, channel, sample_channel
    >>> sexes = channel("a", Attributes.single(("f", "m"), "sex"))
    >>> sample_channel(sexes).shape
    torch.Size([2, 3])
    """
    example = torch.empty(()) if like is None else like

    def prior(row: int) -> Any:
        return dist.Dirichlet(channel.concentration(row, example))

    draws = [
        pyro.sample(site, prior(row) if of is None else of(site)) for row, site in enumerate(channel.sites)
    ]
    return channel.matrix(draws)
