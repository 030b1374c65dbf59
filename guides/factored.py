"""The guide q(z|x) q(y|x,ỹ) q(a|x,ã,…), with the channels of the model inside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from pyro_fairvae.guides.global_sites import DirichletSites, PointSites
from pyro_fairvae.models.channel_sites import sample_channel
from pyro_fairvae.models.fair_ssvae import rows_of_elbo
from torch import Tensor, nn

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.nn.members import Members
from pyro_fairvae.schema.observed import Batch


@dataclass(frozen=True)
class Encoding:
    """The output of one pass of the encoder over a batch; each tensor is (members, rows, …)."""

    heads: Encoded
    # log P(ã|a,v) of the row's ã, for each a; where v has the label, the mean of P(ã|a,v,y) over q(y|x,ỹ).
    log_channel_a: Tensor
    log_channel_y: Tensor  # log P(ỹ|y) of the row's ỹ, for each y
    log_channel_a_by_label: Tensor | None = None  # log P(ã|a,v,y), (…, classes, groups), if v has the label

    def first(self, rows: int) -> Encoding:
        """That of the first rows."""
        heads = Encoded(*(cast(Tensor, head if head is None else head[:, :rows]) for head in self.heads))
        by_label = self.log_channel_a_by_label
        return Encoding(
            heads,
            self.log_channel_a[:, :rows],
            self.log_channel_y[:, :rows],
            None if by_label is None else by_label[:, :rows],
        )

    @property
    def log_joint_a(self) -> Tensor:
        """log h(a|x) P(ã|a), (members, rows, groups); with h(a|x,u) and P(ã|a,v) where there are u and v."""
        return self.heads.group_logits.log_softmax(-1) + self.log_channel_a

    @property
    def log_joint_a_by_label(self) -> Tensor:
        """log h(a|x) P(ã|a,v,y), (members, rows, classes, groups), where v has the label."""
        assert self.log_channel_a_by_label is not None
        return self.heads.group_logits.log_softmax(-1).unsqueeze(-2) + self.log_channel_a_by_label

    @property
    def log_joint_y(self) -> Tensor:
        """log g(y|x) P(ỹ|y), (members, rows, classes)."""
        return self.heads.class_logits.log_softmax(-1) + self.log_channel_y


class FactoredGuide(nn.Module):
    r"""The factored posterior (the paper's equation for the encoder), for K members at once.

    For each member, each site of the model that all rows share::

        site ~ Dir(exp ρ)   or a point, by ``sites``
        withholding_a ~ N(μ, σ²)   or a point          where withholding depends on v

    and for each row::

        z ~ N(μ(x), σ²(x))
        y ~ Cat(∝ g(y|x) P(ỹ|y))                       enumerated
        a ~ Cat(∝ h(a|x) P(ã|a))                       enumerated; h(a|x,u) where there are proxies u,
                                                       P(ã|a,v) where there are conditions v,
                                                       P(ã|a,v,y) where v, or what the channel is crossed
                                                       with, has the label

    It returns its :class:`Encoding`, from which the objective takes the conditional likelihoods and
    the risk without a second pass of the encoder. Thresholds τ of decisions, if so many are learned, are
    parameters of it, which the risk alone reaches.
    """

    def __init__(
        self,
        encoder: Members,
        sites: DirichletSites | PointSites,
        prevalence_sites: tuple[str, ...],
        channel_a: Channel,
        channel_y: Channel,
        conditions: Conditions | None = None,
        proxies: bool = False,
        thresholds: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        if thresholds:
            self.log_odds_thresholds = nn.Parameter(torch.zeros(encoder.count, thresholds))
        self.thresholds = thresholds
        self.sites = sites
        self.prevalence_sites = prevalence_sites
        self.channel_a = channel_a
        self.channel_y = channel_y
        self._conditions = (conditions,)  # in a tuple, since the model holds its buffers
        self.proxies = proxies

    @property
    def conditions(self) -> Conditions | None:
        """v, what withholding depends on besides the group."""
        return self._conditions[0]

    def forward(self, batch: Batch) -> Encoding:
        pyro.module("guide", self)
        with pyro.plate("members", self.encoder.count, dim=-2):
            for site in self.prevalence_sites:
                pyro.sample(site, self.sites.distribution(site))
            encoding = self.encode(batch, *self._channels())
            part = encoding if batch.elbo_rows is None else encoding.first(batch.elbo_rows)
            with rows_of_elbo(batch):
                pyro.sample("z", dist.Normal(part.heads.z_loc, part.heads.z_scale).to_event(1))
                q_y = part.log_joint_y.softmax(-1)
                y = pyro.sample("y", dist.Categorical(q_y), infer={"enumerate": "parallel"})
                if part.log_channel_a_by_label is None:
                    q_a = part.log_joint_a.softmax(-1)
                else:
                    q_a = Vindex(part.log_joint_a_by_label.softmax(-1))[..., y, :]
                pyro.sample("a", dist.Categorical(q_a), infer={"enumerate": "parallel"})
        return encoding

    def encode(
        self, batch: Batch, channel_a: Tensor, channel_y: Tensor, withholding: Tensor | None = None
    ) -> Encoding:
        """One pass of the encoder, given channels (members, values, outcomes).

        ``withholding`` is w, (members, attributes, columns of v), where withholding depends on v.
        """
        heads = self.heads(batch.x) if batch.u is None or not self.proxies else self._heads(batch.x, batch.u)
        log_channel_y = self.channel_y.log_likelihood(channel_y, batch.y_obs)
        tilt = None
        if self.conditions is not None:
            assert withholding is not None
            tilt = self.conditions.tilt(self.conditions.features(batch.x), withholding)
        cell = self.channel_a.cell(batch.x) if self.channel_a.crossed else None
        log_channel_a = self.channel_a.log_likelihood(channel_a, batch.a_obs, tilt, cell)
        if log_channel_a.dim() == 3:
            return Encoding(heads, log_channel_a, log_channel_y)
        log_y = (heads.class_logits.log_softmax(-1) + log_channel_y).log_softmax(-1)
        return Encoding(heads, mean_over_labels(log_channel_a, log_y), log_channel_y, log_channel_a)

    def heads(self, x: Tensor) -> Encoded:
        """The encoder's output for features alone; ``x`` as in :class:`Batch`."""
        return self._heads(x)

    def _heads(self, *inputs: Tensor) -> Encoded:
        in_dims = tuple(0 if columns.dim() == 3 else None for columns in inputs)
        heads = Encoded(*self.encoder(*inputs, in_dims=in_dims))
        return heads._replace(log_odds_thresholds=self.log_odds_thresholds) if self.thresholds else heads

    def withholding_mean(self) -> Tensor | None:
        """Posterior mean of w, (members, attributes, columns of v); None if there are no conditions."""
        if self.conditions is None:
            return None
        return self.sites.mean(self.channel_a.withholding_site).squeeze(-3)

    def channel_mean(self, channel: Channel) -> Tensor:
        """Posterior mean of P(observed | latent), (members, values, outcomes)."""
        return channel.matrix([self.sites.mean(site) for site in channel.sites]).squeeze(-3)

    def _channels(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Draws of P(ã|a) and P(ỹ|y), (members, values, outcomes), and of w, if there are conditions."""
        channel_a = sample_channel(self.channel_a, self.sites.distribution)
        withholding = None
        if self.conditions is not None:
            site = self.channel_a.withholding_site
            withholding = pyro.sample(site, self.sites.distribution(site)).squeeze(-3)
        channel_y = sample_channel(self.channel_y, self.sites.distribution)
        return channel_a.squeeze(-3), channel_y.squeeze(-3), withholding


def mean_over_labels(log_channel_a: Tensor, log_y: Tensor) -> Tensor:
    """log Σ_y q(y|x,ỹ) P(ã|a,v,y), (members, rows, groups); no gradient reaches q.

    ``log_channel_a`` is (members, rows, classes, groups), −∞ for a group that cannot produce ã at any y.
    """
    possible = log_channel_a.isfinite()
    mean = (log_y.detach().unsqueeze(-1) + torch.where(possible, log_channel_a, 0.0)).logsumexp(-2)
    return mean.masked_fill(~possible.any(-2), -torch.inf)
