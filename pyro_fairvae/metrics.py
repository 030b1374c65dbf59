"""Error and unfairness of decisions, by scikit-learn and Fairlearn.

Decisions are rounded predictions. ``deo`` is the largest difference between groups of
P(Ŷ = y | Y = y, A = a) over classes y (for two classes Fairlearn's equalized odds difference), ``deopp``
that of the last class alone, ``ddp`` the largest difference of P(Ŷ = y | A = a).

A group without a row in a cell has no rate there and is left out of that comparison; Fairlearn alone would
count its rate as 0. Where fewer than two groups can be compared at all, the metric is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from fairlearn.metrics import selection_rate_difference, true_positive_rate_difference
from sklearn.metrics import zero_one_loss

Array = npt.NDArray[Any]


def evaluate(
    y: Array, decided: Array, a: Array, classes: int, weight: Array | None = None
) -> dict[str, float]:
    """``deo``, ``deopp`` and ``ddp`` of decisions, and their ``error``, where class and group are known.

    ``weight`` counts a row as more or less than one.
    """
    weight = np.ones(len(y)) if weight is None else weight
    opportunities = [
        _difference(true_positive_rate_difference, y == c, decided == c, a, np.where(y == c, weight, 0))
        for c in range(classes)
    ]
    parities = [
        _difference(selection_rate_difference, y == c, decided == c, a, weight) for c in range(classes)
    ]
    return {
        "error": float(zero_one_loss(y, decided, sample_weight=weight)),
        "deo": _largest(opportunities),
        "deopp": opportunities[-1],
        "ddp": _largest(parities),
    }


def evaluate_expected(
    y_obs: Array, decided: Array, imputed: npt.NDArray[np.floating], classes: int
) -> dict[str, float]:
    """The same where class and group are known by their probabilities alone.

    ``imputed`` is P(y, a | row), (rows, classes, groups). Each row enters once for each (y, a), weighed
    by its probability, so that rates are those of expected cell masses. ``error`` is taken on rows with
    a stated label (``y_obs < classes``), or is expected, too, where there is none. No hidden truth is read.
    """
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
        metrics["error"] = float(zero_one_loss(y_obs[stated], decided[stated]))
    return metrics


def fair_floor(y: Array, decided: Array, a: Array, classes: int, draws: int = 1000, seed: int = 0) -> float:
    """The mean DEO that chance alone gives a perfectly fair classifier on these rows.

    It labels rows of class y rightly at the rate at which ``decided`` does, in every group alike; how many of
    a cell it then gets right is binomial. A DEO near this floor cannot be told from 0.
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


def _difference(metric: Callable[..., float], y: Array, decided: Array, a: Array, weight: Array) -> float:
    """A Fairlearn difference over the groups that have mass; NaN where fewer than two have."""
    mass = np.bincount(a, weights=weight)
    kept = mass[a] > 0
    if (mass > 0).sum() < 2:
        return float("nan")
    return float(metric(y[kept], decided[kept], sensitive_features=a[kept], sample_weight=weight[kept]))


def _largest(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return max(known, default=float("nan"))
