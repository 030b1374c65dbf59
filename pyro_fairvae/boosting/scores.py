"""Scores of boosted trees as further columns of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.ranks import current
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees, even_folds
from pyro_fairvae.boosting.tree_inputs import are_categories, tree_inputs
from pyro_fairvae.data.coded_columns import StatedGroups
from pyro_fairvae.data.scratch import scratch
from pyro_fairvae.data.splits import Splits
from pyro_fairvae.nn.trunks import TrunkOptions, chosen_trunk
from pyro_fairvae.schema.coded_rows import CodedRows
from pyro_fairvae.schema.observed import Columns, Observed

FOLDS = 5
FARTHEST = 8.0  # log-odds are clamped here
AT_ONCE = 1 << 16  # rows on disk that are scored together
UNIT = 2.0  # log-odds that count as one, since networks take columns of about unit variance


@dataclass(frozen=True)
class BoostedScores:
    """Log-odds of the label and of the group by trees, against the last value of each."""

    labels: CrossFittedTrees
    groups: CrossFittedTrees
    columns: Columns  # of rows without scores

    @staticmethod
    def learn(table: Observed, fold: np.ndarray, seed: int) -> BoostedScores:
        """Grow trees on the rows that state their label, and on those that state their group, by weight."""
        columns = table.columns
        assert isinstance(columns, Columns)
        inputs, categories = _inputs(table.x, columns), are_categories(columns)
        stated = StatedGroups(table.a_obs.cpu().numpy(), table.group_attributes).codes
        weight = None if table.weight is None else table.weight.double().cpu().numpy()
        return BoostedScores(
            CrossFittedTrees.grow(
                inputs, categories, table.y_obs.cpu().numpy(), fold, table.classes, weight, seed
            ),
            CrossFittedTrees.grow(
                inputs,
                categories,
                stated,
                fold,
                table.groups,
                weight,
                seed,
                fewest_columns=CrossFittedTrees.fewest_columns(table.group_attributes),
            ),
            columns,
        )

    @property
    def with_scores(self) -> Columns:
        """The columns of rows with scores."""
        return replace(self.columns, scores=len(self.labels.shares) + len(self.groups.shares) - 2)

    def to_learned(self, table: Observed, fold: np.ndarray) -> Observed:
        """The rows that trees were grown on, with scores of the trees of other folds.

        Of a table on disk, trees may have been grown on some rows; scores of all are written to a file.
        """
        if isinstance(table.x, CodedRows):
            return replace(table, x=self._on_disk(table.x, fold), columns=self.with_scores)
        inputs = _inputs(table.x, self.columns)
        scores = [trees.out_of_fold(inputs, fold) for trees in (self.labels, self.groups)]
        return replace(table, x=_joined(table.x, scores), columns=self.with_scores)

    def _on_disk(self, x: CodedRows, fold: np.ndarray) -> CodedRows:
        written = scratch((len(x.stored), self.with_scores.scores))
        for rows in torch.arange(len(x.index)).split(AT_ONCE):
            inputs, own = _inputs(x[rows], self.columns), fold[rows]
            scores = [trees.out_of_fold(inputs, own) for trees in (self.labels, self.groups)]
            written[x.index[rows]] = torch.cat(_odds(scores), dim=-1).float()
        return x.with_scores(written)

    def to_table(self, table: Observed) -> Observed:
        """Other rows, with mean scores over folds."""
        assert isinstance(table.x, Tensor)
        return replace(table, x=self.to_rows(table.x), columns=self.with_scores)

    def to_parts(self, parts: Splits, seed: int) -> Splits:
        """Parts of the table whose training rows trees were grown on, in folds of this seed."""
        test = parts.test
        assert isinstance(test.x, np.ndarray)
        x = self.to_rows(torch.from_numpy(test.x)).numpy()
        return replace(
            parts,
            train=self.to_learned(parts.train, folds_of(parts.train, seed)),
            validation=self.to_table(parts.validation),
            test=replace(test, x=x, columns=self.with_scores),
        )

    def to_rows(self, x: Tensor) -> Tensor:
        """Features of other rows, (rows, columns), with mean scores over folds."""
        inputs = _inputs(x, self.columns)
        return _joined(x, [trees.predict(inputs) for trees in (self.labels, self.groups)])


def for_trunk(
    parts: Splits,
    options: TrunkOptions,
    seed: int,
    learn: Callable[[Observed, np.ndarray, int], BoostedScores] = BoostedScores.learn,
) -> tuple[Splits, BoostedScores | None]:
    """Parts as the trunk of ``options`` takes them, and the trees whose scores they have, if they do.

    ``learn`` grows the trees, or has them from before.
    """
    if not chosen_trunk(parts.train.columns, options).scores:
        return parts, None
    scores = current().from_first(lambda: learn(parts.train, folds_of(parts.train, seed), seed))
    return scores.to_parts(parts, seed), scores


def folds_of(table: Observed, seed: int) -> np.ndarray:
    """The fold of each row."""
    fold = even_folds(table.y_obs.cpu().numpy(), table.a_obs.cpu().numpy(), FOLDS, seed)
    return fold.astype(np.uint8) if table.on_disk else fold


def _inputs(x: object, columns: Columns) -> np.ndarray:
    assert isinstance(x, Tensor)
    return tree_inputs(x, columns)


def _joined(x: object, scores: list[np.ndarray]) -> Tensor:
    assert isinstance(x, Tensor)
    return torch.cat([x, *(odds.to(x) for odds in _odds(scores))], dim=-1)


def _odds(scores: list[np.ndarray]) -> list[Tensor]:
    """Log-odds against the last value, (rows, values − 1) each."""
    logs = [np.log(of.clip(min=1e-12)) for of in scores]
    return [torch.from_numpy((log[:, :-1] - log[:, -1:]).clip(-FARTHEST, FARTHEST) / UNIT) for log in logs]
