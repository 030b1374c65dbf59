r"""Intervals for the largest of several differences, where the bootstrap and the delta method fail.

A disparity is :math:`\psi = \max_j d_j` over differences d of rates, each with its opposite, whose
estimates d̂ are normal with covariance V. It has a kink wherever two differences are equally large or all are
0, as for a fair classifier, so ψ(d̂) is neither normal nor unbiased there. The interval contains every c that
is not rejected:

- where some :math:`\hat d_j > c`, by the distance of d̂ from the polytope :math:`\psi \le c` in the metric of
  :math:`V^{-1}`, whose distribution is simulated at the point of the polytope nearest to d̂. There, rates
  within two standard errors of the highest or the lowest that the polytope allows are moved to them: how
  many tie is not known, and the distance is larger the more do (Andrews and Soares 2010);
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
from itertools import accumulate, pairwise

import numpy as np
from scipy.special import ndtr, ndtri

from pyro_fairvae.auditing.projections import STEPS, RateErrors

SIMULATED = 2000
BISECTIONS = 14  # steps of a bisection
FEW = 200  # differences whose own covariance is decomposed, so that they are simulated as in version 0.1
TIED = 2.0  # standard errors from the highest or lowest rate within which rates may tie with it
AT_ONCE = 2**16  # simulated differences that are compared at a time


def largest_interval(rates: np.ndarray, covariance: np.ndarray, level: float) -> tuple[float, float]:
    """The interval of the largest difference between rates of the same row, within [0, 1].

    ``rates`` is (classes, groups), NaN where a group has none, and ``covariance`` that of ``rates.ravel()``.
    """
    known = ~np.isnan(rates)
    known[known.sum(1) < 2] = False
    entries = np.flatnonzero(known)
    ends = accumulate(known.sum(1)[known.any(1)].tolist(), initial=0)
    blocks = [slice(start, end) for start, end in pairwise(ends)]
    test = _Test(rates.ravel()[entries], covariance[np.ix_(entries, entries)], blocks, level)
    start = max(float(test.differences.max()), 0.0)
    if not test.deviation.any():
        return start, start
    low = edge(test.rejects_below, 0.0, start) if test.rejects_below(0.0) else 0.0
    rejects = test.rejects_above
    high = edge(lambda c: not rejects(c), start, 1.0) if start < 1 and rejects(1.0) else 1.0
    return min(low, start), high


class _Test:
    """The test of each c, by all differences between two rates of a block, and their opposites."""

    def __init__(self, rates: np.ndarray, covariance: np.ndarray, blocks: list[slice], level: float) -> None:
        self.level = level
        different = [~np.eye(block.stop - block.start, dtype=bool) for block in blocks]
        pairs = [block.start + np.argwhere(of) for block, of in zip(blocks, different, strict=True)]
        self.first, self.second = np.concatenate(pairs).T
        self.differences = rates[self.first] - rates[self.second]
        self.errors = RateErrors(rates, self._root(covariance, blocks), blocks)
        variances = [of[others] for of, others in zip(self.errors.variances, different, strict=True)]
        self.deviation = np.sqrt(np.concatenate(variances))
        self.noise = np.random.default_rng(0).standard_normal((SIMULATED, self.errors.root.shape[1]))
        # Projections for one c start from those for another.
        self.of_rates, self.of_drawn = np.zeros((1, len(rates))), np.zeros((SIMULATED, len(rates)))

    def _root(self, covariance: np.ndarray, blocks: list[slice]) -> np.ndarray:
        """R such that differences of R · normal have the covariance of those of rates."""
        every = np.eye(len(covariance))
        size = np.concatenate(
            [np.full(block.stop - block.start, block.stop - block.start) for block in blocks]
        )
        if len(self.first) <= FEW:
            contrasts = every[self.first] - every[self.second]
        else:  # as many as rates, with the same contrastsᵀ · contrasts
            centred = np.concatenate([every[block] - every[block].mean(0) for block in blocks])
            contrasts = np.sqrt(2 * size)[:, None] * centred
        values, vectors = np.linalg.eigh(contrasts @ covariance @ contrasts.T)
        kept = values > 1e-10 * max(float(values.max()), 1e-300)
        return np.asarray(contrasts.T @ (vectors[:, kept] * np.sqrt(values[kept])) / (2 * size[:, None]))

    def rejects_above(self, c: float) -> bool:
        """Whether all differences lie too far below c."""
        least, most = ndtri(self.level), ndtri((1 + self.level) / 2)
        reached = self.differences + least * self.deviation
        deciding = self.differences + most * self.deviation >= reached.max()
        deciding &= self.deviation > 0
        bound = (c - self.differences[deciding]) / self.deviation[deciding]
        return bool((bound > reach_below(c / self.deviation[deciding], self.level)).all())

    def rejects_below(self, c: float) -> bool:
        """Whether the rates lie too far outside of the polytope where no difference is above c."""
        nearest, distance = self.errors.nearest(c, self.of_rates)
        tied = self.errors.tied(nearest, c, TIED)
        drawn = self.errors.points(tied + self.noise, self.of_drawn, c)
        drawn.high[:] = np.minimum(drawn.high, np.square(self.noise).sum(1))
        share = min(self.level + self._share_far_below(drawn.rates, c), 1.0)
        # Only points that may be one of the two between which the quantile lies are projected further.
        for step in range(STEPS):
            least, most = np.quantile(drawn.low, share), np.quantile(drawn.high, share)
            if not least < distance <= most:
                break
            first = np.quantile(drawn.low, share, method="lower")
            last = np.quantile(drawn.high, share, method="higher")
            near = np.flatnonzero((drawn.high >= first) & (drawn.low <= last) & drawn.unknown)
            if len(near) == 0:
                break
            self.errors.refine(drawn, near, c, step)
        return bool(distance > (least + most) / 2)

    def _share_far_below(self, rates: np.ndarray, c: float) -> float:
        """How many of the drawn rates have no difference within reach of c."""
        active = np.flatnonzero(self.deviation > 0)
        first, second, deviation = self.first[active], self.second[active], self.deviation[active]
        limit = c - reach_below(c / deviation, self.level) * deviation
        # Pairs that most of the rates violate come first, so that few rates are left for the others.
        centre = rates.mean(0)
        order = np.argsort(limit - centre[first] + centre[second])
        while len(order) and len(rates):
            now, order = np.split(order, [max(1, AT_ONCE // len(rates))])
            rates = rates[(rates[:, first[now]] - rates[:, second[now]] < limit[now]).all(1)]
        return len(rates) / SIMULATED


def reach_below(size: np.ndarray, level: float) -> np.ndarray:
    """t with P(size − t ≤ |size + n| ≤ size + t) = level, n normal."""
    low, high = (np.full_like(size, ndtri(at)) for at in (level, (1 + level) / 2))
    for _ in range(2 * BISECTIONS):
        t = (low + high) / 2
        outside = ndtr(-t) + np.maximum(ndtr(-t) - ndtr(t - 2 * size), 0.0)
        low, high = np.where(outside > 1 - level, (t, high), (low, t))
    return low


def edge(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point between ``low``, where ``holds`` is true, and ``high`` at which it turns false."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2
