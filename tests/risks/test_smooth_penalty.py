"""The rounded-off penalty against a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from pyro_fairvae.risks.smooth_penalty import project, pull


def nearest_point(d: np.ndarray, weight: float, spring: float) -> np.ndarray:
    """argmin over u of λ·mean over blocks of max |u| + ρ/2 |d − u|², as a smooth programme in (u, t)."""
    blocks, size = d.shape

    def objective(v: np.ndarray) -> float:
        u, t = v[:-blocks], v[-blocks:]
        return float(weight * t.mean() + spring / 2 * np.square(u - d.ravel()).sum())

    constraints = [
        {"type": "ineq", "fun": lambda v, sign=sign: np.repeat(v[-blocks:], size) + sign * v[:-blocks]}
        for sign in (-1, 1)
    ]
    start = np.concatenate([d.ravel(), np.abs(d).max(1)])
    found = minimize(objective, start, constraints=constraints, method="SLSQP", options={"ftol": 1e-14})
    return found.x[:-blocks].reshape(blocks, size)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 2), (4, 1)])
@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0, 50.0])
def test_pull_is_the_gradient_of_the_moreau_envelope(shape: tuple[int, int], weight: float) -> None:
    generator = np.random.default_rng(0)
    stiffness = 3.0
    for _ in range(5):
        d = generator.normal(scale=0.2, size=shape)
        tensor = torch.tensor(d[None], requires_grad=True)
        lambdas = torch.tensor([weight], dtype=torch.float64)
        (found,) = torch.autograd.grad(pull(tensor, lambdas, stiffness).sum(), tensor)
        expected = stiffness * (d - nearest_point(d, weight, stiffness))
        np.testing.assert_allclose(found[0].numpy(), expected, atol=1e-3)


def test_far_from_fairness_the_pull_is_that_of_the_penalty_itself() -> None:
    d = torch.tensor([[[0.9, -0.1, 0.2]]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.5], dtype=torch.float64)
    (found,) = torch.autograd.grad(pull(d, weight, 10.0).sum(), d)
    (plain,) = torch.autograd.grad(0.5 * d.abs().max(), d)
    torch.testing.assert_close(found, plain)


def test_projection_leaves_what_is_inside_and_members_apart() -> None:
    inside = torch.tensor([[[0.1, -0.2]], [[3.0, -1.0]]])
    found = project(inside, torch.tensor([1.0, 1.0]))
    torch.testing.assert_close(found[0], inside[0])
    torch.testing.assert_close(found[1], torch.tensor([[1.0, 0.0]]))
