"""Selection of a member of a frontier, on rows with hidden labels or groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyro_fairvae.evaluation.metrics import evaluate_expected
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk, CustomRisk, RiskSettings
from pyro_fairvae.risks.costs import Costs, cost_unit, expected_cost
from pyro_fairvae.risks.imputers import STANDS_IN
from pyro_fairvae.schema.observed import Features, Observed


class Decider(Protocol):
    """Anything whose members make decisions, (members, rows)."""

    def decide(self, x: Features) -> Tensor: ...


def imputed_cells(fitted: Fit, table: Observed, given: Tensor | None = None) -> Tensor:
    """P(y, a | row), (members, rows, classes, groups), by the imputer of a fit, without negative masses.

    If it is ``given``, (rows, classes, groups), it is the same for all members.
    """
    if given is not None:
        return given.expand(len(fitted.lambdas), *given.shape)
    imputer = fitted.settings.fairness.imputer
    # Rates need nonnegative masses.
    return fitted.impute(table, STANDS_IN[imputer] if imputer == "control_variate" else imputer)


def select(
    weights: Sequence[float], validation: list[dict[str, float]], metric: str = "deo", within: float = 0.01
) -> int:
    """Index of the member to use, among those that add at most ``within`` to the error on validation.

    It has the largest λ among those whose metric is within one standard error of the least: a validation part
    has too few people in the rarest cells to distinguish the members' gaps, and λ is meant to close them.
    """
    limit = validation[int(np.argmin(weights))]["error"] + within
    allowed = [k for k, metrics in enumerate(validation) if not metrics["error"] > limit]
    # A metric that could not be computed (NaN) must not select a member.
    values = {k: float(np.nan_to_num(validation[k][metric], nan=np.inf)) for k in allowed}
    fairest = min(values, key=lambda k: values[k])
    bound = values[fairest] + np.nan_to_num(validation[fairest]["standard_error"])
    return max((k for k in values if values[k] <= bound), key=lambda k: weights[k])


def select_target(
    frontier: pd.DataFrame, within: float = 0.01, share: float = 0.2, costs: Costs | None = None
) -> int:
    """Index of the member to use among those settled to targets; the first has none.

    Among those that add at most ``within`` to its error, it is the most accurate whose disparity is at most a
    ``share`` of the first one's, or the fairest if there is none. With ``costs`` of errors the cost takes the
    place of the error, and ``within`` is of the mean of both costs.
    """
    disparity = frontier["disparity"].fillna(np.inf)
    paid = frontier[paid_by(frontier)]
    allowed = frontier.index[~(paid > paid[0] + within * cost_unit(costs))]
    aimed = [k for k in allowed if disparity[k] <= share * disparity[0]]
    return int(paid[aimed].idxmin() if aimed else disparity[allowed].idxmin())


def paid_by(frontier: pd.DataFrame) -> str:
    """The column of what fairness is paid with: the cost, where errors have one, or the error."""
    return "cost" if "cost" in frontier and frontier["cost"].notna().any() else "error"


def metric_of(fairness: RiskSettings) -> tuple[str, ComposedRisk | CustomRisk]:
    """The metric for selecting members: its name, and the risk that it applies to decisions.

    It is the twin of the trained risk; ``risk`` if that was trained over classes of the user's choice; the
    ``metric`` of a user's own risk; and DEO for a user's own risk without a metric.
    """
    risk = fairness.chosen()
    if isinstance(risk, CustomRisk):
        return ("deo", RISKS["deo"]) if risk.metric is None else (risk.name, risk)
    return risk.name if fairness.risk_classes is None else "risk", risk


def metrics_on_validation(
    fitted: Decider,
    table: Observed,
    fairness: RiskSettings,
    risk: ComposedRisk | CustomRisk,
    imputed: Tensor,
) -> list[dict[str, float]]:
    """Expected metrics of decisions under the imputations, by weight, and the standard error of ``risk``."""
    decided = fitted.decide(table.x).numpy()
    y_obs = table.y_obs.expand(len(decided), table.rows).cpu().numpy()
    weights: list[np.ndarray | None] = [None] * len(decided)
    if table.weight is not None:
        weights = list(table.weight.double().expand(len(decided), table.rows).cpu().numpy())
    members = []
    for stated, labels, cells, weight in zip(y_obs, decided, imputed.double().numpy(), weights, strict=True):
        masses = cells if weight is None else cells * weight[:, None, None]
        members.append(
            evaluate_expected(stated, labels, cells, table.classes, weight)
            | own_metric(fairness, labels, masses)
            | {"standard_error": standard_error(risk, labels, masses)}
        )
    return members


def own_metric(fairness: RiskSettings, decided: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """Metrics that only some fits have, from cells (rows, y, a).

    These are ``cost``, where errors have costs; ``risk``, the risk of decisions over the classes S_y if the
    user chose some; and the metric of a user's own risk, by its name.
    """
    name, risk = metric_of(fairness)
    if fairness.costs is not None:
        costs = fairness.costs[0], fairness.costs[1]
        plain = own_metric(replace(fairness, costs=None), decided, cells)
        return plain | {"cost": expected_cost(costs, decided, cells.sum(2))}
    if isinstance(risk, ComposedRisk) and fairness.risk_classes is None:
        return {}
    one_hot = np.eye(cells.shape[1])[decided]
    predicted = np.einsum("rc,ryg->ygc", one_hot, cells)
    if isinstance(risk, CustomRisk):
        return {name: _metric_of_cells(risk, predicted)}
    return {name: float(risk(CellSums(*map(torch.from_numpy, (cells.sum(0), predicted)))).value)}


def standard_error(
    risk: ComposedRisk | CustomRisk, decided: np.ndarray, cells: np.ndarray, resamples: int = 200
) -> float:
    """Bootstrap standard error of a risk of decisions (rows,) under imputed cells (rows, y, a), weighed."""
    rows, classes, groups = cells.shape
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    one_hot = np.eye(classes)[decided]
    mass = (drawn @ cells.reshape(rows, -1)).reshape(resamples, classes, groups)
    decisions = (cells[..., None] * one_hot[:, None, None]).reshape(rows, -1)
    predicted = (drawn @ decisions).reshape(resamples, classes, groups, classes)
    if isinstance(risk, CustomRisk):
        return float(np.std([_metric_of_cells(risk, sample) for sample in predicted], ddof=1))
    return float(risk(CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))).value.std())


def _metric_of_cells(risk: CustomRisk, predicted: np.ndarray) -> float:
    """The metric of a user's own risk, from the mass of each (y, a, decision)."""
    assert risk.metric is not None
    y, a, decided = np.nonzero(predicted > 0)
    return float(risk.metric(y, decided, a, len(predicted), predicted[y, a, decided]))
