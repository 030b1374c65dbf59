r"""Risks of dependence: how much decisions Ŷ tell of A, at all, or given Y.

The former is demographic parity, the latter equalised odds. Decisions are classes or numbers, and so is A.
What a risk needs is their joint distribution, of which it never takes single draws: a row has P_f(ŷ|x) and
P(y, a|row). A *view* of it has one of two forms. In :class:`Joint` at least one of the two has few values,
the *categories*, and expectations over both distributions,

.. math:: P(\hat y, a | y) \quad\text{and}\quad P(\hat y|y)\, P(a|y),

are sums over atoms × categories: in O(rows), over all pairs of rows. In :class:`Pairs` both are numbers, and
each row is paired with a few others.

``mine`` and ``infonce`` are lower bounds of the mutual information by a critic t (:mod:`.critics`); with
classes on both sides their supremum over t is in closed form, and is what decisions are judged by. ``hgr`` is
the maximal correlation of Hirschfeld, Gebelein and Rényi, which needs no critic (Mary, Calauzènes and El
Karoui 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.risks.gaps import CellSums, ComposedRisk, Gaps, add_risk, odds, parity, spread

TINY = 1e-12
KINDS = ("mine", "infonce", "hgr")
PARTNERS = 16  # rows that each row is paired with, where decisions and A are numbers
GRID = 32  # places at which the density of a number is taken, over four standard deviations on either side


class Joint(NamedTuple):
    """P(atom, y, category), and what critics are told of atoms and categories.

    ``weight`` is (members, …, atoms, labels, categories), with the sum 1; where A or Ŷ is a number, its rows
    are the atoms. Without a given label there is one label.
    """

    weight: Tensor
    atoms: Tensor  # (members or 1, atoms, width)
    categories: Tensor  # (members or 1, categories, width)


class Pairs(NamedTuple):
    """Ŷ and A of rows, numbers on a common scale, (members, rows), and P(row, y), (members, rows, labels)."""

    decided: Tensor
    sensitive: Tensor
    weight: Tensor


View = Joint | Pairs


@dataclass(frozen=True)
class Rows:
    """Ŷ, A and Y of rows; one of each pair of forms.

    Parameters
    ----------
    probabilities : Tensor, optional
        P_f(ŷ|x), (members, rows, classes), or (members, rows, groups or 1, classes).
    decided : Tensor, optional
        Decisions that are numbers, by reparametrised draws or means, (members, rows).
    groups : Tensor, optional
        P(y, a|row), (members, rows, labels, groups), whatever is known of the row; zeros exclude it.
    sensitive : Tensor, optional
        A as plain numbers, (members, rows).
    labels : Tensor, optional
        Beside ``sensitive``, P(y|row), (members, rows, labels); of a number y its levels. None: one label.
    centres : Tensor, optional
        Where groups are levels of a number, the numbers that they stand for, (groups,).
    """

    probabilities: Tensor | None = None
    decided: Tensor | None = None
    groups: Tensor | None = None
    sensitive: Tensor | None = None
    labels: Tensor | None = None
    centres: Tensor | None = None

    def __post_init__(self) -> None:
        require(
            (self.probabilities is None) != (self.decided is None),
            "decisions are either probabilities of classes or numbers; give exactly one of them.",
        )
        require(
            (self.groups is None) != (self.sensitive is None),
            "what is sensitive is either probabilities of groups or numbers; give exactly one of them.",
        )


def view_of_cells(sums: CellSums, given_label: bool, centres: Tensor | None = None) -> Joint:
    """The view of sums over cells: classes are the atoms, groups the categories."""
    weight = sums.predicted.movedim(-1, -3).clamp(min=0)  # (…, decisions, labels, groups)
    if not given_label:
        weight = weight.sum(-2, keepdim=True)
    classes, groups = weight.shape[-3], weight.shape[-1]
    categories = _one_hot(groups, weight) if centres is None else on_common_scale(centres.to(weight)[None])[0]
    return Joint(
        _normalised(weight, (-3, -2, -1)),
        _one_hot(classes, weight).unsqueeze(0),
        categories.view(1, groups, -1),
    )


def view_of_rows(rows: Rows, given_label: bool) -> View:
    """The view of rows, without loss: Σ over rows of P_f(ŷ|x) P(y, a|row)."""
    if rows.probabilities is not None and rows.groups is not None:
        by_group = rows.probabilities if rows.probabilities.dim() == 4 else rows.probabilities.unsqueeze(-2)
        by_group = by_group.expand(-1, -1, rows.groups.shape[-1], -1)
        predicted = torch.einsum("krgc,kryg->kygc", by_group, rows.groups)
        return view_of_cells(CellSums(rows.groups.sum(1), predicted), given_label, rows.centres)
    if rows.groups is not None:
        assert rows.decided is not None
        weight = rows.groups if given_label else rows.groups.sum(-2, keepdim=True)
        groups = weight.shape[-1]
        categories = (
            _one_hot(groups, weight)
            if rows.centres is None
            else on_common_scale(rows.centres.to(weight)[None])[0]
        )
        atoms, categories = on_common_scale(rows.decided).unsqueeze(-1), categories.view(1, groups, -1)
        return Joint(_normalised(weight, (-3, -2, -1)), atoms, categories)
    assert rows.sensitive is not None
    sensitive = on_common_scale(rows.sensitive).unsqueeze(-1)
    labels = torch.ones_like(sensitive)
    if rows.labels is not None:
        labels = rows.labels if given_label else rows.labels.sum(-1, keepdim=True)
    if rows.probabilities is not None:
        require(
            rows.probabilities.dim() == 3,
            "probabilities by group, of thresholds by group, need groups, but what is sensitive is a number.",
        )
        weight = labels.unsqueeze(-1) * rows.probabilities.unsqueeze(-2)
        categories = _one_hot(weight.shape[-1], weight).unsqueeze(0)
        return Joint(_normalised(weight, (-3, -2, -1)), sensitive, categories)
    assert rows.decided is not None
    return Pairs(on_common_scale(rows.decided), sensitive.squeeze(-1), _normalised(labels, (-2, -1)))


def on_common_scale(numbers: Tensor) -> Tensor:
    """Numbers, (members, rows), with mean 0 and standard deviation 1: dependence is the same on any scale."""
    centred = numbers - numbers.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).clamp(min=TINY).sqrt()


def information(joint: Joint) -> Tensor:
    """Σ P(ŷ, y, a) log( P(ŷ, a|y) / P(ŷ|y) P(a|y) ), (members, …), of atoms that are classes."""
    weight, independent = joint.weight, independent_of(joint)
    log_ratio = weight.clamp(min=TINY).log() - independent.clamp(min=TINY).log()
    return (weight * log_ratio).sum((-3, -2, -1))


def maximal_correlation(joint: Joint) -> Tensor:
    r"""HGR, the largest correlation of f(Ŷ) and g(A), (members, …); given labels, the largest over them.

    For each label it is the largest singular value of
    :math:`(P(\hat y, a) - P(\hat y) P(a)) / \sqrt{P(\hat y) P(a)}`; the sum of their squares is χ².
    """
    by_label = joint.weight.movedim(-2, -3)  # (…, labels, atoms, categories)
    by_label = by_label / by_label.sum((-2, -1), keepdim=True).clamp(min=TINY)
    of_atoms, of_categories = by_label.sum(-1, keepdim=True), by_label.sum(-2, keepdim=True)
    scale = (of_atoms * of_categories).clamp(min=TINY).sqrt()
    correlations = torch.linalg.svdvals((by_label - of_atoms * of_categories) / scale)
    return correlations.amax((-2, -1))


def independent_of(joint: Joint) -> Tensor:
    """P(y) P(atom|y) P(category|y), of the shape of the joint weights."""
    weight = joint.weight
    label = weight.sum((-3, -1), keepdim=True).clamp(min=TINY)
    return weight.sum(-1, keepdim=True) * (weight.sum(-3, keepdim=True) / label)


def density(numbers: Tensor) -> Tensor:
    r"""A number on a common scale as weights of places on a grid, (members, rows, places): a kernel density.

    Means of products of two such weights are the kernel density of a pair of numbers. The bandwidth is
    :math:`n^{-1/6}`, Silverman's for two dimensions, so for normal numbers with the correlation ρ the maximal
    correlation is that of the smoothed ones, :math:`ρ / (1 + n^{-1/3})`.
    """
    places = torch.linspace(-4, 4, GRID, dtype=numbers.dtype, device=numbers.device)
    bandwidth = numbers.shape[-1] ** (-1 / 6)
    return (-((numbers.unsqueeze(-1) - places) / bandwidth).square() / 2).softmax(-1)


def as_classes(view: View) -> Joint:
    """A view whose numbers are weights of places on a grid, so that it has few atoms."""
    if isinstance(view, Pairs):
        decided, sensitive = density(view.decided), density(view.sensitive)
        weight = torch.einsum("krc,kry,kra->kcya", decided, view.weight, sensitive)
        place = _one_hot(GRID, weight).unsqueeze(0)
        return Joint(weight, place, place)
    if view.atoms.shape[-1] > 1:
        return view
    places = density(view.atoms.squeeze(-1))
    weight = torch.einsum("krp,krya->kpya", places, view.weight)
    return Joint(weight, _one_hot(GRID, weight).unsqueeze(0), view.categories)


MEASURED: dict[str, Callable[[Joint], Tensor]] = {
    "mine": information,
    "infonce": information,
    "hgr": maximal_correlation,
}


@dataclass(frozen=True)
class DependenceRisk(ComposedRisk):
    """Dependence of decisions on groups, as a risk: from cell sums or from :class:`Rows`.

    Without critics the value is the dependence itself: the mutual information (in nats) of classes and
    groups, or HGR. With ``critics`` it is what they find, which has a gradient in decisions only. Numbers on
    either side have no mutual information in closed form: they need critics.

    Theorem 1 (:func:`~pyro_fairvae.samples_for`) applies to HGR with C = 1, and to the mutual information of
    classes and groups with C = log min(classes, groups), which is ``bound``. It does not apply to what
    critics find, which is at most the mutual information of a draw but has no least value, nor to the mutual
    information of numbers, which has no largest one.

    Examples
    --------
    >>> import torch
    >>> from pyro_fairvae.risks.dependence import DEPENDENCE, Rows
    >>> told = torch.eye(2).repeat(5, 1).unsqueeze(0)  # decisions that tell the group
    >>> found = DEPENDENCE["hgr"].of_rows(Rows(probabilities=told, groups=told.unsqueeze(-2)))
    >>> round(float(found), 3)
    1.0
    """

    kind: str = "mine"
    given_label: bool = False
    critics: Callable[[View], Tensor] | None = None
    centres: Tensor | None = None  # of groups that are levels of a number

    @property
    def criticised(self) -> bool:
        """Whether the risk is trained with critics."""
        return self.kind != "hgr"

    @property
    def dependence(self) -> bool:
        return self.criticised

    @property
    def unit(self) -> str:
        return "nats" if self.criticised else ""

    def __call__(self, sums: CellSums) -> Gaps:
        rates = self._rates(sums)
        some = (rates.filled.sum(-1) > 1).any(-1)
        value = self.of_view(view_of_cells(sums, self.given_label, self.centres))
        return Gaps(torch.where(some, value, 0), rates.filled.flatten(-2).all(-1), some)

    def of_rows(self, rows: Rows) -> Tensor:
        """The dependence of each member, (members,), with its gradient in decisions."""
        return self.of_view(view_of_rows(rows, self.given_label))

    def of_view(self, view: View) -> Tensor:
        """The dependence in a view, (members, …)."""
        if not self.criticised:
            return MEASURED[self.kind](as_classes(view))
        if self.critics is not None:
            return self.critics(view)
        if isinstance(view, Pairs) or view.atoms.shape[-1] == 1:
            raise InputError(f"the risk {self.name!r} of numbers needs critics; train them first.")
        return MEASURED[self.kind](view)

    def differences(self, sums: CellSums) -> Tensor:
        return self(sums).value[..., None, None]

    def classes_of(self, classes: int) -> list[int]:
        return list(range(classes))

    def over(self, classes: tuple[int, ...] | None) -> DependenceRisk:
        require(
            classes is None,
            f"the risk {self.name!r} is about decisions of all classes; leave risk_classes out.",
            "risk_classes",
        )
        return self

    def with_critics(
        self, critics: Callable[[View], Tensor], centres: Tensor | None = None
    ) -> DependenceRisk:
        """The same risk as critics find it."""
        return replace(self, critics=critics, centres=centres)


def dependence_risk(kind: str, given_label: bool) -> DependenceRisk:
    """The risk of a kind of :data:`KINDS`, named as it, or with ``_given_label`` if the label is given."""
    return DependenceRisk(
        f"{kind}_given_label" if given_label else kind,
        odds if given_label else parity,
        spread,
        bound=(lambda c, g: 1.0) if kind == "hgr" else (lambda c, g: math.log(min(c, g))),
        smooth=kind != "hgr",
        kind=kind,
        given_label=given_label,
    )


DEPENDENCE: dict[str, DependenceRisk] = {
    risk.name: risk for given in (False, True) for risk in (dependence_risk(kind, given) for kind in KINDS)
}
for _risk in DEPENDENCE.values():
    add_risk(_risk)


def _one_hot(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _normalised(weight: Tensor, dims: tuple[int, ...]) -> Tensor:
    return weight / weight.sum(dims, keepdim=True).clamp(min=TINY)
