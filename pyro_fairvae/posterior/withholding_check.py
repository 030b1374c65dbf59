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
also has the products of its categories and the shares: its effect may differ between groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from scipy import stats

from pyro_fairvae.channels.channel import Channel, Row
from pyro_fairvae.nn.conditions import LABEL, Conditions, feature_names, gap_of
from pyro_fairvae.posterior.sampler import bin_rows
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.observed import Columns, Observed, in_pieces

SCORES = "scores"  # the name of the bins of the networks' scores
BINS = 8  # of a number, and of the scores
FEWEST = 30  # rows of a category; smaller ones are one
REJECTED = 0.01  # p-values below it reject the assumption
MOST_SUGGESTED = 6


@dataclass(frozen=True)
class CategoryCheck:
    """The share of people who withhold in a category, as recorded and as predicted."""

    name: str
    rows: int
    observed: float
    expected: float
    standard_error: float  # of their difference

    @property
    def distance(self) -> float:
        """Standard errors between what was recorded and what is predicted."""
        return abs(self.observed - self.expected) / max(self.standard_error, 1e-12)


@dataclass(frozen=True)
class ColumnCheck:
    """How well the withholding within the categories of a column is predicted."""

    name: str
    statistic: float
    degrees: int
    p_value: float
    categories: tuple[CategoryCheck, ...]
    in_v: bool = False

    @property
    def candidate(self) -> bool:
        """Whether the column could be put into ``withholding_depends_on``."""
        return not self.in_v and self.name != SCORES and not self.name.endswith(PROXY)

    @property
    def explained(self) -> float:
        """χ² less its degrees of freedom, which is its mean where the assumption holds."""
        return self.statistic - self.degrees


class CheckSummary(TypedDict):
    """A :class:`WithholdingCheck` with what it says; ``columns`` are its columns as mappings."""

    says: str
    rejected: bool
    p_value: float
    suggestions: list[str]
    columns: list[dict[str, Any]]


@dataclass(frozen=True)
class WithholdingCheck:
    """Whether what was recorded agrees with the assumption on withholding.

    Attributes
    ----------
    p_value : float
        Uniform where the assumption holds; those of the columns combined by Cauchy's rule, which allows for
        their dependence.
    columns : tuple of ColumnCheck
        Those that speak most against the assumption first.
    """

    p_value: float
    columns: tuple[ColumnCheck, ...]

    @staticmethod
    def of(summary: Mapping[str, Any]) -> WithholdingCheck:
        """The check that the summary of a posterior holds, where a number that is not finite is None."""
        columns = [
            ColumnCheck(
                **{key: _number(value) for key, value in column.items() if key != "categories"},
                categories=tuple(
                    CategoryCheck(**{key: _number(value) for key, value in category.items()})
                    for category in column["categories"]
                ),
            )
            for column in summary["columns"]
        ]
        return WithholdingCheck(_number(summary["p_value"]), tuple(columns))

    def summary(self) -> CheckSummary:
        """What it says and all its columns in types that JSON supports; :meth:`of` reads it."""
        return {
            "says": self.in_words(),
            "rejected": self.rejected,
            "p_value": self.p_value,
            "suggestions": self.suggestions(),
            "columns": [asdict(column) for column in self.columns],
        }

    @property
    def rejected(self) -> bool:
        return self.p_value < REJECTED

    def against(self) -> list[ColumnCheck]:
        """The columns that reject the assumption, by Holm's rule, the strongest first."""
        ordered = sorted(self.columns, key=lambda column: column.p_value)
        kept = 0
        while kept < len(ordered) and ordered[kept].p_value * (len(ordered) - kept) < REJECTED:
            kept += 1
        return sorted(ordered[:kept], key=lambda column: column.explained, reverse=True)

    def candidates(self) -> list[ColumnCheck]:
        """The columns that could be put into ``withholding_depends_on``, those that explain most first."""
        columns = [column for column in self.columns if column.candidate]
        return sorted(columns, key=lambda column: column.explained, reverse=True)

    def suggestions(self) -> list[str]:
        """Columns to put into ``withholding_depends_on``, those that explain most first."""
        return [column.name for column in self.against() if column.candidate]

    def in_words(self) -> str:
        """One line: whether the assumption is rejected, by what, and what to do."""
        if not self.rejected:
            return (
                f"Check of the assumption on withholding: nothing speaks against it (p = {self.p_value:.2g})."
            )
        against = ", ".join(column.name for column in self.against()[:MOST_SUGGESTED])
        words = (
            f"The assumption on withholding is REJECTED (p {_small(self.p_value)}), so the rates below are "
            f"not to be trusted: withholding differs with {against} in ways it does not allow."
        )
        suggested = self.suggestions()[:MOST_SUGGESTED]
        if suggested:
            return f"{words} Put into withholding_depends_on: {','.join(suggested)}."
        return f"{words} These effects differ between groups, or a proxy tells of withholding itself."


