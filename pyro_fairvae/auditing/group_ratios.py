"""Ratios and areas of each group, with the control variates of audits: predictive values, AUC, calibration.

A ratio is Σ top / Σ bottom over a group's rows, such as the correct among those decided for. It is estimated
as the rates of :mod:`pyro_fairvae.auditing.control_variates` are: from rows that state their group, weighted
where withholding depends on more than the group, with the errors of weights and less what control variates
explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyro_fairvae.auditing.control_variates import AuditedRates, ControlVariates, left_out


@dataclass(frozen=True)
class Ratio:
    """``top`` and ``bottom`` of every row, (rows,); ``given_label``: all rows that count have one label."""

    top: np.ndarray
    bottom: np.ndarray
    given_label: bool = False

    @property
    def is_share(self) -> bool:
        """Whether it counts rows among rows, so that it lies within [0, 1]."""
        whole = np.isin(self.bottom, (0, 1)).all() and np.isin(self.top, (0, 1)).all()
        return bool(whole and (self.top <= self.bottom).all())


def group_ratios(estimates: ControlVariates, ratios: Sequence[Ratio], adjusted: bool = True) -> AuditedRates:
    """Each ratio of each group, (ratios, groups), NaN where its bottom is 0; or of stating rows alone."""
    rows = estimates.rows
    values = np.full((len(ratios), rows.groups), np.nan)
    slopes, extra = np.zeros((len(rows), *values.shape)), np.zeros_like(values)
    for r, ratio in enumerate(ratios):
        weighted = _weighted(estimates, ratio.given_label, adjusted)
        masses = estimates.masses(weighted)
        for g in range(rows.groups):
            inside = rows.group == g
            below = (masses * ratio.bottom)[inside].sum() / len(rows)
            if below <= 0 or (weighted and not estimates.told[g]):
                continue
            values[r, g] = (masses * ratio.top)[inside].sum() / len(rows) / below
            slopes[inside, r, g] = (ratio.top - values[r, g] * ratio.bottom)[inside] / below
            if ratio.is_share:
                extra[r, g] = left_out(*estimates.design.hits(ratio.top == 1, inside & (ratio.bottom == 1)))
    found = _corrected(estimates, values, slopes, [ratio.given_label for ratio in ratios], adjusted, extra)
    shares = np.array([ratio.is_share for ratio in ratios])[:, None]
    return AuditedRates(
        np.where(shares, np.clip(found.values, 0, 1), found.values), found.influence, found.extra
    )


def group_areas(
    estimates: ControlVariates, scores: np.ndarray, positive: int, adjusted: bool = True
) -> AuditedRates:
    r"""Areas under ROC curves, (1, groups): P(s > s' | y = positive, y' another), ties count half.

    Its influence is that of a U-statistic: of a row with the label, the share of the others below its score,
    and of another row the share of those with the label above. Few rows near an area of 1 understate its
    variance: one more row of each kind is counted in it, whose share is a half.
    """
    rows = estimates.rows
    given_label = rows.classes == 2  # among several other labels weights differ
    weighted = _weighted(estimates, given_label, adjusted)
    masses = estimates.masses(weighted)
    _, place = np.unique(scores, return_inverse=True)
    values = np.full((1, rows.groups), np.nan)
    slopes, extra = np.zeros((len(rows), 1, rows.groups)), np.zeros_like(values)
    for g in range(rows.groups):
        of_label = (rows.group == g) & (rows.y == positive)
        of_other = (rows.group == g) & (rows.y != positive) & (rows.y < rows.classes)
        if not of_label.any() or not of_other.any() or (weighted and not estimates.told[g]):
            continue
        counts = [np.bincount(place, np.where(of, masses, 0)) for of in (of_label, of_other)]
        totals = [count.sum() for count in counts]
        below = ((np.cumsum(counts[1]) - counts[1] / 2) / totals[1])[place]
        above = 1 - ((np.cumsum(counts[0]) - counts[0] / 2) / totals[0])[place]
        value = (masses * below)[of_label].sum() / totals[0]
        values[0, g] = value
        slopes[of_label, 0, g] = (below[of_label] - value) * len(rows) / totals[0]
        slopes[of_other, 0, g] = (above[of_other] - value) * len(rows) / totals[1]
        sizes = [estimates.design.people(of) for of in (of_label, of_other)]
        if value in (0, 1):  # no two rows out of order, which few rows may be by chance
            extra[0, g] = left_out(round(value * min(sizes)), min(sizes))
        else:
            extra[0, g] = sum((value - 0.5) ** 2 / (size + 1) ** 2 for size in sizes)
    found = _corrected(estimates, values, slopes, [given_label], adjusted, extra)
    return AuditedRates(np.clip(found.values, 0, 1), found.influence, found.extra)


def _weighted(estimates: ControlVariates, given_label: bool, adjusted: bool) -> bool:
    """Whether rows count by their weights: unless all of a group's rows that count have the same."""
    return adjusted and (estimates.conditions is not None or (estimates.by_label and not given_label))


def _corrected(
    estimates: ControlVariates,
    values: np.ndarray,
    slopes: np.ndarray,
    given_label: Sequence[bool],
    adjusted: bool,
    extra: np.ndarray,
) -> AuditedRates:
    """Values with control variates taken off, and the influence of each row."""
    values, influence = values.copy(), np.zeros_like(slopes)
    for given in sorted(set(given_label)):
        chosen = ~np.isnan(values) & (np.array(given_label) == given)[:, None]
        if chosen.any():
            values[chosen], influence[:, chosen] = estimates.corrected(
                values[chosen], slopes[:, chosen], _weighted(estimates, given, adjusted), adjusted
            )
    return AuditedRates(values, estimates.design.by_unit(influence), extra)
