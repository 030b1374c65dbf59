r"""Intervals for the largest of several differences, where the bootstrap and the delta method fail.

A disparity is :math:`\psi = \max_j d_j` over differences d of rates, each with its opposite, whose
estimates d̂ are normal with covariance V. It has a kink wherever two differences are equally large or all are
0, as for a fair classifier, so ψ(d̂) is neither normal nor unbiased there. The interval contains every c that
is not rejected:

- where some :math:`\hat d_j > c`, by the distance of d̂ from the polytope :math:`\psi \le c` in the metric of
  :math:`V^{-1}`, whose distribution is simulated at the point of the polytope nearest to d̂;
- where all lie below, by all of them: each must lie further below c than a single difference of that size
  would (an intersection–union test, Berger 1982).

The likelihood ratio of a single difference determines how far below (Feldman and Cousins 1998). The first
test uses the part of the error level that the second, at the same point, does not use: half where c is large
and a single difference stands out, all where c is so small, or a difference so imprecise, that no estimates
could lie far below. So the interval is one-sided where the data are consistent with 0, and neither empty nor
too conservative. Where a single difference stands out, the interval is that of this difference.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

SIMULATED = 2000
BISECTIONS = 14  # steps of a bisection
SWEEPS = 100  # of a projection, at most
EXACT = 1e-7


def largest_interval(differences: np.ndarray, covariance: np.ndarray, level: float) -> tuple[float, float]:
    """The interval of max d within [0, 1], from estimates (differences,) and their covariance."""
    largest = float(differences.max())
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * max(float(values.max()), 1e-300)
    if not kept.any():
        return max(largest, 0.0), max(largest, 0.0)
    root = vectors[:, kept] * np.sqrt(values[kept])  # d = d̂ + root · normal
    deviation = np.linalg.norm(root, axis=1)
    active = deviation > 0
    noise = np.random.default_rng(0).standard_normal((SIMULATED, root.shape[1]))
    normals = root[active] / deviation[active, None]

    def rejected(c: float) -> bool:
        bound = (c - differences[active]) / deviation[active]
        reach = reach_below(c / deviation[active], level)
        if (bound >= 0).all():
            return bool((bound > reach).all())
        nearest = project_onto_faces(np.zeros((1, root.shape[1])), normals, bound)
        distance = float(np.square(nearest).sum())
        drawn = nearest + noise
        simulated = np.square(drawn - project_onto_faces(drawn, normals, bound)).sum(1)
        below = (bound - drawn @ normals.T > reach).all(1).mean()
        return distance > np.quantile(simulated, level + below)

    start = max(largest, 0.0)
    low = _edge(rejected, 0.0, start) if rejected(0.0) else 0.0
    high = _edge(lambda c: not rejected(c), start, 1.0) if start < 1 and rejected(1.0) else 1.0
    return min(low, start), high


def reach_below(size: np.ndarray, level: float) -> np.ndarray:
    """t with P(size − t ≤ |size + n| ≤ size + t) = level, n normal."""
    low, high = (np.full_like(size, ndtri(at)) for at in (level, (1 + level) / 2))
    for _ in range(2 * BISECTIONS):
        t = (low + high) / 2
        outside = ndtr(-t) + np.maximum(ndtr(-t) - ndtr(t - 2 * size), 0.0)
        low, high = np.where(outside > 1 - level, (t, high), (low, t))
    return low


def _edge(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point between ``low``, where ``holds`` is true, and ``high`` at which it turns false."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def project_onto_faces(points: np.ndarray, normals: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The nearest points with ⟨normal, x⟩ ≤ bound for all of the unit normals (Hildreth's algorithm).

    Each point, (points, dimensions), has a multiplier for each face; faces are processed in turn.
    """
    x = points.copy()
    moving = np.arange(len(points))
    multipliers = np.zeros((len(normals), len(points)))
    for _ in range(SWEEPS):
        here, largest = x[moving], np.zeros(len(moving))
        for normal, bound, multiplier in zip(normals, bounds, multipliers, strict=True):
            step = np.maximum(here @ normal - bound, -multiplier)
            here -= step[:, None] * normal
            multiplier += step
            largest = np.maximum(largest, np.abs(step))
        x[moving] = here
        unfinished = largest >= EXACT
        if not unfinished.any():
            break
        moving, multipliers = moving[unfinished], multipliers[:, unfinished]
    return x
