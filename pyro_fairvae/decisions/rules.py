r"""Labelling rows by minimising classification and fairness risks together (the paper's appendix, as meant).

.. math:: J(\hat y) = -\frac1n \sum_i \log q(\hat y_i | x_i)
          + \lambda\, E_{A \sim q(A|x,\tilde a),\, Y \sim P_g} F(\hat y, Y, A)

The printed objective moves the labels inside the condition of F; here they are the predictions that F judges.
The expectation is over a fixed set of draws of (Y, A), so that J is a function and can be descended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.risks import CellSums, ComposedRisk, ExpectedRisk
from pyro_fairvae.risks.expectation import draw_cells

ROWS_AT_ONCE = 256  # rows whose changes are evaluated at a time, at most
NUMBERS_AT_ONCE = 2**21  # of counts or draws that are handled at a time
MOST_DRAWN = 2**32  # bytes of all draws


@dataclass(frozen=True)
class Decision:
    """Labels, (rows,), and J of rounding (``before``) and of the labels (``after``)."""

    labels: Tensor
    before: float
    after: float


class DecisionProblem:
    """J for one member: ``log_q`` is (rows, classes), ``imputed`` P(y, a | row), (rows, classes, groups)."""

    def __init__(
        self,
        log_q: Tensor,
        imputed: Tensor,
        risk: ComposedRisk,
        weight: float,
        samples: int = 100,
        seed: int = 0,
        rounded: Tensor | None = None,
    ) -> None:
        require(weight >= 0, f"the weight of the risk must not be negative, got {weight}.")
        self.log_q = log_q.double()
        self.rows, self.classes = log_q.shape
        self.groups = imputed.shape[-1]
        self.weight = weight
        self._rounded = self.log_q.argmax(-1) if rounded is None else rounded
        self.estimator = ExpectedRisk(risk, lambda logits: logits, samples, memory=1.0, estimator="sampled")
        self.cells = self._drawn(imputed, samples, seed)  # (samples, rows), y · groups + a
        self.mass = self.counts(self.rounded()).sum(-1)  # (samples, cells), the same for all labels
        self.likeliest_group = imputed.sum(-2).argmax(-1)

    def _drawn(self, imputed: Tensor, samples: int, seed: int) -> Tensor:
        """Draws of the cell of every row, in the smallest type that has a number for each."""
        cells = self.classes * self.groups
        kind = torch.uint8 if cells <= 256 else torch.int16 if cells <= 2**15 else torch.int32
        most = MOST_DRAWN // (kind.itemsize * max(self.rows, 1))
        require(
            samples <= most,
            f"{samples} draws of {self.rows} rows do not fit into {MOST_DRAWN >> 30} GB; give draws up to "
            f"{most}, or fewer rows.",
            "draws",
        )
        drawn = torch.empty((samples, self.rows), dtype=kind)
        start = 0
        with seeded(seed):
            for some in draw_cells(imputed.double().unsqueeze(0), samples):
                drawn[start : start + some.shape[1]] = some[0]
                start += some.shape[1]
        return drawn

    def rounded(self) -> Tensor:
        """The initial labels of rules: the likeliest, or those given, such as by the thresholds of a run."""
        return self._rounded

    def counts(self, labels: Tensor) -> Tensor:
        """Number of rows of each cell that are labelled c in each draw, (samples, cells, classes)."""
        samples = len(self.cells)
        flat = torch.zeros(samples, self.classes * self.groups * self.classes, dtype=torch.float64)
        at_once = max(1, NUMBERS_AT_ONCE // max(self.rows, 1))
        for cells, some in zip(self.cells.split(at_once), flat.split(at_once), strict=True):
            index = cells.long() * self.classes + labels
            some.scatter_add_(1, index, torch.ones((), dtype=torch.float64).expand_as(index))
        return flat.view(samples, -1, self.classes)

    def fairness(self, counts: Tensor) -> Tensor:
        """E F, (…,), of counts (…, samples, cells, classes)."""
        shape = (self.classes, self.groups)
        mass = self.mass.unflatten(-1, shape).expand(*counts.shape[:-2], *shape)
        return self.estimator.average(CellSums(mass, counts.unflatten(-2, shape)))

    def objective(self, labels: Tensor) -> float:
        """J of labels."""
        likelihood = self.log_q.gather(-1, labels.unsqueeze(-1)).mean()
        return float(self.weight * self.fairness(self.counts(labels)) - likelihood)

    def _changes(self, labels: Tensor, counts: Tensor, rows: Tensor, to: int) -> Tensor:
        """J after moving each of ``rows`` alone to class ``to``, up to the likelihood of ``labels``."""
        moved = counts.expand(len(rows), *counts.shape).clone()
        cells = self.cells[:, rows].T.long()  # (changed rows, samples)
        change, sample = torch.arange(len(rows)).unsqueeze(-1), torch.arange(len(self.cells))
        moved[change, sample, cells, labels[rows].unsqueeze(-1)] -= 1
        moved[change, sample, cells, to] += 1
        gain = (self.log_q[rows, to] - self.log_q[rows, labels[rows]]) / self.rows
        return self.weight * self.fairness(moved) - gain


def by_rounding(problem: DecisionProblem, report: Report = silent) -> Decision:
    """The likeliest class of each row."""
    labels = problem.rounded()
    value = problem.objective(labels)
    return Decision(labels, value, value)


def by_group_thresholds(problem: DecisionProblem, report: Report = silent, steps: int = 101) -> Decision:
    """A threshold on q(y=1|x) for each group of argmax q(A|x,ã), tuned to J one group after another."""
    require(problem.classes == 2, f"group thresholds need two classes, but there are {problem.classes}.")
    score = problem.log_q[:, 1].exp()
    group = problem.likeliest_group
    thresholds = torch.full((problem.groups,), 0.5, dtype=torch.float64)

    def labels_at(values: Tensor) -> Tensor:
        return (score > values[group]).long()

    best = before = problem.objective(problem.rounded())
    improved = True
    while improved:
        improved = False
        for g in range(problem.groups):
            scores = score[group == g]
            if len(scores) == 0:
                continue
            for candidate in torch.quantile(scores, torch.linspace(0, 1, steps, dtype=torch.float64)):
                tried = thresholds.clone()
                tried[g] = candidate
                value = problem.objective(labels_at(tried))
                if value < best - 1e-12:
                    best, thresholds, improved = value, tried, True
            report(f"threshold of group {g}: {float(thresholds[g]):.3f}, objective {best:.5f}")
    labels = labels_at(thresholds)
    # Rounding may break ties at one half differently from a threshold.
    return Decision(labels, before, best) if best < before else by_rounding(problem)


def by_descent(
    problem: DecisionProblem, report: Report = silent, start: Tensor | None = None, sweeps: int = 20
) -> Decision:
    """Coordinate descent on the labels, from rounding or ``start``, until no single change lowers J.

    Each sweep evaluates every change alone, then applies those that lower J in the order of their gain, each
    evaluated again before it is applied.
    """
    labels = (problem.rounded() if start is None else start).clone()
    at_once = min(ROWS_AT_ONCE, max(1, NUMBERS_AT_ONCE // problem.counts(labels).numel()))
    before = problem.objective(problem.rounded())
    for sweep in range(sweeps):
        counts = problem.counts(labels)
        now = problem.weight * problem.fairness(counts)
        candidates = []
        for to in range(problem.classes):
            for rows in torch.nonzero(labels != to).squeeze(-1).split(at_once):
                gains = now - problem._changes(labels, counts, rows, to)
                helpful = gains > 1e-12
                candidates += [
                    (gain, row, to)
                    for gain, row in zip(gains[helpful].tolist(), rows[helpful].tolist(), strict=True)
                ]
        if not candidates:
            break
        for _, row, to in sorted(candidates, reverse=True):
            one = torch.tensor([row])
            if labels[row] == to:
                continue
            value = problem._changes(labels, counts, one, to)[0]
            if value < now - 1e-12:
                sample, cell = torch.arange(len(problem.cells)), problem.cells[:, row].long()
                counts[sample, cell, labels[row]] -= 1
                counts[sample, cell, to] += 1
                labels[row] = to
                now = problem.weight * problem.fairness(counts)
        report(
            f"sweep {sweep + 1}: {len(candidates)} labels tried, objective {problem.objective(labels):.5f}"
        )
    return Decision(labels, before, problem.objective(labels))


RULES: dict[str, Callable[[DecisionProblem, Report], Decision]] = {
    "round": by_rounding,
    "thresholds": by_group_thresholds,
    "descent": by_descent,
    # The paper's order: thresholds first, then descent from there.
    "thresholds+descent": lambda problem, report: by_descent(
        problem, report, by_group_thresholds(problem, report).labels
    ),
}
