r"""Rates of groups under every way to withhold within Γ of the modelled one.

Of group a, :math:`h_a` and :math:`m_a` rows state it with and without an outcome, such as being selected, and
by the model :math:`x_a` and :math:`z_a` withhold it. In truth the odds of withholding may be up to Γ times as
high or as low as modelled, for those with and those without the outcome apart (Tan 2006):

.. math:: x'_a \in [x_a / Γ, Γ x_a], \quad z'_a \in [z_a / Γ, Γ z_a], \quad \sum_a x'_a = H, \quad \sum_a z'_a
= M,

as H and M rows that withhold have and have not the outcome. Of all these, one makes the rate of a as high and
that of b as low as can be: a has as many of the x' as possible and as few of the z', and b the other way
round. At Γ = 1 rates are those of the model, and as Γ grows without limit they are the worst case of
:mod:`.bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyro_fairvae.auditing.control_variates import AuditedRates, ControlVariates

STEP = 1e-6  # of a share, in derivatives
LEAST = 0.5  # rows that may withhold where the model has fewer, as Γ grows


@dataclass(frozen=True)
class Counts:
    """Rows that state (h, m) and that withhold by the model (x, z), (groups,) each, and in truth (H, M)."""

    h: np.ndarray
    m: np.ndarray
    x: np.ndarray
    z: np.ndarray
    hits: float
    misses: float

    @staticmethod
    def of(
        h: np.ndarray, m: np.ndarray, people: np.ndarray, rate: np.ndarray, hits: float, misses: float
    ) -> Counts:
        """Those of ``people`` (groups,), the modelled numbers, of whom a ``rate`` has the outcome."""
        having = rate * people
        lacking = people - having
        h, m = np.minimum(h, having), np.minimum(m, lacking)
        return Counts(h, m, having - h, lacking - m, hits, misses)

    def extremes(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """The rates of a and b, (groups, groups) each: that of a as high, that of b as low, as can be."""
        more, fewer = _shared(self.x, self.hits, gamma)
        taken, left = _shared(self.z, self.misses, gamma)
        high = self.h[:, None] + more
        low = self.h[None, :] + fewer
        return (
            high / (high + self.m[:, None] + left.T),
            low / (low + self.m[None, :] + taken.T),
        )


def _shared(modelled: np.ndarray, total: float, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """What two groups get of a total if the first gets as much as can be, (groups, groups) each."""
    least = modelled / gamma
    most = modelled + (gamma - 1) * np.maximum(modelled, LEAST) if gamma > 1 else modelled
    total = min(max(total, least.sum()), most.sum())  # at Γ near 1 the model need not add up to what is seen
    first_least, second_least = least[:, None], least[None, :]
    others_least = least.sum() - first_least - second_least
    if np.isinf(gamma):
        others_most = np.full_like(others_least, np.inf if len(modelled) > 2 else 0.0)
    else:
        others_most = most.sum() - most[:, None] - most[None, :]
    first = np.minimum(most[:, None], total - second_least - others_least)
    return first, np.maximum(second_least, total - first - others_most)


class Outcome:
    """An outcome among some rows, ``hit`` within ``inside``, whose ``rates`` of groups an audit estimates."""

    def __init__(
        self, estimates: ControlVariates, inside: np.ndarray, hit: np.ndarray, rates: AuditedRates, r: int
    ) -> None:
        rows, design = estimates.rows, estimates.design
        self.rows = len(rows)
        self.known = np.flatnonzero(~np.isnan(rates.values[r]))
        member = (rows.group[:, None] == self.known) & inside[:, None]
        states = member.astype(float)
        # How many people a group has, where the moments cannot tell: in proportion to those who state it.
        told = estimates.told[self.known]
        stating = design.total(inside & rows.stated)
        scale = design.total(inside) / (stating if stating > 0 else 1)
        values = (estimates.masses(True)[:, None] * states).mean(0)
        people, of_people = estimates.corrected(values, states, weighted=True, adjusted=False)
        counted = design.weighed(states)
        people = np.where(told, people, counted.mean(0) * scale)
        of_people = np.where(told, of_people, design.centred(counted) * scale)
        withheld = inside & ~rows.stated
        seen = np.c_[states * hit[:, None], states * ~hit[:, None], withheld & hit, withheld & ~hit]
        seen = design.weighed(seen)
        size = len(self.known)
        of_rates = rates.influence[:, r, self.known]
        variance, extra = np.square(of_rates).sum(0) / len(of_rates) ** 2, rates.extra[r, self.known]
        factor = np.sqrt(1 + np.divide(extra, variance, out=np.zeros(size), where=variance > 0))
        self.shares = np.r_[seen.mean(0), people, rates.values[r, self.known]]
        influence = np.c_[design.by_unit(np.c_[design.centred(seen), of_people]), of_rates * factor]
        self.covariance = influence.T @ influence / len(influence) ** 2
        at = np.arange(len(self.shares) - size, len(self.shares))
        self.covariance[at[variance == 0], at[variance == 0]] += extra[variance == 0]

    def counts(self, shares: np.ndarray) -> Counts:
        size = len(self.known)
        h, m, totals, people, rate = np.split(shares, [size, 2 * size, 2 * size + 2, 3 * size + 2])
        n = self.rows
        return Counts.of(n * h, n * m, n * people, rate, n * totals[0], n * totals[1])

    def with_errors(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """The rates of :meth:`Counts.extremes`, and their covariance (2, 2, groups, groups)."""

        def rates(shares: np.ndarray) -> np.ndarray:
            return np.array(self.counts(shares).extremes(gamma))

        steps = STEP * np.eye(len(self.shares))
        slopes = np.array([rates(self.shares + step) - rates(self.shares - step) for step in steps])
        slopes /= 2 * STEP
        return rates(self.shares), np.einsum("kiab,kl,ljab->ijab", slopes, self.covariance, slopes)
