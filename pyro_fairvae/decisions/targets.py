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

Settled at its bound, a difference exceeds it on new rows as often as not, and by more the fewer people it is
about. So differences that are known less exactly than others keep a margin: :math:`|d_j| + m_j \le ε`, where
m is twice what the standard error exceeds the least one by, and at most a share of ε.

A measure of dependence is bounded as :mod:`.dependence` has it.

Rows and classes may count unequally: scores and the P(y|x,ỹ) that errors are judged by are then times what an
error about people of y counts, and all that judges is times the weight of its row. The "error" is that cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.decisions.decided_sums import DecidedRows
from pyro_fairvae.decisions.dependence import bound_dependence
from pyro_fairvae.decisions.score_adjustment import TEMPERATURES
from pyro_fairvae.risks import ComposedRisk
from pyro_fairvae.risks.gaps import CellSums

TARGETS = (0.2, 0.15, 0.1, 0.07, 0.05, 0.04, 0.035, 0.03, 0.025, 0.02, 0.015, 0.01, 0.005)  # unless given
# Unless given, of measures of dependence: nats, or χ².
DEPENDENCE_TARGETS = (0.1, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003, 0.002, 0.001)
STEPS = 400  # of each search
LOWERING = 0.6  # share of the steps in which ε falls to its target
# ρ and the learning rate of two searches, of which the better one counts: small steps suit small targets on
# large tables, large ones find decisions that are farther from the unadjusted ones.
SEARCHES = ((50.0, 0.005), (10.0, 0.02))
CAUTION = 2.0  # standard errors above the least one that a difference keeps away from ε
WIDEST_MARGIN = 0.7  # of ε
RESAMPLES = 64  # of rows, for standard errors
TRIES = 300  # random steps around what the searches found
NEARBY = 0.005  # size of the first of them
EXCESS = 5.0  # error that a unit of disparity above the target counts as, then
MULTIPLIED_EVERY = 5  # steps between updates of μ
JUDGED_EVERY = 10  # steps between looks at the decisions, once ε is at its target
SLACK = 1.02  # a difference of a target times this is within it


@dataclass(frozen=True)
class Settled:
    """Weights ν for each target, and how their decisions do on the rows they were settled on."""

    adjustment: Tensor  # ν, (targets, classes, classes y, groups)
    error: Tensor  # (targets,)
    disparity: Tensor  # F, (targets,)


def default_targets(risk: object) -> tuple[float, ...]:
    """Targets unless some are given: differences of rates, or measures of dependence in their own unit."""
    dependence = isinstance(risk, ComposedRisk) and risk.dependence
    return DEPENDENCE_TARGETS if dependence else TARGETS


def check_targets(targets: Any) -> tuple[float, ...]:
    """Targets from loose to tight; raises unless they are different numbers within (0, 1]."""
    try:
        found = tuple(sorted(map(float, targets), reverse=True))
    except (TypeError, ValueError) as reason:
        raise InputError(f"targets must be numbers within (0, 1], got {targets!r}.") from reason
    bad = [target for target in found if not 0 < target <= 1]
    require(not bad, f"targets must be within (0, 1], got {bad and bad[0]}.")
    require(len(set(found)) == len(found), f"targets has a value twice: {list(found)}.")
    return found


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
    given = scores.dtype
    scores, cells, imputed, label, targets = (
        part.float() for part in (scores, cells, imputed, label, targets)
    )
    share = imputed.mean(0).clamp(min=1e-6)  # in its units every weight has the same effect on its rate
    if risk.dependence:
        bounded = bound_dependence(scores, cells, imputed, label, risk, targets)
        return Settled(bounded.adjustment.to(given), bounded.error, bounded.value)
    undone = _decided(scores.T[None])
    margins = CAUTION * _excess_errors(risk, imputed, undone[0])
    rows = DecidedRows.of(*(part.unsqueeze(0) for part in (scores, cells / share, imputed, label)))
    judge = _Judge(rows, risk, torch.minimum(margins, WIDEST_MARGIN * targets.unsqueeze(-1)))
    weights = scores.new_zeros(len(targets), scores.shape[-1], *share.shape)
    plain_error, plain = judge(weights[:1])
    best = [weights, plain_error.expand(len(targets)).clone(), plain]
    for stiffness, learning_rate in SEARCHES:
        for found in _search(weights, judge, plain, targets, steps, stiffness, learning_rate):
            best = _better_of(best, found, targets)
    weights, error, _ = _nearby(judge, best, targets)
    return Settled((weights / share).to(given), error, risk(rows.judged(weights)[1]).value)


def judged(
    scores: Tensor, cells: Tensor, imputed: Tensor, label: Tensor, risk: ComposedRisk, adjustment: Tensor
) -> tuple[Tensor, Tensor]:
    """Expected error and disparity of decisions by an adjustment ν, of rows as :func:`settle` has them."""
    rows = DecidedRows.of(*(part.unsqueeze(0) for part in (scores, cells, imputed, label)))
    error, sums = rows.judged(adjustment.unsqueeze(0))
    return error[0], risk(sums).value[0]


