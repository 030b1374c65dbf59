"""Mixtures of Gaussians against SciPy and numerical integrals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_fairvae.nn.densities import LEAST_MASS, Mixture

EDGES = torch.tensor([-1.0, 0.0, 0.3, 1.5], dtype=torch.float64)


def mixture(rows: int = 4) -> Mixture:
    torch.manual_seed(0)
    return Mixture.of(torch.randn(rows, 9, dtype=torch.float64))


def density(of: Mixture, i: int, y: np.ndarray) -> np.ndarray:
    parts = zip(of.log_weight[i].exp(), of.loc[i], of.scale[i], strict=True)
    return sum(float(w) * stats.norm.pdf(y, float(m), float(s)) for w, m, s in parts)


def test_log_prob_masses_and_quantiles() -> None:
    of, grid = mixture(), np.linspace(-40, 40, 800_001)
    shares = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    for i in range(4):
        p = density(of, i, grid)
        at = of.log_prob(torch.full((4,), 0.7, dtype=torch.float64))[i]
        assert float(at) == pytest.approx(float(np.log(density(of, i, np.array(0.7)))))
        level = np.searchsorted(EDGES.numpy(), grid, side="right")
        masses = np.bincount(level, weights=p) * (grid[1] - grid[0])
        np.testing.assert_allclose(of.log_masses(EDGES)[i].exp(), masses, rtol=1e-3)
        below = np.interp(of.quantiles(shares)[i], grid, np.cumsum(p) * (grid[1] - grid[0]))
        np.testing.assert_allclose(below, shares, atol=1e-4)
        assert float(of.mean[i]) == pytest.approx(float((grid * p).sum() * (grid[1] - grid[0])), abs=1e-6)


def test_moments_of_a_tilted_density_are_those_of_an_integral() -> None:
    of, grid = mixture(), np.linspace(-40, 40, 800_001)
    tilt = torch.randn(4, 5, dtype=torch.float64)
    mean, scale = of.tilted(tilt, EDGES)
    level = np.searchsorted(EDGES.numpy(), grid, side="right")
    for i in range(4):
        weight = density(of, i, grid) * np.exp(tilt[i].numpy()[level])
        expected = np.average(grid, weights=weight)
        assert float(mean[i]) == pytest.approx(expected, abs=1e-4)
        spread = np.sqrt(np.average((grid - expected) ** 2, weights=weight))
        assert float(scale[i]) == pytest.approx(spread, rel=1e-4)


def test_a_tilt_that_is_the_same_everywhere_changes_nothing() -> None:
    of = Mixture.of(torch.randn(4, 3, dtype=torch.float64))  # one component
    mean, scale = of.tilted(torch.full((4, 5), -1.3, dtype=torch.float64), EDGES)
    torch.testing.assert_close(mean, of.loc[:, 0])
    torch.testing.assert_close(scale, of.scale[:, 0])


def test_far_levels_are_finite_in_single_precision_and_so_are_gradients() -> None:
    loc = torch.tensor([[-300.0], [0.0], [300.0]], requires_grad=True)
    of = Mixture(torch.zeros(3, 1), loc, torch.full((3, 1), 0.01))
    masses, (mean, scale) = of.log_masses(EDGES.float()), of.tilted(torch.zeros(3, 5), EDGES.float())
    assert masses.exp().sum(-1).detach().tolist() == pytest.approx([1, 1, 1], abs=1e-6)
    assert float(masses.detach().min()) >= np.log(LEAST_MASS) - 1e-3
    torch.testing.assert_close(mean, loc[:, 0], atol=1e-3, rtol=1e-5)
    (masses.sum() + mean.sum() + scale.sum()).backward()
    assert loc.grad is not None
    assert bool(loc.grad.isfinite().all())
