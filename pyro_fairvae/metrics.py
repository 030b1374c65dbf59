"""Error and unfairness of decisions, by scikit-learn and Fairlearn.

Decisions are rounded predictions. ``deo`` is the largest difference between groups of
P(Ŷ = y | Y = y, A = a) over classes y (for two classes Fairlearn's equalized odds difference), ``deopp``
that of the last class alone, ``ddp`` the largest difference of P(Ŷ = y | A = a).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from fairlearn.metrics import demographic_parity_difference, equal_opportunity_difference
from sklearn.metrics import zero_one_loss

Array = npt.NDArray[Any]


def evaluate(
    y: Array, decided: Array, a: Array, classes: int, weight: Array | None = None
) -> dict[str, float]:
    """``deo``, ``deopp`` and ``ddp`` of decisions, and their ``error``, where class and group are known.

    ``weight`` counts a row as more or less than one.
    """
    given = {"sensitive_features": a, "sample_weight": weight}
    opportunities = [equal_opportunity_difference(y == c, decided == c, **given) for c in range(classes)]
    parities = [demographic_parity_difference(y == c, decided == c, **given) for c in range(classes)]
    return {
        "error": float(zero_one_loss(y, decided, sample_weight=weight)),
        "deo": float(max(opportunities)),
        "deopp": float(opportunities[-1]),
        "ddp": float(max(parities)),
    }


def evaluate_expected(
    y_obs: Array, decided: Array, imputed: npt.NDArray[np.floating], classes: int
) -> dict[str, float]:
    """The same where class and group are known by their probabilities alone.

    ``imputed`` is P(y, a | row), (rows, classes, groups). Each row enters once for each (y, a), weighed
    by its probability, so that rates are those of expected cell masses. ``error`` is taken on rows with
    a stated label (``y_obs < classes``). No hidden truth is read.
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
    return metrics | {"error": float(zero_one_loss(y_obs[stated], decided[stated]))}
