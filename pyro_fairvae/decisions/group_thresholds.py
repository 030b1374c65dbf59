"""Labels by a threshold for each group, tuned to the joint objective."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.reports import Report
from pyro_fairvae.decisions.joint_objective import NUMBERS_AT_ONCE, DecisionProblem

STEPS = 101  # thresholds that are tried for a group: quantiles of its scores
EVERY = 3  # of them, where two groups' thresholds move together
ROUNDS = 50  # at most, of moves of one threshold or of two


def labels_by_thresholds(problem: DecisionProblem, report: Report) -> Tensor:
    """Labels of q(y=1|x) above a threshold for each group of argmax q(A|x,ã), tuned to J."""
    thresholds = tuned_thresholds(problem, report)
    return (problem.log_q[:, 1].exp() > thresholds[problem.likeliest_group]).long()


def tuned_thresholds(problem: DecisionProblem, report: Report) -> Tensor:
    """Thresholds on q(y=1|x), (groups,), for the groups of ``problem.likeliest_group``, tuned to J.

    From one half for all, each group's threshold moves to the best of its own scores' quantiles; where no
    such move helps, those of two groups move together. Counts at all thresholds come from one pass over the
    rows.
    """
    require(problem.classes == 2, f"group thresholds need two classes, but there are {problem.classes}.")
    score, group = problem.log_q[:, 1].exp(), problem.likeliest_group
    there = [g for g in range(problem.groups) if bool((group == g).any())]
    tuned = {g: _GroupLabels(problem, score, group == g) for g in there}
    chosen = {g: len(tuned[g].thresholds) - 1 for g in there}  # the last is one half
    best = float(_values(problem, [tuned[g].at(chosen[g]) for g in there]))
    for _ in range(ROUNDS):
        before = best
        moves = [(g,) for g in there]
        for moving in [*moves, *combinations(there, 2)]:
            if len(moving) == 2 and best < before:
                break  # single moves come first
            fixed = [tuned[g].at(chosen[g]) for g in there if g not in moving]
            steps = [
                torch.arange(0, len(tuned[g].thresholds), EVERY if len(moving) > 1 else 1) for g in moving
            ]
            found, at = _best_of_grid(problem, fixed, [tuned[g] for g in moving], steps)
            if found < best - 1e-12:
                best = found
                chosen |= {g: int(step[place]) for g, step, place in zip(moving, steps, at, strict=True)}
        shown = ", ".join(f"{float(tuned[g].thresholds[chosen[g]]):.3f}" for g in there)
        report(f"thresholds of groups: {shown}; objective {best:.5f}")
        if best == before:
            break
    thresholds = torch.full((problem.groups,), 0.5, dtype=torch.float64)
    for g in there:
        thresholds[g] = tuned[g].thresholds[chosen[g]]
    return thresholds


class _GroupLabels:
    """Counts and summed loss of one group's rows at each threshold that is tried."""

    def __init__(self, problem: DecisionProblem, score: Tensor, own: Tensor) -> None:
        shares = torch.linspace(0, 1, STEPS, dtype=torch.float64)
        self.thresholds = torch.cat([_quantiles(score[own], shares), torch.tensor([0.5]).double()])
        order = self.thresholds.argsort(stable=True)
        # The number of thresholds, in order, that a row's score exceeds: those label it 1.
        above = torch.searchsorted(self.thresholds[order].contiguous(), score, right=False)
        steps = len(self.thresholds)
        codes = torch.where(own, above, steps + 1)  # the last code is for other groups
        binned = problem.counts_by(codes, steps + 2)[..., :-1]  # (samples, cells, steps + 1)
        ones = binned.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # at threshold j: rows that exceed more than j
        zeros = binned.sum(-1, keepdim=True) - ones
        back = order.argsort()
        self.counts = torch.stack([zeros, ones], dim=-1)[..., back, :].permute(2, 0, 1, 3)
        rises = torch.zeros(steps + 2, dtype=torch.float64)
        rises.scatter_add_(0, codes, problem.loss[:, 1] - problem.loss[:, 0])
        summed = rises[:-1].flip(0).cumsum(0).flip(0)[1:] + problem.loss[own, 0].sum()
        self.loss = summed[back]  # (steps,)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Counts (samples, cells, 2) and the summed loss."""
        return self.counts[step], self.loss[step]


def _quantiles(scores: Tensor, shares: Tensor) -> Tensor:
    """As torch.quantile, which refuses more than 16 million numbers."""
    ordered = scores.sort().values
    place = shares * (len(ordered) - 1)
    low = place.floor().long()
    return torch.lerp(ordered[low], ordered[(low + 1).clamp(max=len(ordered) - 1)], place - low)


def _values(problem: DecisionProblem, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """J, (…,), of counts (…, samples, cells, 2) and losses (…,) of groups, added up."""
    counts = sum((part[0] for part in parts), torch.zeros((), dtype=torch.float64))
    loss = sum((part[1] for part in parts), torch.zeros((), dtype=torch.float64))
    return problem.penalty(problem.fairness(counts)) + loss / problem.rows


def _best_of_grid(
    problem: DecisionProblem,
    fixed: list[tuple[Tensor, Tensor]],
    moving: list[_GroupLabels],
    steps: list[Tensor],
) -> tuple[float, tuple[int, ...]]:
    """The least J over all combinations of some groups' thresholds, and which thresholds give it."""
    places = torch.cartesian_prod(*(torch.arange(len(step)) for step in steps)).view(-1, len(steps))
    at_once = max(1, NUMBERS_AT_ONCE // (2 * problem.mass.numel()))
    values = [
        _values(
            problem,
            [
                *fixed,
                *(
                    (of.counts[step[at]], of.loss[step[at]])
                    for of, step, at in zip(moving, steps, some.unbind(1), strict=True)
                ),
            ],
        )
        for some in places.split(at_once)
    ]
    least = torch.cat(values)
    at = int(least.argmin())
    return float(least[at]), tuple(places[at].tolist())
