"""Error and unfairness of decisions, by scikit-learn and Fairlearn.

Each fairness risk has its twin here, with the same name, on decisions in place of probabilities. ``deo`` is
the largest difference between groups of P(Ŷ = y | Y = y, A = a) over classes y (for two classes Fairlearn's
equalized odds difference), ``deopp`` that of the last class alone, ``ddp`` the largest difference of
P(Ŷ = y | A = a). :mod:`.measures` lists the twin of each risk.

A group without a row in a cell has no rate there and is left out of that comparison; Fairlearn by itself
would count its rate as 0. Where fewer than two groups can be compared, the metric is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from fairlearn.metrics import selection_rate, true_positive_rate
from scipy.stats import chi2_contingency, entropy
from sklearn.metrics import accuracy_score, zero_one_loss

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Decisions:
    """Decisions for rows whose class and group are known, and the rates that metrics are computed from.

    Equal rows are merged: each (y, decided, a) occurs once, with the weight of all its rows. Rates are
    computed on first access.
    """

    y: Array
    decided: Array
    a: Array
    classes: int
    weight: Array

    @cached_property
    def odds(self) -> list[Array | None]:
        """P(Ŷ = c | Y = c, A) by group, for each class c."""
        return [
            _by_group(
                true_positive_rate,
                self.y == c,
                self.decided == c,
                self.a,
                np.where(self.y == c, self.weight, 0),
            )
            for c in range(self.classes)
        ]

    @cached_property
    def parity(self) -> list[Array | None]:
        """P(Ŷ = c | A) by group, for each class c."""
        return [
            _by_group(selection_rate, self.y == c, self.decided == c, self.a, self.weight)
            for c in range(self.classes)
        ]

    @cached_property
    def opportunities(self) -> list[float]:
        """The largest difference between groups of P(Ŷ = c | Y = c, A), for each class c."""
        return [_difference(rates) for rates in self.odds]

    @cached_property
    def table(self) -> Array:
        """Masses by (group, decision), without groups and decisions that never occur."""
        table = np.zeros((self.a.max() + 1, self.classes))
        np.add.at(table, (self.a, self.decided), self.weight)
        return table[table.sum(1) > 0][:, table.sum(0) > 0]


Metric = Callable[[Decisions], float]


def error(of: Decisions) -> float:
    return float(zero_one_loss(of.y, of.decided, sample_weight=of.weight))


def positive_rate(of: Decisions) -> float:
    return float(np.average(of.decided == of.classes - 1, weights=of.weight))


def deo(of: Decisions) -> float:
    return _largest(of.opportunities)


def mean_odds(of: Decisions) -> float:
    return _mean(of.opportunities)


def deopp(of: Decisions) -> float:
    return of.opportunities[-1]


def predictive_equality(of: Decisions) -> float:
    return of.opportunities[0]


def tpr_printed(of: Decisions) -> float:
    """The largest difference of P(Ŷ = y | Y = y, A = a) between any two cells."""
    rates = [
        np.average(of.decided[cell] == c, weights=of.weight[cell])
        for c in range(of.classes)
        for cell in ((of.y == c) & (of.a == g) for g in range(of.a.max() + 1))
        if of.weight[cell].sum() > 0
    ]
    return max(rates) - min(rates) if len(rates) > 1 else float("nan")


def ddp(of: Decisions) -> float:
    return _largest([_difference(rates) for rates in of.parity])


def ddp_overall(of: Decisions) -> float:
    return _largest(
        [
            float(np.abs(rates - selection_rate(of.y, of.decided == c, sample_weight=of.weight)).max())
            for c, rates in enumerate(of.parity)
            if rates is not None
        ]
    )


def mean_difference(of: Decisions) -> float:
    """Mean of |r_a − r_{a'}| over pairs of groups, r = P(Ŷ = last | A)."""
    rates = of.parity[-1]
    return _mean([] if rates is None else [abs(r - s) for r, s in combinations(rates, 2)])


def disparate_impact(of: Decisions) -> float:
    """max r / min r − 1 of r = P(Ŷ = last | A): 0 where all are equal, and where nobody is selected.

    It has no bound: it is infinite where a group is never selected and another is.
    """
    rates = of.parity[-1]
    if rates is None:
        return float("nan")
    highest, lowest = float(rates.max()), float(rates.min())
    return 0.0 if highest == 0 else (highest / lowest if lowest else np.inf) - 1


def chi2(of: Decisions) -> float:
    """χ²-divergence of the joint table of group and decision from the product of its margins."""
    table = of.table
    if len(table) < 2:
        return float("nan")
    if table.shape[1] < 2:
        return 0.0
    return float(chi2_contingency(table, correction=False).statistic / table.sum())


def mutual_information(of: Decisions) -> float:
    """H(group) + H(decision) − H(group, decision). scikit-learn's would truncate masses to integers."""
    table = of.table
    if len(table) < 2:
        return float("nan")
    return float(max(0.0, entropy(table.sum(1)) + entropy(table.sum(0)) - entropy(table.ravel())))


def chi2_given_label(of: Decisions) -> float:
    """The mean over people of the χ²-divergence among those of their label."""
    return _given_label(chi2, of)


def mutual_information_given_label(of: Decisions) -> float:
    """I(Ŷ; A | Y), the mean over people of the mutual information among those of their label."""
    return _given_label(mutual_information, of)


def _given_label(metric: Metric, of: Decisions) -> float:
    """The mean of a metric among people of each label, who all count; NaN where no label has two groups."""
    parts = [replace(of, y=of.y[own], decided=of.decided[own], a=of.a[own], weight=of.weight[own])
             for own in (of.y == c for c in np.unique(of.y))]  # fmt: skip
    values = np.array([metric(part) for part in parts])
    if np.isnan(values).all():
        return float("nan")
    return float(np.average(np.nan_to_num(values), weights=[part.weight.sum() for part in parts]))


# Metrics of decisions. The twins of risks come from the table in :mod:`.measures`.
METRICS: dict[str, Metric] = {"error": error, "positive_rate": positive_rate}


def evaluate(
    y: Array, decided: Array, a: Array, classes: int, weight: Array | None = None
) -> dict[str, float]:
    r"""Error and positive rate of decisions and the twin of every risk, where class and group are known.

    ``deo`` is :math:`\max_{y,a,a'} |P(\hat Y=y|Y=y,A=a) - P(\hat Y=y|Y=y,A=a')|`, ``deopp`` the same for the
    last class alone, and ``ddp`` :math:`\max_{c,a,a'} |P(\hat Y=c|A=a) - P(\hat Y=c|A=a')|`.

    Parameters
    ----------
    y, decided, a : ndarray of int, (rows,)
        True class, decision and true group, as codes from 0.
    classes : int
        Number of classes.
    weight : ndarray, optional
        Weight of each row; 1 by default.

    Returns
    -------
    dict of str to float
        Metrics by name; NaN where no two groups can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import evaluate
    >>> y, decided, a = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 1]])
    >>> metrics = evaluate(y, decided, a, classes=2)
    >>> round(metrics["error"], 3), metrics["deo"], round(metrics["ddp"], 3)
    (0.167, 0.5, 0.333)
    """
    if not (len(y) if weight is None else weight.sum()) > 0:
        return dict.fromkeys(METRICS, float("nan"))
    distinct = decisions(y, decided, a, classes, weight)
    return {name: metric(distinct) for name, metric in METRICS.items()}


def decisions(y: Array, decided: Array, a: Array, classes: int, weight: Array | None = None) -> Decisions:
    """Decisions of rows, in the form that metrics take."""
    weight = np.ones(len(y)) if weight is None else weight
    y, decided, a, weight = _distinct(y, decided, a, weight)
    return Decisions(y, decided, a, classes, weight)


def evaluate_expected(
    y_obs: Array,
    decided: Array,
    imputed: npt.NDArray[np.floating],
    classes: int,
    weight: Array | None = None,
) -> dict[str, float]:
    """The metrics of :func:`evaluate` where only the probabilities of class and group are known.

    ``imputed`` is P(y, a | row), (rows, classes, groups). Each row enters once for each (y, a), weighed
    by its probability, so that rates are those of expected cell masses. ``error`` is computed on rows with
    a stated label (``y_obs < classes``), or is expected, too, if there are none. No hidden truth is read.
    Rows count by their ``weight`` if it is given.
    """
    if weight is not None:
        imputed = imputed * weight[:, None, None]
    rows, _, groups = imputed.shape
    y, a = np.meshgrid(np.arange(classes), np.arange(groups), indexing="ij")
    metrics = evaluate(
        np.tile(y.ravel(), rows),
        np.repeat(decided, classes * groups),
        np.tile(a.ravel(), rows),
        classes,
        imputed.ravel(),
    )
    stated = y_obs < classes
    if stated.any():
        own = None if weight is None else weight[stated]
        metrics["error"] = float(zero_one_loss(y_obs[stated], decided[stated], sample_weight=own))
    return metrics


def fair_floor(y: Array, decided: Array, a: Array, classes: int, draws: int = 1000, seed: int = 0) -> float:
    """The mean DEO that chance alone gives a perfectly fair classifier on these rows.

    Such a classifier labels rows of class y correctly at the rate of ``decided``, equal in every group; the
    number of correct rows in a cell is then binomial. A DEO near this floor cannot be distinguished from 0.
    """
    generator = np.random.default_rng(seed)
    largest = np.zeros(draws)
    for c in range(classes):
        sizes = np.bincount(a[y == c])
        sizes = sizes[sizes > 0]
        if len(sizes) > 1:
            rate = (decided[y == c] == c).mean()
            rates = generator.binomial(sizes, rate, size=(draws, len(sizes))) / sizes
            largest = np.maximum(largest, rates.max(axis=1) - rates.min(axis=1))
    return float(largest.mean())


def imputation_scores(probability: npt.NDArray[np.floating], truth: Array) -> dict[str, float]:
    """Scores of imputed probabilities, (rows, values), of hidden values.

    ``accuracy`` of the likeliest value, ``log_score``, the mean log-probability of the true one, and
    ``calibration``, the mean distance between the likeliest value's probability and its accuracy,
    over ten equal bins of that probability, weighted by their rows (expected calibration error).
    """
    chosen = probability.argmax(1)
    confidence, right = probability.max(1), chosen == truth
    bins = np.clip((confidence * 10).astype(int), 0, 9)
    distance = np.bincount(bins, weights=confidence - right, minlength=10)
    return {
        "accuracy": float(accuracy_score(truth, chosen)),
        "log_score": float(np.log(probability[np.arange(len(truth)), truth].clip(1e-12)).mean()),
        "calibration": float(np.abs(distance).sum() / len(truth)),
    }


def _distinct(y: Array, decided: Array, a: Array, weight: Array) -> tuple[Array, Array, Array, Array]:
    """Each (y, decided, a) once, with the weight of all its rows."""
    sizes = tuple(int(codes.max()) + 1 for codes in (y, decided, a))
    total = np.bincount(np.ravel_multi_index((y, decided, a), sizes), weights=weight)
    occurring = np.flatnonzero(total > 0)
    return (*np.unravel_index(occurring, sizes), total[occurring])  # type: ignore[return-value]


def _by_group(
    metric: Callable[..., float], y: Array, decided: Array, a: Array, weight: Array
) -> Array | None:
    """A rate of each group that has mass; None where fewer than two have.

    Fairlearn's MetricFrame gives the same numbers and takes eight times as long.
    """
    groups = np.flatnonzero(np.bincount(a, weights=weight) > 0)
    if len(groups) < 2:
        return None
    return np.array([metric(y[own], decided[own], sample_weight=weight[own]) for own in a == groups[:, None]])


def _difference(rates: Array | None) -> float:
    return float("nan") if rates is None else float(rates.max() - rates.min())


def _largest(values: list[float]) -> float:
    return max(_known(values), default=float("nan"))


def _mean(values: list[float]) -> float:
    known = _known(values)
    return float(np.mean(known)) if known else float("nan")


def _known(values: list[float]) -> list[float]:
    return [value for value in values if not np.isnan(value)]
