"""Randomness that a seed fixes and that leaves the caller's own alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(*parts: int) -> int:
    """A seed of its own for each combination of equally many parts, such as (seed, epoch, purpose)."""
    return int(np.random.SeedSequence(list(parts)).generate_state(1)[0])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws on the CPU and on every CUDA device depend on ``seed`` alone, for the time of a ``with``."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
