r"""Intervals for the largest of several differences, where the bootstrap and the delta method fail.

A disparity is :math:`\psi = \max_j d_j` over signed differences d of rates, of which estimates d̂ are
normal with covariance V. It has a kink wherever two differences are equally large or all are 0, which is
where a fair classifier lies, so ψ(d̂) is neither normal nor without bias there. The interval keeps every c
that a test does not reject, one for each end, each at half of 1 − level:

- :math:`\psi \le c`, a polytope, by the distance of d̂ from it in the metric of :math:`V^{-1}`, whose
  distribution is simulated at the point of the polytope that is nearest to d̂;
- :math:`\psi \ge c`, a union of half-spaces, which is rejected where each of them is (an intersection–union
  test, Berger 1982), so that the upper end is :math:`\max_j \hat d_j + z \sqrt{V_{jj}}`.

Where a single difference stands out, both ends are those of its own normal interval.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

DRAWS = 2000
STEPS = 14  # of bisection
SWEEPS = 100  # at most, of a projection
EXACT = 1e-7


def largest_interval(differences: np.ndarray, covariance: np.ndarray, level: float) -> tuple[float, float]:
    """The interval of max d within [0, 1], of estimates (differences,) with their covariance."""
    largest = float(differences.max())
    tail = (1 - level) / 2
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-10 * max(float(values.max()), 1e-300)
    if not kept.any():
        return max(largest, 0.0), max(largest, 0.0)
    root = vectors[:, kept] * np.sqrt(values[kept])  # d = d̂ + root · normal
    deviation = np.linalg.norm(root, axis=1)
    active = deviation > 0
    noise = np.random.default_rng(0).standard_normal((DRAWS, root.shape[1]))

    def below(c: float) -> bool:
        """Whether ψ ≤ c is rejected."""
        normals, bound = root[active] / deviation[active, None], (c - differences[active]) / deviation[active]
        nearest = project(np.zeros((1, root.shape[1])), normals, bound)
        distance = float(np.square(nearest).sum())
        if distance < EXACT:
            return False
        drawn = nearest + noise
        simulated = np.square(drawn - project(drawn, normals, bound)).sum(1)
        return distance > np.quantile(simulated, 1 - tail)

    low = _edge(below, 0.0, max(largest, 0.0)) if below(0.0) else 0.0
    high = float((differences + stats.norm.ppf(1 - tail) * deviation).max())
    return low, min(max(high, 0.0), 1.0)


def _edge(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where ``holds``, true at ``low``, stops to be so on the way to ``high``, by bisection."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def project(points: np.ndarray, normals: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The nearest points with ⟨normal, x⟩ ≤ bound for all of the unit normals (Hildreth's algorithm).

    Each point, (points, dimensions), has a multiplier for each face, by which faces are met in turn.
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
        on = largest >= EXACT
        if not on.any():
            break
        moving, multipliers = moving[on], multipliers[:, on]
    return x
