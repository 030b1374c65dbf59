r"""Rates of groups from the rows that state their group, made more precise by the rows that do not.

Let S indicate whether a row states its group A. Where withholding depends on the group alone, the rows that
state group a are a sample of that group, so a rate :math:`P(\hat Y = c | Y = y, A = a)` among them is
unbiased. The other rows add information: with :math:`w_a = 1 / P(S | A = a)`, every function φ of (x, y, ŷ)
has

.. math:: E\,\phi\,(1 - S\,w_A) = 0,

since the mean of φ over all rows equals that over stating rows weighted by the w of their group. These
moments have G unknowns w and, with φ an indicator of (y, ŷ) times 1 or an imputed P(a|x, y, ŷ), more than G
equations. The remaining moments after w is estimated (by the generalised method of moments) have mean 0 for
any φ, so any multiple of them can be subtracted from a rate: a control variate. The multiple with the least
variance is learned on other folds of the rows. An uninformative imputer leaves a rate unchanged.

Where withholding depends on the label, too, w has an entry for each group and label. Rates given y are then
still unbiased on stating rows; rates over all labels weight rows by w, and are not estimated where the
moments do not identify w.

Where withholding depends on conditions v, a row's weight is :math:`W = 1 + e^{\theta_A + u \cdot v}` with an
entry of θ for each group. The columns of v are further φ, θ and u are estimated by Gauss-Newton steps, and
all else is as above with W linear in them at the estimate. Every rate weights rows by W.

Rows of a survey count by their weights in all sums, means and least squares, and errors are those of its
design (:mod:`pyro_fairvae.auditing.survey_design`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from pyro_fairvae.auditing.survey_design import SurveyDesign

MOMENT_FOLDS = 5
FEWEST_STATED = 10  # rows that a moment needs among stating and among withholding rows
NEGLIGIBLE = 1e-6  # odds of withholding that cannot be told from 0
ROUNDS = 3  # iterations of weighting moments and estimating w
RELEVANT = 3.0  # standard errors by which an imputation must correlate with the group to be used
STEPS = 50  # most Gauss-Newton steps
LONGEST = 2.0  # change of a row's log-odds in a step
DRAWN = 0.25  # weight of the mean when variances under the assumption are shrunk to it


@dataclass(frozen=True)
class AuditedRows:
    """Audited rows: ``y`` (C where unknown), ``decided``, and ``group`` (G where withheld), (rows,) each.

    ``design`` says how they were sampled.
    """

    y: np.ndarray
    decided: np.ndarray
    group: np.ndarray
    classes: int
    groups: int
    design: SurveyDesign = field(default_factory=SurveyDesign)

    @property
    def stated(self) -> np.ndarray:
        return self.group < self.groups

    def __len__(self) -> int:
        return len(self.y)

    def some(self, kept: np.ndarray) -> AuditedRows:
        """Some of the rows, by a mask or by their numbers."""
        return replace(
            self,
            y=self.y[kept],
            decided=self.decided[kept],
            group=self.group[kept],
            design=self.design.some(kept),
        )


@dataclass(frozen=True)
class AuditedRates:
    """Estimates (classes, groups), NaN where no row gives one, and each row's influence on their errors.

    ``influence`` is (rows, classes, groups) with mean 0, or (clusters, classes, groups) where rows were
    sampled in clusters; ``extra`` is variance that small samples understate.
    """

    values: np.ndarray
    influence: np.ndarray
    extra: np.ndarray

    def variance(self, c: int, g: int) -> float:
        """That of one rate."""
        of_rate = self.influence[:, c, g]
        return float(np.square(of_rate).sum() / len(of_rate) ** 2 + self.extra[c, g])

    def covariance(self) -> np.ndarray:
        """Covariance of rates in the order of ``values.ravel()``; ``extra`` leaves correlations unchanged."""
        flat = self.influence.reshape(len(self.influence), -1)
        covariance = flat.T @ flat / len(flat) ** 2
        variance, extra = np.diag(covariance).copy(), self.extra.ravel()
        factor = np.sqrt(1 + np.divide(extra, variance, out=np.zeros_like(extra), where=variance > 0))
        covariance *= np.outer(factor, factor)
        np.fill_diagonal(covariance, variance + extra)
        return np.asarray(covariance)

    def interval(
        self, r: int, g: int, z: float, within: tuple[float, float] = (0.0, 1.0)
    ) -> tuple[float, float, float]:
        """Rate r of group g and the ends of its interval of z standard errors."""
        value = self.values[r, g]
        low, high = np.clip(value + z * np.sqrt(self.variance(r, g)) * np.array([-1, 1]), *within)
        return float(value), float(low), float(high)


class Moments:
    """The moments E φ (1 − S w) = 0 of some rows, and w estimated from them."""

    def __init__(
        self,
        functions: np.ndarray,
        weighs: np.ndarray,
        start: np.ndarray,
        offset: np.ndarray,
        design: SurveyDesign,
    ) -> None:
        """``functions`` φ is (rows, K); ``weighs`` (rows, W) indicates the entry of w that applies to a row.

        A row's weight is ``offset + weighs @ w``. Where the moments do not identify w, ``start`` (W,) is
        kept; ``known`` marks the identified entries.
        """
        found = _solve(functions, weighs, start, offset, design)
        self.weights, self.residual, self.of_weights, self.known = found

    def left(self, functions: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
        """The remaining moments of rows with some weights after w is estimated, (rows, K − W)."""
        return (functions @ self.residual) * (1 - row_weights)[:, None]


def _solve(
    functions: np.ndarray, weighs: np.ndarray, start: np.ndarray, offset: np.ndarray, design: SurveyDesign
) -> tuple[np.ndarray, ...]:
    """w; a basis (K, K − W) of moments free of w; the influence of the others on w, (K, W); what is known."""
    rows, entries = len(functions), weighs.shape[1]
    weighed = design.weighed(functions)
    slopes, totals = weighed.T @ weighs / rows, weighed.mean(0) - weighed.T @ offset / rows
    whiten = _inverse_root(weighed.T @ functions / rows)
    totals = totals - slopes @ start
    for _ in range(ROUNDS):
        weights = start + np.linalg.pinv(whiten.T @ slopes) @ (whiten.T @ totals)
        errors = functions * (1 - (offset + weighs @ weights))[:, None]
        errors -= design.mean(errors)
        whiten = _inverse_root(design.weighed(errors).T @ errors / rows)
    inverse = np.linalg.pinv(whiten.T @ slopes)
    weights = start + inverse @ (whiten.T @ totals)
    directions, _, _ = np.linalg.svd(whiten.T @ slopes)
    known = np.diag(inverse @ whiten.T @ slopes) > 1 - 1e-6
    return weights, whiten @ directions[:, entries:], whiten @ inverse.T, known


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """R with R Rᵀ the inverse of a covariance, without the directions of zero variance."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-8 * values.max()
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


