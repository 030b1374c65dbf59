"""Posteriors of the sites that all rows share: the channels and the prevalence π."""

from __future__ import annotations

import pyro.distributions as dist
from torch import Tensor, nn


class DirichletSites(nn.Module):
    """q(site) = Dir(exp ρ), with ρ learned."""

    def __init__(self, concentrations: dict[str, Tensor]) -> None:
        super().__init__()
        for site, concentration in concentrations.items():
            self.register_parameter(site, nn.Parameter(concentration.log()))

    def distribution(self, site: str) -> dist.TorchDistribution:
        return dist.Dirichlet(getattr(self, site).exp(), validate_args=False)

    def mean(self, site: str) -> Tensor:
        return getattr(self, site).softmax(-1)


class PointSites(nn.Module):
    """q(site) = a point, softmax ρ, with ρ learned: the maximum a posteriori."""

    def __init__(self, concentrations: dict[str, Tensor]) -> None:
        super().__init__()
        for site, concentration in concentrations.items():
            self.register_parameter(site, nn.Parameter(concentration.log().log_softmax(-1)))

    def distribution(self, site: str) -> dist.TorchDistribution:
        return dist.Delta(self.mean(site), event_dim=1, validate_args=False)

    def mean(self, site: str) -> Tensor:
        return getattr(self, site).softmax(-1)


GLOBAL_GUIDES: dict[str, type[DirichletSites] | type[PointSites]] = {
    "dirichlet": DirichletSites,
    "map": PointSites,
}
