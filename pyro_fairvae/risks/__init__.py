"""Fairness risks: expected unfairness of a classifier over unstated groups and labels.

A risk is composed of a rate and a gap over cell sums (:mod:`.gaps`), is the dependence of decisions on groups
(:mod:`.dependence`, by critics of :mod:`.critics`), or is the user's own (:mod:`.custom`). Its expectation
takes an imputation of the unstated groups and labels (:mod:`.imputers`, :mod:`.label_propagation`), softened
decisions (:mod:`.relaxations`) and an estimator (:mod:`.expectation`, :mod:`.smooth_penalty`);
:mod:`.risk_loss` combines them. Of predicted numbers risks are those of :mod:`.number_gaps`, and
:mod:`.number_loss` combines them.
"""

from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.custom import CustomRisk, register
from pyro_fairvae.risks.dependence import DEPENDENCE, DependenceRisk
from pyro_fairvae.risks.expectation import Estimate, ExpectedRisk, samples_for
from pyro_fairvae.risks.gaps import RISKS, CellSums, ComposedRisk
from pyro_fairvae.risks.imputers import IMPUTERS, Beliefs, impute
from pyro_fairvae.risks.label_propagation import propagate_labels
from pyro_fairvae.risks.number_gaps import NUMBER_RISKS, NumberRisk
from pyro_fairvae.risks.number_loss import NumberRiskLoss
from pyro_fairvae.risks.relaxations import RELAXATIONS, relaxation
from pyro_fairvae.risks.risk_loss import RiskLoss, RiskSettings, check_of_numbers

__all__ = [
    "DEPENDENCE",
    "IMPUTERS",
    "NUMBER_RISKS",
    "RELAXATIONS",
    "RISKS",
    "Beliefs",
    "CellSums",
    "ComposedRisk",
    "CriticSettings",
    "Critics",
    "CustomRisk",
    "DependenceRisk",
    "Estimate",
    "ExpectedRisk",
    "NumberRisk",
    "NumberRiskLoss",
    "RiskLoss",
    "RiskSettings",
    "check_of_numbers",
    "impute",
    "propagate_labels",
    "register",
    "relaxation",
    "samples_for",
]
