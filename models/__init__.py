"""The generative Pyro programs."""

from pyro_fairvae.models.channel_sites import sample_channel
from pyro_fairvae.models.fair_regression_vae import FairRegressionVAE
from pyro_fairvae.models.fair_ssvae import PREVALENCES, FairSSVAE
from pyro_fairvae.models.likelihoods import LIKELIHOODS, MixedColumns, NormalColumns

__all__ = [
    "LIKELIHOODS",
    "PREVALENCES",
    "FairRegressionVAE",
    "FairSSVAE",
    "MixedColumns",
    "NormalColumns",
    "sample_channel",
]
