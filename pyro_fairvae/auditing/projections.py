r"""Distances of points from the polytope of rates that differ by at most c.

A point n stands for the rates :math:`r = \hat r + R n`, and lies in the polytope where
:math:`r_a - r_b \le c` for all a, b of a block, such as the groups' rates of a class. The polytope has a face
for each pair of rates, but the dual problem of a projection needs one multiplier s for each rate only:

.. math:: \min_s \tfrac12 s^\top K s - s^\top r + \tfrac c2 |s|_1, \quad
          \sum_{a \in \text{block}} s_a = 0, \quad K = R R^\top,

positive where a rate is lowered, negative where it is raised. A step changes, in each block, the two
multipliers by which most is gained (Fan, Chen and Lin 2005); now and then all are solved for, given their
signs. Any s bounds the distance from below, and any point of the polytope from above, so that points are
projected only as closely as a question needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEPS = 1000  # of a projection, at most
JOINTLY = 10  # every so many steps all multipliers of a point are changed,
AT_ONCE = 2**21  # if no more than so many numbers are needed for it
EXACT = 1e-10  # relative width of the bounds of a squared distance at which it is known,
POINT_EXACT = 1e-12  # and at which the nearest point is
NEGLIGIBLE = 1e-12  # variance of a difference that is taken for 0, of the largest variance of a rate
RIDGE = 1e-12  # added to the variances of rates, of the largest one, as some may depend on others
TINY = 1e-300  # instead of 0 in denominators


@dataclass(frozen=True)
class Points:
    """Points that are projected: ``rates`` and ``multipliers`` are (points, rates), all else is (points,).

    ``low`` and ``high`` are the bounds of squared distances, so far; ``to_centre`` is the squared distance
    from the point where the rates of each block are equal.
    """

    rates: np.ndarray
    multipliers: np.ndarray
    to_centre: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def unknown(self) -> np.ndarray:
        return self.high - self.low > EXACT * self.high


class RateErrors:
    """Rates with the errors ``root`` n, n normal, compared within blocks.

    Only differences matter, so both are centred in each block, after which the columns of ``root`` must be
    linearly independent. Rates that these errors could not make equal are replaced by the nearest that they
    could.
    """

    def __init__(self, rates: np.ndarray, root: np.ndarray, blocks: Sequence[slice]) -> None:
        self.blocks = blocks
        self.root = _centred(root, blocks)
        self.kernel = self.root @ self.root.T
        self.inverse = np.linalg.pinv(self.root)
        self.centre = -self.inverse @ _centred(rates, blocks)  # n at which all rates of a block are equal
        self.rates = -self.root @ self.centre
        diagonal = np.diag(self.kernel)
        self.variances = [
            diagonal[block, None] + diagonal[None, block] - 2 * self.kernel[block, block] for block in blocks
        ]
        for of in self.variances:
            of[of < NEGLIGIBLE * diagonal.max(initial=0)] = 0
        self.members = np.zeros((len(rates), len(blocks)))
        for column, block in enumerate(blocks):
            self.members[block, column] = 1

    def points(self, n: np.ndarray, multipliers: np.ndarray, c: float) -> Points:
        """Points n, (points, dimensions), and multipliers to start from, which are changed in place."""
        to_centre = np.square(n - self.centre).sum(1)
        rates = n @ self.root.T + self.rates
        # Where c is small, the nearest point is almost the centre, and so are the multipliers.
        of_centre = (n - self.centre) @ self.inverse
        share = np.maximum(1 - c * np.abs(of_centre).sum(1) / np.maximum(2 * to_centre, TINY), 0)
        along, square = (multipliers * rates).sum(1), np.square(multipliers @ self.root).sum(1)
        low = 2 * along - c * np.abs(multipliers).sum(1) - square
        better = share**2 * to_centre > low
        multipliers[better] = (share[:, None] * of_centre)[better]
        low = np.maximum(np.where(better, share**2 * to_centre, low), 0)
        return Points(rates, multipliers, to_centre, low, to_centre.copy())

    def nearest(self, c: float, multipliers: np.ndarray) -> tuple[np.ndarray, float]:
        """The point of the polytope nearest to the rates themselves, n = 0, and its squared distance.

        ``multipliers``, (1, rates), are those to start from, and changed in place.
        """
        itself = self.points(np.zeros((1, self.root.shape[1])), multipliers, c)
        for step in range(STEPS // 5):
            if itself.high[0] - itself.low[0] <= POINT_EXACT * itself.high[0]:
                break
            self.refine(itself, np.arange(1), c, step)
        return -multipliers[0] @ self.root, float(itself.low[0])

    def tied(self, n: np.ndarray, c: float, within: float) -> np.ndarray:
        """The point n of the polytope, with rates near to the ends of a block's range of c moved to them.

        Near are ``within`` standard errors, of the rate beside the mean of its block.
        """
        rates, deviation = self.root @ n + self.rates, np.sqrt(np.diag(self.kernel))
        moved = rates.copy()
        for block in self.blocks:
            of = rates[block]
            middle = (of.min() + of.max()) / 2
            ends = np.where(of < middle, middle - c / 2, middle + c / 2)
            moved[block] = np.where(np.abs(ends - of) <= within * deviation[block], ends, of)
        from_centre = self.inverse @ (_centred(moved, self.blocks) - self.rates) - self.centre
        found = self.root @ from_centre
        spread = max(float(np.ptp(found[block])) for block in self.blocks)
        # Errors that depend on each other cannot move all rates as they should.
        return np.asarray(self.centre + from_centre * min(1, c / max(spread, TINY)))

    def refine(self, points: Points, chosen: np.ndarray, c: float, step: int) -> None:
        """Tighten the bounds of the chosen points by the step of this number."""
        start, s = points.rates[chosen], points.multipliers[chosen]
        if step % JOINTLY == JOINTLY - 1 and s.size * s.shape[1] <= AT_ONCE:
            s = self._jointly(start, s, c / 2)
        r = start - s @ self.kernel
        for block, variances in zip(self.blocks, self.variances, strict=True):
            self._step(r, s, block, variances, c / 2)
        points.multipliers[chosen] = s
        along, square = (s * start).sum(1), (s * (start - r)).sum(1)
        points.low[chosen] = np.maximum(points.low[chosen], 2 * along - c * np.abs(s).sum(1) - square)
        # A point that is still outside meets the polytope on its way to the centre.
        spread = np.max([np.ptp(r[:, block], axis=1) for block in self.blocks], axis=0)
        share = np.minimum(1, c / np.maximum(spread, TINY))
        met = (1 - share) ** 2 * points.to_centre[chosen] + share * (2 * (1 - share) * along + share * square)
        points.high[chosen] = np.minimum(points.high[chosen], met)

    def _step(self, r: np.ndarray, s: np.ndarray, block: slice, variances: np.ndarray, half: float) -> None:
        """Change the multipliers of one pair of a block, and the rates, of each point in place."""
        point = np.arange(len(r))
        lowered = (r[:, block] - np.where(s[:, block] < 0, -half, half)).argmax(1)
        a = lowered + block.start
        most = r[point, a] - np.where(s[point, a] < 0, -half, half)
        violated = np.maximum(most[:, None] - r[:, block] - np.where(s[:, block] > 0, -half, half), 0)
        variance = variances[lowered]
        raised = np.where(variance > 0, violated**2 / np.maximum(variance, TINY), 0).argmax(1)
        b = raised + block.start
        step = np.where(variance[point, raised] > 0, violated[point, raised], 0)
        step /= np.maximum(variance[point, raised], TINY)
        # No multiplier changes its sign in a step.
        step = np.where(s[point, a] < 0, np.minimum(step, -s[point, a]), step)
        step = np.where(s[point, b] > 0, np.minimum(step, s[point, b]), step)
        s[point, a] += step
        s[point, b] -= step
        r -= step[:, None] * (self.kernel[a] - self.kernel[b])

    def _jointly(self, start: np.ndarray, s: np.ndarray, half: float) -> np.ndarray:
        """The best multipliers with the signs of ``s``, or those on the way to them where one becomes 0."""
        signs = np.sign(s)
        used = signs[:, :, None] != 0
        # Equations of multipliers that are not 0 and of the sums of blocks; all others keep the 0.
        kernel = np.where(used & used.transpose(0, 2, 1), self.kernel, 0)
        kernel += np.where(used, RIDGE * self.kernel.max(), 1) * np.eye(s.shape[1])
        sums = used * self.members
        none = (~sums.any(1))[:, :, None] * np.eye(len(self.blocks))
        matrix = np.block([[kernel, sums], [sums.transpose(0, 2, 1), none]])
        target = np.where(signs != 0, start - half * signs, 0)
        target = np.concatenate([target, np.zeros((len(s), len(self.blocks)))], axis=1)
        best = np.linalg.solve(matrix, target[:, :, None])[:, : s.shape[1], 0]
        turns = best * signs < 0
        share = np.where(turns, s / np.where(turns, s - best, 1), 1).min(1, keepdims=True)
        moved = s + share * (best - s)
        return np.where(moved * signs > 0, moved, 0)


def _centred(of_rates: np.ndarray, blocks: Sequence[slice]) -> np.ndarray:
    """Rates, or rows for each of them, less the mean of their block."""
    return np.concatenate([of_rates[block] - of_rates[block].mean(0) for block in blocks])
