"""How good and how fair members are, on validation and on test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.data import Complete, Splits
from pyro_fairvae.evaluation.metrics import evaluate, fair_floor, imputation_scores
from pyro_fairvae.evaluation.selection import (
    Decider,
    imputed_cells,
    metric_of,
    metrics_on_validation,
    own_metric,
    select,
)
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.risks import RiskSettings
from pyro_fairvae.risks.imputers import PROBABILITIES
from pyro_fairvae.schema.observed import Observed


@torch.no_grad()
def evaluate_members(fitted: Fit, parts: Splits) -> dict[str, Any]:
    """:func:`judge` of a fit, by its own imputations of the validation part.

    Also ``group_accuracy``, the share of all test rows whose group is the one that h(a|x) finds likeliest.
    """
    imputed = imputed_cells(fitted, parts.validation)
    found = judge(fitted, fitted.lambdas, fitted.settings.fairness, parts, imputed)
    likeliest = [heads.group_logits.argmax(-1).cpu() for heads in fitted.heads(parts.test.features)]
    for member, groups in zip(found["members"], torch.cat(likeliest, dim=-1).numpy(), strict=True):
        member["group_accuracy"] = float((groups == parts.test.a).mean())
    return found


def judge(
    fitted: Decider, weights: Sequence[float], fairness: RiskSettings, parts: Splits, imputed: Tensor
) -> dict[str, Any]:
    """Metrics of every member on validation (expected, nothing hidden is read) and on test.

    ``imputed`` is P(y, a | row) of the validation part, (members, rows, classes, groups). ``selected`` is
    chosen by :func:`select`, on the metric of :func:`metric_of`.
    """
    metric, risk = metric_of(fairness)
    expected = metrics_on_validation(fitted, parts.validation, fairness, risk, imputed)
    tested = metrics_on_test(fitted, parts.test, fairness)
    members = [
        {"lambda": weight, "val": val, "test": test}
        for weight, val, test in zip(weights, expected, tested, strict=True)
    ]
    return {"members": members, "metric": metric, "selected": select(weights, expected, metric)}


def metrics_on_test(fitted: Decider, test: Complete, fairness: RiskSettings) -> list[dict[str, float]]:
    """Metrics of each member's decisions, and ``deo_floor``, the DEO of chance alone."""
    decided = fitted.decide(test.features).numpy()
    classes = len(test.classes)
    cells = np.zeros((test.rows, classes, len(test.groups)))
    cells[np.arange(test.rows), test.y, test.a] = 1
    return [
        evaluate(test.y, row, test.a, classes)
        | own_metric(fairness, row, cells)
        | {"deo_floor": fair_floor(test.y, row, test.a, classes)}
        for row in decided
    ]


def score_imputers(fitted: Fit, truth: Complete, table: Observed, member: int) -> dict[str, Any]:
    """Scores of a member's imputations where ``table``, what is written down of ``truth``, says ∅.

    Of groups by each imputer that gives probabilities, and of labels, whose imputer is the head P_g.
    """
    found: dict[str, Any] = {}
    for imputer in PROBABILITIES:
        cells = fitted.impute(table, imputer)[member].double().numpy()
        for what, of_value, known, observed, attributes in (
            ("group", cells.sum(1), truth.a, table.a_obs, table.group_attributes),
            ("label", cells.sum(2), truth.y, table.y_obs, table.label_attributes),
        ):
            hidden = ~attributes.stated[observed.numpy()]
            if hidden.any() and (what, imputer) != ("label", "rounded"):  # which rounds groups alone
                found.setdefault(what, {})[imputer] = imputation_scores(of_value[hidden], known[hidden])
    return found
