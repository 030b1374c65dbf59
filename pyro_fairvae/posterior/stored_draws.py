"""Draws of a fit's posteriors, as a model's folder stores them: by source, channel and row number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pyro_fairvae.base.errors import require
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.posterior.calibration import Calibrated
from pyro_fairvae.posterior.channel_draws import ChannelDraws, Effects, guide_draws, guide_effects

SOURCES = CALIBRATED, GUIDE = "calibrated", "guide"
GUIDE_DRAWS = 1000
EFFECTS = "effects"


def keep_draws(fit: Fit, calibrated: Mapping[str, Calibrated] | None) -> dict[str, np.ndarray]:
    """Draws by ``source/channel/row``, (chains, draws, tables, support); the guide's tables are members.

    Where withholding depends on more than the group, w is under ``source/a/effects``, (chains, draws, tables,
    attributes, columns).
    """
    guide = fit.program.guide
    arrays: dict[str, np.ndarray] = {}
    for channel in (guide.channel_a, guide.channel_y):
        arrays |= _kept(GUIDE, guide_draws(fit, channel, GUIDE_DRAWS))
    if guide.conditions is not None:
        effects = guide_effects(fit, GUIDE_DRAWS).draws
        arrays[_key(GUIDE, guide.channel_a.name, EFFECTS)] = effects.astype(np.float32)
    return arrays | keep_calibrated(calibrated or {})


def keep_calibrated(calibrated: Mapping[str, Calibrated]) -> dict[str, np.ndarray]:
    """The calibrated draws among those of :func:`keep_draws`."""
    arrays: dict[str, np.ndarray] = {}
    for name, posterior in calibrated.items():
        arrays |= _kept(CALIBRATED, posterior.draws)
        if posterior.effects is not None:
            arrays[_key(CALIBRATED, name, EFFECTS)] = posterior.effects.draws.astype(np.float32)
    return arrays


def _kept(source: str, draws: ChannelDraws) -> dict[str, np.ndarray]:
    return {
        _key(source, draws.channel.name, row): values.astype(np.float32)
        for row, values in enumerate(draws.rows)
    }


def kept_sources(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The sources among stored draws, best first."""
    return tuple(source for source in SOURCES if any(key.startswith(f"{source}/") for key in arrays))


def kept_draws(arrays: Mapping[str, np.ndarray], source: str, channel: Channel) -> ChannelDraws:
    """The draws of a channel among those of :func:`keep_draws`; raises KeyError if they are missing."""
    rows = [arrays[_key(source, channel.name, row)].astype(np.float64) for row in range(len(channel.rows))]
    shapes = {draws.shape[:3] for draws in rows}
    require(
        len(shapes) == 1
        and all(
            draws.ndim == 4 and draws.size and draws.shape[3] == len(row.outcomes)
            for draws, row in zip(rows, channel.rows, strict=True)
        ),
        f"the {source} draws of P({channel.name}) have shapes that do not belong to the model: "
        f"{[draws.shape for draws in rows]}.",
    )
    return ChannelDraws(channel, rows)


def kept_effects(
    arrays: Mapping[str, np.ndarray], source: str, channel: Channel, columns: Sequence[str]
) -> Effects | None:
    """The draws of w of these columns among those of :func:`keep_draws`; None if there are none."""
    draws = arrays.get(_key(source, channel.name, EFFECTS))
    if draws is None:
        return None
    require(
        draws.shape[-1] == len(columns),
        f"{len(columns)} columns make people withhold, but there are draws of {draws.shape[-1]}.",
    )
    return Effects(tuple(columns), draws.astype(np.float64))


def _key(source: str, channel: str, row: int | str) -> str:
    return f"{source}/{channel}/{row}"
