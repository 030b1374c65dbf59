"""Randomness that a seed fixes and that leaves the caller's own alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(*parts: int) -> int:
    """A seed of its own for each combination of parts, such as (seed, epoch, purpose)."""
    return int(np.random.SeedSequence(list(parts)).generate_state(1)[0])


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draws on the CPU and on ``device`` depend on ``seed`` alone, for the time of a ``with``."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
