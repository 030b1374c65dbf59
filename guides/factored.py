"""The guide q(z|x) q(y|x,ỹ) q(a|x,ã), with the channels of the model inside it."""

from __future__ import annotations

from dataclasses import dataclass

import pyro
import pyro.distributions as dist
from pyro_fairvae.guides.global_sites import DirichletSites, PointSites
from torch import Tensor, nn

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.nn.members import Members
from pyro_fairvae.schema.observed import Batch


@dataclass(frozen=True)
class Encoding:
    """The output of one pass of the encoder over a batch; each tensor is (members, rows, …)."""

    heads: Encoded
    log_channel_a: Tensor  # log P(ã|a) of the row's ã, for each a
    log_channel_y: Tensor  # log P(ỹ|y) of the row's ỹ, for each y

    @property
    def log_joint_a(self) -> Tensor:
        """log h(a|x) P(ã|a), (members, rows, groups)."""
        return self.heads.group_logits.log_softmax(-1) + self.log_channel_a

    @property
    def log_joint_y(self) -> Tensor:
        """log g(y|x) P(ỹ|y), (members, rows, classes)."""
        return self.heads.class_logits.log_softmax(-1) + self.log_channel_y


class FactoredGuide(nn.Module):
    r"""The factored posterior (the paper's equation for the encoder), for K members at once.

    For each member, each site of the model that all rows share::

        site ~ Dir(exp ρ)   or a point, by ``sites``

    and for each row::

        z ~ N(μ(x), σ²(x))
        y ~ Cat(∝ g(y|x) P(ỹ|y))                       enumerated
        a ~ Cat(∝ h(a|x) P(ã|a))                       enumerated

    It returns its :class:`Encoding`, from which the objective takes the conditional likelihoods and
    the risk without a second pass of the encoder.
    """

    def __init__(
        self,
        encoder: Members,
        sites: DirichletSites | PointSites,
        prevalence_sites: tuple[str, ...],
        channel_a: Channel,
        channel_y: Channel,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.sites = sites
        self.prevalence_sites = prevalence_sites
        self.channel_a = channel_a
        self.channel_y = channel_y

    def forward(self, batch: Batch) -> Encoding:
        pyro.module("guide", self)
        with pyro.plate("members", self.encoder.count, dim=-2):
            for site in self.prevalence_sites:
                pyro.sample(site, self.sites.distribution(site))
            channel_a = self._sample_channel(self.channel_a)
            channel_y = self._sample_channel(self.channel_y)
            encoding = self.encode(batch, channel_a.squeeze(-3), channel_y.squeeze(-3))
            heads = encoding.heads
            with pyro.plate("rows", batch.rows, dim=-1):
                pyro.sample("z", dist.Normal(heads.z_loc, heads.z_scale).to_event(1))
                q_y = encoding.log_joint_y.softmax(-1)
                q_a = encoding.log_joint_a.softmax(-1)
                pyro.sample("y", dist.Categorical(q_y), infer={"enumerate": "parallel"})
                pyro.sample("a", dist.Categorical(q_a), infer={"enumerate": "parallel"})
        return encoding

    def encode(self, batch: Batch, channel_a: Tensor, channel_y: Tensor) -> Encoding:
        """One pass of the encoder, given channels (members, values, outcomes)."""
        return Encoding(
            self.heads(batch.x),
            self.channel_a.log_likelihood(channel_a, batch.a_obs),
            self.channel_y.log_likelihood(channel_y, batch.y_obs),
        )

    def heads(self, x: Tensor) -> Encoded:
        """The encoder's output for features alone; ``x`` as in :class:`Batch`."""
        return Encoded(*self.encoder(x, in_dims=(0 if x.dim() == 3 else None,)))

    def channel_mean(self, channel: Channel) -> Tensor:
        """Posterior mean of P(observed | latent), (members, values, outcomes)."""
        return channel.matrix([self.sites.mean(site) for site in channel.sites]).squeeze(-3)

    def _sample_channel(self, channel: Channel) -> Tensor:
        """A draw of P(observed | latent), (members, 1, values, outcomes)."""
        return channel.matrix([pyro.sample(site, self.sites.distribution(site)) for site in channel.sites])
