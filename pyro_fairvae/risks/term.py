"""The risk as the objective takes it: which one, of which imputation, and where its gradient may go."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pyro_fairvae.errors import choose, require
from pyro_fairvae.options import option
from pyro_fairvae.risks.custom import CUSTOM, CustomRisk
from pyro_fairvae.risks.estimator import ESTIMATORS, Estimate, RiskEstimator, relaxed_cell_sums
from pyro_fairvae.risks.gaps import RISKS, ComposedRisk
from pyro_fairvae.risks.imputers import IMPUTERS, Beliefs, impute
from pyro_fairvae.risks.relaxations import RELAXATIONS, relaxation

GRADIENTS = ("stopped", "vanilla")


@dataclass(frozen=True)
class RiskSettings:
    """Everything about the fairness risk but its weight."""

    risk: str = option("deo", f"fairness risk: {', '.join(RISKS)}")
    risk_classes: tuple[int, ...] | None = option(
        None, "S_y, classes that the risk compares, instead of its own"
    )
    estimator: str = option("sampled", "sampled (the paper's), or expected (at expected cell sums, no draws)")
    samples: int = option(100, "N, Monte Carlo samples of groups and labels for the risk")
    relaxation: str = option("step", "decisions in the risk: step, σ(logit/T), or kde, Φ((p − 1/2)/T)")
    temperature: float = option(0.2, "T of the relaxation")
    memory: float = option(0.2, "weight of the current batch in the risk's cell sums; 1: no memory (paper)")
    imputer: str = option(
        "outcome",
        "unstated groups: outcome (from x and y), features (from x alone, the paper's), rounded, or stated "
        "(stated rows only)",
    )
    risk_gradient: str = option(
        "stopped", "stopped at imputed groups and labels, or vanilla (through them, the ablation)"
    )
    gumbel_temperature: float = option(0.5, "temperature of the vanilla risk's Gumbel-softmax")

    def __post_init__(self) -> None:
        for what, given, table in (
            ("risk", self.risk, (*RISKS, *CUSTOM)),
            ("estimator", self.estimator, ESTIMATORS),
            ("relaxation", self.relaxation, RELAXATIONS),
            ("imputer", self.imputer, IMPUTERS),
            ("risk gradient", self.risk_gradient, GRADIENTS),
        ):
            choose(what, given, table)
        require(
            self.gumbel_temperature > 0,
            f"gumbel_temperature must be positive, got {self.gumbel_temperature}.",
        )
        custom = self.risk in CUSTOM
        require(
            not (
                custom and (self.risk_classes or self.risk_gradient == "vanilla" or self.imputer == "stated")
            ),
            f"the risk {self.risk!r} is a function of draws of every row: it takes no risk_classes, no "
            "vanilla gradient and not the imputer 'stated'.",
        )
        RiskTerm(self)

    def chosen(self) -> ComposedRisk | CustomRisk:
        if self.risk in CUSTOM:
            return CUSTOM[self.risk]
        return RISKS[self.risk].over(self.risk_classes)

    def check_classes(self, classes: int) -> None:
        """Raise unless S_y lies within ``classes`` classes."""
        risk = self.chosen()
        if isinstance(risk, ComposedRisk):
            risk.classes_of(classes)


class RiskTerm:
    """Ê by its settings, stateful through the estimator's memory."""

    def __init__(self, settings: RiskSettings) -> None:
        self.settings = settings
        relax = relaxation(settings.relaxation, settings.temperature)
        self.estimator = RiskEstimator(
            settings.chosen(), relax, settings.samples, settings.memory, settings.estimator
        )

    def __call__(self, class_logits: Tensor, beliefs: Beliefs) -> Estimate:
        """The risk of each member; logits g(y|x) are (members, rows, classes)."""
        settings = self.settings
        if settings.risk_gradient == "stopped":
            return self.estimator(class_logits, impute(IMPUTERS[settings.imputer](beliefs)))
        sums = relaxed_cell_sums(
            self.estimator.relax(class_logits),
            beliefs.classified,
            beliefs.group,
            settings.samples,
            settings.gumbel_temperature,
        )
        return self.estimator.of_sums(sums)
