"""v, what withholding may depend on besides the group: some features, and the label."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pyro_fairvae.base.devices import Constant
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.channels.channel import Crossed
from pyro_fairvae.nn.tabular import piece_edges
from pyro_fairvae.schema.observed import Columns, Observed

LABEL = "label"  # the word for the label among the names of what withholding depends on
PIECES = 4  # of a number's range
MOST_CELLS = 12  # of a channel that is crossed with columns


BY_FORM_ALONE = (
    "withholding_depends_on names every feature, and there are no proxies: a feature that tells of the "
    "group may then as well be one that makes people withhold, and who withholds is known from the form of "
    "the model alone. Name fewer features, or give proxies."
)


def by_form_alone(train: Observed, names: Sequence[str]) -> bool:
    """Whether the names cover all features, so that only proxies could tell the group from withholding."""
    known = feature_names(train.columns.names)
    return train.u is None and bool(known) and set(known) <= set(names)


def crossed_columns(
    train: Observed, names: Sequence[str], depends_on: Sequence[str] = ()
) -> tuple[Crossed, ...]:
    """The columns named by ``given`` in a prior of groups, with their values and places in x."""
    both = sorted(set(names) & set(depends_on))
    require(
        not both,
        f"{', '.join(map(repr, both))} cannot be both given in prior_a, which has rows for each value, "
        "and named in withholding_depends_on. Choose one.",
        "withholding_depends_on",
    )
    _check_names(train, tuple(names), "given of prior_a")
    found = []
    for name in names:
        if name == LABEL:
            assert train.class_names is not None
            found.append(Crossed(LABEL, train.class_names))
            continue
        columns = train.columns
        assert isinstance(columns, Columns)
        block = columns.names.index(name) - columns.numbers
        require(
            block >= 0,
            f"given of prior_a names {name!r}, which is a number; rows of a channel can be given categories "
            "only. Name it in withholding_depends_on instead.",
            "withholding_depends_on",
        )
        values = columns.values[block] if columns.values else range(columns.blocks[block])
        found.append(Crossed(name, tuple(map(str, values)), columns.of(name).start))
    cells = math.prod(len(column.values) for column in found)
    require(
        cells <= MOST_CELLS,
        f"prior_a is given {', '.join(names)} with {cells} values together, but at most {MOST_CELLS} can "
        "have rows of their own. Name columns in withholding_depends_on instead.",
        "withholding_depends_on",
    )
    return tuple(found)


class Conditions(nn.Module):
    r"""v(x, y) as columns of a design matrix, for K members; :meth:`learn` makes it.

    A number becomes its share of each of a few pieces of its range, as in
    :class:`~pyro_fairvae.nn.tabular.NumberPieces`, and an indicator where it has gaps; a category becomes
    its one-hot block, the label a one-hot block, too. All columns are centred at their means over training
    rows, those of the label at the shares of stated labels: at the mean of v withholding is P(∅|a).

    Attributes
    ----------
    names : tuple of str
        What was asked for: names of features, and ``"label"``.
    columns : tuple of str
        Every column of the design in words, those of the label last.
    classes : int
        Columns of the label; 0 if the label is not among the names.
    """

    low: Tensor  # edges of pieces, (members, 1, numbers, pieces)
    span: Tensor
    mean: Tensor  # of the columns of features, (members, 1, columns)
    shares: Tensor  # of stated labels, (members, classes)

    def __init__(
        self,
        names: tuple[str, ...],
        columns: tuple[str, ...],
        numbers: list[int],
        indicators: list[int],
        edges: Tensor,
        shares: Tensor,
    ) -> None:
        super().__init__()
        self.names, self.columns = names, columns
        self.numbers, self.indicators = numbers, indicators  # their columns in x
        self._places = tuple(Constant(np.array(place, dtype=np.int64)) for place in (numbers, indicators))
        self.classes = shares.shape[-1]
        span = edges.diff(dim=-1)
        self.register_buffer("low", edges[..., :-1].unsqueeze(1))
        self.register_buffer("span", torch.where(span > 0, span, 1.0).unsqueeze(1))
        self.register_buffer("mean", edges.new_zeros(len(edges), 1, len(columns) - self.classes))
        self.register_buffer("shares", shares)

    @staticmethod
    def learn(train: Observed, names: Sequence[str], members: int) -> Conditions:
        """The conditions of some names, from training rows; those of a member from its own rows."""
        names = tuple(names)
        _check_names(train, names)
        features = [name for name in names if name != LABEL]
        numbers, indicators, columns = _places(train.columns, features)
        tables: list[Tensor] = []
        if features:
            assert isinstance(train.x, Tensor)
            tables = list(train.x) if train.members else [train.x]
        count = train.members or 1
        like = train.like
        edges = like.new_zeros(count, len(numbers), PIECES + 1)
        if numbers:
            edges = torch.stack([_edges(table[:, numbers]) for table in tables]).to(like)
        shares = like.new_zeros(count, 0)
        if LABEL in names:
            assert train.class_names is not None
            columns += [f"{LABEL} = {name}" for name in train.class_names]
            stated = train.y_obs.reshape(count, -1, 1) == torch.arange(train.classes, device=like.device)
            counts = stated.sum(1).to(like)
            total = counts.sum(-1, keepdim=True)
            shares = torch.where(total > 0, counts / total.clamp(min=1), 1 / train.classes)
        made = Conditions(names, tuple(columns), numbers, indicators, edges, shares)
        if tables:
            rows = [made._columns_of(table, made.low[[k]], made.span[[k]]) for k, table in enumerate(tables)]
            made.mean = torch.stack([columns.mean(-2) for columns in rows])
        for name, value in list(made.named_buffers()):
            setattr(made, name, value.expand(members, *value.shape[1:]).clone())
        return made

    def take(self, index: Sequence[int]) -> Conditions:
        """The conditions of some members, in the order of ``index``."""
        taken = copy.copy(self)
        taken._buffers = {
            name: None if value is None else value[list(index)] for name, value in self._buffers.items()
        }
        return taken

    @property
    def features_of_columns(self) -> list[str]:
        """The name that each column of the design belongs to."""
        longest_first = sorted(self.names, key=len, reverse=True)
        return [next(name for name in longest_first if words.startswith(name)) for words in self.columns]

    @property
    def varies(self) -> list[bool]:
        """Whether each column of the design differs between rows: a number of two values has one piece."""
        of_features: list[bool] = (self.mean != 0).any(0).squeeze(0).tolist()
        return of_features + [True] * self.classes

    @property
    def words(self) -> list[str]:
        """The columns for people: the only piece of a number has its name alone."""
        varying = Counter(
            name for name, varies in zip(self.features_of_columns, self.varies, strict=True) if varies
        )
        first = " (piece 1)"
        return [
            name if column == f"{name}{first}" and varying[name] == 1 else column
            for name, column in zip(self.features_of_columns, self.columns, strict=True)
        ]

    @property
    def width(self) -> int:
        """Number of columns of v, those of the label included."""
        return len(self.columns)

    def features(self, x: Tensor) -> Tensor:
        """Columns of v that x gives, centred, (members, rows, width − classes); x as in :class:`Batch`."""
        return self._columns_of(x, self.low, self.span) - self.mean

    @property
    def labels(self) -> Tensor:
        """Columns of v that each label gives, centred, (members, classes, classes)."""
        own = torch.eye(self.classes, dtype=self.shares.dtype, device=self.shares.device)
        return own - self.shares.unsqueeze(-2)

    def tilt(self, features: Tensor, coefficients: Tensor) -> Tensor:
        """t = w·v, (members, rows, attributes, 1), with the label in v with classes after the rows.

        ``features`` is the result of :meth:`features`, ``coefficients`` is w, (members, attributes, width).
        """
        of_x, of_y = coefficients.split([self.width - self.classes, self.classes], dim=-1)
        tilt = features @ of_x.mT
        if self.classes:
            tilt = tilt.unsqueeze(-2) + (self.labels @ of_y.mT).unsqueeze(-3)
        return tilt.unsqueeze(-1)

    def relative(self, coefficients: Tensor) -> Tensor:
        """w, (…, members, attributes, width), with categories relative to the average of people.

        A constant added to the coefficients of all categories of a column cancels in t, so only these
        differences can be learned.
        """
        share = torch.cat([self.mean.squeeze(-2), self.shares], dim=-1).to(coefficients)
        relative = coefficients.clone()
        for name in self.names:
            block = [k for k, column in enumerate(self.columns) if column.startswith(f"{name} = ")]
            if block:
                mean = (coefficients[..., block] * share[:, None, block]).sum(-1, keepdim=True)
                relative[..., block] = coefficients[..., block] - mean
        return relative

    def _columns_of(self, x: Tensor, low: Tensor, span: Tensor) -> Tensor:
        """Columns before centring, (members, rows, …)."""
        numbers, indicators = (place.on(x.device) for place in self._places)
        pieces = ((x[..., numbers].unsqueeze(-1) - low) / span).clamp(0, 1).flatten(-2)
        blocks = x[..., indicators]
        return torch.cat([pieces, blocks.expand(*pieces.shape[:-1], blocks.shape[-1])], dim=-1)


def _edges(numbers: Tensor) -> Tensor:
    """Edges of the pieces of each column; one of few values has a piece between each two, and empty ones."""
    edges = piece_edges(numbers, PIECES)
    for place, column in enumerate(numbers.unbind(-1)):
        values = column.unique()
        if len(values) <= PIECES:
            edges[place] = values[-1]
            edges[place, : len(values)] = values
    return edges


def _check_names(train: Observed, names: tuple[str, ...], where: str = "withholding_depends_on") -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    require(not twice, f"{where} has {', '.join(map(repr, twice))} more than once; give each once.")
    proxies = () if train.u_columns is None else train.u_columns.names
    for name in names:
        require(
            name not in proxies,
            f"{name!r} is a proxy, which tells of the group; withholding cannot depend on it as well. Drop "
            f"it from {where} or from the proxies.",
        )
        require(
            name == LABEL or isinstance(train.columns, Columns),
            f"{where} names {name!r}, but the features are images, which have no named "
            f"columns; the only name for images is {LABEL!r}.",
        )
        choose(f"name in {where}", name, (*feature_names(train.columns.names), LABEL))


def feature_names(names: Sequence[str]) -> list[str]:
    """Features that can be named: all but the indicators of numbers' gaps, which go with their number."""
    gaps = set(map(gap_of, names))
    return [name for name in names if name not in gaps]


def gap_of(name: str) -> str:
    """The name of the block that says where a number is missing."""
    return f"{name} is missing"


def _places(columns: object, names: list[str]) -> tuple[list[int], list[int], list[str]]:
    """The columns of x that are numbers, and those that are indicators, of some features; v in words."""
    if not isinstance(columns, Columns):
        return [], [], []
    numbers, indicators, pieces, words = [], [], [], []
    for name in names:
        place = columns.of(name)
        block = columns.names.index(name) - columns.numbers
        if block < 0:
            numbers.append(place.start)
            pieces += [f"{name} (piece {t})" for t in range(1, PIECES + 1)]
            if gap_of(name) in columns.names:
                indicators.append(columns.of(gap_of(name)).stop - 1)
                words.append(gap_of(name))
        else:
            indicators += range(place.start, place.stop)
            values = columns.values[block] if columns.values else range(columns.blocks[block])
            words += [f"{name} = {value}" for value in values]
    return numbers, indicators, pieces + words
