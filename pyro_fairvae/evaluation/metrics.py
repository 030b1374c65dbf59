"""Error and unfairness of decisions, by scikit-learn and Fairlearn.

Each fairness risk has its twin here, by the same name and on decisions in place of probabilities. ``deo`` is
the largest difference between groups of P(Ŷ = y | Y = y, A = a) over classes y (for two classes Fairlearn's
equalized odds difference), ``deopp`` that of the last class alone, ``ddp`` the largest difference of
P(Ŷ = y | A = a).

A group without a row in a cell has no rate there and is left out of that comparison; Fairlearn alone would
count its rate as 0. Where fewer than two groups can be compared at all, the metric is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from fairlearn.metrics import MetricFrame, selection_rate, true_positive_rate
from scipy.stats import chi2_contingency, entropy
from sklearn.metrics import accuracy_score, zero_one_loss

Array = npt.NDArray[Any]


METRICS = (
    "error", "positive_rate", "deo", "mean_odds", "deopp", "predictive_equality", "tpr", "tpr_printed", "ddp",
    "ddp_overall", "mean_difference", "disparate_impact", "chi2", "mutual_information",
)  # fmt: skip


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
        How many classes there are.
    weight : ndarray, optional
        Counts a row as more or less than one.

    Returns
    -------
    dict of str to float
        Metrics by name; NaN where no two groups can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import evaluate
    >>> y, decided, a = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 1]])
    >>> found = evaluate(y, decided, a, classes=2)
    >>> round(found["error"], 3), found["deo"], round(found["ddp"], 3)
    (0.167, 0.5, 0.333)
    """
    weight = np.ones(len(y)) if weight is None else weight
    if not weight.sum() > 0:
        return dict.fromkeys(METRICS, float("nan"))
    y, decided, a, weight = _distinct(y, decided, a, weight)
    of_class = range(classes)
    odds = [
        _by_group(true_positive_rate, y == c, decided == c, a, np.where(y == c, weight, 0)) for c in of_class
    ]
    parity = [_by_group(selection_rate, y == c, decided == c, a, weight) for c in of_class]
    opportunities = [_difference(frame) for frame in odds]
    everywhere = [
        np.average(decided[cell] == c, weights=weight[cell])
        for c in of_class
        for cell in ((y == c) & (a == g) for g in range(a.max() + 1))
        if weight[cell].sum() > 0
    ]
    # A table of (group, decision) counts, without groups and decisions that never occur.
    table = np.zeros((a.max() + 1, classes))
    np.add.at(table, (a, decided), weight)
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    return {
        "error": float(zero_one_loss(y, decided, sample_weight=weight)),
        "positive_rate": float(np.average(decided == classes - 1, weights=weight)),
        "deo": _largest(opportunities),
        "mean_odds": _mean(opportunities),
        "deopp": opportunities[-1],
        "predictive_equality": opportunities[0],
        "tpr": _largest(opportunities),
        "tpr_printed": max(everywhere) - min(everywhere) if len(everywhere) > 1 else float("nan"),
        "ddp": _largest([_difference(frame) for frame in parity]),
        "ddp_overall": _largest([_difference(frame, "to_overall") for frame in parity]),
        "mean_difference": _over_pairs(parity[-1]),
        "disparate_impact": _excess_ratio(parity[-1]),
        "chi2": _chi_squared(table),
        "mutual_information": _mutual_information(table),
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


def imputation_scores(probability: npt.NDArray[np.floating], truth: Array) -> dict[str, float]:
    """How good imputed probabilities, (rows, values), of hidden values are.

    ``accuracy`` of the likeliest value, ``log_score``, the mean log-probability of the true one, and
    ``calibration``, the mean distance between the likeliest value's probability and how often it is right,
    over ten equal bins of the former, weighed by their rows (expected calibration error).
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
    """Each (y, decided, a) once, with the weight of all its rows: all that metrics are of."""
    sizes = tuple(int(each.max()) + 1 for each in (y, decided, a))
    total = np.bincount(np.ravel_multi_index((y, decided, a), sizes), weights=weight)
    found = np.flatnonzero(total > 0)
    return (*np.unravel_index(found, sizes), total[found])  # type: ignore[return-value]


def _by_group(
    metric: Callable[..., float], y: Array, decided: Array, a: Array, weight: Array
) -> MetricFrame | None:
    """A rate over the groups that have mass; None where fewer than two have."""
    mass = np.bincount(a, weights=weight)
    if (mass > 0).sum() < 2:
        return None
    kept = mass[a] > 0
    return MetricFrame(
        metrics=metric,
        y_true=y[kept],
        y_pred=decided[kept],
        sensitive_features=a[kept],
        sample_params={"sample_weight": weight[kept]},
    )


def _difference(frame: MetricFrame | None, method: str = "between_groups") -> float:
    return float("nan") if frame is None else float(frame.difference(method=method))


def _over_pairs(frame: MetricFrame | None) -> float:
    """Mean of |r_a − r_{a'}| over pairs of groups."""
    return _mean([] if frame is None else [abs(r - s) for r, s in combinations(frame.by_group, 2)])


def _excess_ratio(frame: MetricFrame | None) -> float:
    """max r / min r − 1, which has no bound: infinite where a group is never selected and another is."""
    if frame is None:
        return float("nan")
    highest, lowest = float(frame.group_max()), float(frame.group_min())
    return 0.0 if highest == 0 else (highest / lowest if lowest else np.inf) - 1


def _chi_squared(table: Array) -> float:
    """χ²-divergence of the joint table from the product of its margins."""
    if len(table) < 2:
        return float("nan")
    if table.shape[1] < 2:
        return 0.0
    return float(chi2_contingency(table, correction=False).statistic / table.sum())


def _mutual_information(table: Array) -> float:
    """H(group) + H(decision) − H(group, decision). scikit-learn's would cut masses to whole numbers."""
    if len(table) < 2:
        return float("nan")
    return float(max(0.0, entropy(table.sum(1)) + entropy(table.sum(0)) - entropy(table.ravel())))


def _largest(values: list[float]) -> float:
    return max(_known(values), default=float("nan"))


def _mean(values: list[float]) -> float:
    known = _known(values)
    return float(np.mean(known)) if known else float("nan")


def _known(values: list[float]) -> list[float]:
    return [value for value in values if not np.isnan(value)]
