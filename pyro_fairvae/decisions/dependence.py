r"""Decisions whose dependence on the group, mutual information or χ², is at most ε.

Such a measure F is an f-divergence, so error + λF is convex in randomised decisions P(ŷ|x), unlike a largest
difference. It is a function of cell sums :math:`s_{yac}` alone, so at its minimum every row is decided for
the class c with the largest

.. math:: P(c|x) + \sum_{ya} \nu_{cya} P(y, a|x), \qquad
          \nu_{cya} = -\lambda\, \partial F / \partial s_{yac},

and only rows that tie are randomised, which are few where scores are continuous. So instead of the many
entries of ν one number is to be found, λ. At a given λ the sums must be those of the decisions that their own
ν makes, an equation in s that Newton's method solves, with decisions softened by a small temperature. λ grows
from near 0, each solution starting from the one before, until decisions are within every target, and is then
bisected. What counts are decisions as they are made, not softened.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pyro_fairvae.risks.gaps import CellSums, ComposedRisk

TEMPERATURE = 0.02  # of softened decisions, in units of probability
FIRST, LAST = 0.03, 1e4  # λ
RATIO, LEAST_RATIO = 1.25, 1.01  # of two λ in a row, smaller where Newton's method does not arrive
GROWS = 1.5  # power of the ratio after an arrival
STEPS, ARRIVED = (
    8,
    3e-3,
)  # of Newton's method; share of people by which sums may miss those of their decisions
TRIED = 150  # λ at most, on the way up
BISECTIONS = 7
OF_DERIVATIVE = 1 << 12  # rows, at most, by which it is estimated how decisions change with ν
MOST_LOST = 0.8  # share of a sum that a step may take away: F has no derivative at 0


class Bounded(NamedTuple):
    """Decisions for several problems: ν, and the error and F of the decisions that it makes."""

    adjustment: Tensor  # (problems, classes, classes y, groups)
    error: Tensor  # (problems,)
    value: Tensor  # (problems,)

    def best_within(self, targets: Tensor) -> Bounded:
        """Of all problems the most accurate within each target, or that which comes nearest."""
        within = self.value <= targets.unsqueeze(-1)  # (targets, problems)
        accurate = torch.where(within, self.error, torch.inf).argmin(1)
        index = torch.where(within.any(1), accurate, self.value.argmin())
        return Bounded(*(part[index] for part in self))


def bound_dependence(
    scores: Tensor, cells: Tensor, imputed: Tensor, label: Tensor, risk: ComposedRisk, targets: Tensor
) -> Bounded:
    """The most accurate decisions with F at most each of the ``targets``.

    Rows are as :func:`pyro_fairvae.decisions.targets.settle` has them. Where no decisions within a target are
    found, those that come nearest are returned.
    """
    rows = _Rows(scores, cells, imputed, label, risk)
    nothing = scores.new_zeros(1, scores.shape[1], *imputed.shape[1:])
    found = [rows.judged(nothing)]
    aims = targets.sort(descending=True).values
    low: list[Tensor] = []  # λ before each aim is met, its solution, and λ at which it is met
    start: list[Tensor] = []
    high: list[Tensor] = []
    before, sums = scores.new_tensor([FIRST]), rows.sums(rows.softened(nothing))
    multiplier, ratio = before, RATIO
    for _ in range(TRIED):
        if len(low) == len(aims) or multiplier > LAST or ratio < LEAST_RATIO:
            break
        solution, after, arrived = rows.solve(multiplier, sums)
        if not arrived:
            ratio **= 0.5
        else:
            found.append(solution)
            while len(low) < len(aims) and bool(solution.value <= aims[len(low)]):
                low, start, high = [*low, before], [*start, sums], [*high, multiplier]
            before, sums, ratio = multiplier, after, min(ratio**GROWS, RATIO)
        multiplier = before * ratio
    if low:
        found += _bisected(rows, torch.cat(low), torch.cat(high), torch.cat(start), aims[: len(low)])
    return Bounded(*map(torch.cat, zip(*found, strict=True))).best_within(targets)


def _bisected(rows: _Rows, low: Tensor, high: Tensor, start: Tensor, aims: Tensor) -> list[Bounded]:
    """Decisions at λ between two that lie on either side of an aim, each problem for itself."""
    found = []
    for _ in range(BISECTIONS):
        middle = (low * high).sqrt()
        closer, _, _ = rows.solve(middle, start)
        found.append(closer)
        outside = closer.value > aims
        low, high = torch.where(outside, middle, low), torch.where(outside, high, middle)
    return found


class _Rows:
    """Rows whose decisions minimise error + λF, for several λ side by side.

    Sums are shares of people by label, group and decision, (problems, y, a, c).
    """

    def __init__(
        self, scores: Tensor, cells: Tensor, imputed: Tensor, label: Tensor, risk: ComposedRisk
    ) -> None:
        self.scores, self.label, self.risk = scores.T, label.T / len(label), risk
        self.cells, self.imputed = cells.flatten(1), imputed.flatten(1) / len(imputed)
        self.mass = imputed.mean(0)  # (y, a)
        some = slice(None, None, -(-len(scores) // OF_DERIVATIVE))
        # Rows that tell how decisions change with ν.
        self.some, share = some, len(self.cells[some])
        self.some_cells, self.some_imputed = self.cells[some], imputed.flatten(1)[some] / share

    def adjusted(self, nu: Tensor) -> Tensor:
        """Scores of decisions, (problems, c, rows)."""
        return self.scores + nu.flatten(2) @ self.cells.T

    def softened(self, nu: Tensor) -> Tensor:
        """Softened decisions, (problems, c, rows)."""
        return (self.adjusted(nu) / TEMPERATURE).softmax(1)

    def sums(self, decided: Tensor) -> Tensor:
        """Sums of decisions."""
        return (decided @ self.imputed).unflatten(-1, self.mass.shape).movedim(1, -1)

    def value(self, sums: Tensor) -> Tensor:
        """F, (problems,)."""
        return self.risk(CellSums(self.mass.expand(len(sums), *self.mass.shape), sums)).value

    def judged(self, nu: Tensor) -> Bounded:
        """The decisions of some ν, as they are made."""
        best = self.adjusted(nu).argmax(1, keepdim=True)
        decided = torch.zeros(len(nu), *self.scores.shape).to(self.scores).scatter_(1, best, 1.0)
        error = 1 - (decided * self.label).sum((1, 2))
        return Bounded(nu, error, self.value(self.sums(decided)))

    def solve(self, multiplier: Tensor, start: Tensor) -> tuple[Bounded, Tensor, bool]:
        """Decisions at the minimum for each λ, their sums, from some sums, and whether they were found."""
        now = start
        for _ in range(STEPS):
            decided = self.softened(self._adjustment(multiplier, now))
            missed = self.sums(decided) - now
            arrived = bool(missed.abs().sum((1, 2, 3)).max() < ARRIVED)
            if arrived:
                break
            move = self._newton(multiplier, now, decided, missed)
            lost = (-move / now.clamp(min=1e-12)).amax((1, 2, 3))
            length = (MOST_LOST / lost.clamp(min=1e-12)).clamp(max=1.0)
            now = now + length[:, None, None, None] * move
        return self.judged(self._adjustment(multiplier, now)), now, arrived

    def _adjustment(self, multiplier: Tensor, sums: Tensor) -> Tensor:
        """ν at some sums."""
        with torch.enable_grad():
            at = sums.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.value(at).sum(), at)
        return -multiplier[:, None, None, None] * slope.movedim(-1, 1)

    def _newton(self, multiplier: Tensor, now: Tensor, decided: Tensor, missed: Tensor) -> Tensor:
        r"""The step (I + λ A ∂²F/∂s²)⁻¹ m, with A how sums of decisions change with ν, and m what they miss.

        A is positive semidefinite, as ∂²F/∂s² is, where rows are judged as they are decided about.
        """
        soft = decided[:, :, self.some]
        each = torch.eye(soft.shape[1]).to(soft)
        spread = soft.unsqueeze(2) * (each[:, :, None] - soft.unsqueeze(1)) / TEMPERATURE  # (…, c, d, rows)
        change = (spread.unsqueeze(-2) * self.some_imputed.T) @ self.some_cells  # (…, c, d, ya, ya)
        size = missed[0].numel()
        change = change.permute(0, 3, 1, 4, 2).reshape(-1, size, size)
        matrix = multiplier[:, None, None] * change @ self._curvature(now)
        matrix.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return torch.linalg.solve(matrix, missed.flatten(1)).unflatten(1, missed.shape[1:])

    def _curvature(self, sums: Tensor) -> Tensor:
        """∂²F/∂s², (problems, size, size)."""

        def value(flat: Tensor) -> Tensor:
            return self.value(flat.unflatten(0, (1, *sums.shape[1:])))[0]

        curvature: Tensor = torch.func.vmap(torch.func.jacrev(torch.func.grad(value)))(
            sums.detach().flatten(1)
        )
        return curvature
