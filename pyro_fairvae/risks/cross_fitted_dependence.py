"""Dependence in given rows by critics that have not seen them, a lower bound of mutual information."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.dependence import DEPENDENCE, Rows, view_of_rows

FEWEST = 50  # rows


@dataclass(frozen=True)
class Estimated:
    """A dependence, and its standard error over folds."""

    value: float
    standard_error: float


def estimate_dependence(
    rows: Rows,
    risk: str = "mine",
    settings: CriticSettings | None = None,
    *,
    folds: int = 5,
    epochs: int = 15,
    batch: int = 500,
    seed: int = 0,
) -> Estimated:
    """Dependence of decisions on what is sensitive, by critics trained on other rows.

    Parameters
    ----------
    rows : Rows
        Rows of one member: tensors whose first dimension is 1.
    risk : str
        ``mine`` or ``infonce``, or these with ``_given_label``.
    settings : CriticSettings, optional
        Width, rate and bound of the critics; their rate falls to 0 along a cosine, and a batch is one step.
    folds : int
        Critics: each is trained on the rows outside of its fold, and judges those inside.
    epochs, batch : int
        Passes over the rows, and rows in a step.
    seed : int
        Of folds, batches and initial weights.

    Returns
    -------
    Estimated
        In nats. In expectation no more than the mutual information, for any critic.

    Examples
    --------
    >>> import torch
    >>> from pyro_fairvae.risks.cross_fitted_dependence import estimate_dependence
    >>> from pyro_fairvae.risks.dependence import Rows
    >>> a, noise = torch.randn(2, 1, 1000, generator=torch.Generator().manual_seed(0))
    >>> found = estimate_dependence(Rows(decided=0.6 * a + 0.8 * noise, sensitive=a), epochs=10, batch=100)
    >>> abs(found.value - 0.223) < 0.04  # −log(1 − .6²) / 2
    True
    """
    chosen, options = DEPENDENCE[risk], settings or CriticSettings(critic_rate=0.005)
    require(chosen.criticised, f"the risk {risk!r} has no critics; use mine or infonce.")
    given = {name: part for name, part in vars(rows).items() if part is not None and name != "centres"}
    count = next(iter(given.values())).shape[1]
    require(count >= FEWEST, f"dependence is estimated from {FEWEST} rows or more, got {count}.")
    require(2 <= folds <= count // 2, f"folds must be within [2, {count // 2}], got {folds}.")
    generator = torch.Generator().manual_seed(derive_seed(seed, 0))
    size = count // folds
    order = torch.randperm(count, generator=generator)[: size * folds].view(folds, size)
    outside = torch.stack([order[torch.arange(folds) != k].flatten() for k in range(folds)])
    critics: Critics | None = None
    steps = max(1, outside.shape[1] // batch)
    for step in range(epochs * steps):
        if step % steps == 0:
            shuffled = torch.rand(outside.shape, generator=generator).argsort(-1)
            batches = outside.gather(-1, shuffled).tensor_split(steps, dim=-1)
        view = view_of_rows(_taken(rows, batches[step % steps]), chosen.given_label)
        if critics is None:
            seeds = [derive_seed(seed, 1 + k) for k in range(folds)]
            critics = Critics(chosen, view, replace(options, critic_steps=1), seeds)
        for group in critics.optimizer.param_groups:
            group["lr"] = options.critic_rate * cosine_share(step / (epochs * steps))
        critics.learn(view)
    assert critics is not None
    values = critics(view_of_rows(_taken(rows, order), chosen.given_label))
    return Estimated(float(values.mean()), float(values.std() / folds**0.5))


def _taken(rows: Rows, index: Tensor) -> Rows:
    """Rows by their numbers, (folds, some)."""
    parts = vars(rows) | {
        name: part[0][index.to(part.device)]
        for name, part in vars(rows).items()
        if part is not None and name != "centres"
    }
    return Rows(**parts)
