"""Relaxations: from logits to P_f of a risk, decisions softened so that they have a gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.devices import Constant
from pyro_fairvae.base.errors import InputError, choose, require

LEARNED, LEARNED_BY_GROUP = "learned", "learned_by_group"  # in place of thresholds


def softened_step(logits: Tensor, temperature: float) -> Tensor:
    r"""The paper's softened step: :math:`\sigma(\mathrm{logit}/T)` for two classes, softmax of l/T for more.

    As T falls it tends to the rounded prediction, which a metric on decisions uses; at T = 1 it is
    the randomised classifier.
    """
    return (logits / temperature).softmax(-1)


def kernel_density(logits: Tensor, bandwidth: float) -> Tensor:
    r"""Kernel-density rates (Cho, Hwang and Suh 2020): :math:`\Phi((p - 1/2)/h)` for two classes.

    The mean of this over a cell is the mass above 1/2 of a Gaussian kernel density of the cell's scores. For
    more classes p − 1/2 becomes half the margin to the strongest rival, and the result is normalised.
    """
    p = logits.softmax(-1)
    top, where = p.topk(2, dim=-1)
    own_is_top = torch.zeros_like(p, dtype=torch.bool).scatter(-1, where[..., :1], True)
    rival = torch.where(own_is_top, top[..., 1:], top[..., :1])
    mass = torch.special.ndtr((p - rival) / 2 / bandwidth)
    return mass / mass.sum(-1, keepdim=True)


def straight_through(logits: Tensor, temperature: float) -> Tensor:
    """The decision itself, 0 or 1, with the gradient of the softened step: the risk is that of decisions."""
    soft = softened_step(logits, temperature)
    decided = torch.zeros_like(soft).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    return decided + (soft - soft.detach())


RELAXATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "step": softened_step,
    "straight": straight_through,
    "kde": kernel_density,
}


def relaxation(
    name: str, width: float, thresholds: tuple[float | str, ...] = (0.5,)
) -> Callable[[Tensor], Tensor]:
    r"""P_f of logits by a relaxation of RELAXATIONS and its temperature or bandwidth.

    (members, rows, classes) becomes (members, rows, groups or 1, classes). With two classes ``thresholds`` is
    τ, one for all or one for each group: the last class is decided where its probability exceeds τ, that is
    :math:`\sigma((\mathrm{logit}\,p - \mathrm{logit}\,\tau_a)/T)`. Where thresholds are learned it takes
    logits that :func:`shift` has shifted by them.
    """
    relax = RELAXATIONS[choose("relaxation", name, RELAXATIONS)]
    require(
        0 < width < float("inf"), f"the temperature of the risk must be positive and finite, got {width}."
    )
    if are_learned(thresholds):
        return lambda shifted: relax(_checked(shifted), width)
    given = tuple(tau for tau in thresholds if not isinstance(tau, str))
    require(
        0 < len(given) == len(thresholds) and all(0 < tau < 1 for tau in given),
        f"thresholds must be probabilities within (0, 1), or {LEARNED} or {LEARNED_BY_GROUP} alone, got "
        f"{list(thresholds)}.",
    )
    return lambda logits: relax(shift(logits, log_odds_of(given, logits)), width)


def are_learned(thresholds: tuple[float | str, ...]) -> bool:
    """Whether thresholds are learned in training, one for all or one for each group."""
    return thresholds in ((LEARNED,), (LEARNED_BY_GROUP,))


def log_odds_of(thresholds: tuple[float | str, ...], like: Tensor) -> Tensor:
    """logit τ of given thresholds, (thresholds,)."""
    return _constant(thresholds).like(like).logit()


def shift(logits: Tensor, log_odds: Tensor) -> Tensor:
    """Logits whose argmax is the decision at thresholds τ: (…, classes) to (…, groups or 1, classes).

    ``log_odds`` is logit τ, (groups or 1,), or (members, groups or 1) where each member has its own.
    """
    zeros = log_odds.new_zeros(*log_odds.shape, logits.shape[-1] - 1)
    against = torch.cat([zeros, log_odds.unsqueeze(-1)], dim=-1)
    return logits.unsqueeze(-2) - (against if log_odds.dim() == 1 else against.unsqueeze(-3))


def _checked(shifted: Tensor) -> Tensor:
    if shifted.dim() < 4:
        raise InputError(
            "thresholds are learned by the classifier of this library alone; give numbers for other methods.",
            "thresholds",
        )
    return shifted


@lru_cache
def _constant(thresholds: tuple[float | str, ...]) -> Constant:
    return Constant(np.array(thresholds))
