"""λF smoothed at 0: a penalty under which training does not collapse at a large λ."""

from __future__ import annotations

import torch
from torch import Tensor


def pull(differences: Tensor, weight: Tensor, stiffness: float) -> Tensor:
    r"""⟨μ, d⟩ of each member, whose gradient in d is that of the Moreau envelope of λF.

    Let F be the mean over B blocks of the largest |d|, with signed differences d, (members, blocks, size). It
    is a norm of d, so λF is the largest ⟨μ, d⟩ over multipliers with Σ|μ| ≤ λ/B in each block, and

    .. math:: \min_u \lambda F(u) + \tfrac{\rho}{2} \|d - u\|^2 \quad\text{has the gradient}\quad
              \mu = \Pi_\lambda(\rho\, d),

    where Π projects onto those multipliers and ρ is ``stiffness``. Far from fairness that is the gradient of
    λF itself; near it the pull vanishes with d, where the gradient of λF would jump between −λ and λ with the
    sign of a noisy difference. ``weight`` is λ, (members,).
    """
    return (project(stiffness * differences.detach(), weight) * differences).sum((-1, -2))


def project(multipliers: Tensor, radius: Tensor) -> Tensor:
    """The nearest multipliers, (members, blocks, size), with Σ|μ| ≤ radius / blocks in each block.

    Soft thresholding at the level that satisfies the constraint (Duchi et al. 2008).
    """
    blocks, size = multipliers.shape[-2:]
    bound = (radius / blocks)[:, None, None]
    magnitude = multipliers.abs()
    falling, _ = magnitude.sort(-1, descending=True)
    place = torch.arange(1, size + 1, device=multipliers.device)
    levels = (falling.cumsum(-1) - bound) / place
    kept = (falling > levels).sum(-1, keepdim=True).clamp(min=1)
    level = levels.gather(-1, kept - 1).clamp(min=0)  # 0 where the constraint holds already
    return multipliers.sign() * (magnitude - level).clamp(min=0)
