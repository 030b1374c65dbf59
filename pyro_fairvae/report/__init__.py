"""Figures and tables for people; the only place that imports matplotlib."""

from pyro_fairvae.report.figures import draw_frontier, draw_posterior
from pyro_fairvae.report.text import results_table, withholding_table

__all__ = ["draw_frontier", "draw_posterior", "results_table", "withholding_table"]
