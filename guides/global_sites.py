"""Posteriors of the sites that all rows share: the channels, the prevalence π, and w of withholding."""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor, nn


class DirichletSites(nn.Module):
    """q(site) = Dir(exp ρ), with ρ learned; of a site of coefficients N(μ, σ²), with μ and log σ learned."""

    def __init__(self, concentrations: dict[str, Tensor], scales: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        for site, concentration in concentrations.items():
            self.register_parameter(site, nn.Parameter(concentration.log()))
        self.normal = frozenset(scales or ())
        for site, scale in (scales or {}).items():
            self.register_parameter(site, nn.Parameter(torch.zeros_like(scale)))
            self.register_parameter(f"{site}_log_scale", nn.Parameter(scale.log()))

    def distribution(self, site: str) -> dist.TorchDistribution:
        if site in self.normal:
            scale = getattr(self, f"{site}_log_scale").exp()
            return dist.Normal(getattr(self, site), scale, validate_args=False).to_event(2)
        return dist.Dirichlet(getattr(self, site).exp(), validate_args=False)

    def mean(self, site: str) -> Tensor:
        return getattr(self, site) if site in self.normal else getattr(self, site).softmax(-1)

    def parameters_of(self, site: str) -> list[nn.Parameter]:
        names = [site, f"{site}_log_scale"] if site in self.normal else [site]
        return [self.get_parameter(name) for name in names]


class PointSites(nn.Module):
    """q(site) = a point, softmax ρ, with ρ learned: the maximum a posteriori; of coefficients ρ itself."""

    def __init__(self, concentrations: dict[str, Tensor], scales: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        for site, concentration in concentrations.items():
            self.register_parameter(site, nn.Parameter(concentration.log().log_softmax(-1)))
        self.normal = frozenset(scales or ())
        for site, scale in (scales or {}).items():
            self.register_parameter(site, nn.Parameter(torch.zeros_like(scale)))

    def distribution(self, site: str) -> dist.TorchDistribution:
        return dist.Delta(self.mean(site), event_dim=2 if site in self.normal else 1, validate_args=False)

    def mean(self, site: str) -> Tensor:
        return getattr(self, site) if site in self.normal else getattr(self, site).softmax(-1)

    def parameters_of(self, site: str) -> list[nn.Parameter]:
        return [self.get_parameter(site)]


GLOBAL_GUIDES: dict[str, type[DirichletSites] | type[PointSites]] = {
    "dirichlet": DirichletSites,
    "map": PointSites,
}
