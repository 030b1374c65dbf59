"""Tables whose outcome is a number, with gaps, and their truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyro_fairvae.data.number_labels import code_outcome
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Columns, Observed

WITHHELD = (0.7, 0.4)  # P(∅ | a)
LOW, HIGH = 0.1, 0.5  # P(∅ | y), below and above the cut
CUT = 6.0


@dataclass(frozen=True)
class NumberTable:
    """Rows as observed, and the truth that they hide."""

    observed: Observed
    x: np.ndarray
    y: np.ndarray
    a: np.ndarray
    y_obs: np.ndarray  # NaN where withheld
    a_obs: np.ndarray  # 2 where withheld


def number_table(rows: int, seed: int = 0, levels: int | None = None) -> NumberTable:
    """Group 1 has larger numbers, and more that vary; large ones are withheld more often."""
    draw = np.random.default_rng(seed)
    a = draw.integers(2, size=rows)
    x = draw.normal(size=(rows, 4))
    x[:, 0] += 1.5 * a
    y = 5 + 2 * x[:, 0] + x[:, 1] + draw.normal(size=rows) * (1 + 0.5 * a)
    a_obs = np.where(draw.random(rows) < np.array(WITHHELD)[a], 2, a)
    y_obs = np.where(draw.random(rows) < np.where(y > CUT, HIGH, LOW), np.nan, y)
    number = NumberOutcome.of(y_obs[~np.isnan(y_obs)], levels)
    codes, outcome = code_outcome(y_obs, number)
    observed = Observed(
        torch.from_numpy(x).float(), torch.from_numpy(codes), torch.from_numpy(a_obs), Columns(4),
        len(number.levels.centres), 2, number=number, outcome=torch.from_numpy(outcome).float(),
    )  # fmt: skip
    return NumberTable(observed, x, y, a, y_obs, a_obs)
