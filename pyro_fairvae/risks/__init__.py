"""Fairness risks: how unfair a classifier is in expectation over the groups and labels nobody stated.

A risk is composed of a *gap* over cell sums (:mod:`.gaps`), an *imputation* of the unstated groups
and labels (:mod:`.imputers`) and an *estimator* of the expectation (:mod:`.estimator`).
"""

from pyro_fairvae.risks.estimator import MonteCarloRisk, soften
from pyro_fairvae.risks.gaps import GAPS, CellSums, Gap
from pyro_fairvae.risks.imputers import IMPUTERS, impute

__all__ = ["GAPS", "IMPUTERS", "CellSums", "Gap", "MonteCarloRisk", "impute", "soften"]
