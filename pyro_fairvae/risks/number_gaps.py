r"""Fairness risks of predicted numbers ŷ between groups, as functions of sums over cells.

As those of classes (:mod:`.gaps`), with features φ(ŷ) in the place of probabilities,

.. math:: m_{ba} = \sum_i [b_i = b, a_i = a], \qquad s_{bak} = \sum_i [b_i = b, a_i = a] \phi_k(\hat y_i),

and with bins b of the outcome y in the place of classes. A marginal risk (demographic parity) adds up the
bins; one *given y* (equalised odds) compares groups within each bin. Numbers are standardised by the
outcome's mean and deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from pyro_fairvae.risks.gaps import CellSums, ComposedRisk, Rates, pair_differences, spread

STEP, REACH, WIDTH = 0.25, 3.0, 0.1  # of the thresholds at which distributions are compared


def itself(predicted: Tensor) -> Tensor:
    """φ = ŷ."""
    return predicted.unsqueeze(-1)


def moments(predicted: Tensor) -> Tensor:
    """φ = (ŷ, ŷ²)."""
    return torch.stack([predicted, predicted.square()], dim=-1)


def below_thresholds(predicted: Tensor) -> Tensor:
    r"""φ_k = σ((t_k − ŷ)/w), a softened [ŷ ≤ t_k] on a grid of thresholds."""
    steps = round(REACH / STEP)
    thresholds = torch.arange(-steps, steps + 1, device=predicted.device).to(predicted) * STEP
    return ((thresholds - predicted.unsqueeze(-1)) / WIDTH).sigmoid()


def of_all(sums: CellSums, bins: list[int]) -> Rates:
    """E[φ_k | A], a comparison for each feature."""
    total = sums.predicted.sum(-3).transpose(-1, -2)
    return Rates(total, sums.mass.sum(-2).unsqueeze(-2).expand_as(total))


def within_bins(sums: CellSums, bins: list[int]) -> Rates:
    """E[φ_k | A, Y ∈ b], a comparison for each bin and feature, features varying fastest."""
    total = sums.predicted.transpose(-1, -2)
    mass = sums.mass.unsqueeze(-2).expand_as(total)
    return Rates(total.flatten(-3, -2), mass.flatten(-3, -2))


def explained(rates: Rates) -> Tensor:
    r"""Share of the variance of ŷ that lies between groups, :math:`\sum_a P(a) (r_a - r)^2 / Var(\hat y)`.

    Of the moments of several bins, the mean over bins, each with its share of rows.
    """
    total, mass = (part.unflatten(-2, (-1, 2)) for part in (rates.total, rates.mass))
    mass = mass[..., 0, :]  # (…, bins, groups)
    own = Rates(total[..., 0, :], mass)
    rows = mass.sum(-1).clamp(min=1e-12)
    mean = total[..., 0, :].sum(-1) / rows
    variance = total[..., 1, :].sum(-1) / rows - mean.square()
    squares = (own.rate - mean.unsqueeze(-1)).square().masked_fill(~own.filled, 0)
    between = (mass * squares).sum(-1) / rows
    share = between / variance.clamp(min=1e-6)
    return (share * rows / rows.sum(-1, keepdim=True)).sum(-1, keepdim=True)


def area_between(rates: Rates) -> Tensor:
    r"""The largest area between distribution functions of groups, :math:`\sum_k |F_a - F_{a'}|(t_k)\,dt`."""
    return STEP * pair_differences(rates).abs().sum(-2).amax(-1, keepdim=True)


@dataclass(frozen=True)
class NumberRisk(ComposedRisk):
    """A risk of predicted numbers, composed as those of classes are.

    ``in_unit`` says whether it has the unit of the outcome: standardised, it is to be multiplied by the
    outcome's deviation. ``given_outcome`` says whether groups are compared within bins of y.
    """

    features: Callable[[Tensor], Tensor] = itself
    in_unit: bool = False
    given_outcome: bool = False

    def cells(self, sums: CellSums) -> Tensor:
        """None: cells of numbers are not recorded in training."""
        return sums.mass.new_zeros(*sums.mass.shape[:-2], 1, 0)


# The risks of predicted numbers by name; each has its twin in :mod:`pyro_fairvae.evaluation.number_metrics`.
NUMBER_RISKS: Mapping[str, NumberRisk] = MappingProxyType(
    {
        risk.name: risk
        for risk in (
            NumberRisk("mean_gap", of_all, spread, bound=None, in_unit=True),
            NumberRisk(
                "mean_gap_given_y", within_bins, spread, "mean", bound=None, in_unit=True, given_outcome=True
            ),
            NumberRisk("correlation_ratio", of_all, explained, "sum", features=moments),
            NumberRisk(
                "correlation_ratio_given_y", within_bins, explained, "sum", features=moments,
                given_outcome=True,
            ),
            NumberRisk("kolmogorov_smirnov", of_all, spread, features=below_thresholds),
            NumberRisk(
                "wasserstein", of_all, area_between, bound=None, features=below_thresholds, in_unit=True
            ),
        )
    }
)  # fmt: skip
