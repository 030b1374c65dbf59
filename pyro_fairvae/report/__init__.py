"""Figures, tables and pages; the only package that imports matplotlib."""

from pyro_fairvae.report.card import card_in_markdown, model_card, write_card
from pyro_fairvae.report.curves import CURVE_MEANS, curve_lines, curve_table, draw_curve, draw_recovered
from pyro_fairvae.report.faces import draw_faces, faces_in_words
from pyro_fairvae.report.figures import (
    draw_channel,
    draw_frontier,
    draw_prior_study,
    draw_ranks,
    draw_study_metrics,
    draw_training,
    draw_yardstick,
)
from pyro_fairvae.report.model_page import write_model_page
from pyro_fairvae.report.numbers import number_frontier_table
from pyro_fairvae.report.text import (
    align,
    between_rules,
    channels_table,
    check_lines,
    decision_table,
    dependence_table,
    effects_table,
    frontier_table,
    imputation_table,
    members_in_words,
    posterior_table,
    prior_table,
    rate_lines,
    results_table,
    rows_judged_on,
    suggestion_table,
    withholding_table,
)
from pyro_fairvae.report.together import together_table
from pyro_fairvae.report.verdicts import verdicts
from pyro_fairvae.report.withholding import draw_check, draw_effects

__all__ = [
    "CURVE_MEANS",
    "align",
    "between_rules",
    "card_in_markdown",
    "channels_table",
    "check_lines",
    "curve_lines",
    "curve_table",
    "decision_table",
    "dependence_table",
    "draw_channel",
    "draw_check",
    "draw_curve",
    "draw_effects",
    "draw_faces",
    "draw_frontier",
    "draw_prior_study",
    "draw_ranks",
    "draw_recovered",
    "draw_study_metrics",
    "draw_training",
    "draw_yardstick",
    "effects_table",
    "faces_in_words",
    "frontier_table",
    "imputation_table",
    "members_in_words",
    "model_card",
    "number_frontier_table",
    "posterior_table",
    "prior_table",
    "rate_lines",
    "results_table",
    "rows_judged_on",
    "suggestion_table",
    "together_table",
    "verdicts",
    "withholding_table",
    "write_card",
    "write_model_page",
]
