r"""A check of the assumption on withholding, which it can reject.

Where nobody misstates and the odds of withholding are :math:`o_a e^{w \cdot v}`, the residual

.. math:: e = [\tilde a = ∅] - \sum_a [\tilde a = a]\, o_a e^{w \cdot v}

has the mean 0 given any x, proxies and stated label, whatever the shares h of the groups are: of those with
these x, :math:`h_a (1 - p_a)` state a, and :math:`\sum_a h_a p_a` withhold. So the number of people who
withhold in every category of every column, and in every bin of the networks' scores, is predicted by those
who state their group. For indicators A of the categories of a column the statistic is

.. math:: m^\top V^{-1} m, \quad m = \sum_i r_i e_i, \quad V = \sum_i r_i r_i^\top \mathrm{Var}(e_i), \quad
          r_i = (A_i - B Z_i) / \mathrm{Var}(e_i), \quad \mathrm{Var}(e) = \sum_a h_a o_a e^{w \cdot v},

with instruments Z, the shares h of the groups and v, and B such that m does not depend, to first order, on
the estimates of o and w (Neyman 1959). It is χ² where the model holds. For a column that is in v already, A
also has the products of its categories and the shares: its effect may differ between groups. Where the model
lets it differ (:mod:`.second_stage`), Z has the products of shares and v, and columns in v are not checked.
Rows with weights have them as a factor of :math:`r_i`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

from pyro_fairvae.channels.channel import Channel, Row
from pyro_fairvae.nn.conditions import LABEL, Conditions, feature_names, gap_of
from pyro_fairvae.posterior.sampler import bin_rows
from pyro_fairvae.posterior.withholding_check import (
    PROXY,
    SCORES,
    CategoryCheck,
    ColumnCheck,
    WithholdingCheck,
)
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.observed import Columns, Observed, in_pieces

BINS = 8  # of a number, and of the scores
FEWEST = 30  # rows of a category; smaller ones are one
AT_ONCE = 1 << 13  # rows in memory at once
COLUMNS_AT_ONCE = 128  # whose moments are computed together, with all their covariances
SMALL = 1e-8  # relative to the largest singular value

_Columns = Callable[[slice], np.ndarray]
_Nuisance = Callable[[slice], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class _Partition:
    """The category of each row, −1 for none, and what the categories are called."""

    name: str
    category: np.ndarray
    names: Sequence[str]


def check_withholding(
    train: Observed,
    channel: Channel,
    scores: np.ndarray,
    rows: Sequence[np.ndarray],
    conditions: Conditions | None = None,
    tilt: np.ndarray | None = None,
    table: int = 0,
    by_scores: bool = True,
    by_group: bool = False,
) -> WithholdingCheck | None:
    """Compare who withholds with what the channel predicts; None for a channel that it cannot be done for.

    ``scores`` are h, cross-fitted and recalibrated, (rows, groups); ``rows`` are the rows of the channel at
    the mean of v, on their supports; ``tilt`` is what v adds to the logit of ∅, (rows, attributes, groups or
    1). With the label in v both have classes after the rows. With ``by_group`` the effects of v may differ
    between groups. Bins of the scores are left out without ``by_scores``. It needs a channel in which nobody
    misstates and every attribute is withheld by itself.
    """
    attributes = channel.attributes
    alone = all(
        len(row.outcomes) == 2 and UNAVAILABLE in row.outcomes and not _given_others(channel, row)
        for row in channel.rows
    )
    if not (channel.truthful and alone):
        return None
    a_obs, y_obs = (part[table] if part.dim() == 2 else part for part in (train.a_obs, train.y_obs))
    outcome, label = a_obs.cpu().numpy(), y_obs.cpu().numpy()
    weight = np.ones(len(outcome))
    if train.weight is not None:
        weight = (train.weight[table] if train.weight.dim() == 2 else train.weight).double().cpu().numpy()
    if tilt is None:
        tilt = np.zeros((len(outcome), len(attributes.names), 1))
    # Where the label matters, only rows that state it can be checked.
    by_label = channel.by_label or (conditions is not None and conditions.classes > 0)
    kept = label < train.classes if by_label else np.ones(len(outcome), dtype=bool)
    known = np.where(kept, label, 0)
    if tilt.ndim == 4:
        tilt = tilt[np.arange(len(label)), known]
    if scores.ndim == 3:
        scores = scores[np.arange(len(label)), known]
    cell = np.zeros(len(outcome), dtype=int)
    if channel.crossed:
        cells = [channel.cell(piece if piece.dim() == 2 else piece[table]) for piece in in_pieces(train.x)]
        cell = torch.cat(cells, dim=1)[0].cpu().numpy()
        if channel.by_label:
            cell = cell[np.arange(len(label)), known]
    crossed = {column.name for column in channel.crossed}  # which rows by cell fit exactly
    partitions = _partitions(train, scores, label, table)[0 if by_scores else 1 :]
    in_v = set() if conditions is None else set(conditions.names)
    partitions = [
        partition
        for partition in partitions
        if partition.name not in crossed and not (by_group and partition.name in in_v)
    ]
    features = np.zeros((len(outcome), 0))
    if conditions is not None:
        features = _features(train, conditions, table)
        if conditions.classes:
            features = np.c_[features, conditions.labels[table].cpu().numpy()[known]]
    columns = []
    for j, attribute in enumerate(attributes.names):
        residual = _Residual.make(channel, attribute, outcome, scores, rows, tilt[:, j], cell, kept, weight)
        of = attribute if len(attributes.names) > 1 else ""
        columns += residual.check(partitions, features[kept], scores[kept], in_v, by_group, of)
    if not columns:
        return None
    return WithholdingCheck(
        _combined(np.array([column.p_value for column in columns])),
        tuple(sorted(columns, key=lambda column: (column.p_value, -column.explained))),
    )


def _given_others(channel: Channel, row: Row) -> bool:
    """Whether a row holds for some values of the other attributes only."""
    own = channel.attributes.group_parts[:, channel.attributes.names.index(row.attribute)]
    return int(np.isin(own, own[row.groups]).sum()) > len(row.groups)


@dataclass(frozen=True)
class _Residual:
    """The residual e of one attribute, and its slopes along the log-odds of each row of its channel."""

    kept: np.ndarray  # which rows are checked; the rest is of these
    withheld: np.ndarray  # (rows,)
    slopes: np.ndarray  # −[ã = a] o_a e^t, (rows, values of each of the channel's rows)
    shares: np.ndarray  # of the groups with these values
    value: np.ndarray  # the values
    fourth: np.ndarray  # E[e⁴|x], (rows,)
    variance: np.ndarray  # of e given x, (rows,)
    weight: np.ndarray  # of the rows, (rows,)

    @staticmethod
    def make(
        channel: Channel,
        attribute: str,
        outcome: np.ndarray,
        scores: np.ndarray,
        rows: Sequence[np.ndarray],
        tilt: np.ndarray,
        cell: np.ndarray,
        kept: np.ndarray,
        weight: np.ndarray,
    ) -> _Residual:
        j = channel.attributes.names.index(attribute)
        stated = channel.attributes.outcome_parts[outcome, j]
        slopes, shares, values = [], [], []
        variance, fourth = np.zeros(len(outcome)), np.zeros(len(outcome))
        for row, probabilities in zip(channel.rows, rows, strict=True):
            if row.attribute != attribute:
                continue
            p = probabilities[row.outcomes.index(UNAVAILABLE)]
            inside = np.isin(cell, row.cells)
            of_groups = channel.attributes.group_parts[row.groups, j]
            for value in np.unique(of_groups):  # several share a row where their rates are equal
                groups = np.array(row.groups)[of_groups == value]
                of_value = tilt[:, groups[0] if tilt.shape[1] > 1 else 0]
                odds = p / max(1 - p, 1e-9) * np.exp(of_value)
                share = inside * scores[:, groups].sum(1)
                slopes.append(np.where(inside & (stated == value), -odds, 0.0))
                shares.append(share)
                values.append(value)
                variance += share * odds
                fourth += share * (odds + odds**4) / (1 + odds)
        withheld = stated == len(channel.attributes.values[j])
        return _Residual(
            kept,
            withheld[kept],
            np.stack(slopes, axis=1)[kept],
            np.stack(shares, axis=1)[kept],
            np.array(values),
            fourth[kept],
            variance[kept].clip(min=1e-9),
            weight[kept],
        )

    def check(
        self,
        partitions: Sequence[_Partition],
        features: np.ndarray,
        scores: np.ndarray,
        in_v: set[str],
        by_group: bool,
        attribute: str,
    ) -> list[ColumnCheck]:
        """The statistic of each column, and its categories; a few columns at a time, as they are separate."""
        checked = []
        for partition in partitions:
            category = partition.category[self.kept]
            codes, names = _merged(category, partition.names)
            if len(names) > 1:
                checked.append((partition.name, codes, names))
        return [
            found
            for first in range(0, len(checked), COLUMNS_AT_ONCE)
            for found in self._check_some(
                checked[first : first + COLUMNS_AT_ONCE], features, scores, in_v, by_group, attribute
            )
        ]

    def _check_some(
        self,
        checked: Sequence[tuple[str, np.ndarray, Sequence[str]]],
        features: np.ndarray,
        scores: np.ndarray,
        in_v: set[str],
        by_group: bool,
        attribute: str,
    ) -> list[ColumnCheck]:
        def columns(piece: slice) -> np.ndarray:
            """Indicators of categories, and for columns in v their products with the scores, side by side."""
            blocks = []
            for name, codes, names in checked:
                indicators = (codes[piece, None] == np.arange(len(names))).astype(float)
                blocks.append(indicators)
                if name in in_v:
                    products = indicators[:, :, None] * scores[piece, None, :-1]
                    blocks.append(products.reshape(len(products), -1))
            return np.concatenate(blocks, axis=1)

        def nuisance(piece: slice) -> tuple[np.ndarray, np.ndarray]:
            """Instruments Z, and slopes of e along the channel's rows and the effects of v."""
            instruments, slopes = [self.shares[piece]], [self.slopes[piece]]
            together = (
                [self.value == value for value in np.unique(self.value)] if by_group else [self.value >= 0]
            )
            for same in together:
                for several in (instruments, slopes):
                    several.append(several[0][:, same].sum(1, keepdims=True) * features[piece])
            return np.concatenate(instruments, axis=1), np.concatenate(slopes, axis=1)

        weighted = _Moments.make(self, columns, nuisance, self.weight / self.variance)
        # With the weights of rows alone moments are numbers of people.
        counted = _Moments.make(self, columns, nuisance, self.weight)
        blocks, first = [], 0
        for name, _, names in checked:
            blocks.append(slice(first, first + len(names) * (scores.shape[1] if name in in_v else 1)))
            first = blocks[-1].stop
        found = []
        statistics = weighted.statistics(self, columns, nuisance, self.weight / self.variance, blocks)
        for (name, codes, names), block, (statistic, degrees, spread) in zip(
            checked, blocks, statistics, strict=True
        ):
            if not degrees:
                continue
            inside, place = codes >= 0, slice(block.start, block.start + len(names))
            sizes = np.bincount(codes[inside], minlength=len(names))
            people = np.bincount(codes[inside], self.weight[inside], len(names))
            withheld = np.bincount(codes[inside], (self.weight * self.withheld)[inside], len(names))
            observed = withheld / people
            expected = observed - counted.moments[place] / people
            errors = np.sqrt(counted.variance.diagonal()[place].clip(min=0)) / people
            categories = tuple(
                CategoryCheck(category, int(rows), float(o), float(e), float(s))
                for category, rows, o, e, s in zip(names, sizes, observed, expected, errors, strict=True)
            )
            # χ², or the gamma distribution that is as spread as the statistic where few people tell.
            p_value = float(stats.gamma.sf(statistic, degrees**2 / spread, scale=spread / degrees))
            found.append(ColumnCheck(name, statistic, degrees, p_value, categories, name in in_v, attribute))
        return found


