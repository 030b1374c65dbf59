"""A planted dependence between normal numbers, traded against squared error along the closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pyro_fairvae.evaluation.dependence import mutual_information_of_numbers
from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.dependence import DEPENDENCE, Rows, view_of_rows

PLANTED = 1.0  # y = u + PLANTED · a


def best_slopes(weight: float) -> list[float]:
    """c and b of ŷ = c u + b a that minimise (1 − c)² + (PLANTED − b)² + λ ½ log(1 + b² / c²), λ I(ŷ; a)."""

    def cost(slopes: np.ndarray) -> float:
        c, b = slopes
        return (1 - c) ** 2 + (PLANTED - b) ** 2 + weight * np.log1p(b * b / (c * c)) / 2

    return list(minimize(cost, [1.0, 0.5]).x)


@pytest.mark.parametrize("kind", ["mine", "infonce"])
def test_dependence_is_traded_for_error_as_the_closed_form_says(kind: str) -> None:
    """Three members with weights of their own, trained batch by batch beside their critics."""
    weights = torch.tensor([0.0, 1.0, 4.0])
    generator = torch.Generator().manual_seed(0)
    slopes = torch.full((3, 2), 0.5, requires_grad=True)  # of u and a
    optimizer = torch.optim.Adam([slopes], lr=0.03)
    risk, critics = DEPENDENCE[kind], None
    average = torch.zeros(3, 2)
    for step in range(250):
        u, a = torch.randn(2, 256, generator=generator)
        decided = slopes[:, :1] * u + slopes[:, 1:] * a
        view = view_of_rows(Rows(decided=decided, sensitive=a.expand(3, -1)), False)
        critics = critics or Critics(
            risk, view, CriticSettings(critic_hidden=16, critic_steps=3), seeds=[0, 0, 0]
        )
        error = (u + PLANTED * a - decided).square().mean(-1)
        optimizer.zero_grad()
        (error + weights * critics(view)).sum().backward()
        optimizer.step()
        critics.learn(view)
        if step >= 150:
            average += slopes.detach() / 100
    expected = np.array([best_slopes(float(weight)) for weight in weights])
    assert expected[2, 1] < 0.5
    np.testing.assert_allclose(average, expected, atol=0.05)
    u, a = torch.randn(2, 2000, generator=generator)
    free, fair = (mutual_information_of_numbers(row[0] * u + row[1] * a, a) for row in average[[0, 2]])
    assert fair < free / 3
