"""Channels P(observed | latent): the distribution of stated values given true values.

A channel consists of *rows*, each a distribution over the outcomes it can produce, its support, with a
Dirichlet prior. "Cannot misstate" means that the row of g has the support {g, ∅}. P(o | a) is a
product of entries of rows: one factor for each attribute.

Rows may be *crossed* with columns of few categories: P(o | a, c) has rows of its own for each cell c, a value
of each of these columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.devices import Constant
from pyro_fairvae.base.errors import require
from pyro_fairvae.schema.attributes import Attributes

FIRST_BEND = 4.0  # τ unless given: how much the slope of logit P(∅|a) changes over the range of a number


@dataclass(frozen=True)
class Crossed:
    """A column that rows depend on besides the latent value: a one-hot block of x, or the label."""

    name: str
    values: tuple[str, ...]
    start: int | None = None  # of the block in x; None for the label


@dataclass(frozen=True)
class Row:
    """A distribution over some outcomes of an attribute, with its prior.

    ``entry[a, o]`` is the index of the probability that is a factor of P(o | a), −1 if none is.
    """

    label: str
    attribute: str
    own: str  # the outcome that states the true value
    outcomes: tuple[str, ...]
    prior: tuple[float, ...]
    entry: np.ndarray = field(compare=False)  # (values, outcomes)
    cells: tuple[int, ...] = (0,)  # where it is a factor

    def __post_init__(self) -> None:
        where = f"prior of {self.label}"
        masses = dict(zip(self.outcomes, self.prior, strict=True))
        require(
            all(0 < mass < float("inf") for mass in self.prior),
            f"{where}: {masses} has a mass that is not positive and finite; omit an outcome that cannot "
            "happen.",
        )
        require(
            len(self.prior) >= 2,
            f"{where}: {masses} has fewer than two outcomes; give masses to at least two.",
        )

    @property
    def groups(self) -> list[int]:
        """The latent values a for which the row is a factor of P(o | a)."""
        return np.flatnonzero((self.entry >= 0).any(1)).tolist()


@dataclass(frozen=True)
class Channel:
    r"""P(observed | latent) over the values of attributes, with Dirichlet priors; :func:`channel` makes it.

    .. math:: P(\tilde a | a) = \prod_j \theta_{r_j(a)}(\tilde a_j), \quad \theta_r \sim Dir(\alpha_r),

    where r_j(a) is the row of attribute j for the latent value a. Where the channel is crossed with columns,
    its matrices have the values of every cell, one cell after the other: (cells · values, outcomes).

    Attributes
    ----------
    name : str
        ``"a"`` for groups, ``"y"`` for labels.
    attributes : Attributes
        The latent values, and the outcomes that they can produce.
    rows : tuple of Row
        Distributions over the possible outcomes, with their priors.
    crossed : tuple of Crossed
        The columns whose values have rows of their own; the last varies fastest over cells.
    bend : float, optional
        τ, the standard deviation of the bends of logit P(∅|a) along the levels of a number.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, channel
    >>> sexes = channel("a", Attributes.single(("f", "m"), "sex"), "truthful")
    >>> sexes.truthful, sexes.sites
    (True, ['channel_a_0', 'channel_a_1'])
    >>> sexes.mean_matrix()
    array([[0.5, 0. , 0.5],
           [0. , 0.5, 0.5]])
    """

    name: str
    attributes: Attributes
    rows: tuple[Row, ...]
    crossed: tuple[Crossed, ...] = ()
    bend: float | None = None

    @property
    def cells(self) -> int:
        return math.prod(len(column.values) for column in self.crossed)

    @property
    def values(self) -> int:
        """Number of latent values."""
        return self.attributes.groups

    @property
    def outcomes(self) -> int:
        return self.attributes.outcomes

    @property
    def sites(self) -> list[str]:
        """The names of the rows' Pyro sites."""
        return [f"channel_{self.name}_{r}" for r in range(len(self.rows))]

    @property
    def withholding_site(self) -> str:
        """The name of the Pyro site of w, the coefficients of what withholding depends on."""
        return f"withholding_{self.name}"

    @cached_property
    def possible(self) -> np.ndarray:
        """Whether a latent value can produce an outcome, (values, outcomes): every attribute has a factor."""
        factors = sum(self._in_cells(row, (row.entry >= 0).astype(int)) for row in self.rows)
        return np.asarray(factors == len(self.attributes.names))

    def _in_cells(self, row: Row, of_entry: np.ndarray) -> np.ndarray:
        """(values, outcomes) of a row as (cells · values, outcomes), 0 in cells where it is no factor."""
        inside = np.isin(np.arange(self.cells), row.cells)
        return np.kron(inside[:, None].astype(of_entry.dtype), of_entry)

    @property
    def truthful(self) -> bool:
        """Whether nobody can misstate: every outcome is the own value or ∅, in each attribute."""
        sizes = np.array([len(values) for values in self.attributes.values])
        stated = self.attributes.outcome_parts[None]
        honest = ((stated == self.attributes.group_parts[:, None]) | (stated == sizes)).all(-1)
        return not bool((self.possible & ~np.tile(honest, (self.cells, 1))).any())

    @property
    def ordered(self) -> bool:
        """Whether each latent value is a level of a number and has a row, so that neighbours are alike."""
        return self.attributes.levels is not None and len(self.rows) == self.values > 1

    @property
    def smoothness_site(self) -> str:
        """The name of the Pyro site of the density of bends, where the channel is ordered."""
        return f"smoothness_{self.name}"

    @property
    def first_bend(self) -> float:
        """τ, as given or before it is learned."""
        return FIRST_BEND if self.bend is None else self.bend

    def log_smoothness(self, ratios: Tensor, variances: Tensor) -> Tensor:
        r"""Expected log-density of the bends of an ordered channel, (…), up to a constant.

        ``ratios`` and ``variances`` are means and variances of logit P(∅|a), (…, values), independent over
        values: with D the matrix of bends it is :math:`-\sum_k E (D r)_k^2 / 2τ^2`.
        """
        assert self.attributes.levels is not None
        bends = self._bends.like(ratios)
        squares = (ratios @ bends.mT).square().sum(-1) + (variances @ bends.mT.square()).sum(-1)
        return -squares / (2 * self.first_bend**2)

    def stated(self, observed: Tensor) -> Tensor:
        """Whether an outcome names a value of every attribute."""
        return self._stated.on(observed.device)[observed]

    def concentration(self, row: int, like: Tensor | None = None) -> Tensor:
        """Prior of a row on its support, with dtype and device of ``like``."""
        return torch.tensor(self.rows[row].prior) if like is None else self._priors[row].like(like)

    def matrix(self, draws: Sequence[Tensor]) -> Tensor:
        """P(observed | latent), (…, values, outcomes), from a draw of each row on its support."""
        product: Tensor | float = 1.0
        for (picked, others), draw in zip(self._factors, draws, strict=True):
            factor = (draw @ picked.like(draw)).unflatten(-1, (-1, self.outcomes))
            product = product * (factor + others.like(draw))
        assert isinstance(product, Tensor)
        return product * self._possible.like(product)

    def mean_matrix(self) -> np.ndarray:
        """P(observed | latent) at the means of the prior, (values, outcomes)."""
        means = [torch.tensor(row.prior, dtype=torch.float64) for row in self.rows]
        return self.matrix([mean / mean.sum() for mean in means]).numpy()

    def row_probabilities(self, matrix: np.ndarray) -> list[np.ndarray]:
        """Probabilities of each row, (support,), from P(observed | latent); NaN where its groups differ.

        ``matrix`` is (values, outcomes), the same in all cells.
        """
        probabilities = []
        for row in self.rows:
            by_group = np.array(
                [[matrix[a][row.entry[a] == e].sum() for e in range(len(row.prior))] for a in row.groups]
            )
            probabilities.append(np.where(np.ptp(by_group, axis=0) < 1e-9, by_group[0], np.nan))
        return probabilities

    @cached_property
    def _picked(self) -> list[Tensor]:
        """One-hot entries of each row, (support, values, outcomes).

        They replace an index by a product, since the gradient of an index is not deterministic on CUDA.
        """
        return [
            torch.from_numpy(
                np.stack([self._in_cells(row, row.entry == e) for e in range(len(row.prior))])
            ).float()
            for row in self.rows
        ]

    @cached_property
    def _factors(self) -> list[tuple[Constant, Constant]]:
        """Of each row its one-hot entries, (support, values · outcomes), and 1 where it is no factor."""
        return [(Constant(picked.flatten(1)), Constant(1 - picked.sum(0))) for picked in self._picked]

    @cached_property
    def _priors(self) -> list[Constant]:
        return [Constant(np.array(row.prior, dtype=np.float64)) for row in self.rows]

    @cached_property
    def _possible(self) -> Constant:
        return Constant(self.possible)

    @cached_property
    def _stated(self) -> Constant:
        return Constant(self.attributes.stated)

    @cached_property
    def _bends(self) -> Constant:
        assert self.attributes.levels is not None
        return Constant(np.asarray(self.attributes.levels.bends, dtype=np.float64))

    def cell(self, x: Tensor) -> Tensor:
        """The cell of each row, (members or 1, rows); (…, rows, classes) if crossed with the label.

        A value that training did not have is taken for the first.
        """
        cell = torch.zeros(*x.shape[:-1], 1, dtype=torch.long, device=x.device)
        for column in self.crossed:
            size = len(column.values)
            if column.start is None:
                value = torch.arange(size, device=x.device)
            else:
                value = x[..., column.start : column.start + size].argmax(-1, keepdim=True)
            cell = cell * size + value
        cell = cell if self.by_label else cell.squeeze(-1)
        return cell.unsqueeze(0) if x.dim() == 2 else cell

    @property
    def by_label(self) -> bool:
        """Whether the channel is crossed with the label."""
        return any(column.start is None for column in self.crossed)

    def in_cell(self, of_cells: Tensor, cell: Tensor) -> Tensor:
        """What holds in the cell of each row, (members, rows, …, values, k).

        ``of_cells`` is (members, cells · values, k), ``cell`` is the result of :meth:`cell`.
        """
        picked = _pick(of_cells.unflatten(-2, (self.cells, -1)).flatten(-2), cell)
        return picked.unflatten(-1, (self.values, -1))

    def log_likelihood(
        self, matrix: Tensor, observed: Tensor, tilt: Tensor | None = None, cell: Tensor | None = None
    ) -> Tensor:
        """log P(observed | latent) for each latent value; −∞ where it is impossible.

        ``matrix`` is (members, values, outcomes), ``observed`` (rows,) or (members, rows); the result
        is (members, rows, values), or (members, rows, classes, values) with such a ``tilt`` (:meth:`tilted`)
        or ``cell`` (:meth:`cell`), which a crossed channel needs.
        """
        if tilt is not None:
            tilt, cell = _aligned(tilt, cell)
        if cell is None:
            likelihood = _pick(matrix.mT, observed)
        else:
            by_outcome = matrix.unflatten(-2, (self.cells, -1)).mT.flatten(-3, -2)
            seen = observed if cell.dim() == 2 else observed.unsqueeze(-1)
            likelihood = _pick(by_outcome, cell * self.outcomes + seen)
        possible = likelihood > 0
        log_likelihood = torch.where(possible, likelihood, 1).log().masked_fill(~possible, -torch.inf)
        if tilt is None:
            return log_likelihood
        withheld = self._withheld.like(tilt)[observed].unsqueeze(-1)  # (…, rows, attributes, 1)
        if tilt.dim() == 5:
            withheld = withheld.unsqueeze(-3)
            log_likelihood = log_likelihood.unsqueeze(-2) if cell is None else log_likelihood
        return log_likelihood + (tilt * withheld).sum(-2) - self._log_normaliser(matrix, tilt, cell)

    def tilted(self, matrix: Tensor, tilt: Tensor, cell: Tensor | None = None) -> Tensor:
        r"""P(observed | latent, v), (members, rows, …, values, outcomes): withholding depends on v, too.

        .. math:: P(\tilde a|a,v) = P(\tilde a|a) \prod_j
                  \frac{e^{t_{ja} [\tilde a_j = ∅]}}{1 - p_{ja} + p_{ja} e^{t_{ja}}},
                  \quad p_{ja} = P(\tilde a_j = ∅|a),

        so the logit of withholding attribute j is that of the plain channel plus t, and the other outcomes
        keep their proportions. ``matrix`` is (members, values, outcomes), ``tilt`` is t,
        (members, rows, attributes, values) or (members, rows, classes, attributes, values), with one value if
        t is the same for all, and ``cell`` is that of :meth:`cell`, which a crossed channel needs.
        """
        tilt, cell = _aligned(tilt, cell)
        plain = self._of_rows(matrix, tilt, cell)
        raised = tilt.mT @ self._withheld.like(tilt).T  # (members, rows, …, values or 1, outcomes)
        return plain * (raised - self._log_normaliser(matrix, tilt, cell).unsqueeze(-1)).exp()

    @cached_property
    def _withheld(self) -> Constant:
        """Whether an outcome withholds an attribute, (outcomes, attributes)."""
        sizes = np.array([len(values) for values in self.attributes.values])
        return Constant(self.attributes.outcome_parts == sizes)

    def _log_normaliser(self, matrix: Tensor, tilt: Tensor, cell: Tensor | None) -> Tensor:
        """Σ_j log(1 − p_ja + p_ja exp t_ja), (members, rows, …, values)."""
        withheld = self._withheld.like(matrix)
        tiny = torch.finfo(matrix.dtype).tiny  # where ∅, or all else, is impossible
        # Both shares are summed from their outcomes: 1 − p would be inexact near p = 1.
        log_p, log_rest = (
            self._of_rows((matrix @ share).clamp(min=tiny).log(), tilt, cell).mT
            for share in (withheld, 1 - withheld)
        )  # (members, rows or 1, …, attributes, values)
        return torch.logaddexp(log_rest, log_p + tilt).sum(-2)

    def _of_rows(self, of_values: Tensor, tilt: Tensor, cell: Tensor | None) -> Tensor:
        """(members, values, k) with the dimensions of ``tilt`` between members and values."""
        if cell is None:
            return of_values.unflatten(0, (-1, *(1,) * (tilt.dim() - 3)))
        return self.in_cell(of_values, cell)

    def initial_concentration(self, row: int, observed: Tensor) -> Tensor:
        """Initial concentration of the posterior of a row, (support,) or (members, support).

        Prior plus the counts of ``observed`` within the support, adjusted by the prior's mean so that
        symmetric rows start apart, and scaled to a row's share of the table.
        """
        outcome = torch.arange(self.outcomes, device=observed.device)
        counts = (observed.unsqueeze(-1) == outcome).sum(-2).to(torch.get_default_dtype())
        counts = counts @ (self._picked[row].amax(1) > 0).to(counts).T
        prior = self.concentration(row, counts)
        shares = (counts + 1) * prior / prior.sum()
        people = observed.shape[-1] * len(self.rows[row].cells) / self.cells
        return prior + people / self.values * shares / shares.sum(-1, keepdim=True)

    def check(self, observed: Tensor) -> None:
        """Raise if a row of the data has an outcome that no latent value can produce, be it in one cell."""
        reached = self.possible.reshape(self.cells, self.values, self.outcomes).any(1).all(0)
        impossible = ~torch.from_numpy(reached).to(observed.device)
        places = torch.nonzero(impossible[observed])
        if len(places):
            where = tuple(places[0].tolist())
            outcome = self.attributes.outcome_names[int(observed[where])]
            require(
                False,
                f"row {where[-1]} of the data states {outcome!r}, to which the prior of channel "
                f"{self.name!r} gives no mass in any group"
                f"{' for some value of its columns' if self.crossed else ''}; give it some, or drop the row.",
            )


def _aligned(tilt: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both with classes after the rows if one of them has classes."""
    if cell is None or cell.dim() == tilt.dim() - 2:
        return tilt, cell
    return (tilt.unsqueeze(2), cell) if cell.dim() == 3 else (tilt, cell.unsqueeze(2))


def _pick(of_cells: Tensor, cell: Tensor) -> Tensor:
    """What holds in the cell of each row, (members, rows, …, k), from (members, cells, k).

    Where there is a gradient it is a product, since that of an index is not deterministic on CUDA.
    """
    if not of_cells.requires_grad:
        members = torch.arange(len(of_cells), device=cell.device)
        return of_cells[members.view(-1, *(1,) * max(cell.dim() - 1, 1)), cell]
    chosen = functional.one_hot(cell, of_cells.shape[-2]).to(of_cells)
    return chosen @ (of_cells.unsqueeze(1) if cell.dim() == 3 else of_cells)
