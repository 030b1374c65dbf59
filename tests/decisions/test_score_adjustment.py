"""Adjusted decisions, against the best decider there is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from pyro_fairvae.decisions.score_adjustment import best_adjustment
from pyro_fairvae.risks import RISKS, CellSums
from pyro_fairvae.risks.expectation import expected_cell_sums


def people(rows: int = 1500) -> Tensor:
    """P(y, a | x), (rows, classes, groups), of rows whose label and group both depend on x."""
    x = torch.randn(rows, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    label = torch.sigmoid(2 * x[:, 0] - 0.5)
    group = torch.sigmoid(1.5 * x[:, 0] + 1.5 * x[:, 1] + 0.5)
    by_label, by_group = torch.stack([1 - label, label], -1), torch.stack([1 - group, group], -1)
    return by_label.unsqueeze(-1) * by_group.unsqueeze(-2)


def sums(decided: Tensor, cells: Tensor) -> CellSums:
    """Of deciders (rows,), the probability of class 1."""
    chosen = torch.stack([1 - decided, decided], dim=-1)[:, None]
    return expected_cell_sums(chosen.unsqueeze(0), cells.unsqueeze(0))


def objective(decided: Tensor, cells: Tensor, risk: str, weight: float) -> float:
    """Error plus λF."""
    error = (decided * cells[:, 0].sum(-1) + (1 - decided) * cells[:, 1].sum(-1)).mean()
    return float(error + weight * RISKS[risk](sums(decided, cells)).value)


def least_objective(cells: Tensor, risk: str, weight: float) -> float:
    """By linear programming over all deciders, randomised ones included: no decider is better."""
    rows = len(cells)
    signed = torch.stack(
        [RISKS[risk].differences(sums(each, cells)).flatten() for each in torch.eye(rows).double()]
    )
    base = RISKS[risk].differences(sums(torch.zeros(rows).double(), cells)).flatten()
    slopes = (signed - base).T.numpy()  # differences are linear in the decider
    cost = np.append(((cells[:, 0] - cells[:, 1]).sum(-1) / rows).numpy(), weight)
    ones = -np.ones((len(base), 1))
    bounds = np.vstack([np.hstack([slopes, ones]), np.hstack([-slopes, ones])])
    found = linprog(cost, bounds, np.concatenate([-base, base]), bounds=[(0, 1)] * rows + [(0, None)])
    return float(found.fun + cells[:, 1].sum(-1).mean())


@pytest.mark.parametrize("risk", ["deo", "deopp", "ddp"])
@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_no_decider_is_much_better(risk: str, weight: float) -> None:
    cells = people()
    scores = cells.sum(-1).unsqueeze(0)
    together = cells.unsqueeze(0)
    adjustment = best_adjustment(
        scores, together, together, scores, RISKS[risk], torch.tensor([weight]), 1000.0, steps=300
    )
    adjusted = scores[0] + torch.einsum("rya,cya->rc", cells, adjustment[0])
    before, after = (
        objective(each.argmax(-1).double(), cells, risk, weight) for each in (scores[0], adjusted)
    )
    least = least_objective(cells, risk, weight)
    assert least - 1e-9 <= after
    assert after - least < 0.05 * (before - least)