class ControlVariates:
    """Rates of groups among ``rows``; ``imputed`` is P(a | x, y, ŷ), (rows, groups), if there is one.

    ``by_label`` means that withholding may depend on the label; rows without a label must then be left out.
    ``conditions``, (rows, columns), are linearly independent columns, centred, that it may depend on instead.
    """

    def __init__(
        self,
        rows: AuditedRows,
        imputed: np.ndarray | None = None,
        by_label: bool = False,
        conditions: np.ndarray | None = None,
    ) -> None:
        self.rows, self.by_label, self.conditions = rows, by_label, conditions
        self.design = design = rows.design
        self.functions = _functions(rows, imputed)
        kinds = rows.classes if by_label else 1
        kind = rows.y if by_label else np.zeros(len(rows), dtype=int)
        self.weighs = np.zeros((len(rows), rows.groups * kinds))
        stated = np.flatnonzero(rows.stated)
        self.weighs[stated, rows.group[stated] * kinds + kind[stated]] = 1
        # What w would be if groups did not differ; it is w where no row withholds.
        count = design.weighed(np.ones(len(rows)))
        everyone, stating = (np.bincount(kind[some], count[some], kinds) for some in (slice(None), stated))
        start = np.tile(np.divide(everyone, stating, out=np.ones(kinds), where=stating > 0), rows.groups)
        self.offset = np.zeros(len(rows))
        if conditions is not None:
            self.functions = np.c_[self.functions, conditions]
            start = self._linearise(start, conditions)
        self.moments = Moments(self.functions, self.weighs, start, self.offset, design)
        # Entries that the moments identify, that are 1, or that apply to no row.
        self.known = self.moments.known | (start == 1) | (self.weighs.sum(0) == 0)
        if conditions is not None:
            self.known = self.moments.known
        self.fold = design.folds(len(rows), MOMENT_FOLDS)
        self.elsewhere = [
            Moments(self.functions[out], self.weighs[out], start, self.offset[out], design.some(out))
            for out in (self.fold != f for f in range(MOMENT_FOLDS))
        ]

    def _linearise(self, weights: np.ndarray, conditions: np.ndarray) -> np.ndarray:
        """Estimate θ and u, and make ``offset`` and ``weighs`` the weights as linear functions of them."""
        stated = self.rows.stated
        design = np.c_[self.weighs, np.where(stated[:, None], conditions, 0.0)]
        at = np.r_[np.log(weights - 1), np.zeros(conditions.shape[1])]
        functions, rows, of_rows = self.functions, len(design), self.design
        weighed = of_rows.weighed(functions)
        whiten = _inverse_root(weighed.T @ functions / rows)
        # The moments are weighted anew only where θ and u have converged: large weights have large variances,
        # so that a search under varying weights can end far from where the moments are 0.
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                odds = np.where(stated, np.exp(np.clip(design @ at, -20, 20)), 0.0)
                slopes = weighed.T @ (design * odds[:, None]) / rows
                errors = functions * (1 - stated - odds)[:, None]
                step = np.linalg.pinv(whiten.T @ slopes) @ (whiten.T @ of_rows.mean(errors))
                change = np.abs(design @ step).max()
                if change < 1e-8:
                    break
                at = at + step * min(1.0, LONGEST / change)
            errors -= of_rows.mean(errors)
            whiten = _inverse_root(of_rows.weighed(errors).T @ errors / rows)
        self.weighs = design * odds[:, None]
        self.offset = stated + odds - self.weighs @ at
        return at

    @property
    def row_weights(self) -> np.ndarray:
        """1 / P(S) of the rows that state their group, by the estimate, and 0 of others, (rows,)."""
        return np.asarray(self.offset + self.weighs @ self.moments.weights)

    def _possible_weights(self) -> np.ndarray:
        """The same, but at least 1 for a row that states its group."""
        if self.conditions is not None:
            return np.where(self.rows.stated, np.maximum(self.row_weights, 1), 0.0)
        return np.asarray(self.weighs @ np.maximum(self.moments.weights, 1))

    @property
    def helps(self) -> bool:
        """Whether there are more moments than unknowns, so that rows that withhold add information."""
        return self.moments.residual.shape[1] > 0

    @property
    def told(self) -> np.ndarray:
        """Whether the moments identify how often a group withholds, (groups,)."""
        if self.conditions is not None:
            groups = self.rows.groups
            return np.asarray(self.known[:groups] & self.known[groups:].all())
        return np.asarray(self.known.reshape(self.rows.groups, -1).all(1))

    def odds(self, adjusted: bool = True) -> AuditedRates:
        """P(Ŷ = y | Y = y, A = a), (classes, groups)."""
        weighted = self.conditions is not None and adjusted
        return self._rates([self.rows.y == c for c in range(self.rows.classes)], weighted, adjusted)

    def parity(self, adjusted: bool = True) -> AuditedRates:
        """P(Ŷ = c | A = a), (classes, groups)."""
        everyone = np.ones(len(self.rows), dtype=bool)
        weighted = (self.by_label or self.conditions is not None) and adjusted
        return self._rates([everyone] * self.rows.classes, weighted, adjusted)

    def _rates(self, conditions: list[np.ndarray], weighted: bool, adjusted: bool) -> AuditedRates:
        rows = self.rows
        values = np.full((rows.classes, rows.groups), np.nan)
        influence = np.zeros((len(rows), rows.classes, rows.groups))
        extra, shares = np.zeros_like(values), np.ones_like(values)
        counts = self.design.weighed(self._possible_weights() if weighted else np.ones(len(rows)))
        for c, condition in enumerate(conditions):
            hit = rows.decided == c
            for g in range(rows.groups):
                inside = condition & (rows.group == g)
                if not inside.any() or (weighted and not self.told[g]):
                    continue
                mass = np.where(inside, counts, 0.0)
                shares[c, g] = mass.mean()
                values[c, g] = (mass * hit).mean() / shares[c, g]
                influence[:, c, g] = mass * (hit - values[c, g])
                if weighted:
                    influence[:, c, g] += self._of_weights(inside * (hit - values[c, g]))
                extra[c, g] = left_out(*self.design.hits(hit, inside))
        known = ~np.isnan(values)
        if adjusted and self.helps and known.any():
            taken = self._control(influence[:, known])
            values[known] -= taken.mean(0) / shares[known]
            influence[:, known] -= taken
        influence = self.design.centred(influence) / shares
        return AuditedRates(np.clip(values, 0, 1), self.design.by_unit(influence), extra)

    def corrected(
        self, values: np.ndarray, slopes: np.ndarray, weighted: bool, adjusted: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Functions of weighted stating rows, (K,), less their control variates, and influences (rows, K).

        ``slopes`` (rows, K) are their derivatives by the share of each row, 0 for rows that withhold.
        """
        influence = self.masses(weighted)[:, None] * slopes
        if weighted:
            influence += self._of_weights(slopes)
        if adjusted and self.helps:
            taken = self._control(influence)
            values, influence = values - taken.mean(0), influence - taken
        return values, self.design.centred(influence)

    def masses(self, weighted: bool) -> np.ndarray:
        """What each row counts: its weight, or 1, and 0 where it withholds, times that of the design."""
        return self.design.weighed(self._possible_weights() if weighted else self.rows.stated.astype(float))

    def _of_weights(self, inside: np.ndarray) -> np.ndarray:
        """Contribution of the estimate of w to the errors of a sum over rows weighted by it, (rows,)."""
        return self._weights_influence() @ (self.weighs.T @ self.design.weighed(inside) / len(inside))

    def _weights_influence(self) -> np.ndarray:
        moments = self.moments
        slack = (1 - self.row_weights)[:, None]
        return self.design.weighed(self.functions @ moments.of_weights * slack)

    def _control(self, errors: np.ndarray) -> np.ndarray:
        """The control variates of each row, (rows, rates), with their multiples learned on other folds."""
        taken = np.zeros_like(errors)
        for f, moments in enumerate(self.elsewhere):
            inside, outside = self.fold == f, self.fold != f
            weights = self.offset[outside] + self.weighs[outside] @ moments.weights
            left = moments.left(self.functions[outside], weights)
            multiples = self._multiples(left, errors[outside], outside)
            # With w of all rows: its error does not affect the remaining moments.
            taken[inside] = moments.left(self.functions[inside], self.row_weights[inside]) @ multiples
        return self.design.weighed(taken)

    def _multiples(self, left: np.ndarray, errors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Those of the moments of some rows with the least variance, where a row is as many as its weight."""
        centred = left - self.design.some(rows).mean(left)
        if self.design.weight is not None:
            root = np.sqrt(self.design.weight[rows])[:, None]
            centred, errors = centred * root, errors / root  # errors have the weight already
        return np.linalg.lstsq(centred, errors, rcond=None)[0]

    def withholding(self, z: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """1 − P(S | A = a) with an interval of z standard errors, (groups,) each.

        The rate is a function of the mean w of a group's rows, from whose interval its own is computed; where
        the moments do not identify it, or put all of the interval at or below 0 although some withhold,
        where no error can be told, the rate is NaN and the interval [0, 1].
        """
        rows, groups = self.rows, self.rows.groups
        rate, low, high = np.full(groups, np.nan), np.zeros(groups), np.ones(groups)
        row_weights, influence = self.row_weights, self._weights_influence()
        for g in range(groups):
            inside = (rows.group == g).astype(float)
            weighed = self.design.weighed(inside)
            share = weighed.mean()
            if share == 0 or not self.told[g]:
                continue
            weight = (weighed * row_weights).mean() / share
            error = weighed * (row_weights - weight) + influence @ (self.weighs.T @ weighed / len(rows))
            error = self.design.by_unit(self.design.centred(error))
            deviation = np.sqrt(np.square(error).sum()) / len(error) / share
            if weight + z * deviation < 1 + NEGLIGIBLE and not rows.stated.all():
                continue
            rate[g], low[g], high[g] = 1 - 1 / np.maximum(weight + z * deviation * np.array([0, -1, 1]), 1)
        return rate, low, high

    def misfit(self) -> float:
        """p-value of the assumption that the remaining moments are 0; NaN if there are none."""
        left = self.moments.left(self.functions, self.row_weights)
        if left.shape[1] == 0:
            return float("nan")
        left = self.design.weighed(left)
        mean, basis = left.mean(0), self.design.weighed(self.functions @ self.moments.residual)
        covariance = (basis * self._slack()[:, None]).T @ basis / len(left)
        if self.design.cluster is not None:
            of_units = self.design.by_unit(self.design.centred(left))
            covariance = of_units.T @ of_units * len(left) / len(of_units) ** 2
        return float(stats.chi2.sf(len(left) * mean @ np.linalg.pinv(covariance) @ mean, left.shape[1]))

    def _slack(self) -> np.ndarray:
        """E (1 − S w)² = E w − 1 given φ, (rows,), by least squares on stating rows and shrunk to its mean.

        The squares themselves are dominated by a few rows with large w. If such rows happen to be absent,
        their mean is far too small, and the assumption would be rejected although it holds.
        """
        stated = self.rows.stated
        weight = self._possible_weights()[stated]
        mass = self.masses(weighted=True)[stated]
        root = np.sqrt(mass)
        slope = np.linalg.lstsq(self.functions[stated] * root[:, None], (weight - 1) * root, rcond=None)[0]
        fitted = np.clip(self.functions @ slope, weight.min() - 1, weight.max() - 1)
        return np.asarray((1 - DRAWN) * fitted + DRAWN * np.average(weight - 1, weights=mass))


def _functions(rows: AuditedRows, imputed: np.ndarray | None) -> np.ndarray:
    """φ, (rows, K): indicators of (y, ŷ), each also times the imputed P of all groups but the last.

    Imputations are used where they correlate with the group among rows that state it. Others would carry no
    information about w, and many such moments bias it.
    """
    functions = []
    for y in range(rows.classes + 1):
        for c in range(rows.classes):
            cell = (rows.y == y) & (rows.decided == c)
            fewest = min(rows.design.units(cell & of) for of in (rows.stated, ~rows.stated))
            if fewest >= FEWEST_STATED:
                functions.append(cell.astype(float))
            if imputed is not None and fewest >= FEWEST_STATED * rows.groups:
                inside = cell & rows.stated
                functions += [
                    cell * imputed[:, g]
                    for g in range(rows.groups - 1)
                    if _go_together(imputed[inside, g], rows.group[inside] == g, rows.design, inside)
                ]
    return np.stack(functions, axis=1) if functions else np.ones((len(rows), 1))


def _go_together(imputed: np.ndarray, is_group: np.ndarray, design: SurveyDesign, rows: np.ndarray) -> bool:
    """Whether an imputed probability is larger for rows of the group than by chance."""
    if np.ptp(imputed) == 0 or is_group.all() or not is_group.any():
        return False
    if design.weight is None:
        correlation = np.corrcoef(imputed, is_group)[0, 1]
    else:
        covariance = np.cov(imputed, is_group, aweights=design.weight[rows])
        correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    return bool(correlation * np.sqrt(design.units(rows)) > RELEVANT)


def left_out(hits: float, rows: float) -> float:
    """Variance that is missing from a rate near 0 or 1 of few rows (after Agresti and Coull 1998).

    A rate next to 0 or 1 also differs from the centre of their interval.
    """
    rate, softened = hits / rows, (hits + 2) / (rows + 4)
    aside = (rate - softened) ** 2 if min(hits, rows - hits) < 2 else 0.0
    return max(0.0, softened * (1 - softened) / (rows + 4) + aside - rate * (1 - rate) / rows)
