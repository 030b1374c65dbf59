"""The best labels of a small table, by trying all that can be better than some that are known."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_fairvae.decisions.joint_objective import NUMBERS_AT_ONCE, DecisionProblem

MOST_LABELINGS = 2**14  # that are tried
SLACK = 1e-9  # of the objective, for rounding


def exact_search(problem: DecisionProblem, labels: Tensor) -> Tensor | None:
    """Labels with the least J, or None where too many would have to be tried.

    Since F ≥ 0, labels whose mean loss alone exceeds the J of some known ``labels`` are no better. All others
    are listed, row by row, and tried; up to 14 rows of two classes are always few enough.
    """
    added = (problem.loss - problem.loss.min(-1, keepdim=True).values) / problem.rows
    least = float(problem.loss.min(-1).values.mean())
    allowed = problem.objective(labels) - least + SLACK
    free = torch.nonzero((added <= allowed).sum(-1) > 1).squeeze(-1)
    listed, spent = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    # Rows whose change is dear come first, so that few combinations are listed at a time.
    second = added[free].topk(2, dim=-1, largest=False).values[:, 1]
    order = free[second.argsort(descending=True, stable=True)]
    for row in order.tolist():
        total = spent.unsqueeze(-1) + added[row]
        before, to = torch.nonzero(total <= allowed, as_tuple=True)
        if len(before) > MOST_LABELINGS:
            return None
        listed = torch.cat([listed[before], to.unsqueeze(-1)], dim=-1)
        spent = total[before, to]
    return _best_of(problem, order, listed, spent + least)


def _best_of(problem: DecisionProblem, free: Tensor, listed: Tensor, loss: Tensor) -> Tensor:
    """The best of some labels of the ``free`` rows, (labelings, free); others have their least loss."""
    labels = problem.loss.argmin(-1)
    fixed = torch.ones(problem.rows, dtype=torch.bool)
    fixed[free] = False
    cells = problem.mass.shape[-1]
    one_hot = torch.nn.functional.one_hot
    of_class = one_hot(labels[fixed], problem.classes).double()
    drawn = problem.cells.long()
    start = torch.einsum("snk,nc->skc", one_hot(drawn[:, fixed], cells).double(), of_class)
    of_cell = one_hot(drawn[:, free], cells).double()
    at_once = max(1, NUMBERS_AT_ONCE // max(start.numel(), len(free) * problem.classes))
    values = []
    for some, lost in zip(listed.split(at_once), loss.split(at_once), strict=True):
        chosen = one_hot(some, problem.classes).double()
        counts = start + torch.einsum("snk,mnc->mskc", of_cell, chosen)
        values.append(problem.penalty(problem.fairness(counts)) + lost)
    labels[free] = listed[int(torch.cat(values).argmin())]
    return labels
