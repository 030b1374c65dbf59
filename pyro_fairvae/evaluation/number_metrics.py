"""Error and unfairness of predicted numbers, by NumPy and SciPy.

Each risk of predicted numbers has its twin here, with the same name, on rows whose group is known, or weighed
by its probability: ``mean_gap`` is the largest difference between groups of E[ŷ | A = a],
``correlation_ratio`` the share of the variance of ŷ between groups, ``kolmogorov_smirnov`` and
``wasserstein`` the largest distance between the distributions of ŷ in two groups; ``…_given_y`` are means
over bins of the outcome. A group without a row is left out; with fewer than two groups a metric is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import wasserstein_distance

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Predictions:
    """Predicted numbers, with the group, the bin of the outcome and the weight of each."""

    predicted: Array
    a: Array
    bin: Array
    weight: Array

    def where(self, rows: Array) -> Predictions:
        """Some of the rows."""
        return Predictions(self.predicted[rows], self.a[rows], self.bin[rows], self.weight[rows])

    @property
    def by_group(self) -> list[Predictions]:
        """The rows of each group that has some."""
        groups = (self.where((self.a == g) & (self.weight > 0)) for g in np.unique(self.a))
        return [group for group in groups if len(group.a)]

    @property
    def by_bin(self) -> list[Predictions]:
        """The rows of each bin in which groups can be compared."""
        bins = (self.where(self.bin == b) for b in np.unique(self.bin))
        return [rows for rows in bins if len(rows.by_group) > 1]


NumberMetric = Callable[[Predictions], float]


def mean_gap(of: Predictions) -> float:
    means = [np.average(group.predicted, weights=group.weight) for group in of.by_group]
    return float(np.ptp(means)) if len(means) > 1 else float("nan")


def mean_gap_given_y(of: Predictions) -> float:
    gaps = [mean_gap(rows) for rows in of.by_bin]
    return float(np.mean(gaps)) if gaps else float("nan")


def correlation_ratio(of: Predictions) -> float:
    """R² of ŷ on the groups, by least squares."""
    groups = np.unique(of.a[of.weight > 0])
    if len(groups) < 2:
        return float("nan")
    root = np.sqrt(of.weight)
    indicators = (of.a[:, None] == groups) * root[:, None]
    centred = (of.predicted - np.average(of.predicted, weights=of.weight)) * root
    total = centred @ centred
    if total <= 1e-12 * of.weight.sum():
        return 0.0
    fitted, *_ = np.linalg.lstsq(indicators, centred, rcond=None)
    residual = centred - indicators @ fitted
    return float(1 - residual @ residual / total)


def correlation_ratio_given_y(of: Predictions) -> float:
    bins = of.by_bin
    if not bins:
        return float("nan")
    shares = [rows.weight.sum() / of.weight.sum() for rows in bins]
    return float(np.dot(shares, [correlation_ratio(rows) for rows in bins]))


def kolmogorov_smirnov(of: Predictions) -> float:
    def below(group: Predictions, points: Array) -> Array:
        order = np.argsort(group.predicted)
        mass = np.concatenate([[0.0], group.weight[order].cumsum()])
        return mass[np.searchsorted(group.predicted[order], points, side="right")] / mass[-1]

    points = np.unique(of.predicted)
    return _largest(of, lambda one, other: np.abs(below(one, points) - below(other, points)).max())


def wasserstein(of: Predictions) -> float:
    return _largest(
        of,
        lambda one, other: wasserstein_distance(one.predicted, other.predicted, one.weight, other.weight),
    )


def _largest(of: Predictions, distance: Callable[[Predictions, Predictions], float]) -> float:
    """The largest distance between two groups."""
    pairs = list(combinations(of.by_group, 2))
    return float(max(distance(*pair) for pair in pairs)) if pairs else float("nan")


NUMBER_METRICS: dict[str, NumberMetric] = {
    "mean_gap": mean_gap,
    "mean_gap_given_y": mean_gap_given_y,
    "correlation_ratio": correlation_ratio,
    "correlation_ratio_given_y": correlation_ratio_given_y,
    "kolmogorov_smirnov": kolmogorov_smirnov,
    "wasserstein": wasserstein,
}


def evaluate_numbers(y: Array, predicted: Array, a: Array, bins: Array) -> dict[str, float]:
    """Errors of predicted numbers, and the twin of every risk, where outcome and group are known.

    Parameters
    ----------
    y, predicted : ndarray, (rows,)
        True and predicted numbers.
    a, bins : ndarray of int, (rows,)
        True group, and the bin of y, as codes from 0.

    Returns
    -------
    dict of str to float
        ``rmse``, ``mae``, ``r2``, and the metrics of :data:`NUMBER_METRICS`.

    Examples
    --------
    >>> import numpy as np
    >>> y, predicted = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 3.0, 3.0])
    >>> found = evaluate_numbers(y, predicted, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    >>> found["r2"], found["mean_gap"], found["mean_gap_given_y"]
    (0.6, 1.0, 1.0)
    """
    of = Predictions(predicted, a, bins, np.ones(len(y)))
    error = predicted - y
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.abs(error).mean()),
        "r2": float(1 - np.mean(error**2) / np.var(y)),
    } | {name: metric(of) for name, metric in NUMBER_METRICS.items()}
