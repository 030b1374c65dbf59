"""Sums of adjusted decisions and their gradients, against plain PyTorch and its autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyro_fairvae.decisions.decided_sums import DecidedRows
from pyro_fairvae.risks import RISKS
from pyro_fairvae.risks.gaps import CellSums


def rows(deciders: int, classes: int, groups: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, P(y,a|x), P(y,a|x,ỹ,ã) and P(y|x,ỹ) of 40 rows."""
    draw = torch.Generator().manual_seed(classes + groups)
    cells, imputed = torch.rand(2, deciders, 40, classes, groups, generator=draw, dtype=torch.float64)
    cells, imputed = (part / part.sum((-1, -2), keepdim=True) for part in (cells, imputed))
    return cells.sum(-1), cells, imputed, imputed.sum(-1)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("classes", "groups"), [(2, 2), (2, 3), (3, 2), (4, 3)])
def test_sums_and_gradients_are_those_of_autograd(
    classes: int, groups: int, shared: bool, hard: bool
) -> None:
    given = rows(1 if shared else 3, classes, groups)
    scores, cells, imputed, label = (part.expand(3, *part.shape[1:]) for part in given)
    draw = torch.Generator().manual_seed(1)
    weights = torch.randn(3, classes, classes, groups, generator=draw, dtype=torch.float64).requires_grad_()

    error, sums = DecidedRows.of(*given).judged(weights, 0.3, hard)
    adjusted = scores + torch.einsum("krya,kcya->krc", cells, weights)
    decided = (adjusted / 0.3).softmax(-1)
    if hard:
        one_hot = torch.nn.functional.one_hot(adjusted.argmax(-1), classes)
        decided = one_hot + decided - decided.detach()
    expected = 1 - (decided * label).sum(-1).mean(-1)
    predicted = torch.einsum("krc,krya->kyac", decided, imputed)
    by_hand = CellSums(imputed.sum(1), predicted)
    for ours, theirs in ((error, expected), (sums.mass, by_hand.mass), (sums.predicted, predicted)):
        torch.testing.assert_close(ours, theirs)

    slopes = [
        torch.autograd.grad((cost + 2 * RISKS["deo"](at).value.square()).sum(), weights)[0]
        for cost, at in ((error, sums), (expected, by_hand))
    ]
    assert slopes[0].abs().max() > 1e-3
    torch.testing.assert_close(slopes[0], slopes[1])
