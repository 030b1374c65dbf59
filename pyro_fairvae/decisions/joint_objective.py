r"""What labels of a whole table are judged by: classification and fairness risks together.

.. math:: J(\hat y) = \frac1n \sum_i \ell(\hat y_i; x_i)
          + \lambda \max\{E_{A \sim q(A|x,\tilde a),\, Y \sim P_g} F(\hat y, Y, A) - \varepsilon,\, 0\}

The loss ℓ is -log q(ŷ|x), as in the paper's appendix, or P(Y ≠ ŷ|x), the expected error; ε is 0 unless
decisions are settled to a target. The printed objective moves the labels inside the condition of F; here they
are the predictions that F judges. The expectation is over a fixed set of draws of (Y, A), so that J is a
function and can be descended.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.risks import CellSums, ComposedRisk
from pyro_fairvae.risks.expectation import draw_cells

LOSSES = ("error", "likelihood")
NUMBERS_AT_ONCE = 2**21  # of counts or draws that are handled at a time
MOST_DRAWN = 2**32  # bytes of all draws


class DecisionProblem:
    """J for one member: ``log_q`` is (rows, classes), ``imputed`` P(y, a | row), (rows, classes, groups).

    F is a function of the counts of each (y, a, ŷ), which differ between draws. Draws without a row in some
    cell (y, a) are left out if others have all, as in :class:`~pyro_fairvae.risks.expectation.ExpectedRisk`.
    """

    def __init__(
        self,
        log_q: Tensor,
        imputed: Tensor,
        risk: ComposedRisk,
        weight: float,
        samples: int = 100,
        seed: int = 0,
        rounded: Tensor | None = None,
        loss: str = "likelihood",
        target: float = 0.0,
    ) -> None:
        require(weight >= 0, f"the weight of the risk must not be negative, got {weight}.")
        self.log_q = log_q.double()
        self.imputed = imputed.double()
        self.rows, self.classes = log_q.shape
        self.groups = imputed.shape[-1]
        self.risk, self.weight, self.target, self.seed = risk, weight, target, seed
        by_error = choose("loss", loss, LOSSES) == "error"
        self.loss = 1 - self.imputed.sum(-1) if by_error else -self.log_q  # ℓ, (rows, classes)
        self._rounded = self.log_q.argmax(-1) if rounded is None else rounded
        self.cells = self._drawn(samples)  # (samples, rows), y · groups + a
        self.mass = self.counts(self.rounded()).sum(-1)  # (samples, cells), the same for all labels
        self._share = self._share_of_draws()
        self.likeliest_group = imputed.sum(-2).argmax(-1)

    def _drawn(self, samples: int) -> Tensor:
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
        with seeded(self.seed):
            for some in draw_cells(self.imputed.unsqueeze(0), samples):
                drawn[start : start + some.shape[1]] = some[0]
                start += some.shape[1]
        return drawn

    def _share_of_draws(self) -> Tensor:
        """The weight of each draw in the mean of F, (samples,); it is the same for all labels."""
        gaps = self.risk(self._sums(torch.zeros(*self.mass.shape, self.classes, dtype=torch.float64)))
        used = (gaps.whole if bool(gaps.whole.any()) else gaps.some).double()
        return used / used.sum().clamp(min=1)

    def rounded(self) -> Tensor:
        """The initial labels of rules: the likeliest, or those given, such as by the thresholds of a run."""
        return self._rounded

    def counts(self, labels: Tensor) -> Tensor:
        """Number of rows of each cell that are labelled c in each draw, (samples, cells, classes)."""
        return self.counts_by(labels, self.classes)

    def counts_by(self, codes: Tensor, values: int) -> Tensor:
        """Number of rows of each cell that have each of some codes in each draw, (samples, cells, values)."""
        flat = torch.zeros(len(self.cells), self.classes * self.groups * values, dtype=torch.float64)
        at_once = max(1, NUMBERS_AT_ONCE // max(self.rows, 1))
        one = torch.ones((), dtype=torch.float64)
        for cells, some in zip(self.cells.split(at_once), flat.split(at_once), strict=True):
            index = cells.long() * values + codes
            some.scatter_add_(1, index, one.expand_as(index))
        return flat.view(len(flat), -1, values)

    def _sums(self, counts: Tensor) -> CellSums:
        shape = (self.classes, self.groups)
        mass = self.mass.unflatten(-1, shape).expand(*counts.shape[:-2], *shape)
        return CellSums(mass, counts.unflatten(-2, shape))

    def fairness(self, counts: Tensor) -> Tensor:
        """E F, (…,), of counts (…, samples, cells, classes)."""
        return self.risk(self._sums(counts)).value @ self._share

    def penalty(self, fairness: Tensor) -> Tensor:
        """λ max(E F − ε, 0)."""
        return self.weight * (fairness - self.target).clamp(min=0)

    def mean_loss(self, labels: Tensor) -> float:
        """The mean of ℓ over rows."""
        return float(self.loss.gather(-1, labels.unsqueeze(-1)).mean())

    def objective(self, labels: Tensor) -> float:
        """J of labels."""
        return self.mean_loss(labels) + float(self.penalty(self.fairness(self.counts(labels))))

    def after_changes(self, labels: Tensor, counts: Tensor, rows: Tensor, to: Tensor) -> Tensor:
        """J less the mean loss of ``labels`` after each of some changes, (changes,).

        A change moves several different rows, (changes, moved), to classes ``to``, shaped alike.
        """
        flat = counts.flatten(-2)
        at_once = max(1, NUMBERS_AT_ONCE // flat.numel())
        step = torch.tensor([-1.0, 1.0], dtype=torch.float64)
        pieces = []
        for some, aims in zip(rows.split(at_once), to.split(at_once), strict=True):
            cells = self.cells[:, some].transpose(0, 1).long() * self.classes  # (changes, samples, moved)
            index = torch.stack([cells + labels[some].unsqueeze(1), cells + aims.unsqueeze(1)], dim=-1)
            moved = flat.expand(len(some), *flat.shape).clone()
            moved.scatter_add_(-1, index.flatten(-2), step.expand_as(index).flatten(-2))
            penalty = self.penalty(self.fairness(moved.view(len(some), *counts.shape)))
            pieces.append(penalty + self.loss_added(labels, some, aims))
        return torch.cat(pieces)

    def loss_added(self, labels: Tensor, rows: Tensor, to: Tensor) -> Tensor:
        """By how much the mean loss rises, (changes,)."""
        return (self.loss[rows, to] - self.loss[rows, labels[rows]]).sum(-1) / self.rows

    def single_changes(self, labels: Tensor, counts: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """J less the mean loss of ``labels`` after each single change, (some rows, classes) at a time.

        In a draw F depends on the cell of the row that is moved and on its classes alone, so that its values
        are computed once for all rows.
        """
        table = self._after_moves(counts)  # (classes to, samples, cells · classes from)
        at_once = max(1, NUMBERS_AT_ONCE // len(self.cells))
        for start in range(0, self.rows, at_once):
            some = slice(start, min(start + at_once, self.rows))
            now = labels[some]
            index = self.cells[:, some].long() * self.classes + now
            fairness = torch.stack([of_class.gather(1, index).sum(0) for of_class in table], dim=-1)
            added = self.loss[some] - self.loss[some].gather(-1, now.unsqueeze(-1))
            yield some, self.penalty(fairness) + added / self.rows

    def _after_moves(self, counts: Tensor) -> Tensor:
        """Each draw's part of E F after a row of each cell moves, (classes, samples, cells · classes)."""
        samples, cells, classes = counts.shape
        at_once = max(1, NUMBERS_AT_ONCE // (classes * counts.numel()))
        unit = torch.eye(classes, dtype=torch.float64)
        change = unit.unsqueeze(0) - unit.unsqueeze(1)  # (from, to, classes)
        table = counts.new_empty(classes, samples, cells * classes)
        for first in range(0, cells * classes, at_once):
            places = torch.arange(first, min(first + at_once, cells * classes))
            moved = counts.expand(len(places), classes, *counts.shape).clone()
            cell, start = places // classes, places % classes
            moved[torch.arange(len(places)), :, :, cell] += change[start].unsqueeze(2)
            table[..., places] = (self.risk(self._sums(moved)).value * self._share).permute(1, 2, 0)
        return table
