"""Schedules of the learning rate."""

from __future__ import annotations

import math


def cosine_share(done: float) -> float:
    """Factor on the learning rate after the share ``done`` of training; it falls from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * done))