@dataclass(frozen=True)
class _Moments:
    """Sums over rows of A − BZ times e times weights."""

    rest: np.ndarray  # (I, −B), so that A − BZ is its product with A and Z, (columns, columns + instruments)
    moments: np.ndarray  # (columns,)
    variance: np.ndarray  # (columns, columns)
    scale: np.ndarray  # deviations of the sums of A e, (columns,)

    @staticmethod
    def make(of: _Residual, columns: _Columns, nuisance: _Nuisance, weight: np.ndarray) -> _Moments:
        """B makes the mean of (A − BZ) times the slopes 0, so that errors of estimates hardly matter."""
        along: Any = 0.0
        sums: Any = 0.0
        noise: Any = 0.0
        residual = of.withheld + of.slopes.sum(1)
        for piece in _pieces(len(weight)):
            (instruments, slopes), of_columns = nuisance(piece), columns(piece)
            both = np.concatenate([of_columns, instruments], axis=1)
            weighted = both * weight[piece, None]
            along = along + weighted.T @ slopes
            sums = sums + weighted.T @ residual[piece]
            noise = noise + (weighted * (weight * of.variance)[piece, None]).T @ both
        size = of_columns.shape[1]
        b = along[:size] @ np.linalg.pinv(along[size:], rcond=SMALL)
        rest = np.c_[np.eye(size), -b]
        return _Moments(rest, rest @ sums, rest @ noise @ rest.T, np.sqrt(noise.diagonal()[:size]))

    def statistics(
        self,
        of: _Residual,
        columns: _Columns,
        nuisance: _Nuisance,
        weight: np.ndarray,
        blocks: Sequence[slice],
    ) -> list[tuple[float, int, float]]:
        """m'V⁻¹m of some of the columns, its mean and its variance where the model holds.

        The variance is 2d, and more where e is far from normal and few rows weigh much.
        """
        whitened = [_whitening(self.variance[block, block], self.scale[block]) for block in blocks]
        spread = np.array([2.0 * white.shape[1] for white in whitened])
        excess = of.fourth - 3 * of.variance**2
        for piece in _pieces(len(weight)):
            both = np.concatenate([columns(piece), nuisance(piece)[0]], axis=1) * weight[piece, None]
            left = both @ self.rest.T
            for k, (block, white) in enumerate(zip(blocks, whitened, strict=True)):
                leverage = ((left[:, block] @ white) ** 2).sum(1)
                spread[k] += leverage**2 @ excess[piece]
        return [
            (
                float(((self.moments[block] @ white) ** 2).sum()),
                white.shape[1],
                max(2.0 * white.shape[1], float(s)),
            )
            for block, white, s in zip(blocks, whitened, spread, strict=True)
        ]


