r"""Sums over rows of adjusted decisions, with their gradient in the weights, in few passes over the rows.

A search for the weights ν takes hundreds of steps over all rows, and needs of each only the sums

.. math:: S_{cj} = \sum_r \delta_c(r)\, t_{rj}, \qquad
          \delta(r) = \mathrm{softmax}_c\big( (P(c|x_r) + \textstyle\sum_d \nu_{cd} u_{rd}) / T \big)

of columns t, the probabilities that decisions are judged by. Of two classes the difference of scores
suffices, half the numbers, and the gradient is written out: with δ the share of the second class and
:math:`G_r = \sum_j t_{rj} (\partial L / \partial S_{2j} - \partial L / \partial S_{1j})` it is

.. math:: \frac{\partial L}{\partial \nu_{2d}} = - \frac{\partial L}{\partial \nu_{1d}}
          = \frac1T \sum_r G_r\, \delta(r) (1 - \delta(r))\, u_{rd} .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyro_fairvae.risks.gaps import CellSums


@dataclass(frozen=True)
class DecidedRows:
    """Rows whose decisions are adjusted by weights and judged by sums.

    The first dimension is that of deciders, one for each set of weights, or 1 where all have the same rows.
    """

    scores: Tensor  # P(c|x), (deciders or 1, classes, rows)
    adjusting: Tensor  # u, (deciders or 1, cells, rows)
    judging: Tensor  # t: P(y|x,ỹ), then P(y,a|x,ỹ,ã), (deciders or 1, rows, classes + cells)
    groups: int

    @staticmethod
    def of(scores: Tensor, cells: Tensor, imputed: Tensor, label: Tensor) -> DecidedRows:
        """From (deciders or 1, rows, …): P(c|x), P(y,a|x), P(y,a|x,ỹ,ã) and P(y|x,ỹ)."""
        return DecidedRows(
            scores.mT.contiguous(),
            cells.flatten(-2).mT.contiguous(),
            torch.cat([label, imputed.flatten(-2)], dim=-1),
            imputed.shape[-1],
        )

    def judged(self, weights: Tensor, temperature: float = 1.0, hard: bool = True) -> tuple[Tensor, CellSums]:
        """Expected error and sums by cell of decisions at weights (deciders, classes, classes y, groups).

        Decisions are softened by the temperature or, if ``hard``, as they are, with the gradient of the
        softened ones. The error is (deciders,).
        """
        flat = weights.flatten(-2)  # (deciders, classes, cells)
        if self.scores.shape[-2] == 2:
            sums = _SumsOfTwo.apply(flat, self.scores, self.adjusting, self.judging, temperature, hard)
        else:
            sums = self._of_classes(flat, temperature, hard)
        classes = self.scores.shape[-2]
        right = sums[..., :classes].diagonal(dim1=-2, dim2=-1).sum(-1)
        predicted = sums[..., classes:].mT.unflatten(-2, (-1, self.groups))
        mass = self.judging[..., classes:].sum(-2).unflatten(-1, (-1, self.groups))
        return 1 - right / self.judging.shape[-2], CellSums(mass.expand(predicted.shape[:-1]), predicted)

    def _of_classes(self, weights: Tensor, temperature: float, hard: bool) -> Tensor:
        """S, by autograd."""
        adjusted = self.scores + torch.einsum(
            "kcd,kdr->kcr", weights, self.adjusting.expand(len(weights), -1, -1)
        )
        decided = (adjusted / temperature).softmax(1)
        if hard:
            one_hot = torch.zeros_like(decided).scatter(1, adjusted.argmax(1, keepdim=True), 1.0)
            decided = one_hot + (decided - decided.detach())
        if len(self.judging) == 1:
            return torch.einsum("kcr,rj->kcj", decided, self.judging[0])
        return decided @ self.judging


class _SumsOfTwo(torch.autograd.Function):
    """S of weights (deciders, 2, cells)."""

    @staticmethod
    def forward(
        ctx: Any,
        weights: Tensor,
        scores: Tensor,
        adjusting: Tensor,
        judging: Tensor,
        temperature: float,
        hard: bool,
    ) -> Tensor:
        ctx.temperature = temperature
        # (deciders, 1, rows), or (1, deciders, rows) where they share the rows: one product.
        margin = (_by_rows(weights[:, 1:] - weights[:, :1], scores) @ adjusting).add_(
            scores[:, 1:] - scores[:, :1]
        )
        decided = (margin > 0).to(scores) if hard else (margin / temperature).sigmoid_()
        soft = (margin / temperature).sigmoid_() if hard else decided
        second = (decided @ judging).reshape(len(weights), -1)
        ctx.save_for_backward(soft, adjusting, judging)
        return torch.stack([judging.sum(-2) - second, second], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        soft, adjusting, judging = ctx.saved_tensors
        of_second = _by_rows(grads[0][:, 1:] - grads[0][:, :1], judging) @ judging.mT
        slope = of_second.mul_(soft).mul_(1 - soft) @ adjusting.mT / ctx.temperature
        slope = slope.reshape(len(grads[0]), -1)
        return torch.stack([-slope, slope], dim=1), None, None, None, None, None


def _by_rows(of_deciders: Tensor, rows: Tensor) -> Tensor:
    """(deciders, 1, k) as (1, deciders, k) where deciders share their rows."""
    return of_deciders.reshape(len(rows), -1, of_deciders.shape[-1])
