"""The semi-supervised VAE with group-conditionally unavailable demographics."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex
from pyro_fairvae.models.channel_sites import sample_channel
from pyro_fairvae.models.likelihoods import LIKELIHOODS, OfPossiblePairs
from torch import Tensor, nn

from pyro_fairvae.base.errors import choose
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.nn.members import Members
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Batch, Columns, PossiblePairs

PREVALENCES = ("independent", "joint")


def rows_of_elbo(batch: Batch) -> Any:
    """The plate of a batch's rows, subsampled to those that the ELBO is taken over."""
    count = batch.rows if batch.elbo_rows is None else batch.elbo_rows
    return pyro.plate("rows", batch.rows, subsample=torch.arange(count, device=batch.y_obs.device), dim=-1)


class FairSSVAE(nn.Module):
    r"""The generative process (the paper's equation for the decoder), for K members at once.

    For each member::

        π          ~ SymDir(γ) over all (y, a)         or  π_y ~ SymDir(γ), π_a ~ SymDir(γ)
        channel_a_r ~ Dir(prior_a[r])                  a row of P(ã | a), on its support
        withholding_a ~ N(0, withholding_scale²)       w, a coefficient for each attribute and column of v
        channel_y_r ~ Dir(prior_y[r])                  a row of P(ỹ | y), on its support
        smoothness_a                                   a factor: the density of the bends of logit P(∅|a)
                                                       along the levels of a number, if a is one

    and for each row::

        z     ~ N(0, I)
        y     ~ Cat(π_y)
        a     ~ Cat(π_{a|y})                           = π_a where a and y are independent
        y_obs ~ Cat(channel_y[y])
        a_obs ~ Cat(channel_a[a])                      tilted by exp(w·v [ã = ∅]), if there are conditions v;
                                                       that of the row's cell, if the channel is crossed
        x     ~ p(x | a, y, z)
        u     ~ p(u | a, y, z)                         if there are proxies u

    Conditions v(x), or v(x, y), are what withholding depends on besides the group:
    logit P(∅|a,v) = logit P(∅|a) + w·v (:meth:`Channel.tilted`). Without them w is no site of the program.

    ``prevalence="joint"`` lets a and y depend on each other; the paper's ``"independent"`` is false
    on most data that need a fair classifier. Plates: ``members`` at −2, ``rows`` at −1. The plate of rows is
    subsampled where the batch says so: its sites are those of the first ``batch.elbo_rows`` rows, and count
    for all.
    """

    def __init__(
        self,
        decoder: Members,
        columns: Columns | Pixels,
        latent: int,
        channel_a: Channel,
        channel_y: Channel,
        prevalence: str = "joint",
        gamma: float = 1.0,
        likelihood: str = "mixed",
        conditions: Conditions | None = None,
        withholding_scale: float = 1.0,
        decoder_u: Members | None = None,
        u_columns: Columns | None = None,
    ) -> None:
        super().__init__()
        self.prevalence = choose("prevalence", prevalence, PREVALENCES)
        self.likelihood = LIKELIHOODS[choose("likelihood", likelihood, LIKELIHOODS)]
        self.decoder = decoder
        self.columns = columns
        self.latent = latent
        self.channel_a = channel_a
        self.channel_y = channel_y
        self.gamma = gamma
        numbers = columns.numbers if likelihood == "mixed" else columns.decoded
        self.log_scale = nn.Parameter(torch.zeros(decoder.count, 1, numbers))
        self.conditions = conditions
        self.withholding_scale = withholding_scale
        self.decoder_u, self.u_columns = decoder_u, u_columns
        if u_columns is not None:
            numbers = u_columns.numbers if likelihood == "mixed" else u_columns.width
            self.log_scale_u = nn.Parameter(torch.zeros(decoder.count, 1, numbers))

    @property
    def prevalence_sites(self) -> dict[str, int]:
        """Names and sizes of the Dirichlet sites of π."""
        classes, groups = self.channel_y.values, self.channel_a.values
        if self.prevalence == "joint":
            return {"pi": classes * groups}
        return {"pi_y": classes, "pi_a": groups}

    @property
    def channel_sites(self) -> tuple[str, ...]:
        """Names of the sampled sites of the channels: Dirichlet for rows, Normal for w."""
        withholding = () if self.conditions is None else (self.channel_a.withholding_site,)
        return (*self.channel_a.sites, *withholding, *self.channel_y.sites)

    @property
    def smooth_channels(self) -> tuple[Channel, ...]:
        """The channels with a factor of their bends."""
        return (self.channel_a,) if self.channel_a.ordered else ()

    def forward(self, batch: Batch) -> None:
        pyro.module("model", self)
        plate = rows_of_elbo(batch)
        batch = batch.of_elbo()
        with pyro.plate("members", self.decoder.count, dim=-2):
            pi_y, pi_a = self._sample_prevalence()
            channel_a = self._channel_of_rows(batch)
            channel_y = sample_channel(self.channel_y, like=self.log_scale)
            with plate:
                z = pyro.sample("z", self._standard_normal())
                y = pyro.sample("y", dist.Categorical(pi_y))
                a = pyro.sample("a", dist.Categorical(Vindex(pi_a)[..., y, :]))
                pyro.sample("y_obs", dist.Categorical(Vindex(channel_y)[..., y, :]), obs=batch.y_obs)
                if channel_a.dim() == 5:  # (members, rows, classes, groups, outcomes)
                    p_a_obs = Vindex(channel_a)[..., y, a, :]
                else:
                    p_a_obs = Vindex(channel_a)[..., a, :]
                pyro.sample("a_obs", dist.Categorical(p_a_obs), obs=batch.a_obs)
                x = batch.x[..., : self.columns.decoded]
                pyro.sample("x", self.row(a, y, z, batch.possible), obs=x)
                if self.decoder_u is not None:
                    pyro.sample("u", self.proxies(a, y, z, batch.possible), obs=batch.u)

    def row(
        self, a: Tensor, y: Tensor, z: Tensor, possible: PossiblePairs | None = None
    ) -> dist.TorchDistribution:
        """p(x | a, y, z); ``a`` and ``y`` may carry enumeration dimensions left of the plates.

        With ``possible`` they are enumerated, and only these pairs of each row are computed.
        """
        return self._likelihood(self.decoder, self.log_scale, self.columns, a, y, z, possible)

    def proxies(
        self, a: Tensor, y: Tensor, z: Tensor, possible: PossiblePairs | None = None
    ) -> dist.TorchDistribution:
        """p(u | a, y, z), as :meth:`row`."""
        assert self.decoder_u is not None
        assert self.u_columns is not None
        return self._likelihood(self.decoder_u, self.log_scale_u, self.u_columns, a, y, z, possible)

    def _likelihood(
        self,
        decoder: Members,
        log_scale: Tensor,
        columns: Columns | Pixels,
        a: Tensor,
        y: Tensor,
        z: Tensor,
        possible: PossiblePairs | None,
    ) -> dist.TorchDistribution:
        if possible is None:
            return self.likelihood(self._decoded(decoder, a, y, z), log_scale, columns)
        parameters = decoder(
            z[:, possible.rows], possible.groups, possible.labels, in_dims=(0, None, None)
        )  # (members, pairs, columns)
        of_pairs = self.likelihood(parameters, log_scale, columns)
        sizes = self.channel_a.values, self.channel_y.values, z.shape[-2]
        return OfPossiblePairs(of_pairs, possible, *sizes)

    @staticmethod
    def _decoded(decoder: Members, a: Tensor, y: Tensor, z: Tensor) -> Tensor:
        count = decoder.count
        parameters: Tensor = decoder(
            z,
            a.expand(*a.shape[:-2], count, a.shape[-1]),
            y.expand(*y.shape[:-2], count, y.shape[-1]),
            in_dims=(-3, -2, -2),
            out_dims=-3,
        )
        return parameters

    def _sample_prevalence(self) -> tuple[Tensor, Tensor]:
        """π_y, (members, 1, classes), and π_{a|y}, (members, 1, classes, groups)."""
        draws = [
            pyro.sample(site, dist.Dirichlet(self.log_scale.new_full((size,), self.gamma)))
            for site, size in self.prevalence_sites.items()
        ]
        classes, groups = self.channel_y.values, self.channel_a.values
        if self.prevalence == "joint":
            joint = draws[0].unflatten(-1, (classes, groups))
            pi_y = joint.sum(-1)
            return pi_y, joint / pi_y.unsqueeze(-1)
        pi_y, pi_a = draws
        return pi_y, pi_a.unsqueeze(-2).expand(*pi_a.shape[:-1], classes, groups)

    def _channel_of_rows(self, batch: Batch) -> Tensor:
        """P(ã | a), as of all rows or of each; with the label in v, or crossed with it, of each class."""
        channel_a = sample_channel(self.channel_a, like=self.log_scale)
        self._smooth(self.channel_a, channel_a)
        cell = self.channel_a.cell(batch.x) if self.channel_a.crossed else None
        if self.conditions is not None:
            return self._tilted(channel_a, self.conditions, batch.x, cell)
        return channel_a if cell is None else self.channel_a.in_cell(channel_a.squeeze(-3), cell)

    def _smooth(self, channel: Channel, matrix: Tensor) -> None:
        """The factor of an ordered channel's bends."""
        if channel.ordered:
            ratios = matrix[..., -1].log() - matrix.diagonal(dim1=-2, dim2=-1).log()
            pyro.factor(channel.smoothness_site, channel.log_smoothness(ratios, torch.zeros_like(ratios)))

    def _tilted(self, channel_a: Tensor, conditions: Conditions, x: Tensor, cell: Tensor | None) -> Tensor:
        """P(ã | a, v), (members, rows, groups, outcomes); with the label in v its classes follow the rows."""
        shape = (len(self.channel_a.attributes.names), conditions.width)
        zero = self.log_scale.new_zeros(shape)
        prior = dist.Normal(zero, zero + self.withholding_scale).to_event(2)
        withholding = pyro.sample(self.channel_a.withholding_site, prior).squeeze(-3)
        tilt = conditions.tilt(conditions.features(x), withholding)
        return self.channel_a.tilted(channel_a.squeeze(-3), tilt, cell)

    def _standard_normal(self) -> dist.TorchDistribution:
        zero = self.log_scale.new_zeros(self.latent)
        return dist.Normal(zero, torch.ones_like(zero)).to_event(1)
