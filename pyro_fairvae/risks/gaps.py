r"""Gaps between groups, as functions of sums over cells (y, a).

Every gap here needs only the mass of each cell and the sum of predictions in it,

.. math:: m_{ya} = \sum_i [y_i = y, a_i = a], \qquad s_{yac} = \sum_i [y_i = y, a_i = a] P_f(c|x_i),

so sums can be added over batches, samples or rows before a gap is taken of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class CellSums:
    """``mass`` (…, classes, groups) and ``predicted`` (…, classes, groups, classes)."""

    mass: Tensor
    predicted: Tensor


@dataclass(frozen=True)
class Rates:
    """Rates to be compared over groups: sums and masses, each (…, comparisons, groups)."""

    total: Tensor
    mass: Tensor


def odds(sums: CellSums) -> Rates:
    """P(Ŷ = y | Y = y, A = a), a comparison for each class y."""
    return Rates(torch.diagonal(sums.predicted, dim1=-3, dim2=-1).transpose(-1, -2), sums.mass)


def opportunity(sums: CellSums) -> Rates:
    """P(Ŷ = y | Y = y, A = a) for the last class alone, the positive one of two."""
    return Rates(sums.predicted[..., -1:, :, -1], sums.mass[..., -1:, :])


def parity(sums: CellSums) -> Rates:
    """P(Ŷ = c | A = a), a comparison for each class c."""
    total = sums.predicted.sum(-3).transpose(-1, -2)
    return Rates(total, sums.mass.sum(-2).unsqueeze(-2).expand_as(total))


class Gaps(NamedTuple):
    """F, whether it is of all cells (``whole``), and whether anything could be compared (else F is 0)."""

    value: Tensor
    whole: Tensor
    some: Tensor


@dataclass(frozen=True)
class Gap:
    r"""The largest difference of a rate between two groups, over all comparisons:

    .. math:: F = \max_j \max_{a, a'} | r_{ja} - r_{ja'} |

    An empty cell has no rate, so it leaves the maximum instead of entering it as a zero; see :class:`Gaps`.
    """

    name: str
    rates: Callable[[CellSums], Rates]

    def __call__(self, sums: CellSums) -> Gaps:
        rates = self.rates(sums)
        filled = rates.mass > 0
        rate = rates.total / torch.where(filled, rates.mass, 1)
        highest = rate.masked_fill(~filled, -torch.inf).amax(-1)
        lowest = rate.masked_fill(~filled, torch.inf).amin(-1)
        comparable = filled.sum(-1) > 1
        gap = torch.where(comparable, highest, 0) - torch.where(comparable, lowest, 0)
        return Gaps(gap.amax(-1), filled.flatten(-2).all(-1), comparable.any(-1))


GAPS = {
    "deo": Gap("deo", odds),
    "deopp": Gap("deopp", opportunity),
    "ddp": Gap("ddp", parity),
}
