"""The guide q(z|x) q(y|x,ỹ) q(a|x,ã,…) of an outcome that is a number."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro_fairvae.guides.factored import Encoding, FactoredGuide
from torch import Tensor

from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Batch


class StatedOrNormal(dist.Normal):
    """A point where a number is stated, and a Gaussian where it is not; its draws are reparametrised.

    A point has the log-density 0, relative to itself, and sends no gradient to ``loc`` and ``scale``.
    """

    def __init__(self, stated: Tensor, value: Tensor, loc: Tensor, scale: Tensor) -> None:
        self.stated = stated.expand(loc.shape)
        self.free = dist.Normal(loc, scale, validate_args=False)
        super().__init__(
            torch.where(self.stated, value, loc), torch.where(self.stated, 0, scale), validate_args=False
        )

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.where(self.stated, 0, self.free.log_prob(value))

    def expand(self, batch_shape: Any, _instance: Any = None) -> StatedOrNormal:
        free = self.free
        shape = torch.Size(batch_shape)
        return StatedOrNormal(*(part.expand(shape) for part in (self.stated, self.loc, free.loc, free.scale)))


class RegressionGuide(FactoredGuide):
    r"""The factored posterior of rows with a number y, for K members at once.

    For each member, each site of the model that all rows share::

        site ~ Dir(exp ρ)   or a point, by ``sites``
        withholding_a ~ N(μ, σ²)   or a point          where withholding depends on v

    and for each row::

        z ~ N(μ(x), σ²(x))
        y = ỹ                                          where it is stated; else
        y ~ N(m, s²)                                   with the mean and variance of ∝ g(y|x) P(∅|y), where
                                                       g(y|x), a mixture of Gaussians, is P_f
        a ~ Cat(∝ h(a|x) P(ã|a))                       enumerated; h(a|x,u) where there are proxies u,
                                                       P(ã|a,v) where there are conditions v

    Where P(∅|y) is the same for all y, and g has one component, the density of an unstated y is g itself. The
    classes of its :class:`Encoding` are levels of y, and their probabilities the masses of these levels.
    """

    edges: Tensor

    def __init__(self, *args: Any, number: NumberOutcome, **options: Any) -> None:
        super().__init__(*args, **options)
        edges = torch.from_numpy(number.edges).to(torch.get_default_dtype())
        self.register_buffer("edges", edges, persistent=False)  # part of the table, not learned

    def forward(self, batch: Batch) -> Encoding:
        pyro.module("guide", self)
        with pyro.plate("members", self.encoder.count, dim=-2):
            for site in self.prevalence_sites:
                pyro.sample(site, self.sites.distribution(site))
            encoding = self.encode(batch, *self._channels())
            with pyro.plate("rows", batch.rows, dim=-1):
                pyro.sample("z", dist.Normal(encoding.heads.z_loc, encoding.heads.z_scale).to_event(1))
                pyro.sample("y", self.outcome(encoding, batch))
                q_a = encoding.log_joint_a.softmax(-1)
                pyro.sample("a", dist.Categorical(q_a), infer={"enumerate": "parallel"})
        return encoding

    def outcome(self, encoding: Encoding, batch: Batch) -> StatedOrNormal:
        """q(y | x, ỹ)."""
        assert encoding.heads.density is not None
        assert batch.outcome is not None
        stated = batch.y_obs < self.channel_y.values
        # Of a stated row only one level is possible, and its tilt is not used.
        log_tilt = encoding.log_channel_y.masked_fill(stated.unsqueeze(-1), 0.0)
        return StatedOrNormal(
            stated, batch.outcome, *Mixture.of(encoding.heads.density).tilted(log_tilt, self.edges)
        )

    def _heads(self, *inputs: Tensor) -> Encoded:
        in_dims = tuple(0 if columns.dim() == 3 else None for columns in inputs)
        *heads, density = self.encoder(*inputs, in_dims=in_dims)
        return Encoded(*heads)._replace(density=density)
