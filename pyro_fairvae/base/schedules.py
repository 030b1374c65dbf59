"""Learning rates as training goes on."""

from __future__ import annotations

import math


def cosine_share(done: float) -> float:
    """Share of a learning rate that is in force after a share of training, falling from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done))
