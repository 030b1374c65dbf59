"""Error and unfairness of decisions, and which member to use."""

from pyro_fairvae.evaluation.measures import MEASURES, Audited, Measure, register

__all__ = ["MEASURES", "Audited", "Measure", "register"]