PROXY = " (proxy)"


def _number(value: Any) -> Any:
    return float("nan") if value is None else value


def _small(p_value: float) -> str:
    return f"= {p_value:.2g}" if p_value >= 1e-6 else "< 1e-6"


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
) -> WithholdingCheck | None:
    """Compare who withholds with what the channel predicts; None for a channel that it cannot be done for.

    ``scores`` are h, cross-fitted and recalibrated, (rows, values); ``rows`` are the rows of the channel at
    the mean of v, on their supports; ``tilt`` is w·v, (rows, attributes), or (rows, classes, attributes) with
    the label in v. Bins of the scores are left out without ``by_scores``. It needs a channel in which nobody
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
    kept = np.ones(len(outcome), dtype=bool)
    if tilt is not None and tilt.ndim == 3:  # only where the label is stated
        kept = label < train.classes
        tilt = tilt[np.arange(len(label)), np.where(kept, label, 0)]
    cell = np.zeros(len(outcome), dtype=int)
    if channel.crossed:
        cells = [channel.cell(piece if piece.dim() == 2 else piece[table]) for piece in in_pieces(train.x)]
        cell = torch.cat(cells, dim=1)[0].cpu().numpy()
        if channel.by_label:
            cell = cell[np.arange(len(label)), np.where(kept, label, 0)]
    crossed = {column.name for column in channel.crossed}  # which rows by cell fit exactly
    partitions = _partitions(train, scores, label, table)[0 if by_scores else 1 :]
    partitions = [partition for partition in partitions if partition.name not in crossed]
    features = None
    if conditions is not None:
        features = _features(train, conditions, table)
        if conditions.classes:
            shares = conditions.labels[table].cpu().numpy()
            features = np.concatenate([features, shares[np.where(kept, label, 0)]], axis=1)
    found: dict[str, list[ColumnCheck]] = {}
    for j, attribute in enumerate(attributes.names):
        t = np.zeros(len(outcome)) if tilt is None else tilt[:, j]
        residual = _Residual.make(channel, attribute, outcome, scores, rows, t, cell)
        instruments = residual.instruments if features is None else np.c_[residual.instruments, features]
        for partition in partitions:
            in_v = conditions is not None and partition.name in conditions.names
            checked = residual.check(partition, instruments, features, scores if in_v else None, kept)
            if checked is not None:
                prefix = f"{attribute}: " if len(attributes.names) > 1 else ""
                found.setdefault(prefix, []).append(checked)
    columns = [column for several in found.values() for column in several]
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
    """The residual e of one attribute, and its slopes along the odds of each row of its channel."""

    withheld: np.ndarray  # (rows,)
    predicted: np.ndarray  # Σ_a [ã = a] o_a e^t, (rows,)
    slopes: np.ndarray  # of e along the odds, (rows, channel's rows)
    instruments: np.ndarray  # shares of the groups of each row of the channel
    variance: np.ndarray  # of e given x, (rows,)

    @staticmethod
    def make(
        channel: Channel,
        attribute: str,
        outcome: np.ndarray,
        scores: np.ndarray,
        rows: Sequence[np.ndarray],
        tilt: np.ndarray,
        cell: np.ndarray,
    ) -> _Residual:
        j = channel.attributes.names.index(attribute)
        stated = channel.attributes.outcome_parts[outcome, j]
        size = len(channel.attributes.values[j])
        slopes, instruments, odds = [], [], []
        for row, probabilities in zip(channel.rows, rows, strict=True):
            if row.attribute != attribute:
                continue
            place = row.outcomes.index(UNAVAILABLE)
            odds.append(probabilities[place] / max(1 - probabilities[place], 1e-9))
            values = np.unique(channel.attributes.group_parts[row.groups, j])
            inside = np.isin(cell, row.cells)
            slopes.append(np.where(inside & np.isin(stated, values), -np.exp(tilt), 0.0))
            instruments.append(inside * scores[:, row.groups].sum(1))
        along, shares = np.stack(slopes, axis=1), np.stack(instruments, axis=1)
        variance = np.exp(tilt) * (shares @ np.array(odds))
        return _Residual(stated == size, -along @ np.array(odds), along, shares, variance)

    def check(
        self,
        partition: _Partition,
        instruments: np.ndarray,
        features: np.ndarray | None,
        scores: np.ndarray | None,
        kept: np.ndarray,
    ) -> ColumnCheck | None:
        """The statistic of a column, and its categories."""
        inside = kept & (partition.category >= 0)
        codes, names = _merged(partition.category[inside], partition.names)
        if len(names) < 2:
            return None
        residual = (self.withheld - self.predicted)[kept]
        weight = 1 / self.variance[kept].clip(min=1e-9)
        indicators = np.zeros((int(kept.sum()), len(names)))
        indicators[np.flatnonzero(inside[kept]), codes] = 1
        columns = indicators
        if scores is not None:  # the column itself is in v, so its products with the scores are checked
            products = indicators[:, :, None] * scores[kept][:, None, :-1]
            columns = np.c_[indicators, products.reshape(len(products), -1)]
        slopes = self.slopes[kept]
        if features is not None:
            slopes = np.c_[slopes, -self.predicted[kept, None] * features[kept]]
        z, weighted = instruments[kept], weight[:, None] * slopes
        # B makes the mean of (A − BZ) times the slopes 0.
        b = np.linalg.lstsq((z.T @ weighted).T, (columns.T @ weighted).T, rcond=1e-8)[0].T
        rest = weight[:, None] * (columns - z @ b.T)
        moments, variance = rest.T @ residual, (rest / weight[:, None]).T @ rest
        statistic, degrees = _quadratic(moments, variance)
        people = indicators.sum(0)
        observed = indicators.T @ self.withheld[kept] / people
        # As above with equal weights: differences in numbers of people.
        b = np.linalg.lstsq((z.T @ slopes).T, (indicators.T @ slopes).T, rcond=1e-8)[0].T
        plain = indicators - z @ b.T
        expected = observed - plain.T @ residual / people
        errors = np.sqrt((plain**2).T @ self.variance[kept]) / people
        categories = tuple(
            CategoryCheck(name, int(rows), float(o), float(e), float(s))
            for name, rows, o, e, s in zip(names, people, observed, expected, errors, strict=True)
        )
        p_value = float(stats.chi2.sf(statistic, degrees)) if degrees else 1.0
        return ColumnCheck(partition.name, statistic, degrees, p_value, categories, scores is not None)


def _quadratic(moments: np.ndarray, variance: np.ndarray) -> tuple[float, int]:
    """m'V⁺m and the rank of V, relative to the size of its diagonal."""
    scale = np.sqrt(np.diag(variance).clip(min=1e-300))
    values, vectors = np.linalg.eigh(variance / np.outer(scale, scale))
    large = values > 1e-6 * values[-1]
    along = vectors.T @ (moments / scale)
    return float((along[large] ** 2 / values[large]).sum()), int(large.sum())


def _combined(p_values: np.ndarray) -> float:
    """Cauchy's combination of p-values that may depend on each other (Liu and Xie 2020)."""
    angles = np.tan(np.pi * (0.5 - p_values.clip(1e-15, 1 - 1e-6)))
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
    """Codes of the categories with enough rows, all smaller ones as one."""
    counts = np.bincount(category, minlength=len(names))
    large = np.flatnonzero(counts >= FEWEST)
    code = np.full(len(names), len(large))
    code[large] = np.arange(len(large))
    kept = [names[int(c)] for c in large]
    rest = counts[counts < FEWEST].sum()
    if rest and rest < FEWEST and len(large):  # too few even together
        code[code == len(large)] = int(counts[large].argmin())
    elif rest:
        kept.append("others")
    return code[category], kept


def _features(train: Observed, conditions: Conditions, table: int) -> np.ndarray:
    """The columns of v that x gives, (rows, columns)."""
    x = train.x[table] if train.members else train.x
    return conditions.take([table]).features(x)[0].cpu().numpy()  # type: ignore[arg-type]
