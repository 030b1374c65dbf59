"""Draws of a fit's posteriors, as a model's folder stores them: by source, channel and row number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.posterior.summaries import Calibrated, ChannelDraws, guide_draws

SOURCES = CALIBRATED, GUIDE = "calibrated", "guide"
GUIDE_DRAWS = 1000


def keep_draws(fit: Fit, calibrated: dict[str, Calibrated] | None) -> dict[str, np.ndarray]:
    """Draws by ``source/channel/row``, (chains, draws, tables, support); the guide's tables are members."""
    channels = fit.program.guide.channel_a, fit.program.guide.channel_y
    sources = {GUIDE: {channel.name: guide_draws(fit, channel, GUIDE_DRAWS) for channel in channels}}
    if calibrated is not None:
        sources[CALIBRATED] = {name: posterior.draws for name, posterior in calibrated.items()}
    return {
        _key(source, name, row): values.astype(np.float32)
        for source, by_channel in sources.items()
        for name, draws in by_channel.items()
        for row, values in enumerate(draws.rows)
    }


def kept_sources(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The sources among stored draws, best first."""
    return tuple(source for source in SOURCES if any(key.startswith(f"{source}/") for key in arrays))


def kept_draws(arrays: Mapping[str, np.ndarray], source: str, channel: Channel) -> ChannelDraws:
    """The draws of a channel among those of :func:`keep_draws`; raises KeyError if they are missing."""
    rows = [arrays[_key(source, channel.name, row)].astype(np.float64) for row in range(len(channel.rows))]
    return ChannelDraws(channel, rows)


def _key(source: str, channel: str, row: int) -> str:
    return f"{source}/{channel}/{row}"
