r"""Decisions that are settled to targets: as accurate as possible with every difference at most ε.

Decisions have the form of :mod:`.score_adjustment`: the class c with the largest
:math:`P(c|x) + \sum_{ya} \nu_{cya} P(y, a|x)`. For a target ε the weights ν minimise the expected error
subject to :math:`|d_j| \le ε` for every difference d that the risk compares, by an augmented Lagrangian

.. math:: \text{error} + \frac{1}{2\rho} \sum_{j,\pm} \left( [\mu_{j\pm} + \rho (\pm d_j - ε)]_+^2 -
          \mu_{j\pm}^2 \right), \qquad \mu_{j\pm} \leftarrow [\mu_{j\pm} + \rho (\pm d_j - ε)]_+ .

Where the frontier of error and unfairness is nearly straight, no weight λ reaches what lies between its ends;
a constraint does. ε falls slowly from what unadjusted decisions have: started tight, the search ends at a
constant decision, which is perfectly fair. The same problem with randomised decisions is a linear program,
but its solution often randomises many rows, so that decisions by its multipliers miss the targets by far.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.decisions.score_adjustment import TEMPERATURES
from pyro_fairvae.risks import ComposedRisk
from pyro_fairvae.risks.gaps import CellSums
from pyro_fairvae.risks.relaxations import softened_step

STEPS = 800
LOWERING = 0.6  # share of the steps in which ε falls to its target
STIFFNESS = 50.0  # ρ
MULTIPLIED_EVERY = 5  # steps between updates of μ
JUDGED_EVERY = 10  # steps between looks at the decisions, once ε is at its target
LEARNING_RATE = 0.005
SLACK = 1.02  # a difference of a target times this is within it


@dataclass(frozen=True)
class Settled:
    """Weights ν for each target, and how their decisions do on the rows they were settled on."""

    adjustment: Tensor  # ν, (targets, classes, classes y, groups)
    error: Tensor  # (targets,)
    disparity: Tensor  # F, (targets,)


def settle(
    scores: Tensor,
    cells: Tensor,
    imputed: Tensor,
    label: Tensor,
    risk: ComposedRisk,
    targets: Tensor,
    steps: int = STEPS,
) -> Settled:
    """Settle decisions to each of the ``targets``, side by side.

    ``scores`` (rows, classes) are P(c|x), ``cells`` P(y, a|x), which adjusts them and needs x alone,
    ``imputed`` P(y, a|x, ỹ, ã), both (rows, classes, groups), and ``label`` P(y|x, ỹ), by which decisions
    are judged. Where no decisions within a target are found, those that come nearest are returned.
    """
    share = imputed.mean(0).clamp(min=1e-6)  # in its units every weight has the same effect on its rate
    scaled = cells / share
    count, (classes, groups) = len(targets), share.shape
    weights = scores.new_zeros(count, classes, classes, groups).requires_grad_()
    judge = _Judge(imputed, label, risk)
    plain_error, plain = judge(functional.one_hot(scores.argmax(-1), classes).to(scores)[None])
    best = [torch.zeros_like(weights), plain_error.expand(count).clone(), plain.expand(count).clone()]
    multipliers: Tensor | None = None
    optimizer = torch.optim.Adam([weights], foreach=True)
    first, last = TEMPERATURES
    for step in range(steps):
        done = step / steps
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * cosine_share(done)
        epsilon = targets + (plain - targets).clamp(min=0) * max(0.0, 1 - done / LOWERING)
        adjusted = scores + torch.einsum("rya,kcya->krc", scaled, weights)
        soft = softened_step(adjusted, first * (last / first) ** done)
        hard = functional.one_hot(adjusted.argmax(-1), classes).to(scores)
        if done >= LOWERING and step % JUDGED_EVERY == 0:
            best = _better_of(best, [weights.detach(), *judge(hard)], targets)
        # Decisions as they are, with the gradient of softened ones: constraints hold for the former.
        error, differences = judge.errors_and_differences(hard + soft - soft.detach())
        excess = torch.stack([differences, -differences], dim=-1) - epsilon[:, None, None]
        multipliers = torch.zeros_like(excess) if multipliers is None else multipliers
        pressure = functional.relu(multipliers + STIFFNESS * excess)
        optimizer.zero_grad()
        (error.sum() + (pressure**2).sum() / (2 * STIFFNESS)).backward()
        optimizer.step()
        if step % MULTIPLIED_EVERY == 0:
            multipliers = pressure.detach()
    return Settled(best[0] / share, best[1], best[2])


def _better_of(best: list[Tensor], found: list[Tensor], targets: Tensor) -> list[Tensor]:
    """Weights, errors and disparities: within the target first, then accurate, else nearer to it."""
    (_, best_error, best_disparity), (_, error, disparity) = best, found
    within, best_within = disparity <= targets * SLACK, best_disparity <= targets * SLACK
    better = torch.where(within & best_within, error < best_error, disparity < best_disparity)
    return [
        torch.where(better.view(-1, *(1,) * (new.dim() - 1)), new, old)
        for new, old in zip(found, best, strict=True)
    ]


@dataclass(frozen=True)
class _Judge:
    """Expected error and differences of decisions, (targets, rows, classes), under imputations."""

    imputed: Tensor
    label: Tensor
    risk: ComposedRisk

    def errors_and_differences(self, decided: Tensor) -> tuple[Tensor, Tensor]:
        """Error, (targets,), and differences, (targets, differences), signed if the risk has signed ones."""
        return self._error(decided), self.risk.differences(self._sums(decided)).flatten(1)

    def __call__(self, decided: Tensor) -> tuple[Tensor, Tensor]:
        """Error and F of decisions, (targets,)."""
        return self._error(decided), self.risk(self._sums(decided)).value

    def _error(self, decided: Tensor) -> Tensor:
        return 1 - (decided * self.label).sum(-1).mean(-1)

    def _sums(self, decided: Tensor) -> CellSums:
        mass = self.imputed.sum(0).expand(len(decided), -1, -1)
        return CellSums(mass, torch.einsum("krc,rya->kyac", decided, self.imputed))
