"""The risk in the objective: its settings, the imputation it uses, and where its gradient flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import nested, option
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.risks.costs import bayes_threshold, check_costs, check_costs_of, relative_costs
from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.custom import CUSTOM, CustomRisk, check_reference, is_reference, resolve
from pyro_fairvae.risks.dependence import DependenceRisk, view_of_cells
from pyro_fairvae.risks.expectation import ESTIMATORS, Estimate, ExpectedRisk, relaxed_cell_sums
from pyro_fairvae.risks.gaps import RISKS, CellSums, ComposedRisk
from pyro_fairvae.risks.imputers import IMPUTERS, Beliefs, impute
from pyro_fairvae.risks.number_gaps import NUMBER_RISKS
from pyro_fairvae.risks.relaxations import LEARNED, LEARNED_BY_GROUP, RELAXATIONS, are_learned, relaxation

LABELLERS = ("head", "propagation", "propagation_as_printed")
IMPUTATIONS = ("auto", "cross_fitted", "own")
GRADIENTS = ("stopped", "vanilla")


@dataclass(frozen=True)
class RiskSettings:
    """All settings of the fairness risk except its weight.

    Attributes
    ----------
    risk : str
        A name of :data:`RISKS`, or of :func:`register_risk`.
    risk_classes : tuple of int, optional
        S_y, the classes that are compared.
    risk_estimator, samples, stiffness, memory
        How its expectation over unstated labels and groups is estimated.
    refine_decisions : float, optional
        Stiffness at which decisions are refined after training; 0 leaves them as trained.
    relaxation, temperature, thresholds
        How decisions are softened, and from which probability class 1 is decided.
    costs : tuple of float, optional
        Costs of a false positive and of a false negative (:mod:`pyro_fairvae.risks.costs`).
    imputer, labeller, imputation
        How unstated groups and labels are imputed, and by whom.
    critic : CriticSettings
        The critics of ``mine`` and ``infonce``, and how they are trained.

    ``fairvae train --help`` explains every option.

    Examples
    --------
    >>> from pyro_fairvae import RiskSettings
    >>> RiskSettings(risk="ddp").chosen().name
    'ddp'
    """

    risk: str = option(
        "deo", lambda: f"fairness risk: {', '.join(RISKS)}, or your own function as module:function"
    )
    risk_classes: tuple[int, ...] | None = option(
        None, "S_y, classes that the risk compares, instead of its default ones"
    )
    risk_estimator: str = option(
        "smoothed",
        "smoothed (λF at expected cell sums, smoothed at 0), expected (λF at expected cell sums), or "
        "sampled (λ times the mean of N draws, the paper's)",
    )
    samples: int = option(100, "N, Monte Carlo samples of groups and labels, where the estimator draws")
    stiffness: float = option(20.0, "ρ of smoothed: pull for each unit of a gap, up to λ")
    refine_decisions: float | None = option(
        None,
        "ρ at which decisions are refined on all rows after training; 0: no refinement (default: 50 "
        "for smoothed, else 0)",
    )
    relaxation: str = option(
        "step",
        "decisions in the risk: step, σ(logit/T), straight (as decided, with the step's gradient), or kde, "
        "Φ((p − 1/2)/T)",
    )
    temperature: float = option(0.2, "T of the relaxation")
    thresholds: tuple[float | str, ...] = option(
        (0.5,),
        "τ, probability above which class 1 is decided; one, or one for each group, separated by commas; or "
        "learned, one for all, or learned_by_group, in training beside the classifier (with λ)",
        (LEARNED, LEARNED_BY_GROUP),
    )
    memory: float | None = option(
        None,
        "weight of the latest batch in the risk's remembered cell sums (default: 0.1, or 1, no memory, for "
        "sampled)",
    )
    imputer: str = option(
        "outcome",
        "unstated groups: outcome (from x and y), features (from x alone, the paper's), rounded, stated "
        "(stated rows only), or control_variate (stated rows, the others as a control variate)",
    )
    labeller: str = option(
        "head",
        "P_g, unstated labels: head, propagation (a Gaussian field on a graph of nearest neighbours, times "
        "the odds of stating nothing), or propagation_as_printed (the field alone, as in the paper)",
    )
    imputation: str = option(
        "auto",
        "by whom they are imputed: cross_fitted, boosted trees that know of no fairness and were not grown "
        "on the row, once for all members (for tables, imputer outcome and labeller head), own, each "
        "member for itself (the paper's), or auto: cross_fitted where the network sees scores of trees",
    )
    neighbours: int = option(10, "neighbours of a row in the graph of propagation")
    propagation_every: int = option(5, "epochs between two propagations of labels")
    risk_gradient: str = option(
        "stopped", "stopped at imputed groups and labels, or vanilla (through them, the ablation)"
    )
    gumbel_temperature: float = option(0.5, "temperature of the vanilla risk's Gumbel-softmax")
    costs: tuple[float, ...] | None = option(
        None,
        "costs of a false positive and of a false negative, which decisions settled to targets minimise in "
        "place of the error, such as 5,1 (with lambdas give thresholds)",
    )
    critic: CriticSettings = nested(CriticSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "costs", check_costs(self.costs))
        require(
            self.costs is None or self.thresholds == (0.5,) or self.thresholds == ("0.5",),
            f"costs and thresholds {list(self.thresholds)} were both given, but costs set the threshold of "
            "members without a target; leave one out.",
            "costs",
            "thresholds",
        )
        if isinstance(self.thresholds, str):
            object.__setattr__(self, "thresholds", (self.thresholds,))
        for what, given, table in (
            ("risk estimator", self.risk_estimator, ESTIMATORS),
            ("relaxation", self.relaxation, RELAXATIONS),
            ("imputer", self.imputer, IMPUTERS),
            ("labeller", self.labeller, LABELLERS),
            ("imputation", self.imputation, IMPUTATIONS),
            ("risk gradient", self.risk_gradient, GRADIENTS),
        ):
            choose(what, given, table)
        if is_reference(self.risk):
            check_reference(self.risk)
        else:
            choose("risk", self.risk, (*RISKS, *NUMBER_RISKS, *CUSTOM))
        for name in ("neighbours", "propagation_every"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        require(
            0 <= self.refinement_stiffness < float("inf"),
            f"refine_decisions must be finite and not negative, got {self.refine_decisions}.",
        )
        require(
            self.gumbel_temperature > 0,
            f"gumbel_temperature must be positive, got {self.gumbel_temperature}.",
        )
        custom = self.risk not in RISKS and self.risk not in NUMBER_RISKS
        require(
            not (
                custom
                and (
                    self.risk_classes
                    or self.thresholds_of(2) > 1
                    or self.risk_gradient == "vanilla"
                    or self.imputer in ("stated", "control_variate")
                )
            ),
            f"the risk {self.risk!r} is a function of draws of every row: it takes no risk_classes, no "
            "thresholds by group, no vanilla gradient and not the imputers 'stated' and 'control_variate'.",
        )
        require(
            self.risk_gradient == "stopped" or (self.imputer, self.labeller) == ("features", "head"),
            "the vanilla risk draws groups from q(a|x,ã), labels from g: use it with imputer 'features' and "
            f"labeller 'head', not {self.imputer!r} and {self.labeller!r}.",
        )
        require(
            not (self.imputer == "control_variate" and self.risk_estimator == "sampled"),
            "nothing can be drawn from the imputer 'control_variate'; use the risk_estimator "
            "smoothed or expected.",
        )
        # The module of a risk is imported for training, not when settings are read from a file.
        RiskLoss(self, CustomRisk(self.risk, _not_imported) if is_reference(self.risk) else None)

    @property
    def relative_costs(self) -> tuple[float, ...] | None:
        """What an error about people of each class counts, with the mean 1; None where all count alike."""
        return None if self.costs is None else relative_costs((self.costs[0], self.costs[1]))

    @property
    def refinement_stiffness(self) -> float:
        if self.refine_decisions is None:
            return 50.0 if self.risk_estimator == "smoothed" else 0.0
        return self.refine_decisions

    @property
    def propagates(self) -> bool:
        """Whether P_g is a Gaussian field."""
        return self.labeller != "head"

    @property
    def learns_thresholds(self) -> bool:
        """Whether thresholds are learned in training."""
        return are_learned(self.thresholds)

    def thresholds_of(self, groups: int) -> int:
        """The number of thresholds, given or learned, for so many groups."""
        return groups if self.thresholds == (LEARNED_BY_GROUP,) else len(self.thresholds)

    def chosen(self) -> ComposedRisk | CustomRisk:
        """The risk itself; a risk named as module:function is imported now, unless it was before."""
        if self.risk in NUMBER_RISKS:
            return NUMBER_RISKS[self.risk]
        if self.risk not in RISKS:
            return resolve(self.risk) if is_reference(self.risk) else CUSTOM[self.risk]
        return RISKS[self.risk].over(self.risk_classes)

    @property
    def has_critics(self) -> bool:
        """Whether critics find the risk; else it is computed in closed form."""
        risk = self.chosen()
        return isinstance(risk, DependenceRisk) and risk.criticised and self.critic.critic_hidden > 0

    def cells(self, classes: int, groups: int) -> list[tuple[int, int]]:
        """The class and group of each cell that a risk compares; none of a custom one or one of numbers."""
        risk = self.chosen()
        recorded = isinstance(risk, ComposedRisk) and self.risk not in NUMBER_RISKS
        compared = risk.classes_of(classes) if recorded and isinstance(risk, ComposedRisk) else []
        return [(y, a) for y in compared for a in range(groups)]

    def check_with_lambdas(self, weighted: bool = False) -> None:
        """Raise where members cannot be trained with a λ, or not on rows with weights."""
        require(
            self.costs is None,
            "costs are for decisions settled to targets; give targets, or with lambdas thresholds, of which "
            f"{bayes_threshold(self.costs or (1, 1)):.4g} is that of the costs.",
            "costs",
            "lambdas",
        )
        require(
            not weighted or isinstance(self.chosen(), ComposedRisk),
            f"the risk {self.risk!r} is a function of draws of every row, which cannot be weighed; leave "
            "sample_weight out, or choose another risk.",
        )
        require(
            not weighted or self.labeller != "propagation",
            "labeller='propagation' takes all neighbours of a row alike; leave sample_weight out, or use "
            "labeller='head'.",
        )

    def check(self, classes: int, groups: int) -> None:
        """Raise unless S_y lies within ``classes`` classes and the thresholds fit classes and groups."""
        require(
            self.risk not in NUMBER_RISKS,
            f"the risk {self.risk!r} is of predicted numbers, but the label has classes; choose one of "
            f"{', '.join(RISKS)}.",
        )
        check_costs_of(check_costs(self.costs), classes)
        risk = self.chosen()
        if isinstance(risk, ComposedRisk):
            risk.classes_of(classes)
        if self.learns_thresholds:
            require(
                classes == 2,
                f"thresholds are learned for two classes, but there are {classes}; leave them out.",
                "thresholds",
            )
            return
        require(
            len(self.thresholds) in (1, groups),
            f"{len(self.thresholds)} thresholds were given; give one, or one for each of {groups} groups.",
        )
        require(
            classes == 2 or set(self.thresholds) == {0.5},
            f"thresholds need two classes, but there are {classes}; leave them at 0.5.",
        )


def check_of_numbers(fairness: RiskSettings) -> None:
    """Raise unless the risk and how it is estimated are for an outcome that is a number."""
    require(
        fairness.risk in NUMBER_RISKS,
        f"the risk {fairness.risk!r} needs classes, but the outcome is a number; choose one of "
        f"{', '.join(NUMBER_RISKS)}.",
    )
    default = RiskSettings(risk=fairness.risk)
    for name in (
        "risk_classes",
        "costs",
        "thresholds",
        "labeller",
        "risk_gradient",
        "relaxation",
        "temperature",
    ):
        given, usual = getattr(fairness, name), getattr(default, name)
        require(
            given == usual,
            f"{name} is {given!r}, but the outcome is a number; leave it at its default, {usual!r}.",
        )
    require(
        fairness.imputation != "cross_fitted",
        "imputation='cross_fitted' is for labels with classes; use 'own' or 'auto'.",
    )


def _not_imported(predictions: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """Placeholder for a risk whose module is not imported yet."""
    raise AssertionError("a risk must be resolved before it is evaluated")


class RiskLoss:
    """The estimate Ê for some settings; its state is the estimator's memory, and critics if it has any."""

    def __init__(self, settings: RiskSettings, risk: ComposedRisk | CustomRisk | None = None) -> None:
        self.settings = settings
        memory = settings.memory
        if memory is None:
            memory = 1.0 if settings.risk_estimator == "sampled" else 0.1
        self.estimator = ExpectedRisk(
            settings.chosen() if risk is None else risk,
            relaxation(settings.relaxation, settings.temperature, settings.thresholds),
            settings.samples,
            memory,
            settings.risk_estimator,
            settings.stiffness,
        )
        self.critics: Critics | None = None

    def give_critics(
        self, seeds: Sequence[int], classes: int, groups: int, centres: Sequence[float] | None, like: Tensor
    ) -> None:
        """Let critics, one for each seed, find the risk if it is one of theirs; else nothing changes.

        ``centres`` are the numbers that groups stand for, if they are levels of one. Without critics the risk
        is the supremum over all of them, in closed form.
        """
        risk, options = self.estimator.risk, self.settings.critic
        if not self.settings.has_critics:
            return
        assert isinstance(risk, DependenceRisk)
        numbers = None if centres is None else torch.tensor(centres, dtype=like.dtype, device=like.device)
        example = like.new_ones(len(seeds), 1, classes, groups, classes)
        view = view_of_cells(CellSums(example.sum(-1), example), risk.given_label, numbers)
        self.critics = Critics(risk, view, options, seeds)
        self.estimator.risk = risk.with_critics(self.critics, numbers)

    def learn(self, sums: CellSums | None) -> None:
        """Take the critics' steps, if there are any, at the cell sums of an :class:`Estimate`."""
        risk = self.estimator.risk
        if self.critics is not None and sums is not None:
            assert isinstance(risk, DependenceRisk)
            self.critics.learn(view_of_cells(sums, risk.given_label, risk.centres))

    def decision_error(self, class_logits: Tensor, beliefs: Beliefs, of_rows: Tensor | None = None) -> Tensor:
        r"""Cost of changing decisions, (members,): a classification risk on the fairness risk's scale.

        It is the expected error of the softened decisions,
        :math:`1 - \frac1B \sum_i \sum_y P(y|x_i,\tilde y_i) P_f(y|x_i)`, each row times its weight.
        """
        if beliefs.given is None:
            label, group = (log_p.detach().softmax(-1) for log_p in (beliefs.label, beliefs.group))
        else:
            label, group = beliefs.given.sum(-1), beliefs.given.sum(-2)
        right = (self.estimator.relax(class_logits) * label.unsqueeze(-2)).sum(-1)  # by group's threshold
        right = (right * group).sum(-1)
        return 1 - right.mean(-1) if of_rows is None else ((1 - right) * of_rows).mean(-1)

    def __call__(
        self,
        class_logits: Tensor,
        beliefs: Beliefs,
        weight: Tensor,
        noise: MemberNoise | None = None,
        of_rows: Tensor | None = None,
    ) -> Estimate:
        """The risk of each member; logits g(y|x) are (members, rows, classes), λ (members,).

        Where thresholds are learned, logits are shifted by them, (members, rows, groups or 1, classes).
        ``of_rows`` are weights of rows, (rows,) or (members, rows).
        """
        settings = self.settings
        if settings.risk_gradient == "stopped":
            return self.estimator(class_logits, impute(beliefs, settings.imputer), weight, noise, of_rows)
        sums = relaxed_cell_sums(
            self.estimator.relax(class_logits),
            beliefs.classified,
            beliefs.group,
            settings.samples,
            settings.gumbel_temperature,
            noise,
            of_rows,
        )
        return self.estimator.of_sums(sums, weight)
