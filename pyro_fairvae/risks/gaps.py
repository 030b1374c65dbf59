r"""Fairness risks composed of a *rate* and a *gap*, as functions of sums over cells (y, a).

Every composed risk needs only the mass of each cell and the sum of predictions in it,

.. math:: m_{ya} = \sum_i [y_i = y, a_i = a], \qquad s_{yac} = \sum_i [y_i = y, a_i = a] P_f(c|x_i),

so sums can be added over batches, samples or rows before a risk is computed. A rate turns sums into
r_{ja}, a rate for each comparison j and group a; a gap measures the difference between the groups of a
comparison; comparisons are combined by their maximum, mean or sum. An empty cell has no rate and is excluded
from its comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require

NEGLIGIBLE_RATE = 1e-12  # a rate below which no row counts as decided for
LEAST_SHARE = 1e-6  # of the highest rate; a ratio of rates is capped below it


@dataclass(frozen=True)
class CellSums:
    """``mass`` (…, classes, groups) and ``predicted`` (…, classes, groups, classes)."""

    mass: Tensor
    predicted: Tensor


@dataclass(frozen=True)
class Rates:
    """Rates to compare between groups: sums and masses, both (…, comparisons, groups).

    ``people``, (…, 1, 1), is the mass of which masses are shares; if None, that of each comparison.
    """

    total: Tensor
    mass: Tensor
    people: Tensor | None = None

    @property
    def filled(self) -> Tensor:
        return self.mass > 0

    @property
    def rate(self) -> Tensor:
        return self.total / torch.where(self.filled, self.mass, 1)

    @property
    def overall(self) -> Tensor:
        """The rate over all groups, (…, comparisons, 1)."""
        return self.total.sum(-1, keepdim=True) / self.mass.sum(-1, keepdim=True).clamp(min=1e-12)


def odds(sums: CellSums, classes: list[int]) -> Rates:
    """P(Ŷ = y | Y = y, A = a), a comparison for each class y."""
    correct = torch.diagonal(sums.predicted, dim1=-3, dim2=-1).transpose(-1, -2)
    return Rates(_of(classes, correct), _of(classes, sums.mass))


def odds_across(sums: CellSums, classes: list[int]) -> Rates:
    """The same rates, all in one comparison, so that different classes are also compared."""
    rates = odds(sums, classes)
    return Rates(rates.total.flatten(-2).unsqueeze(-2), rates.mass.flatten(-2).unsqueeze(-2))


def parity(sums: CellSums, classes: list[int]) -> Rates:
    """P(Ŷ = c | A = a), a comparison for each class c."""
    total = _of(classes, sums.predicted.sum(-3).transpose(-1, -2))
    return Rates(total, sums.mass.sum(-2).unsqueeze(-2).expand_as(total))


def decisions_by_label(sums: CellSums, classes: list[int]) -> Rates:
    """P(Ŷ = c | Y = y, A = a), a comparison for each class y and each decision c, among people of all y."""
    predicted = torch.stack([sums.predicted[..., c, :, :] for c in classes], dim=-3)
    total = predicted.transpose(-1, -2).flatten(-3, -2)
    mass = _of(classes, sums.mass)
    each = mass.unsqueeze(-2).expand(*mass.shape[:-1], sums.predicted.shape[-1], mass.shape[-1])
    return Rates(total, each.flatten(-3, -2), mass.sum((-2, -1))[..., None, None])


def _of(classes: list[int], rows: Tensor) -> Tensor:
    """Some rows of (…, classes, groups); an index of them would be copied to the device at each call."""
    return torch.stack([rows[..., c, :] for c in classes], dim=-2)


def pair_differences(rates: Rates) -> Tensor:
    """r_a − r_{a'} for each pair of groups a > a', (…, comparisons, pairs); 0 where a rate is missing."""
    groups = rates.rate.shape[-1]
    first, second = torch.tril_indices(groups, groups, offset=-1, device=rates.rate.device)
    both = rates.filled[..., first] & rates.filled[..., second]
    return (rates.rate[..., first] - rates.rate[..., second]).masked_fill(~both, 0)


def differences_from_overall(rates: Rates) -> Tensor:
    """r_a − r, with r the rate over all groups, (…, comparisons, groups)."""
    return (rates.rate - rates.overall).masked_fill(~rates.filled, 0)


def spread(rates: Rates) -> Tensor:
    """max_{a,a'} |r_a − r_{a'}|."""
    return pair_differences(rates).abs().amax(-1)


def from_overall(rates: Rates) -> Tensor:
    """max_a |r_a − r|, with r the rate over all groups."""
    return differences_from_overall(rates).abs().amax(-1)


def mean_over_pairs(rates: Rates) -> Tensor:
    """Mean of |r_a − r_{a'}| over pairs of groups; for two groups the absolute mean difference."""
    filled = rates.filled.sum(-1)
    pairs = (filled * (filled - 1) // 2).clamp(min=1)
    return pair_differences(rates).abs().sum(-1) / pairs


def excess_ratio(rates: Rates) -> Tensor:
    r"""max_a r_a / min_a r_a − 1, which is 0 where groups are equal, and has a very large bound.

    With h the highest rate, l the lowest and s = l / h it is :math:`(1 - s) / \max(s, 10^{-6})`: never
    negative, and at most a million, where l is 0. It is a function of s alone, so it does not change when
    all rates fall in proportion, and deciding for fewer people does not lower it; its gradient is orthogonal
    to the rates. Where h is below 10⁻¹² nobody is decided for, rates are equal, and it is 0 without a
    gradient.
    """
    highest = rates.rate.masked_fill(~rates.filled, -torch.inf).amax(-1)
    lowest = rates.rate.masked_fill(~rates.filled, torch.inf).amin(-1)
    some = _comparable(rates) & (highest > NEGLIGIBLE_RATE)
    share = torch.where(some, lowest, 1.0) / torch.where(some, highest, 1.0)
    return (1 - share) / share.clamp(min=LEAST_SHARE)


def chi_squared(rates: Rates) -> Tensor:
    """Σ_a P(a) (r_a − r)² / r, a class's term of the χ²-divergence of P(Ŷ, A) from P(Ŷ) P(A)."""
    squares = (rates.rate - rates.overall).square().masked_fill(~rates.filled, 0)
    return (_shares(rates) * squares).sum(-1) / rates.overall.squeeze(-1).clamp(min=1e-12)


def information(rates: Rates) -> Tensor:
    """Σ_a P(a) r_a log(r_a / r), a class's term of the mutual information of Ŷ and A."""
    tiny = 1e-12
    log_ratio = rates.rate.clamp(min=tiny).log() - rates.overall.clamp(min=tiny).log()
    return (_shares(rates) * rates.rate * log_ratio).masked_fill(~rates.filled, 0).sum(-1)


def _comparable(rates: Rates) -> Tensor:
    """Which comparisons have two groups to compare, (…, comparisons)."""
    return rates.filled.sum(-1) > 1


def _shares(rates: Rates) -> Tensor:
    people = rates.mass.sum(-1, keepdim=True) if rates.people is None else rates.people
    return rates.mass / people.clamp(min=1e-12)


class Gaps(NamedTuple):
    """F, whether no cell is empty (``whole``), and whether any comparison is possible (else F is 0)."""

    value: Tensor
    whole: Tensor
    some: Tensor


# Gaps that measure dependence: they have a derivative everywhere, and summed over decisions are convex in
# them, since they are f-divergences.
DEPENDENCE: tuple[Callable[[Rates], Tensor], ...] = (chi_squared, information)
# Gaps that are the maximum of absolute values of signed differences.
SIGNED: dict[Callable[[Rates], Tensor], Callable[[Rates], Tensor]] = {
    spread: pair_differences,
    from_overall: differences_from_overall,
}
CLASS_SETS: dict[str, Callable[[int], list[int]]] = {
    "all": lambda classes: list(range(classes)),
    "first": lambda classes: [0],
    "last": lambda classes: [classes - 1],
}
# Combine gaps over comparisons; impossible comparisons have a gap of 0.
COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "max": lambda gaps, comparable: gaps.amax(-1),
    "mean": lambda gaps, comparable: gaps.sum(-1) / comparable.sum(-1).clamp(min=1),
    "sum": lambda gaps, comparable: gaps.sum(-1),
}


@dataclass(frozen=True)
class ComposedRisk:
    """F = combine over comparisons of gap(rates), for the classes S_y.

    ``classes`` is S_y: a name of :data:`CLASS_SETS` or the classes themselves. ``bound`` is the constant C of
    the paper's Theorem 1, F ∈ [0, C], given the numbers of classes and groups; None: F is unbounded, and
    the theorem does not apply. ``smooth``: F has the derivative 0 where it is 0, so λF is not smoothed there.
    """

    name: str
    rates: Callable[[CellSums, list[int]], Rates]
    gap: Callable[[Rates], Tensor]
    combine: str = "max"
    classes: str | tuple[int, ...] = "all"
    bound: Callable[[int, int], float] | None = lambda classes, groups: 1.0
    smooth: bool = False

    def __call__(self, sums: CellSums) -> Gaps:
        rates = self._rates(sums)
        comparable = _comparable(rates)
        value = COMBINE[self.combine](self.gap(rates), comparable)
        some = comparable.any(-1)
        return Gaps(torch.where(some, value, 0), rates.filled.flatten(-2).all(-1), some)

    @property
    def dependence(self) -> bool:
        """Whether F measures dependence in nats or as χ², not a difference of rates."""
        return self.gap in DEPENDENCE and self.combine == "sum"

    @property
    def unit(self) -> str:
        """The unit in which values are shown: per cent of a share, nats, or none, of χ²."""
        if not self.dependence:
            return "%"
        return "nats" if self.gap is information else ""

    def differences(self, sums: CellSums) -> Tensor:
        """d, (…, blocks, size), of which F is the mean over blocks of the largest |d|.

        Signed differences if the gap is in :data:`SIGNED`; else F itself is the only entry.
        """
        if self.gap not in SIGNED:
            return self(sums).value[..., None, None]
        rates = self._rates(sums)
        signed = SIGNED[self.gap](rates)
        if self.combine == "max":
            return signed.flatten(-2).unsqueeze(-2)
        comparable = _comparable(rates)
        share = comparable.sum(-1, keepdim=True).clamp(min=1) / comparable.shape[-1]
        return signed / share.unsqueeze(-1)

    def cells(self, sums: CellSums) -> Tensor:
        """Rate of each cell minus the rate over all groups, (…, comparisons, groups)."""
        if self.rates is decisions_by_label:  # right decisions alone, so that cells are of label and group
            return differences_from_overall(odds(sums, self.classes_of(sums.mass.shape[-2])))
        return differences_from_overall(self._rates(sums))

    def _rates(self, sums: CellSums) -> Rates:
        return self.rates(sums, self.classes_of(sums.mass.shape[-2]))

    def classes_of(self, classes: int) -> list[int]:
        """S_y among ``classes`` classes."""
        if isinstance(self.classes, str):
            return CLASS_SETS[self.classes](classes)
        outside = [c for c in self.classes if not 0 <= c < classes]
        require(
            not outside and len(self.classes) > 0,
            f"the risk {self.name!r} was given risk_classes {list(self.classes)}, but the data have the "
            f"classes 0 to {classes - 1}; choose from those.",
        )
        return list(self.classes)

    def over(self, classes: tuple[int, ...] | None) -> ComposedRisk:
        """The same risk over other classes S_y; None returns it unchanged."""
        return self if classes is None else replace(self, classes=classes)


_RISKS = {
    risk.name: risk
    for risk in (
        ComposedRisk("deo", odds, spread),
        ComposedRisk("mean_odds", odds, spread, combine="mean"),
        ComposedRisk("deopp", odds, spread, classes="last"),
        ComposedRisk("predictive_equality", odds, spread, classes="first"),
        ComposedRisk("tpr", odds, spread),  # ΔTPR with y = y'
        ComposedRisk("tpr_printed", odds_across, spread),  # as printed in the paper, y ≠ y' also compared
        ComposedRisk("ddp", parity, spread),
        ComposedRisk("ddp_overall", parity, from_overall),
        ComposedRisk("mean_difference", parity, mean_over_pairs, classes="last"),
        ComposedRisk("disparate_impact", parity, excess_ratio, classes="last", bound=None),
        ComposedRisk("chi2", parity, chi_squared, combine="sum", bound=lambda c, g: float(min(c, g) - 1)),
        ComposedRisk(
            "mutual_information", parity, information, combine="sum", bound=lambda c, g: math.log(min(c, g))
        ),
        ComposedRisk(
            "chi2_given_label",
            decisions_by_label,
            chi_squared,
            combine="sum",
            bound=lambda c, g: float(min(c, g) - 1),
        ),
        ComposedRisk(
            "mutual_information_given_label",
            decisions_by_label,
            information,
            combine="sum",
            bound=lambda c, g: math.log(min(c, g)),
        ),
    )
}
# The default where the group is a number cut into levels. The largest difference between many levels is that
# of two cells with few people, mostly chance; a measure of dependence weighs cells by their people. Given the
# label, as DEO is: people of one label are decided about alike, whatever the number.
RISK_OF_NUMBERS = "mutual_information_given_label"
# The composed risks by name. Each has a matching metric of decisions, so others are added together with
# their metric by :func:`pyro_fairvae.evaluation.register`.
RISKS: Mapping[str, ComposedRisk] = MappingProxyType(_RISKS)


def add_risk(risk: ComposedRisk) -> None:
    """Add a risk; called by :func:`pyro_fairvae.evaluation.register`, which adds the matching metric."""
    _RISKS[risk.name] = risk
