"""How good and how fair members are, on validation and on test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.batch import Features, Observed
from pyro_fairvae.data import Complete, Splits
from pyro_fairvae.fitted import Fit
from pyro_fairvae.metrics import evaluate, evaluate_expected, fair_floor, imputation_scores
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk, RiskSettings
from pyro_fairvae.risks.imputers import PROBABILITIES, STANDS_IN


class Decider(Protocol):
    """What can be judged: members that decide, (members, rows)."""

    def decide(self, x: Features) -> Tensor: ...


def evaluate_members(fitted: Fit, parts: Splits) -> dict[str, Any]:
    """:func:`judge` of a fit, by its own imputations of the validation part."""
    fairness = fitted.settings.fairness
    # Rates need masses that are not negative.
    whole = STANDS_IN[fairness.imputer] if fairness.imputer == "anchored" else fairness.imputer
    imputed = fitted.impute(parts.validation, whole)
    return judge(fitted, fitted.weights_of_risk, fairness, parts, imputed)


def judge(
    fitted: Decider, weights: Sequence[float], fairness: RiskSettings, parts: Splits, imputed: Tensor
) -> dict[str, Any]:
    """Metrics of every member on validation (expected, nothing hidden is read) and on test.

    ``imputed`` is P(y, a | row) of the validation part, (members, rows, classes, groups). ``selected`` is
    chosen by :func:`select`. The metric is the twin of the risk that was trained, ``risk`` where it was
    trained over classes of the user's choice, and DEO for a user's own risk.
    """
    metric, risk = _metric_of(fairness)
    expected = _metrics_on_validation(fitted, parts.validation, fairness, risk, imputed)
    tested = metrics_on_test(fitted, parts.test, fairness)
    members = [
        {"weight": weight, "val": val, "test": test}
        for weight, val, test in zip(weights, expected, tested, strict=True)
    ]
    return {"members": members, "metric": metric, "selected": select(weights, expected, metric)}


def select(
    weights: Sequence[float], validation: list[dict[str, float]], metric: str = "deo", within: float = 0.01
) -> int:
    """Index of the member to use, of those that cost at most ``within`` of error, judged on validation.

    It has the largest λ among those whose metric is within one standard error of the least: a validation part
    has too few people in the rarest cells to tell the members' gaps apart, and λ was meant to close them.
    """
    limit = validation[int(np.argmin(weights))]["error"] + within
    allowed = [k for k, metrics in enumerate(validation) if not metrics["error"] > limit]
    # A metric that could not be taken (NaN) is no reason to choose a member.
    found = {k: float(np.nan_to_num(validation[k][metric], nan=np.inf)) for k in allowed}
    fairest = min(found, key=lambda k: found[k])
    bound = found[fairest] + np.nan_to_num(validation[fairest]["standard_error"])
    return max((k for k in found if found[k] <= bound), key=lambda k: weights[k])


def _metric_of(fairness: RiskSettings) -> tuple[str, ComposedRisk]:
    """The metric that members are chosen by: its name, and the risk that it is of decisions."""
    if fairness.risk not in RISKS:
        return "deo", RISKS["deo"]
    return "risk" if fairness.risk_classes is not None else fairness.risk, RISKS[fairness.risk].over(
        fairness.risk_classes
    )


def standard_error(risk: ComposedRisk, decided: np.ndarray, cells: np.ndarray, resamples: int = 200) -> float:
    """Of a risk of decisions (rows,) under imputed cells (rows, y, a), by the bootstrap over rows."""
    rows, classes, groups = cells.shape
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    one_hot = np.eye(classes)[decided]
    mass = (drawn @ cells.reshape(rows, -1)).reshape(resamples, classes, groups)
    decisions = (cells[..., None] * one_hot[:, None, None]).reshape(rows, -1)
    predicted = (drawn @ decisions).reshape(resamples, classes, groups, classes)
    return float(risk(CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))).value.std())


def metrics_on_test(fitted: Decider, test: Complete, fairness: RiskSettings) -> list[dict[str, float]]:
    """Metrics of each member's decisions, and ``deo_floor``, the DEO of chance alone."""
    decided = fitted.decide(test.features).numpy()
    classes = len(test.classes)
    cells = np.zeros((test.rows, classes, len(test.groups)))
    cells[np.arange(test.rows), test.y, test.a] = 1
    return [
        evaluate(test.y, row, test.a, classes)
        | _over_chosen_classes(fairness, row, cells)
        | {"deo_floor": fair_floor(test.y, row, test.a, classes)}
        for row in decided
    ]


def _over_chosen_classes(fairness: RiskSettings, decided: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """``risk``, that of decisions over the classes S_y where the user chose some; cells (rows, y, a)."""
    risk = fairness.chosen()
    if fairness.risk_classes is None or not isinstance(risk, ComposedRisk):
        return {}
    one_hot = np.eye(cells.shape[1])[decided]
    sums = cells.sum(0), np.einsum("rc,ryg->ygc", one_hot, cells)
    return {"risk": float(risk(CellSums(*map(torch.from_numpy, sums))).value)}


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


def _metrics_on_validation(
    fitted: Decider, table: Observed, fairness: RiskSettings, risk: ComposedRisk, imputed: Tensor
) -> list[dict[str, float]]:
    """Expected metrics of decisions under the imputations, and the standard error of ``risk``."""
    decided = fitted.decide(table.x).numpy()
    y_obs = table.y_obs.expand(len(decided), table.rows).cpu().numpy()
    return [
        evaluate_expected(stated, labels, cells, table.classes)
        | _over_chosen_classes(fairness, labels, cells)
        | {"standard_error": standard_error(risk, labels, cells)}
        for stated, labels, cells in zip(y_obs, decided, imputed.double().numpy(), strict=True)
    ]
