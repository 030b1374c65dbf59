"""Draws of channels and of what withholding depends on: from the prior and from a fit's guide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit


@dataclass(frozen=True)
class ChannelDraws:
    """Draws of each row of a channel on its support.

    Attributes
    ----------
    channel : Channel
        The channel that was drawn.
    rows : list of ndarray
        Draws of each row, (chains, draws, tables, support). A table is a separate data set, or a
        member where each has its own networks.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, ChannelDraws, channel, prior_draws
    >>> sex = channel("a", Attributes.single(("f", "m"), "sex"))
    >>> draws = prior_draws(sex, draws=100)
    >>> draws.of(0, "unavailable").shape  # P(∅ | f): chains, draws, tables
    (1, 100, 1)
    >>> ChannelDraws.pool([draws, draws]).of(0, "unavailable").shape
    (1, 100, 2)
    """

    channel: Channel
    rows: list[np.ndarray]

    def of(self, row: int, outcome: str) -> np.ndarray:
        """Probability of an outcome of a row, (chains, draws, tables)."""
        return self.rows[row][..., self.channel.rows[row].outcomes.index(outcome)]

    def table(self, index: int) -> ChannelDraws:
        """The draws of one table."""
        return ChannelDraws(self.channel, [row[:, :, [index]] for row in self.rows])

    @staticmethod
    def pool(several: Sequence[ChannelDraws]) -> ChannelDraws:
        """Concatenate tables, members or runs with equal weight."""
        channel = several[0].channel
        require(
            all(draws.channel == channel for draws in several),
            "posteriors of different channels or priors cannot be pooled; inspect them one by one.",
        )
        require(
            len({draws.rows[0].shape for draws in several}) == 1,
            "posteriors of different kinds, or of different numbers of members, cannot be pooled with equal "
            "weight; inspect them one by one, or choose one kind with source.",
            "source",
        )
        rows = zip(*(draws.rows for draws in several), strict=True)
        return ChannelDraws(channel, [np.concatenate(same, axis=2) for same in rows])


@dataclass(frozen=True)
class Effects:
    """Draws of w, what makes people withhold: changes in the log-odds of ∅ with each column of v.

    Those of categories are relative to the average of people, as :meth:`.Conditions.relative` has them.
    """

    columns: tuple[str, ...]
    draws: np.ndarray  # (chains, draws, tables, attributes, columns)


@torch.no_grad()
def guide_draws(fit: Fit, channel: Channel, draws: int = 4000, seed: int = 0) -> ChannelDraws:
    """Draws from the guide at the chosen epochs; h(a|x) and g(y|x) are taken as certain.

    Parameters
    ----------
    fit : Fit
        The fit whose guide is sampled.
    channel : Channel
        ``fit.program.guide.channel_a`` or ``channel_y``.
    draws, seed : int
        Number of draws, and the seed.

    Returns
    -------
    ChannelDraws
        With one chain, and a table for each member.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, fit, guide_draws, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, lambdas=(0.0, 1.0), settings=small)
    >>> guide_draws(fitted, fitted.program.guide.channel_a, draws=50).of(0, "unavailable").shape
    (1, 50, 2)
    """
    program = fit.at_chosen_epoch()
    with seeded(seed):
        rows = [
            program.guide.sites.distribution(site).sample(torch.Size([draws])).squeeze(-2)
            for site in channel.sites
        ]
    return ChannelDraws(channel, [row.cpu().double().numpy()[None] for row in rows])


@torch.no_grad()
def guide_effects(fit: Fit, draws: int = 1000) -> Effects:
    """Draws of w from the guide at the chosen epochs; its tables are members."""
    conditions = fit.program.guide.conditions
    assert conditions is not None
    program = fit.at_chosen_epoch()
    with seeded(0):
        site = program.guide.channel_a.withholding_site
        w = program.guide.sites.distribution(site).sample(torch.Size([draws])).squeeze(-3)
    varies = conditions.varies
    relative = conditions.relative(w).cpu().numpy()[None][..., varies]
    return Effects(tuple(compress(conditions.words, varies)), relative)


def prior_draws(channel: Channel, draws: int = 4000, seed: int = 0) -> ChannelDraws:
    """Draws from the prior of a channel.

    Parameters
    ----------
    channel : Channel
        The channel whose rows are drawn.
    draws, seed : int
        Number of draws, and the seed.

    Returns
    -------
    ChannelDraws
        With one chain and one table.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, channel, prior_draws
    >>> sex = channel("a", Attributes.single(("f", "m"), "sex"), "{preset: truthful, strength: 20}")
    >>> bool(abs(prior_draws(sex).of(0, "unavailable").mean() - 0.5) < 0.01)
    True
    """
    generator = np.random.default_rng([seed])
    return ChannelDraws(channel, [generator.dirichlet(row.prior, size=(1, draws, 1)) for row in channel.rows])
