"""Worst-case bounds of a disparity, for any reason for which rows withhold their group."""

from __future__ import annotations

import numpy as np


def worst_case(hits: np.ndarray, misses: np.ndarray, withheld: tuple[float, float]) -> tuple[float, float]:
    """The least and the largest max_a r_a − min_a r_a of a rate r_a = hits / (hits + misses).

    ``hits`` and ``misses`` are the counts of each group among stating rows, ``withheld`` the two counts among
    the others, which may belong to any group (Manski 1990). Between two groups the difference is largest
    where all withheld hits belong to one and all withheld misses to the other. The least is 0 unless the same
    group has the higher rate even under the opposite allocation.
    """
    more_hits, more_misses = withheld
    best = _rate(hits + more_hits, misses)
    worst = _rate(hits, misses + more_misses)
    pairs = [(a, b) for a in range(len(hits)) for b in range(len(hits)) if a != b]
    largest = [best[a] - worst[b] for a, b in pairs if not np.isnan(best[a] - worst[b])]
    if not largest:
        return float("nan"), float("nan")
    # Two groups whose order no allocation can reverse differ at least by this much.
    least = [worst[a] - best[b] for a, b in pairs if not np.isnan(worst[a] - best[b])]
    return max(0.0, max(least)), min(1.0, max(0.0, *largest))


def _rate(hits: np.ndarray, misses: np.ndarray) -> np.ndarray:
    total = hits + misses
    return np.where(total > 0, hits / np.where(total > 0, total, 1), np.nan)
