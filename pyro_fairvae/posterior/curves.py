"""Who withholds a number, along it: the rates of its levels as a curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.posterior.summaries import RateSummary
from pyro_fairvae.schema.attributes import EVERY, UNAVAILABLE, Attributes

OPTIONAL = ("truth", "yardstick")


def withholding_curve(
    rates: Mapping[str, Mapping[str, RateSummary]], attributes: Attributes
) -> pd.DataFrame | None:
    """P(∅|level) of a number, a line for each level from the lowest; None if the group is no number.

    ``rates`` are those of P(ã|a) in a posterior. Columns are ``level``; ``from`` and ``to``, its ends;
    ``centre``, the mean of the stated numbers in it; ``withheld``, ``low`` and ``high``, a mean with its 90 %
    interval; and ``truth``, where it is known.
    """
    levels = attributes.levels
    if levels is None:
        return None
    lines: list[dict[str, Any]] = []
    ends = [-np.inf, *levels.edges, np.inf]
    for k, name in enumerate(levels.names):
        row = rates.get(name, rates.get(EVERY, {}))
        rate = row.get(UNAVAILABLE)
        line: dict[str, Any] = {
            "level": name,
            "from": ends[k],
            "to": ends[k + 1],
            "centre": levels.centres[k],
        }
        line |= dict.fromkeys(("withheld", "low", "high"), 0.0)  # if nobody can withhold it
        if rate is not None:
            line |= {"withheld": rate["mean"], "low": rate["q05"], "high": rate["q95"]}
            given: Mapping[str, Any] = rate
            line |= {name: given[name] for name in OPTIONAL if name in given}
        lines.append(line)
    return pd.DataFrame(lines)


def truthful_channel(withheld: np.ndarray) -> np.ndarray:
    """P(ã|a), (groups, outcomes), where each group withholds at its rate and nobody misstates."""
    return np.column_stack([np.diag(1 - withheld), withheld])
