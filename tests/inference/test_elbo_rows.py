"""The ELBO over some of a batch's rows, against its mean over all choices of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import ObjectiveWeights
from pyro_fairvae.risks import RiskLoss
from tests.support.small import small_settings, three_groups

ROWS = 6


class NoiseOfRows(MemberNoise):
    """The same normal numbers for a row wherever it stands in a batch."""

    def __init__(self, order: Tensor) -> None:
        super().__init__([0, 0])
        self.order = order

    def normal(self, shape: Sequence[int], like: Tensor, rows: int | None = None) -> Tensor:
        numbers = torch.randn(2, ROWS, shape[-1], generator=torch.Generator().manual_seed(3)).to(like)
        return numbers[:, self.order[: shape[0]]]


@pytest.mark.parametrize("prior", ["truthful", "{preset: paper, given: label}"])
def test_its_mean_over_all_choices_is_that_over_all_rows(prior: str) -> None:
    """Of the loss, of every part and of the gradient."""
    settings = small_settings(sites="map", prior_a=prior)
    table = three_groups().to("cpu", torch.float64)
    program = Program(table, settings, (1, 2)).to(torch.device("cpu"), torch.float64)
    parameters = [*program.model.parameters(), *program.guide.parameters()]

    def evaluated(order: Tensor, share: float) -> tuple[Tensor, ...]:
        weights = ObjectiveWeights(elbo_weight=0.3, elbo_share=share)
        fair = FairELBO(table.rows, torch.zeros(2).double(), RiskLoss(settings.fairness), weights)
        batch = table.batch(order)
        found = fair.evaluate(program.model, program.guide, batch, noise=NoiseOfRows(order))
        slopes = torch.autograd.grad(found.loss, parameters, allow_unused=True, materialize_grads=True)
        return (found.loss.detach(), *found.measured.parts.values(), *slopes)

    whole = evaluated(torch.arange(ROWS), 1.0)
    chosen = [
        evaluated(torch.tensor([*first, *sorted(set(range(ROWS)) - set(first))]), 1 / 3)
        for first in combinations(range(ROWS), 2)
    ]
    assert max(float((some[0] - whole[0]).abs()) for some in chosen) > 0.01
    for k, value in enumerate(whole):
        mean = torch.stack([some[k] for some in chosen]).mean(0)
        torch.testing.assert_close(mean, value, rtol=1e-9, atol=1e-10)


def test_how_many_rows() -> None:
    assert ObjectiveWeights().elbo_rows(1024) == 1024
    assert ObjectiveWeights(elbo_share=0.25).elbo_rows(1024) == 256
    assert ObjectiveWeights(elbo_share=0.25).elbo_rows(3) == 1
    assert ObjectiveWeights("paper", elbo_share=0.5).elbo_rows(5) == 3
    for share in (0.0, 1.5, -0.1, float("nan")):
        with pytest.raises(InputError, match=r"elbo_share must be in \(0, 1\]"):
            ObjectiveWeights(elbo_share=share)
