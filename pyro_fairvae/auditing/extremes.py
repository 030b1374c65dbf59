r"""Intervals of the largest of several linear functions of rates, where a normal one does not hold.

ψ(p) > c if and only if one of the contrasts :math:`A(c)\,p - b(c)` is above 0. Of this form are the least of
the ratios of rates, with :math:`(1-c)\,p_h - p_g`, and sums of absolute or largest differences. For each c
the contrasts are linear in the estimated rates, so that their variances are those of the rates, however small
a denominator is (Fieller 1954). The interval contains every c that is not rejected:

- as too small, where some contrast lies further above 0 than the largest error of those that are near to 0 or
  above it (Andrews and Soares 2010);
- as too large, where every contrast lies too far below 0 (Berger 1982).

The second test has half of the error level. The first has the rest, and what the second does not use of its
half, as it cannot reject where contrasts are opposites of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from scipy.special import ndtri

from pyro_fairvae.auditing.intervals import edge

SIMULATED = 2000
NEAR = 2.0  # standard errors below 0 within which a contrast may be 0
CERTAIN = 1e-12  # variance of a contrast, of the largest one of a rate, that is taken for 0
MOST_CONTRASTS = 1024
AT_ONCE = 2**20  # simulated contrasts above which fewer are simulated

Contrasts = Callable[[float], tuple[np.ndarray, np.ndarray]]  # A(c), (contrasts, rates), and b(c)


def extreme_interval(
    contrasts: Contrasts, values: np.ndarray, covariance: np.ndarray, level: float, start: float, most: float
) -> tuple[float, float]:
    """The interval of ψ within [0, ``most``]; ``start`` is its estimate, and rates have a covariance."""
    if not np.diag(covariance).any():
        return start, start
    size, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.clip(size, 0, None))
    simulated = max(SIMULATED // 4, min(SIMULATED, AT_ONCE // len(contrasts(start)[1])))
    noise = np.random.default_rng(0).standard_normal((simulated, len(values))) @ root.T
    least = CERTAIN * np.diag(covariance).max()
    far = ndtri((1 + level) / 2)

    def tested(c: float) -> tuple[bool, bool]:
        """Whether c is too small, and whether it is too large."""
        matrix, shift = contrasts(c)
        deviation = np.sqrt(np.clip(np.einsum("jk,kl,jl->j", matrix, covariance, matrix), 0, None))
        sure = deviation <= np.sqrt(least)
        distance = (matrix @ values - shift) / np.where(sure, np.sqrt(least), deviation)
        if (distance[sure] > 1).any():
            return True, False
        distance, matrix = distance[~sure], matrix[~sure] / deviation[~sure, None]
        near = distance >= -NEAR
        drawn = noise @ matrix.T
        # At this c, those that may be 0 are, and the others are as far below as they were found.
        used = float((drawn + np.where(near, 0, distance) < -far).all(1).mean())
        share = min(level + used, 1.0)
        too_small = near.any() and distance.max() > np.quantile(drawn[:, near].max(1), share)
        return bool(too_small), bool((distance < -far).all())

    low = edge(lambda c: tested(c)[0], 0.0, start) if tested(0.0)[0] else 0.0
    if tested(start)[1]:  # it lies at the edge of what ψ can be
        return min(low, start), start
    high = edge(lambda c: not tested(c)[1], start, most) if start < most and tested(most)[1] else most
    return min(low, start), max(high, start)


def least_ratio(values: np.ndarray, pairs: Sequence[tuple[int, int]]) -> float:
    """The least of 1 and p_g / p_h over pairs (g, h); NaN where all rates are 0."""
    below = [values[g] / values[h] for g, h in pairs if values[h] > 0]
    return float(min(1.0, *below)) if below else float("nan")


def least_ratio_interval(
    values: np.ndarray, covariance: np.ndarray, pairs: Sequence[tuple[int, int]], level: float
) -> tuple[float, float]:
    """The interval of :func:`least_ratio`, within [0, 1]; all of it where every rate is 0."""
    estimate = least_ratio(values, pairs)
    if np.isnan(estimate):
        return 0.0, 1.0
    upper, lower = np.eye(len(values))[[h for _, h in pairs]], np.eye(len(values))[[g for g, _ in pairs]]
    nothing = np.zeros(len(pairs))

    def contrasts(shortfall: float) -> tuple[np.ndarray, np.ndarray]:
        return (1 - shortfall) * upper - lower, nothing

    low, high = extreme_interval(contrasts, values, covariance, level, 1 - estimate, 1.0)
    return 1 - high, 1 - low


def sum_interval(
    values: np.ndarray,
    covariance: np.ndarray,
    parts: Sequence[np.ndarray],
    level: float,
    most: float,
) -> tuple[float, float, float]:
    """Σ over parts of the largest of a part's linear functions, (functions, rates) each, and its interval.

    Of a part with many functions only those that are the largest by the estimate are compared.
    """
    most_of_part = int(MOST_CONTRASTS ** (1 / len(parts)))
    parts = [part[np.argsort(part @ values)[-most_of_part:]] for part in parts]
    matrix = np.array([np.sum(chosen, axis=0) for chosen in product(*parts)])
    start = float(np.clip((matrix @ values).max(), 0, most))

    def contrasts(c: float) -> tuple[np.ndarray, np.ndarray]:
        return matrix, np.full(len(matrix), c)

    return start, *extreme_interval(contrasts, values, covariance, level, start, most)