def _search(
    start: Tensor,
    judge: _Judge,
    plain: Tensor,
    targets: Tensor,
    steps: int,
    stiffness: float,
    learning_rate: float,
) -> Iterator[list[Tensor]]:
    """Weights, errors and disparities that a search comes by, once ε is at its targets."""
    weights = start.clone().requires_grad_()
    multipliers: Tensor | None = None
    optimizer = torch.optim.Adam([weights], foreach=True)
    first, last = TEMPERATURES
    for step in range(steps):
        done = step / steps
        optimizer.param_groups[0]["lr"] = learning_rate * cosine_share(done)
        epsilon = targets + (plain - targets).clamp(min=0) * max(0.0, 1 - done / LOWERING)
        # Decisions as they are, with the gradient of softened ones: constraints hold for the former.
        error, differences = judge.errors_and_differences(weights, first * (last / first) ** done)
        if done >= LOWERING and step % JUDGED_EVERY == 0:
            yield [weights.detach().clone(), error.detach(), judge.largest(differences.detach())]
        bound = (epsilon.unsqueeze(-1) - judge.margins).unsqueeze(-1)
        excess = torch.stack([differences, -differences], dim=-1) - bound
        multipliers = torch.zeros_like(excess) if multipliers is None else multipliers
        pressure = functional.relu(multipliers + stiffness * excess)
        optimizer.zero_grad()
        (error.sum() + (pressure**2).sum() / (2 * stiffness)).backward()
        optimizer.step()
        if step % MULTIPLIED_EVERY == 0:
            multipliers = pressure.detach()


def _nearby(judge: _Judge, best: list[Tensor], targets: Tensor) -> list[Tensor]:
    """Weights, errors and disparities after random steps around the best, whose size adapts.

    Each target starts from the best weights of any target: those of a looser one may suit it better.
    """
    cost = best[1] + EXCESS * (best[2] - targets.unsqueeze(-1)).clamp(min=0)  # (targets, weights of targets)
    best = [part[cost.argmin(1)] for part in best]
    noise = torch.Generator().manual_seed(0)
    drawn = torch.stack([torch.randn(best[0].shape, generator=noise) for _ in range(TRIES)]).to(targets)
    size = torch.full_like(targets, NEARBY)
    for direction in drawn:
        step = direction * size.view(-1, 1, 1, 1)
        tried = best[0] + step
        found = [tried, *judge(tried)]
        before, after = (
            error + EXCESS * (disparity - targets).clamp(min=0) for _, error, disparity in (best, found)
        )
        better = after < before
        size = torch.where(better, size * 2, size * 0.85).clamp(1e-5, 0.05)
        best = _replaced(best, found, better)
    return best


def _excess_errors(risk: ComposedRisk, imputed: Tensor, decided: Tensor) -> Tensor:
    """Standard error of each difference above the least of them, at decisions (classes, rows)."""
    counts = np.random.default_rng(0).poisson(1.0, (RESAMPLES, len(imputed)))
    resampled = torch.from_numpy(counts).to(imputed)
    cells = imputed.flatten(1)
    predicted = torch.einsum("cr,rx->rxc", decided, cells).flatten(1)
    shape = imputed.shape[1:]
    sums = CellSums(
        (resampled @ cells).unflatten(-1, shape),
        (resampled @ predicted).unflatten(-1, (*shape, len(decided))),
    )
    errors = risk.differences(sums).flatten(1).std(0)
    return errors - errors.min()


def _decided(scores: Tensor) -> Tensor:
    """1 for the class with the largest score; classes are the second of three dimensions."""
    return torch.zeros_like(scores).scatter(1, scores.argmax(1, keepdim=True), 1.0)


def _better_of(best: list[Tensor], found: list[Tensor], targets: Tensor) -> list[Tensor]:
    """Weights, errors and disparities: within the target first, then accurate, else nearer to it."""
    (_, best_error, best_disparity), (_, error, disparity) = best, found
    within, best_within = disparity <= targets * SLACK, best_disparity <= targets * SLACK
    better = torch.where(within & best_within, error < best_error, disparity < best_disparity)
    return _replaced(best, found, better)


def _replaced(best: list[Tensor], found: list[Tensor], better: Tensor) -> list[Tensor]:
    """What was found for the targets where it is better, (targets,)."""
    return [
        torch.where(better.view(-1, *(1,) * (new.dim() - 1)), new, old)
        for new, old in zip(found, best, strict=True)
    ]


@dataclass(frozen=True)
class _Judge:
    """Expected error and differences of decisions at weights of each target, under imputations."""

    rows: DecidedRows
    risk: ComposedRisk
    margins: Tensor  # m, (targets, differences)

    def errors_and_differences(self, weights: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Error, (targets,), and differences, (targets, differences), signed if the risk has signed ones."""
        error, sums = self.rows.judged(weights, temperature)
        return error, self.risk.differences(sums).flatten(1)

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Error, and the largest difference with its margin, (targets,)."""
        error, differences = self.errors_and_differences(weights)
        return error, self.largest(differences)

    def largest(self, differences: Tensor) -> Tensor:
        """The largest difference with its margin, (targets,)."""
        return (differences.abs() + self.margins).amax(-1)
