"""The data that training may see: features, and the observed label and group of each row.

``∅`` ("prefer not to say") is an observation, the last category of ``y_obs`` and of ``a_obs``:
with ``C`` classes ``y_obs`` lies in ``0..C``, and ``y_obs == C`` means ∅.

An :class:`Observed` table has no field for the true label or group. Training and model selection
take nothing else, so hidden truth cannot reach them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.coded_rows import CodedRows
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.stored_rows import StoredRows

Features = Tensor | PixelRows | CodedRows  # x of a table: numbers, or rows of a file that are read on access
IS_MISSING = "{} is missing"  # name of the block that marks the gaps of a number
WIDE = 1024  # columns from which fewer rows are processed at a time
SAMPLED = 200_000  # rows of a mapped file, at most, for what needs them in memory at once


@dataclass(frozen=True)
class Columns:
    """Layout of the columns of ``x``: numbers first, then the one-hot blocks, then scores.

    ``names`` are the names of the numbers and of the blocks, ``values`` the names of each block's categories,
    if known. ``scores`` is the number of columns that another model computed from the others: networks see
    them, and no decoder has to explain them.
    """

    numbers: int
    blocks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    scores: int = 0

    @property
    def width(self) -> int:
        return self.decoded + self.scores

    @property
    def decoded(self) -> int:
        """Number of columns that a decoder explains, which are the first ones."""
        return self.numbers + sum(self.blocks)

    def of(self, name: str) -> slice:
        """The columns of x that encode a number or a category."""
        index = self.names.index(choose("column", name, self.names))
        if index < self.numbers:
            return slice(index, index + 1)
        start = self.numbers + sum(self.blocks[: index - self.numbers])
        return slice(start, start + self.blocks[index - self.numbers])


@dataclass(frozen=True)
class PossiblePairs:
    """The (y, a) of each row that can have produced what it states, a pair after another, (pairs,) each."""

    rows: Tensor
    labels: Tensor
    groups: Tensor


@dataclass(frozen=True)
class Batch:
    """Rows of one SVI step.

    ``x`` is (rows, columns) where members share their rows, or (members, rows, columns) where each
    has its own; ``y_obs`` and ``a_obs`` are the same without ``columns``. ``u`` has the proxies of the group,
    shaped as ``x``. ``propagated_labels`` is P(y | row) of each member, (members, rows, classes), where
    labels are imputed outside of the program, and ``imputed`` P(y, a | row), (…, rows, classes, groups),
    where groups are, too. ``outcome`` is y itself, standardised, where it is a number: ``y_obs`` then has its
    level, and rows with ∅ have 0 there. ``elbo_rows`` is the number of rows, the first ones, that the ELBO is
    taken over; all unless given. ``whole`` is the number of rows of the batch of which these are the part of
    one process, if they are. ``possible`` are the (y, a) that these rows, which members share, leave
    possible: the decoder is computed at those alone if it is given. ``weight`` is how much each row counts,
    shaped as ``y_obs``; 1 unless given.
    """

    x: Tensor
    y_obs: Tensor
    a_obs: Tensor
    u: Tensor | None = None
    propagated_labels: Tensor | None = None
    imputed: Tensor | None = None
    elbo_rows: int | None = None
    outcome: Tensor | None = None
    possible: PossiblePairs | None = None
    weight: Tensor | None = None
    whole: int | None = None

    @property
    def rows(self) -> int:
        return self.y_obs.shape[-1]

    def of_elbo(self) -> Batch:
        """The rows that the ELBO is taken over, with what its Pyro programs need of them."""
        if self.elbo_rows is None:
            return self
        rows = slice(self.elbo_rows)
        u = None if self.u is None else self.u[..., rows, :]
        recorded = self.y_obs[..., rows], self.a_obs[..., rows]
        return Batch(self.x[..., rows, :], *recorded, u, possible=self.possible, weight=self.weight_of_elbo)

    @property
    def weight_of_elbo(self) -> Tensor | None:
        """The weights of the rows that the ELBO is taken over."""
        return None if self.weight is None else self.weight[..., : self.elbo_rows]

    def mean(self, values: Tensor) -> Tensor:
        """The mean of values (…, rows), each weighed."""
        return (values if self.weight is None else values * self.weight).mean(-1)


@dataclass(frozen=True)
class Imputation:
    """Labels and groups of a table's rows, imputed by models that were not fitted on them."""

    joint: Tensor  # P(y, a|x, ỹ, ã), (rows, classes, groups)
    label: Tensor  # P(y|x), (rows, classes)

    def to(self, like: Tensor) -> Imputation:
        """On the device and in the precision of ``like``."""
        return Imputation(self.joint.to(like), self.label.to(like))


