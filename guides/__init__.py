"""The Pyro guides."""

from pyro_fairvae.guides.factored import Encoding, FactoredGuide, mean_over_labels
from pyro_fairvae.guides.global_sites import GLOBAL_GUIDES
from pyro_fairvae.guides.regression import RegressionGuide, StatedOrNormal

__all__ = [
    "GLOBAL_GUIDES",
    "Encoding",
    "FactoredGuide",
    "RegressionGuide",
    "StatedOrNormal",
    "mean_over_labels",
]
