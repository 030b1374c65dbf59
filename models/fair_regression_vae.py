"""The semi-supervised VAE with group-conditionally unavailable demographics, where y is a number."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from pyro_fairvae.models.channel_sites import sample_channel
from pyro_fairvae.models.fair_ssvae import FairSSVAE
from torch import Tensor, nn

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Batch


class FairRegressionVAE(FairSSVAE):
    r"""The generative process of rows with a number y, for K members at once.

    For each member::

        π_a         ~ SymDir(γ) over the groups
        channel_a_r ~ Dir(prior_a[r])                  a row of P(ã | a), on its support
        withholding_a ~ N(0, withholding_scale²)       w, a coefficient for each attribute and column of v
        smoothness_a                                   a factor: the density of the bends of logit P(∅|a)
        channel_y_l ~ Dir(prior_y[l])                  stated or ∅, of the l-th level of y
        smoothness_y                                   a factor: the density of the bends of logit P(∅|l)

    and for each row::

        z     ~ N(0, I)
        a     ~ Cat(π_a)
        y     ~ N(m_a, s_a²)                           standardised; m and s are learned, m_a and s_a the same
                                                       for all a where a and y are independent
        y_obs ~ channel_y[level of y]                  y itself, or ∅: nobody misstates
        a_obs ~ Cat(channel_a[a])                      as for classes (:class:`FairSSVAE`)
        x     ~ p(x | a, y, z)
        u     ~ p(u | a, y, z)                         if there are proxies u

    P(∅|y) is a step function of y, constant within a level, so that sums over levels are exact.
    """

    edges: Tensor

    def __init__(self, *args: Any, number: NumberOutcome, **options: Any) -> None:
        super().__init__(*args, **options)
        free = self.channel_a.values if self.prevalence == "joint" else 1
        self.outcome_loc = nn.Parameter(torch.zeros(self.decoder.count, 1, free))
        self.outcome_log_scale = nn.Parameter(torch.zeros(self.decoder.count, 1, free))
        edges = torch.from_numpy(number.edges).to(torch.get_default_dtype())
        self.register_buffer("edges", edges, persistent=False)  # part of the table, not learned

    @property
    def prevalence_sites(self) -> dict[str, int]:
        return {"pi_a": self.channel_a.values}

    @property
    def smooth_channels(self) -> tuple[Channel, ...]:
        of_number = (self.channel_y,) if self.channel_y.ordered else ()
        return (*super().smooth_channels, *of_number)

    def forward(self, batch: Batch) -> None:
        assert batch.outcome is not None
        pyro.module("model", self)
        with pyro.plate("members", self.decoder.count, dim=-2):
            gamma = self.log_scale.new_full((self.channel_a.values,), self.gamma)
            pi_a = pyro.sample("pi_a", dist.Dirichlet(gamma))
            channel_a = self._channel_of_rows(batch)
            channel_y = sample_channel(self.channel_y, like=self.log_scale)
            self._smooth(self.channel_y, channel_y)
            with pyro.plate("rows", batch.rows, dim=-1):
                z = pyro.sample("z", self._standard_normal())
                a = pyro.sample("a", dist.Categorical(pi_a))
                y = pyro.sample("y", self.outcome(a))
                level = self.level(y, batch)
                pyro.sample("y_obs", dist.Categorical(Vindex(channel_y)[..., level, :]), obs=batch.y_obs)
                pyro.sample("a_obs", dist.Categorical(Vindex(channel_a)[..., a, :]), obs=batch.a_obs)
                pyro.sample("x", self.row(a, y, z), obs=batch.x[..., : self.columns.decoded])
                if self.decoder_u is not None:
                    pyro.sample("u", self.proxies(a, y, z), obs=batch.u)

    def outcome(self, a: Tensor) -> dist.TorchDistribution:
        """p(y | a); ``a`` may carry enumeration dimensions left of the plates."""
        loc, log_scale = self.outcome_loc, self.outcome_log_scale
        if loc.shape[-1] == 1:
            return dist.Normal(loc.squeeze(-1), log_scale.squeeze(-1).exp())
        return dist.Normal(Vindex(loc)[..., a], Vindex(log_scale)[..., a].exp())

    def level(self, y: Tensor, batch: Batch) -> Tensor:
        """The level of y; where y is stated, the level that was recorded."""
        levels = self.channel_y.values
        found = torch.bucketize(y.detach(), self.edges, right=True)
        return torch.where(batch.y_obs == levels, found, batch.y_obs)