def _pieces(rows: int) -> list[slice]:
    return [slice(first, first + AT_ONCE) for first in range(0, rows, AT_ONCE)]


def _whitening(variance: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """W with W W' = V⁺, (columns, rank of V); what is small relative to ``scale`` is 0."""
    scale = scale.clip(min=1e-150)
    values, vectors = np.linalg.eigh(variance / np.outer(scale, scale))
    large = values > 1e-6
    return np.asarray(vectors[:, large] / np.sqrt(values[large]) / scale[:, None])


def _combined(p_values: np.ndarray) -> float:
    """Cauchy's combination of p-values that may depend on each other (Liu and Xie 2020).

    Truncated near 1, where one column that fits too well would outweigh all others.
    """
    angles = np.tan(np.pi * (0.5 - p_values.clip(1e-15, 0.99)))
    return float(stats.cauchy.sf(angles.mean()))


def _partitions(train: Observed, scores: np.ndarray, label: np.ndarray, table: int) -> list[_Partition]:
    """The rows by bins of the scores, by every feature and proxy, and by the stated label."""
    bins = bin_rows(scores, 2 * BINS, FEWEST)
    partitions = [_Partition(SCORES, bins, [f"bin {b + 1}" for b in range(int(bins.max()) + 1)])]
    for columns, values, suffix in ((train.columns, train.x, ""), (train.u_columns, train.u, PROXY)):
        if isinstance(columns, Columns) and columns.names and values is not None:
            x = np.asarray((values[table] if values.dim() == 3 else values).cpu())  # type: ignore[union-attr]
            partitions += [_by_feature(columns, x, name, suffix) for name in feature_names(columns.names)]
    assert train.class_names is not None
    classes = np.where(label < train.classes, label, -1)
    return [*partitions, _Partition(LABEL, classes, train.class_names)]


def _by_feature(columns: Columns, x: np.ndarray, name: str, suffix: str) -> _Partition:
    """Rows by the values of a category, or by bins of a number and its gaps."""
    place, index = columns.of(name), columns.names.index(name)
    if index >= columns.numbers:
        block = x[:, place]
        named = columns.values[index - columns.numbers] if columns.values else range(block.shape[1])
        return _Partition(name + suffix, np.where(block.any(1), block.argmax(1), -1), list(map(str, named)))
    values = x[:, place.start]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]))
    category, names = (
        np.searchsorted(edges, values, side="right"),
        [f"bin {b}" for b in range(1, len(edges) + 2)],
    )
    if gap_of(name) in columns.names:
        missing = x[:, columns.of(gap_of(name)).stop - 1] > 0
        category, names = np.where(missing, len(names), category), [*names, "missing"]
    return _Partition(name + suffix, category, names)


def _merged(category: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Codes of the categories with enough rows, all smaller ones as one; −1 stays."""
    counts = np.bincount(category[category >= 0], minlength=len(names))
    large = np.flatnonzero(counts >= FEWEST)
    code = np.full(len(names), len(large))
    code[large] = np.arange(len(large))
    kept = [names[int(c)] for c in large]
    rest = counts[counts < FEWEST].sum()
    if rest and rest < FEWEST and len(large):  # too few even together
        code[code == len(large)] = int(counts[large].argmin())
    elif rest:
        kept.append("others")
    return np.where(category >= 0, code[category], -1), kept


def _features(train: Observed, conditions: Conditions, table: int) -> np.ndarray:
    """The columns of v that x gives, (rows, columns)."""
    x = train.x[table] if train.members else train.x
    return conditions.take([table]).features(x)[0].cpu().numpy()  # type: ignore[arg-type]
