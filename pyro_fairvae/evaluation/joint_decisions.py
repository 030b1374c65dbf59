"""Decisions about all rows of a table together, by a rule of :mod:`pyro_fairvae.decisions.rules`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import option
from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.base.seeds import check_seed
from pyro_fairvae.decisions.descent import STARTS
from pyro_fairvae.decisions.joint_objective import LOSSES, DecisionProblem
from pyro_fairvae.decisions.rules import RULES
from pyro_fairvae.decisions.score_adjustment import believed_cells
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.risks import RISKS, ComposedRisk, RiskSettings
from pyro_fairvae.risks.imputers import STANDS_IN
from pyro_fairvae.schema.observed import Observed

# λ of decisions settled to a target, of what the risk exceeds it by. A rate of some rows moves by δ if a
# share δ of these rows are decided differently, which costs at most δ of error.
BEYOND_TARGET = {"error": 1.0, "likelihood": 10.0}
MOST_STARTS = 1000
LEAST = 1e-12  # probability, of which a logarithm is taken


@dataclass(frozen=True)
class JointRule:
    """How the rows of a table are decided together."""

    rule: str = option("descent", f"how labels are computed: {', '.join(RULES)}")
    decision_lambda: float | None = option(
        None,
        "λ of the risk in the objective of the decision (default: the λ with which the member was trained; "
        "of one that is settled to a target, 1, for what the risk exceeds the target by)",
    )
    decision_risk: str | None = option(
        None, "risk in the objective of the decision (default: the one that the model was fitted with)"
    )
    loss: str = option(
        "error", f"loss in the objective of the decision: {', '.join(LOSSES)} (-log q(y|x), as in the paper)"
    )
    draws: int = option(100, "draws of groups and labels for the expected risk")
    starts: int = option(STARTS, "starts of the rule descent")
    seed: int = option(0, "seed of the draws and of the starts")

    def __post_init__(self) -> None:
        choose("rule", self.rule, RULES)
        choose("loss", self.loss, LOSSES)
        if self.decision_risk is not None:
            choose("decision_risk", self.decision_risk, RISKS)
        require(self.draws >= 1, f"draws must be at least 1, got {self.draws}.")
        require(
            1 <= self.starts <= MOST_STARTS, f"starts must be from 1 to {MOST_STARTS}, got {self.starts}."
        )
        check_seed(self.seed)
        require(
            self.decision_lambda is None or 0 <= self.decision_lambda < float("inf"),
            f"decision_lambda must be finite and not negative, got {self.decision_lambda}.",
        )

    def risk_of(self, fairness: RiskSettings) -> ComposedRisk:
        """F, unless it is a function of draws; nothing is imported for it."""
        if self.decision_risk is not None:
            return RISKS[self.decision_risk]
        require(
            fairness.risk in RISKS,
            f"the risk {fairness.risk!r} of the model is a function of draws, for which each change of a "
            f"label would cost a pass over the table; give decision_risk, one of {', '.join(RISKS)}.",
            "decision_risk",
        )
        return RISKS[fairness.risk].over(fairness.risk_classes)

    def weight_in(self, fit: Fit, member: int) -> tuple[float, float]:
        """λ and ε of the objective, for a member of a fit."""
        if fit.targets is None:
            return self.weight_of(fit.lambdas[member], None)
        return self.weight_of(None, fit.targets[member])

    def weight_of(self, lambda_: float | None, target: float | None) -> tuple[float, float]:
        """λ and ε of the objective, for a member trained with a λ or settled to a target."""
        if self.decision_lambda is not None:
            return self.decision_lambda, 0.0
        if lambda_ is not None:
            return lambda_, 0.0
        if self.rule == "rounding":
            return 0.0, 0.0
        require(
            target is not None,
            "the member that decides has neither a λ nor a target, so that nothing says what fairness is "
            "worth; give decision_lambda, or choose a member with a target by max_disparity.",
            "decision_lambda",
            "max_disparity",
        )
        assert target is not None
        return BEYOND_TARGET[self.loss], target


@dataclass(frozen=True)
class BelievedRows:
    """What a member believes of the rows of a table."""

    probability: Tensor  # q(y|x), (rows, classes)
    imputed: Tensor  # P(y, a | row), (rows, classes, groups)
    alone: Tensor  # the member's decision about each row, (rows,)

    @staticmethod
    @torch.no_grad()
    def of_fit(fit: Fit, member: int, table: Observed, asked: bool = True) -> BelievedRows:
        """By a member of a fit; where nobody was ``asked`` for a group, its absence tells nothing."""
        # Here every row needs a distribution to draw its group from, even if training needed none.
        imputer = STANDS_IN.get(fit.settings.fairness.imputer, fit.settings.fairness.imputer)
        if asked:
            imputed = fit.impute(table, imputer)[member]
        else:
            heads_of_rows = fit.heads(table.x)
            imputed = torch.cat([believed_cells(heads, imputer)[member].cpu() for heads in heads_of_rows])
        probability = fit.predict_proba(table.x)[member].double()
        return BelievedRows(probability, imputed.double(), fit.decide(table.x)[member])


@dataclass(frozen=True)
class DecidedTogether:
    """Decisions about the rows of a table together, beside those about each row alone.

    Attributes
    ----------
    decisions : ndarray, (rows,)
        The decisions together.
    alone : ndarray, (rows,)
        What is decided about each row alone.
    changed : int
        How many rows are decided differently.
    summary : DataFrame
        ``objective``, the expected ``error`` and the expected ``risk``, of decisions alone (``before``) and
        together (``after``).
    rates : DataFrame
        For each group and class c, under the imputed groups and labels: the shares decided c, P(ŷ = c | a),
        and those rightly decided, P(ŷ = c | y = c, a), before and after.
    rule, risk : str
        The rule, and the risk.
    lambda_, target : float
        λ, and ε above which the risk counts.
    best : bool
        Whether no decisions have a lower objective, which is known of tables of few rows alone.
    """

    decisions: np.ndarray
    alone: np.ndarray
    changed: int
    summary: pd.DataFrame
    rates: pd.DataFrame
    rule: str
    risk: str
    lambda_: float
    target: float
    best: bool


def check_no_costs(costs: object) -> None:
    """Rules for a whole table know of errors alone."""
    require(
        costs is None,
        "rules for a whole table minimise the error, but the model has costs of false positives and "
        "negatives; decide about each row by predict.",
    )


@dataclass(frozen=True)
class JointProblem:
    """Rows, the risk F of decisions about them, and λ and ε of the objective."""

    rows: BelievedRows
    risk: ComposedRisk
    lambda_: float
    target: float

    @staticmethod
    def of_fit(fit: Fit, member: int, table: Observed, rule: JointRule, asked: bool = True) -> JointProblem:
        """For a member of a fit; errors of the rule are raised before the rows are looked at."""
        check_no_costs(fit.settings.fairness.costs)
        risk, weight = rule.risk_of(fit.settings.fairness), rule.weight_in(fit, member)
        return JointProblem(BelievedRows.of_fit(fit, member, table, asked), risk, *weight)

    def decide(
        self, rule: JointRule, classes: np.ndarray, groups: tuple[str, ...], report: Report = silent
    ) -> DecidedTogether:
        """Decide by a rule; ``classes`` and ``groups`` are their names."""
        rows = self.rows
        problem = DecisionProblem(
            rows.probability.clamp(min=LEAST).log(),
            rows.imputed,
            self.risk,
            self.lambda_,
            rule.draws,
            rule.seed,
            rows.alone,
            rule.loss,
            self.target,
        )
        decision = RULES[rule.rule](problem, report, rule.starts)
        both = {"before": problem.rounded(), "after": decision.labels}
        right = rows.imputed.sum(-1)
        summary = {
            name: {
                "objective": problem.objective(labels),
                "error": 1 - float(right.gather(-1, labels.unsqueeze(-1)).mean()),
                "risk": float(problem.fairness(problem.counts(labels))),
            }
            for name, labels in both.items()
        }
        return DecidedTogether(
            classes[decision.labels.numpy()],
            classes[problem.rounded().numpy()],
            int((decision.labels != problem.rounded()).sum()),
            pd.DataFrame(summary).T,
            _rates(rows.imputed, both, classes, groups),
            rule.rule,
            self.risk.name,
            self.lambda_,
            self.target,
            decision.best,
        )


def _rates(
    imputed: Tensor, both: dict[str, Tensor], classes: np.ndarray, groups: tuple[str, ...]
) -> pd.DataFrame:
    """P(ŷ = c | a) and P(ŷ = c | y = c, a) of each group and class, NaN where nobody is."""
    of_group, of_cell = imputed.sum((0, 1)), imputed.sum(0).T  # (groups,), (groups, classes)
    columns: dict[str, np.ndarray] = {}
    for name, labels in both.items():
        one_hot = torch.nn.functional.one_hot(labels, imputed.shape[1]).to(imputed)
        columns[f"decided {name}"] = (imputed.sum(1).T @ one_hot / of_group.unsqueeze(-1)).flatten().numpy()
        right = torch.einsum("nc,nca->ac", one_hot, imputed)
        columns[f"right {name}"] = (right / of_cell).flatten().numpy()
    index = pd.MultiIndex.from_product([groups, classes], names=["group", "class"])
    names = [f"{what} {when}" for what in ("decided", "right") for when in ("before", "after")]
    return pd.DataFrame(columns, index=index)[names]
