"""Risks of the user's own: any F(P_f, y, a) that passes a check at registration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.risks.gaps import RISKS

Function = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class CustomRisk:
    """F(P_f, y, a), where cell sums do not suffice.

    F takes P_f, (members, 1, rows, classes), and draws y and a, (members, samples, rows) each, and returns
    (members, samples). ``bound`` is C of Theorem 1, or None.
    """

    name: str
    function: Function
    bound: float | None = None


CUSTOM: dict[str, CustomRisk] = {}


def register(name: str, function: Function, bound: float | None = None) -> CustomRisk:
    """Make a risk of the user's own available by name, once it has shown shape, finiteness and gradient.

    Parameters
    ----------
    name : str
        By which settings choose it, ``RiskSettings(risk=name)`` or ``FairSSVAEClassifier(risk=name)``.
    function : callable
        F(P_f, y, a), which takes P_f, (members, 1, rows, classes), and draws y and a, (members, samples,
        rows) each, and returns (members, samples).
    bound : float, optional
        C of Theorem 1, the largest value that F takes.

    Returns
    -------
    CustomRisk
        What was registered.

    Raises
    ------
    InputError
        If the name is taken, or F fails on random draws: its shape, a value or a gradient is not as said.

    Examples
    --------
    The variance over groups of the mean probability of the last class:

    >>> import torch
    >>> from pyro_fairvae import register_risk
    >>> def variance_between_groups(p, y, a):
    ...     of_group = torch.nn.functional.one_hot(a, 2).to(p)
    ...     means = (p[..., -1:] * of_group).sum(-2) / of_group.sum(-2).clamp(min=1)
    ...     return means.var(-1)
    >>> register_risk("variance_between_groups", variance_between_groups, bound=0.5).name
    'variance_between_groups'
    """
    require(name not in RISKS, f"the risk {name!r} exists already; choose another name.")
    members, samples, rows, classes, groups = 2, 3, 40, 2, 2
    with seeded(0):
        logits = torch.randn(members, 1, rows, classes, requires_grad=True)
        y = torch.randint(classes, (members, samples, rows))
        a = torch.randint(groups, (members, samples, rows))
    value = function(logits.softmax(-1), y, a)
    expected = (members, samples)
    require(
        isinstance(value, Tensor) and value.shape == expected,
        f"the risk {name!r} must return a tensor of shape {expected} (members, samples), but returned "
        f"{tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__}.",
    )
    require(bool(value.isfinite().all()), f"the risk {name!r} returned a value that is not finite: {value}.")
    require(
        value.requires_grad,
        f"the risk {name!r} has no gradient with respect to P_f; compute it from P_f in torch.",
    )
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    require(
        bool(gradient.isfinite().all()) and bool((gradient != 0).any()),
        f"the gradient of the risk {name!r} with respect to P_f is zero or not finite.",
    )
    CUSTOM[name] = CustomRisk(name, function, bound)
    return CUSTOM[name]
