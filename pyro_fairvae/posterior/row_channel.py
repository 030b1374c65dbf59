"""P(ã|a,v) of a person, where withholding depends on v."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.posterior.second_stage import SecondStage
from pyro_fairvae.schema.observed import Observed, in_pieces


@dataclass(frozen=True)
class RowChannel:
    """P(ã|a,v) of any row at the maximum of the posterior: means of skewed rates fit badly."""

    channel: Channel
    conditions: Conditions
    matrix: Tensor  # P(ã|a) at the mean of v, (1, cells · groups, outcomes)
    effects: Tensor  # w + δ, (attributes, groups, columns of v)

    @staticmethod
    def at(stage: SecondStage, q: Tensor, conditions: Conditions) -> RowChannel:
        """That of one table, at its parameters q, (1, parameters)."""
        parts = stage.split(q)
        effects = parts.effects[0].unsqueeze(-2) + parts.differences[0][stage.value_of]
        exact = copy.deepcopy(conditions.take([0])).double()
        return RowChannel(stage.channel, exact, stage.channel.matrix(stage.row_draws(parts.ratios)), effects)

    @torch.no_grad()
    def likelihood(self, table: Observed) -> np.ndarray:
        """P(ã|a,v) of what rows state, (rows, classes, groups); one class unless v has the label."""
        pieces = []
        start = 0
        for x in in_pieces(table.x):
            observed = table.a_obs[start : start + len(x)].to(self.matrix.device)
            start += len(x)
            pieces.append(self._of(x.to(self.matrix), observed))
        return torch.cat(pieces).cpu().numpy()

    def stated(self, table: Observed) -> np.ndarray:
        """P(all attributes are stated|a,v) of each row, (rows, classes, groups), where nobody misstates."""
        attributes = self.channel.attributes
        names = list(attributes.outcome_names)
        own = [names.index(group) for group in attributes.group_names]
        rates = [
            self.likelihood(replace(table, a_obs=torch.full_like(table.a_obs, outcome)))[..., group]
            for group, outcome in enumerate(own)
        ]
        return np.stack(rates, axis=-1)

    def _of(self, x: Tensor, observed: Tensor) -> Tensor:
        shape = self.effects.shape[:2]
        tilt = self.conditions.tilt(self.conditions.features(x), self.effects.flatten(0, 1).unsqueeze(0))
        cell = self.channel.cell(x) if self.channel.crossed else None
        logs = self.channel.log_likelihood(
            self.matrix, observed.unsqueeze(0), tilt.squeeze(-1).unflatten(-1, shape), cell
        )[0]
        return (logs.unsqueeze(-2) if logs.dim() == 2 else logs).exp()
