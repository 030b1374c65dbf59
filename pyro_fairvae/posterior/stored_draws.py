"""Draws of a fit's posteriors, as a model's folder stores them: by source, channel and row number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.posterior.calibration import Calibrated
from pyro_fairvae.posterior.channel_draws import ChannelDraws, Effects, guide_draws, guide_effects

SOURCES = CALIBRATED, GUIDE = "calibrated", "guide"
GUIDE_DRAWS = 1000
EFFECTS = "effects"


def keep_draws(fit: Fit, calibrated: dict[str, Calibrated] | None) -> dict[str, np.ndarray]:
    """Draws by ``source/channel/row``, (chains, draws, tables, support); the guide's tables are members.

    Where withholding depends on more than the group, w is under ``source/a/effects``, (chains, draws, tables,
    attributes, columns).
    """
    channels = fit.program.guide.channel_a, fit.program.guide.channel_y
    sources = {GUIDE: {channel.name: guide_draws(fit, channel, GUIDE_DRAWS) for channel in channels}}
    if calibrated is not None:
        sources[CALIBRATED] = {name: posterior.draws for name, posterior in calibrated.items()}
    arrays = {
        _key(source, name, row): values.astype(np.float32)
        for source, by_channel in sources.items()
        for name, draws in by_channel.items()
        for row, values in enumerate(draws.rows)
    }
    return arrays | _keep_effects(fit, calibrated or {})


def _keep_effects(fit: Fit, calibrated: dict[str, Calibrated]) -> dict[str, np.ndarray]:
    guide = fit.program.guide
    if guide.conditions is None:
        return {}
    name = guide.channel_a.name
    kept = {_key(GUIDE, name, EFFECTS): guide_effects(fit, GUIDE_DRAWS).draws}
    effects = calibrated[name].effects if name in calibrated else None
    if effects is not None:
        kept[_key(CALIBRATED, name, EFFECTS)] = effects.draws
    return {key: values.astype(np.float32) for key, values in kept.items()}


def kept_sources(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The sources among stored draws, best first."""
    return tuple(source for source in SOURCES if any(key.startswith(f"{source}/") for key in arrays))


def kept_draws(arrays: Mapping[str, np.ndarray], source: str, channel: Channel) -> ChannelDraws:
    """The draws of a channel among those of :func:`keep_draws`; raises KeyError if they are missing."""
    rows = [arrays[_key(source, channel.name, row)].astype(np.float64) for row in range(len(channel.rows))]
    return ChannelDraws(channel, rows)


def kept_effects(arrays: Mapping[str, np.ndarray], source: str, fit: Fit) -> Effects | None:
    """The draws of w among those of :func:`keep_draws`; None if there are none."""
    guide = fit.program.guide
    draws = arrays.get(_key(source, guide.channel_a.name, EFFECTS))
    if draws is None or guide.conditions is None:
        return None
    return Effects(guide.conditions.columns, draws.astype(np.float64))


def _key(source: str, channel: str, row: int | str) -> str:
    return f"{source}/{channel}/{row}"
