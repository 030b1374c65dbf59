"""Error and fairness of members, on validation and on test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
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
    select_target,
)
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.risks import RiskSettings
from pyro_fairvae.risks.imputers import PROBABILITIES
from pyro_fairvae.schema.observed import Observed

MemberResult = TypedDict(
    "MemberResult",
    {
        "lambda": float,
        "target": NotRequired[float | None],
        "val": dict[str, float],
        "test": dict[str, float],
        "group_accuracy": NotRequired[float],
        "thresholds": NotRequired[list[float]],
    },
)


class RunResults(TypedDict):
    """Metrics of every member, the metric for selection, and the index of the selected member."""

    members: list[MemberResult]
    metric: str
    selected: int


@torch.no_grad()
def evaluate_members(fitted: Fit, parts: Splits, cells: Tensor | None = None) -> RunResults:
    """Error and fairness of each member of a fit, on validation and on test, as in ``results.json``.

    Parameters
    ----------
    fitted : Fit
        The fit whose members decide.
    parts : Splits
        Validation rows, whose hidden values are imputed, and test rows with their truth.
    cells : Tensor, optional
        P(y, a | row) of the validation rows, (rows, classes, groups); by default each member's own.

    Returns
    -------
    RunResults
        ``members``, a line for each λ or target: ``val`` and ``test`` have the metrics of :func:`evaluate`,
        and ``group_accuracy`` the share of all test rows whose group is the likeliest under h(a|x), and
        ``thresholds`` those that were learned, if they were; ``metric``, the metric by which a member is
        selected, and ``selected``, the member to use.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, evaluate_members, fit, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, lambdas=(0.0, 1.0), settings=small)
    >>> results = evaluate_members(fitted, parts)
    >>> [line["lambda"] for line in results["members"]], results["metric"]
    ([0.0, 1.0], 'deo')
    >>> 0 <= results["members"][0]["test"]["error"] <= 1
    True
    """
    imputed = imputed_cells(fitted, parts.validation, cells)
    results = judge(fitted, fitted.lambdas, fitted.settings.fairness, parts, imputed)
    likeliest = [heads.group_logits.argmax(-1).cpu() for heads in fitted.heads(parts.test.features)]
    for member, groups in zip(results["members"], torch.cat(likeliest, dim=-1).numpy(), strict=True):
        member["group_accuracy"] = float((groups == parts.test.a).mean())
    if fitted.settings.fairness.learns_thresholds:
        for member, thresholds in zip(results["members"], fitted.thresholds.tolist(), strict=True):
            member["thresholds"] = thresholds
    if fitted.targets is not None:
        for member, target in zip(results["members"], fitted.targets, strict=True):
            member["target"] = target
        costs = fitted.settings.fairness.costs
        results["selected"] = select_target(
            frontier_of(results), costs=None if costs is None else (costs[0], costs[1])
        )
    return results


def frontier_of(results: RunResults) -> pd.DataFrame:
    """Error and disparity of each member on validation, as in ``frontier_`` of the estimator."""
    members, metric = results["members"], results["metric"]
    name = "target" if "target" in members[0] else "lambda"
    return pd.DataFrame(
        {
            name: np.array([member.get(name) for member in members], dtype=float),
            "error": [member["val"]["error"] for member in members],
            **(
                {"cost": [member["val"]["cost"] for member in members]} if "cost" in members[0]["val"] else {}
            ),
            "disparity": [member["val"][metric] for member in members],
            "standard_error": [member["val"]["standard_error"] for member in members],
        }
    )


def judge(
    fitted: Decider, weights: Sequence[float], fairness: RiskSettings, parts: Splits, imputed: Tensor
) -> RunResults:
    """Metrics of every member on validation (expected values, without hidden truth) and on test.

    ``imputed`` is P(y, a | row) of the validation part, (members, rows, classes, groups). ``selected`` is
    chosen by :func:`select` with the metric of :func:`metric_of`.
    """
    metric, risk = metric_of(fairness)
    expected = metrics_on_validation(fitted, parts.validation, fairness, risk, imputed)
    tested = metrics_on_test(fitted, parts.test, fairness)
    members: list[MemberResult] = [
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
    """Scores of a member's imputations where ``table``, the recorded values of ``truth``, has ∅.

    Groups are scored for each imputer that gives probabilities; labels are imputed by the head P_g.
    """
    scores: dict[str, Any] = {}
    for imputer in PROBABILITIES:
        cells = fitted.impute(table, imputer)[member].double().numpy()
        for what, probability, known, observed, attributes in (
            ("group", cells.sum(1), truth.a, table.a_obs, table.group_attributes),
            ("label", cells.sum(2), truth.y, table.y_obs, table.label_attributes),
        ):
            hidden = ~attributes.stated[observed.numpy()]
            if hidden.any() and (what, imputer) != ("label", "rounded"):  # which rounds groups alone
                scores.setdefault(what, {})[imputer] = imputation_scores(probability[hidden], known[hidden])
    return scores