@dataclass(frozen=True)
class Observed:
    """A table as observed: the only kind that training accepts.

    It has no field for the true label or group. With C classes and one attribute of G values, C in ``y_obs``
    and G in ``a_obs`` stand for ∅, "prefer not to say".

    Parameters
    ----------
    x : Tensor, PixelRows or CodedRows
        Features, (rows, columns), or (members, rows, columns) where each member has rows of its own.
    y_obs, a_obs : Tensor
        ỹ and ã, the observed label and group, shaped as ``x`` without its columns.
    columns : Columns or Pixels
        Layout of the columns of ``x``.
    classes, groups : int
        Number of classes and of groups.
    attributes : Attributes, optional
        Attributes that define the groups; a single attribute unless given.
    class_names : tuple of str, optional
        ``"0"``, ``"1"``, … unless given.
    u : Tensor, optional
        Proxies: columns that tell of the group but must not decide, shaped as ``x``.
    u_columns : Columns, optional
        Layout of the columns of ``u``.
    number : NumberOutcome, optional
        Where the label is a number: its unit and its levels, which are then the classes.
    outcome : Tensor, optional
        That number, standardised, shaped as ``y_obs``; 0 where none is stated.
    weight : Tensor, optional
        How many people each row stands for, shaped as ``y_obs``, positive and with the mean 1 over rows;
        every row counts as one unless given.

    Raises
    ------
    InputError
        If shapes do not fit, codes are out of range, or ``x`` is not finite.

    Examples
    --------
    >>> import torch
    >>> from pyro_fairvae import Observed
    >>> from pyro_fairvae.schema.observed import Columns
    >>> x = torch.randn(4, 3)
    >>> table = Observed(x, torch.tensor([0, 1, 2, 1]), torch.tensor([2, 2, 0, 1]), Columns(3), 2, 2)
    >>> table.rows, (table.y_obs == 2).sum().item(), (table.a_obs == 2).sum().item()  # 2 is ∅
    (4, 1, 2)
    """

    x: Features
    y_obs: Tensor
    a_obs: Tensor
    columns: Columns | Pixels
    classes: int
    groups: int
    attributes: Attributes | None = None  # define the groups; a single attribute unless given
    class_names: tuple[str, ...] | None = None
    u: Tensor | None = None
    u_columns: Columns | None = None
    number: NumberOutcome | None = None
    outcome: Tensor | None = None
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        if self.class_names is None and self.number is not None:
            object.__setattr__(self, "class_names", self.number.levels.names)
        if self.class_names is None:
            object.__setattr__(self, "class_names", tuple(str(c) for c in range(self.classes)))
        if self.attributes is None:
            names = tuple(str(g) for g in range(self.groups))
            object.__setattr__(self, "attributes", Attributes.single(names))
        require(
            (len(self.label_attributes.values[0]), self.group_attributes.groups)
            == (self.classes, self.groups),
            f"{self.classes} classes and {self.groups} groups were given, but class_names is "
            f"{self.class_names} and attributes have the groups {self.group_attributes.group_names}.",
        )
        require(
            self.x.shape[:-1] == self.y_obs.shape == self.a_obs.shape,
            f"x {tuple(self.x.shape)}, y_obs {tuple(self.y_obs.shape)} and a_obs "
            f"{tuple(self.a_obs.shape)} must have the same rows.",
        )
        for name, observed, values in (
            ("y_obs", self.y_obs, self.classes),
            ("a_obs", self.a_obs, self.group_attributes.outcomes - 1),
        ):
            require(
                not observed.is_floating_point()
                and observed.numel() > 0
                and bool(((observed >= 0) & (observed <= values)).all()),
                f"{name} must be a non-empty tensor of integers from 0 to {values}, where {values} is ∅.",
            )
        require(
            isinstance(self.x, StoredRows) or bool(self.x.isfinite().all()),
            "x holds values that are not finite; impute or drop them first.",
        )
        require(
            self.x.shape[-1] == self.columns.width,
            f"x has {self.x.shape[-1]} columns, but columns describes {self.columns.width}.",
        )
        require(
            (self.u is None) == (self.u_columns is None),
            "u and u_columns describe the same proxies; give both or neither.",
        )
        if self.u is not None and self.u_columns is not None:
            require(
                self.u.shape == (*self.y_obs.shape, self.u_columns.width) and bool(self.u.isfinite().all()),
                f"u must be finite, with the rows of x and {self.u_columns.width} columns, but its shape is "
                f"{tuple(self.u.shape)}.",
            )
        require(
            (self.number is None) == (self.outcome is None)
            and (
                self.outcome is None
                or (self.outcome.shape == self.y_obs.shape and bool(self.outcome.isfinite().all()))
            ),
            "number and outcome describe the same label, a finite number in each row; give both or neither.",
        )
        require(
            self.weight is None
            or (
                self.weight.shape == self.y_obs.shape
                and bool((self.weight.isfinite() & (self.weight > 0)).all())
            ),
            "weight must be a positive number for each row; leave rows of weight 0 out.",
        )

    @property
    def group_attributes(self) -> Attributes:
        assert self.attributes is not None
        return self.attributes

    @property
    def label_attributes(self) -> Attributes:
        """The label as an attribute, since it also has values and an ∅."""
        assert self.class_names is not None
        if self.number is not None:
            return Attributes.of_number(self.number.levels, "outcome")
        return Attributes.single(self.class_names, "label")

    @property
    def rows(self) -> int:
        return self.y_obs.shape[-1]

    @property
    def members(self) -> int | None:
        """Number of members if each has its own rows; None if all share the same rows."""
        return self.x.shape[0] if self.x.dim() == 3 else None

    @property
    def like(self) -> Tensor:
        """An empty tensor with device and dtype of the features."""
        return torch.empty(0, device=self.x.device, dtype=self.x.dtype)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Observed:
        return replace(
            self,
            x=self.x.to(device, dtype or self.x.dtype),
            y_obs=self.y_obs.to(device),
            a_obs=self.a_obs.to(device),
            u=None if self.u is None else self.u.to(device, dtype or self.u.dtype),
            outcome=None if self.outcome is None else self.outcome.to(device, dtype or self.outcome.dtype),
            weight=None if self.weight is None else self.weight.to(device, dtype or self.weight.dtype),
        )

    @property
    def effective_rows(self) -> float:
        r"""How many rows of equal weight tell as much, :math:`(\sum w)^2 / \sum w^2` (Kish 1965)."""
        if self.weight is None:
            return self.rows
        weight = self.weight.double()
        return float((weight.sum(-1).square() / weight.square().sum(-1)).mean())

    def weighed(self, values: Tensor, every: int = 1) -> Tensor:
        """Values (…, rows, columns) of every so many rows, times their weights, which have the mean 1."""
        if self.weight is None:
            return values
        weight = self.weight[..., ::every]
        return values * (weight / weight.mean(-1, keepdim=True)).to(values).unsqueeze(-1)

    def batch(self, index: Tensor) -> Batch:
        """The rows at ``index``: (rows,) for shared rows, (members, rows) otherwise."""
        key = self.key(index)
        return Batch(
            self.x[key],
            self.y_obs[key],
            self.a_obs[key],
            None if self.u is None else self.u[key],
            outcome=None if self.outcome is None else self.outcome[key],
            weight=None if self.weight is None else self.weight[key],
        )

    def key(self, index: Tensor) -> Any:
        """The key that selects the rows of ``index`` from a tensor shaped like ``y_obs``."""
        if self.members is None:
            return index
        return torch.arange(self.members, device=index.device).unsqueeze(-1), index

    def take(self, index: Tensor) -> Observed:
        """The table of some rows, (rows,), the same of each member; weights have the mean 1 again."""
        taken = self.part(index)
        if taken.weight is None:
            return taken
        return replace(taken, weight=taken.weight / taken.weight.mean(-1, keepdim=True))

    def part(self, index: Tensor | slice) -> Observed:
        """Some rows of the table, the same of each member, with the weights that they have in it."""
        return self._of(index if self.members is None else (slice(None), index))

    def take_members(self, members: Tensor) -> Observed:
        """The table of some members; the same one where they share their rows."""
        return self if self.members is None else self._of(members)

    def _of(self, key: Any) -> Observed:
        x = self.x.take(key) if isinstance(self.x, StoredRows) else self.x[key]
        u, outcome, weight = (
            None if value is None else value[key] for value in (self.u, self.outcome, self.weight)
        )
        return replace(
            self, x=x, y_obs=self.y_obs[key], a_obs=self.a_obs[key], u=u, outcome=outcome, weight=weight
        )

    @property
    def on_disk(self) -> bool:
        """Whether the rows of a table are read from a mapped file."""
        return isinstance(self.x, CodedRows)

    def every(self, most: int) -> int:
        """Every so many rows are at most so many."""
        return math.ceil(self.rows / most)

    def sampled(self, most: int = SAMPLED) -> Observed:
        """The table itself, or, of a mapped file, evenly spaced rows of it in memory."""
        if not self.on_disk:
            return self
        return self.loaded(torch.arange(0, self.rows, self.every(most), device=self.y_obs.device))

    def loaded(self, index: Tensor) -> Observed:
        """The table of some rows, (rows,), in memory."""
        some = self.take(index)
        return replace(some, x=torch.cat(list(in_pieces(some.x)), dim=-2))

    def chunks(self) -> Iterator[Batch]:
        """All rows in order, some at a time, so that memory does not grow with the table."""
        size = rows_at_once(self.x)
        pieces = repeat(None) if self.u is None else self.u.split(size, dim=-2)
        numbers = repeat(None) if self.outcome is None else self.outcome.split(size, dim=-1)
        weights = repeat(None) if self.weight is None else self.weight.split(size, dim=-1)
        recorded = (observed.split(size, dim=-1) for observed in (self.y_obs, self.a_obs))
        parts = zip(in_pieces(self.x), *recorded, pieces, numbers, weights, strict=False)
        for x, y_obs, a_obs, u, outcome, weight in parts:
            yield Batch(x, y_obs, a_obs, u, outcome=outcome, weight=weight)

    @staticmethod
    def stack(tables: Sequence[Observed]) -> Observed:
        """One table in which member ``k`` has the rows of ``tables[k]``."""
        require(len(tables) > 0, "no tables to stack.")
        sizes = sorted({t.rows for t in tables})
        require(
            len(sizes) == 1,
            f"members need tables with equally many rows, but got {sizes}; cut them to {sizes[0]}.",
        )
        require(
            all(
                (t.columns, t.attributes, t.class_names, t.u_columns, t.number)
                == (
                    tables[0].columns,
                    tables[0].attributes,
                    tables[0].class_names,
                    tables[0].u_columns,
                    tables[0].number,
                )
                for t in tables
            ),
            "members need tables with the same columns, classes and groups.",
        )
        proxies = [t.u for t in tables if t.u is not None]
        outcomes = [t.outcome for t in tables if t.outcome is not None]
        weights = [t.weight for t in tables if t.weight is not None]
        require(
            len(weights) in (0, len(tables)), "members need tables with weights, or all without; give both."
        )
        return replace(
            tables[0],
            x=stack_features([t.x for t in tables]),
            y_obs=torch.stack([t.y_obs for t in tables]),
            a_obs=torch.stack([t.a_obs for t in tables]),
            u=torch.stack(proxies) if proxies else None,
            outcome=torch.stack(outcomes) if outcomes else None,
            weight=torch.stack(weights) if weights else None,
        )


def rows_at_once(x: Features) -> int:
    """Number of rows to process at a time when no gradient is needed."""
    if isinstance(x, PixelRows):
        return 256
    # Networks make many numbers of each column, for each of their members.
    return 4096 if x.shape[-1] <= WIDE else max(64, 4096 * WIDE // (4 * x.shape[-1]))


def in_pieces(x: Features) -> Iterator[Tensor]:
    """Features (…, rows, columns) as tensors of some rows at a time, in order."""
    size = rows_at_once(x)
    for start in range(0, x.shape[-2], size):
        rows = slice(start, start + size)
        # Rows are the last dimension of the index of rows in a file.
        yield x[..., rows] if isinstance(x, StoredRows) else x[..., rows, :]


def stack_features(parts: Sequence[Features]) -> Features:
    """(members, rows, columns): a table's rows for each member."""
    if isinstance(parts[0], StoredRows):
        return type(parts[0]).stack(parts)  # type: ignore[arg-type]
    return torch.stack([part for part in parts if isinstance(part, Tensor)])
