"""Figures and tables for people; the only place that imports matplotlib."""

from pyro_fairvae.report.figures import (
    draw_frontier,
    draw_posterior,
    draw_prior_study,
    draw_ranks,
    draw_study_metrics,
    draw_training,
)
from pyro_fairvae.report.text import (
    align,
    decision_table,
    imputation_table,
    posterior_table,
    prior_table,
    results_table,
    withholding_table,
)

__all__ = [
    "align",
    "decision_table",
    "draw_frontier",
    "draw_posterior",
    "draw_prior_study",
    "draw_ranks",
    "draw_study_metrics",
    "draw_training",
    "imputation_table",
    "posterior_table",
    "prior_table",
    "results_table",
    "withholding_table",
]
