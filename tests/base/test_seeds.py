"""Noise of members."""

from __future__ import annotations

import torch
from torch.distributions import Dirichlet

from pyro_fairvae.base.seeds import MemberNoise, derive_seed

LIKE = torch.zeros((), dtype=torch.float64)


def test_equal_seeds_draw_equal_numbers_and_others_do_not_matter() -> None:
    for kind in ("normal", "uniform", "gumbel"):
        together, alone = MemberNoise([3, 4, 3]), MemberNoise([4])
        for _ in range(2):
            drawn, own = (getattr(noise, kind)((5, 2), LIKE) for noise in (together, alone))
            assert drawn.shape == (3, 5, 2)
            assert torch.equal(drawn[0], drawn[2])
            assert not torch.equal(drawn[0], drawn[1])
            assert torch.equal(drawn[1], own[0])


def test_moments_of_the_draws() -> None:
    noise = MemberNoise([0, 1])
    moments = {"normal": (0.0, 1.0), "uniform": (0.5, 12**-0.5), "gumbel": (0.5772, torch.pi / 6**0.5)}
    for kind, (mean, deviation) in moments.items():
        drawn = getattr(noise, kind)((200_000,), LIKE)
        torch.testing.assert_close(drawn.mean(1), torch.full((2,), mean).double(), rtol=0, atol=0.015)
        torch.testing.assert_close(drawn.std(1), torch.full((2,), deviation).double(), rtol=0, atol=0.015)


def test_dirichlet_draws_and_gradients_are_those_of_torch() -> None:
    """Members of one seed with other concentrations, again and again."""
    concentration = torch.tensor([[[0.3, 2.0, 5.0]], [[0.3, 2.0, 5.0]], [[9.0, 0.7, 0.2]]]).double()
    weights = torch.tensor([1.0, -2.0, 0.5]).double()
    noise = MemberNoise([7, 7, 7])
    ours = []
    for _ in range(3):
        leaf = concentration.clone().requires_grad_()
        drawn = noise.dirichlet(leaf)
        (drawn * weights).sum().backward()
        ours.append((drawn.detach(), leaf.grad))
    for k in range(3):
        torch.manual_seed(derive_seed(7, 1))
        for drawn, grad in ours:
            leaf = concentration[k].clone().requires_grad_()
            expected = Dirichlet(leaf).rsample()
            (expected * weights).sum().backward()
            assert grad is not None
            assert leaf.grad is not None
            torch.testing.assert_close(drawn[k], expected.detach(), rtol=0, atol=1e-14)
            torch.testing.assert_close(grad[k], leaf.grad, rtol=0, atol=1e-14)
    assert torch.equal(ours[2][0][0], ours[2][0][1])
