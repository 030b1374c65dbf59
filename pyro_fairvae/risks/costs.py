r"""Costs of false positives and of false negatives, in place of errors that all count alike.

With two classes and costs :math:`c_{FP}, c_{FN}` a decision ŷ about a row costs

.. math:: c_{FP} [y = 0, \hat y = 1] + c_{FN} [y = 1, \hat y = 0],

an error that counts :math:`c_{FP}` among people of the first class and :math:`c_{FN}` among those of the
second. Without fairness the second class is decided where
:math:`P(1|x) > c_{FP} / (c_{FP} + c_{FN})`, that is where :math:`c_{FN} P(1|x) > c_{FP} P(0|x)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyro_fairvae.base.errors import InputError, require

Costs = tuple[float, float]


def check_costs(costs: Any) -> Costs | None:
    """The costs of a false positive and of a false negative; None if none are given."""
    if costs is None:
        return None
    asked = f"costs must be two positive numbers, of a false positive and of a false negative, got {costs!r}."
    try:
        found = tuple(float(cost) for cost in costs)
    except (TypeError, ValueError) as reason:
        raise InputError(asked, "costs") from reason
    require(len(found) == 2 and all(0 < cost < math.inf for cost in found), asked, "costs")
    return found[0], found[1]


def check_costs_of(costs: Costs | None, classes: int) -> None:
    """Raise unless there are two classes where there are costs."""
    require(
        costs is None or classes == 2,
        f"costs are of a false positive and a false negative, of two classes, but there are "
        f"{classes}; leave costs out.",
        "costs",
    )


def cost_unit(costs: Costs | None) -> float:
    """What an error costs on average over both kinds; 1 where errors count alike."""
    return 1.0 if costs is None else sum(costs) / 2


def relative_costs(costs: Costs, classes: int = 2) -> tuple[float, ...]:
    """What an error about people of each class counts, with the mean 1."""
    check_costs_of(costs, classes)
    return tuple(cost / cost_unit(costs) for cost in costs)


def expected_cost(costs: Costs, decided: np.ndarray, label: np.ndarray, over: float | None = None) -> float:
    """Mean cost of decisions (rows,) under the masses P(y|row), (rows, classes), in the unit of the costs."""
    wrong = label[np.arange(len(label)), 1 - decided]
    total = label.sum() if over is None else over
    return float((wrong * np.array(costs)[1 - decided]).sum() / total)


def bayes_threshold(costs: Sequence[float]) -> float:
    """The probability of the second class above which deciding for it costs less."""
    return costs[0] / (costs[0] + costs[1])
