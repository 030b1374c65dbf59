"""Densities of a number: mixtures of Gaussians whose parameters a network gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

LEAST_SCALE = 0.01  # of a component, in standard deviations of the outcome
FAR = 1e4  # where the outer levels end
LEAST_MASS = 1e-30  # of a level, below which it has no gradient


@dataclass(frozen=True)
class Mixture:
    r"""Mixtures of Gaussians, :math:`\sum_m \pi_m N(\mu_m, \sigma_m^2)`; each part is (…, components).

    Levels of the number lie between ``edges``, (levels − 1,); the mass of one is

    .. math:: \sum_m \pi_m \big( \Phi((e_{l+1} - \mu_m)/\sigma_m) - \Phi((e_l - \mu_m)/\sigma_m) \big).
    """

    log_weight: Tensor
    loc: Tensor
    scale: Tensor

    @staticmethod
    def of(parameters: Tensor) -> Mixture:
        """From any numbers, (…, 3 components), as a linear layer gives them."""
        logits, loc, spread = parameters.chunk(3, dim=-1)
        return Mixture(logits.log_softmax(-1), loc, functional.softplus(spread) + LEAST_SCALE)

    @property
    def mean(self) -> Tensor:
        """E[y], (…)."""
        return (self.log_weight.exp() * self.loc).sum(-1)

    def log_prob(self, y: Tensor) -> Tensor:
        """Log-density at y, (…)."""
        distance = (y.unsqueeze(-1) - self.loc) / self.scale
        log_normal = -0.5 * distance.square() - self.scale.log() - 0.5 * math.log(2 * math.pi)
        return (self.log_weight + log_normal).logsumexp(-1)

    def member(self, index: int) -> Mixture:
        """That of one member, on the CPU and in double precision."""
        return Mixture(*(part[index].cpu().double() for part in (self.log_weight, self.loc, self.scale)))

    def quantiles(self, shares: Tensor) -> Tensor:
        """Numbers below which these shares of the density lie, (…, shares), by bisection."""
        low = (self.loc - 10 * self.scale).amin(-1, keepdim=True).expand(*self.loc.shape[:-1], len(shares))
        high = (self.loc + 10 * self.scale).amax(-1, keepdim=True).expand_as(low)
        for _ in range(60):
            middle = (low + high) / 2
            distance = (middle.unsqueeze(-1) - self.loc.unsqueeze(-2)) / self.scale.unsqueeze(-2)
            below = (self.log_weight.exp().unsqueeze(-2) * torch.special.ndtr(distance)).sum(-1) < shares
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def log_masses(self, edges: Tensor) -> Tensor:
        """Log-probability of each level, (…, levels)."""
        return (self.log_weight.unsqueeze(-1) + self._log_masses(edges)).logsumexp(-2)

    def tilted(self, log_tilt: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        r"""Mean and standard deviation of the density ∝ p(y) exp t_l, with l the level of y; (…) each.

        Those of the mixture itself if t, (…, levels), is the same in all levels.
        """
        below, above = self._ends(edges)
        log_mass = self.log_weight.unsqueeze(-1) + self._log_masses(edges) + log_tilt.unsqueeze(-2)
        share = log_mass.flatten(-2).softmax(-1).view_as(log_mass)  # of a component and level
        # Moments of a Gaussian cut to a level, relative to its mean and in its scale.
        normaliser = self._log_masses(edges)
        root = math.sqrt(2 * math.pi)
        low, high = ((-0.5 * end.square() - normaliser).exp() / root for end in (below, above))
        first = low - high
        second = 1 + below * low - above * high
        loc, scale = self.loc.unsqueeze(-1), self.scale.unsqueeze(-1)
        mean = (share * (loc + scale * first)).sum((-1, -2))
        centred = loc - mean.unsqueeze(-1).unsqueeze(-1)
        square = centred.square() + 2 * centred * scale * first + scale.square() * second
        variance = (share * square).sum((-1, -2))
        return mean, variance.clamp(min=LEAST_SCALE**2).sqrt()

    def _ends(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Where levels begin and end, relative to a component, (…, components, levels) each."""
        inner = (edges - self.loc.unsqueeze(-1)) / self.scale.unsqueeze(-1)
        outer = torch.full_like(inner[..., :1], FAR)
        return torch.cat([-outer, inner], dim=-1), torch.cat([inner, outer], dim=-1)

    def _log_masses(self, edges: Tensor) -> Tensor:
        """Log-probability of each level under each component, (…, components, levels)."""
        below, above = self._ends(edges)
        # Of two mirror images the one in the upper tail, where erfc loses little to rounding.
        mirrored = above <= 0
        low, high = torch.where(mirrored, -above, below), torch.where(mirrored, -below, above)
        mass = (torch.erfc(low / math.sqrt(2)) - torch.erfc(high / math.sqrt(2))) / 2
        return mass.clamp(min=LEAST_MASS).log()
