"""The generative Pyro programs."""

from pyro_fairvae.models.fair_ssvae import FairSSVAE
from pyro_fairvae.models.likelihoods import MixedColumns, NormalColumns

__all__ = ["FairSSVAE", "MixedColumns", "NormalColumns"]
