"""Dependence given the label: by a loop over its definition, and its derivative by finite differences."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from pyro_fairvae.evaluation.metrics import evaluate_expected
from pyro_fairvae.risks import RISKS, CellSums, RiskLoss, RiskSettings
from tests.support.cells import sums_of

NAMES = ("mutual_information_given_label", "chi2_given_label")


def by_definition(name: str, joint: np.ndarray) -> float:
    """Of P(y, a, ŷ), (y, a, ŷ)."""
    total = 0.0
    for y, a, c in product(*map(range, joint.shape)):
        of_label = joint[y].sum()
        expected = joint[y, a].sum() * joint[y, :, c].sum() / of_label
        if name.startswith("chi2"):
            total += (joint[y, a, c] - expected) ** 2 / expected
        elif joint[y, a, c] > 0:
            total += joint[y, a, c] * math.log(joint[y, a, c] / expected)
    return total / joint.sum()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("classes", "groups"), [(2, 5), (3, 4)])
def test_the_risk_is_its_definition(name: str, classes: int, groups: int) -> None:
    draw = np.random.default_rng(0)
    joint = draw.gamma(1.0, size=(classes, groups, classes))
    predicted = torch.from_numpy(joint)
    found = RISKS[name](CellSums(predicted.sum(-1), predicted)).value
    assert float(found) == pytest.approx(by_definition(name, joint), rel=1e-9)
    chosen = RISKS[name].over((1,))(CellSums(predicted.sum(-1), predicted)).value
    assert float(chosen) == pytest.approx(by_definition(name, joint[1:2]), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_its_derivative_is_that_of_finite_differences(name: str) -> None:
    draw = np.random.default_rng(1)
    y, a = draw.integers(2, size=40), draw.integers(4, size=40)
    logits = torch.from_numpy(draw.normal(size=(40, 2))).requires_grad_()

    def of_logits(given: torch.Tensor) -> torch.Tensor:
        p = given.softmax(-1)
        cells = torch.zeros(40, 2, 4, dtype=torch.float64)
        cells[torch.arange(40), torch.from_numpy(y), torch.from_numpy(a)] = 1
        return RISKS[name](CellSums(cells.sum(0), torch.einsum("rya,rc->yac", cells, p))).value

    assert torch.autograd.gradcheck(of_logits, (logits,), atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_decisions_by_the_label_alone_have_none(name: str) -> None:
    """However the label depends on the group; the marginal measure sees that dependence."""
    draw = np.random.default_rng(2)
    a = draw.integers(6, size=600)
    y = (draw.random(600) < 0.1 + 0.15 * a).astype(int)
    sums = sums_of(np.eye(2)[y], y, a, 2, 6)
    assert float(RISKS[name](sums).value) == pytest.approx(0, abs=1e-9)
    assert float(RISKS[name.removesuffix("_given_label")](sums).value) > 0.05
    assert evaluate_expected(y, y, np.eye(12)[6 * y + a].reshape(-1, 2, 6), 2)[name] == pytest.approx(0)


@pytest.mark.parametrize("name", NAMES)
def test_history_has_a_cell_for_each_label_and_group(name: str) -> None:
    settings = RiskSettings(risk=name)
    cells = settings.cells(2, 5)
    sums = sums_of(np.full((50, 2), 0.5), np.arange(50) % 2, np.arange(50) % 5, 2, 5)
    assert RISKS[name].cells(sums).numel() == len(cells) == 10
    assert RiskLoss(settings).estimator.risk.dependence
