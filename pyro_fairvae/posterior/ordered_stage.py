r"""The second stage for a number that is withheld: its levels are ordered, and withholding changes smoothly.

As :class:`.SecondStage`, but with few parameters for many levels l with centres :math:`t_l`,

.. math:: h(l|x) \propto \hat h(l|x)^\kappa \exp(b_l + c\, t_l\, m(x)), \qquad
          \mathrm{logit}\,P(∅|l) = \theta_l,

with m a mean of the scores weighed by the levels' centres, and with a second-order random walk as the prior
of θ beside that of each row: differences of its slopes between neighbouring levels are normal, with a
variance in proportion to their distance (:attr:`.Levels.bends`). Unless the prior gives its standard
deviation τ, it is learned (MacKay's fixed point): the less the rows say of a curve's bends, the straighter it
is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.posterior.scored_rows import ScoredRows
from pyro_fairvae.posterior.second_stage import MOST_CHANGE, SETTLED, SHIFT, STRETCH, SecondStage

PSEUDO_BENDS = 2.0  # bends that the first τ is worth
LEAST_BEND, MOST_BEND = 0.3, 30.0


class OrderedStage(SecondStage):
    """The density for a channel whose values are levels of a number and which nobody misstates."""

    def __init__(
        self,
        channel: Channel,
        rows: ScoredRows,
        scale: float | Sequence[float] = 1.0,
        owners: Sequence[str] | None = None,
    ) -> None:
        levels = channel.attributes.levels
        assert levels is not None
        self.bends = rows.scores.new_tensor(levels.bends)
        self.contrast = rows.scores.new_tensor(levels.place[:-1] - 1)
        self.bend = rows.scores.new_full((len(rows.scores),), channel.first_bend)  # τ of each table
        super().__init__(channel, rows, scale, owners)

    def _recalibration_centre(self) -> Tensor:
        zeros = self.rows.scores.new_zeros(self.others)
        return torch.cat([zeros, zeros.new_tensor([1.0, 0.0])])  # b, κ and c

    def _recalibration_deviations(self) -> Tensor:
        shift = self.rows.scores.new_full((self.others,), SHIFT)
        return torch.cat([shift, shift.new_full((2,), STRETCH)])

    def _recalibration(self, parameters: Tensor) -> Tensor:
        shift, power, along = parameters.split([self.others, 1, 1], dim=-1)
        tilted = torch.outer(self.contrast, self.contrast) / self.contrast.square().sum()
        stretch = power.unsqueeze(-1) * torch.eye(self.others).to(power) + along.unsqueeze(-1) * tilted
        return torch.cat([shift.unsqueeze(-1), stretch], dim=-1)

    def log_prior(self, q: Tensor) -> Tensor:
        bends = self.split(q).ratios @ self.bends.T
        return super().log_prior(q) - (bends / self.bend.unsqueeze(-1)).square().sum(-1) / 2

    def _prior_information(self, q: Tensor) -> Tensor:
        whole = super()._prior_information(q)
        ratios = slice(sum(self.sizes[:2]), sum(self.sizes[:3]))
        whole[:, ratios, ratios] += self.bends.T @ self.bends / self.bend[:, None, None].square()
        return whole

    def _smoothed(self, q: Tensor, information: Tensor) -> bool:
        if self.channel.bend is not None:
            return True
        ratios = slice(sum(self.sizes[:2]), sum(self.sizes[:3]))
        covariance = torch.linalg.inv(information)[:, ratios, ratios]
        squares = (q[:, ratios] @ self.bends.T).square().sum(-1)
        left = (self.bends @ covariance @ self.bends.T).diagonal(dim1=-2, dim2=-1).sum(-1)
        determined = (len(self.bends) - left / self.bend.square()).clamp(min=1e-3)
        likeliest = (squares + PSEUDO_BENDS * self.channel.first_bend**2) / (determined + PSEUDO_BENDS)
        change = (likeliest.sqrt() / self.bend).log().clamp(-MOST_CHANGE, MOST_CHANGE)
        before = self.bend
        self.bend = (before * change.exp()).clamp(LEAST_BEND, MOST_BEND)
        return bool((self.bend / before).log().abs().max() < SETTLED)

    def of_tables(self, index: Tensor) -> OrderedStage:
        some = super().of_tables(index)
        some.bend = self.bend[index]
        return some
