r"""Labels and groups of rows that do not state them, from models that were not fitted on the rows.

The label is that of a cross-fitted classifier, recalibrated while P(ỹ|y) is learned. Who withholds,
P(ã|a), or P(ã|a,v) where withholding depends on v, is learned from cross-fitted scores of the group given x.
P(a|x,y) is learned from rows that state both, weighed by 1/P(stated|a,v), and then

.. math:: P(y, a|x, \tilde y, \tilde a) \propto P(y|x) P(\tilde y|y) P(a|x,y) P(\tilde a|a,v).

v may have the label. Where there are proxies u, P(a|x,u,y) imputes in place of P(a|x,y); decisions are made
by the latter, P(y, a|x).

Nothing here knows of fairness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.boosting.tree_inputs import are_categories, tree_inputs
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.coded_columns import StatedGroups
from pyro_fairvae.data.scratch import scratch
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.inference.refinement import every_row
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.calibration import Calibrated, Dependence, calibrate_scores, conditions_of
from pyro_fairvae.posterior.scored_rows import recalibrated
from pyro_fairvae.risks import RiskSettings
from pyro_fairvae.schema.observed import Columns, Imputation, Observed

LEAST_STATED = 0.01  # P(stated|a), whose inverse are weights, is taken to be at least this
FEWEST_OF_GROUP = 20  # rows with a label that state a group, from which trees impute groups
AT_ONCE = 1 << 16  # rows on disk that are imputed together
DRAWS = 300  # of each chain, of the posteriors of who withholds


@dataclass(frozen=True)
class Imputed:
    """What is believed of every row."""

    label: np.ndarray  # P(y|x), (rows, classes)
    cells: np.ndarray  # P(y, a|x), (rows, classes, groups)
    joint: np.ndarray  # P(y, a|x, ỹ, ã), (rows, classes, groups)
    label_given: np.ndarray  # P(y|x, ỹ), (rows, classes)

    def some(self, rows: slice) -> Imputed:
        """Some of the rows."""
        return Imputed(self.label[rows], self.cells[rows], self.joint[rows], self.label_given[rows])


@dataclass(frozen=True)
class LabelImputer:
    """P(y|x) from scores of a cross-fitted classifier, and P(ỹ|y)."""

    withholding: Calibrated

    @staticmethod
    def learn(scores: np.ndarray, table: Observed, prior: Any, seed: int) -> LabelImputer:
        of = channel("y", table.label_attributes, prior)
        given = torch.from_numpy(scores)[None], table.y_obs[None], DRAWS, seed
        return LabelImputer(calibrate_scores(of, *given, weights=_of_table(table)))

    @property
    def recalibration(self) -> np.ndarray | None:
        """b and C, (classes − 1, classes); None where scores are taken as they are."""
        found = self.withholding.recalibration
        return None if found is None else found[0]

    def given(self, label: np.ndarray, y_obs: np.ndarray) -> np.ndarray:
        """P(y|x, ỹ)."""
        joint = label * _mean_matrix(self.withholding)[:, y_obs].T
        return np.asarray(joint / joint.sum(1, keepdims=True))


def recalibrated_labels(scores: np.ndarray, recalibration: np.ndarray | None) -> np.ndarray:
    """P(y|x), (rows, classes), from a classifier's scores."""
    if recalibration is None:
        return scores
    return recalibrated(torch.from_numpy(scores), torch.from_numpy(recalibration)).numpy()


@dataclass(frozen=True)
class GroupImputer:
    """P(a|x,y) by trees, and P(ã|a), or P(ã|a,v)."""

    trees: CrossFittedTrees
    withholding: Calibrated
    with_proxies: CrossFittedTrees | None = None  # P(a|x,u,y), where there are proxies u

    @staticmethod
    def learn(
        table: Observed,
        label: np.ndarray,
        labels: LabelImputer,
        fold: np.ndarray,
        settings: Settings,
        seed: int,
        of_x: CrossFittedTrees | None = None,
    ) -> GroupImputer:
        """From rows and P(y|x), by which decisions are made: groups are calibrated along it.

        Of ``settings`` those of withholding count. ``of_x`` are trees for the group given x, grown on these
        rows, if there are some already; they are of no use where there are proxies.
        """
        attributes, classes, groups = table.group_attributes, table.classes, table.groups
        y_obs, a_obs = table.y_obs.numpy(), table.a_obs.numpy()
        stated = StatedGroups(a_obs, attributes).codes  # of rows that state all attributes
        folds = int(fold.max()) + 1
        require(
            bool((np.bincount(stated[stated < groups], minlength=groups) > folds).all()),
            f"every group must be stated by more than {folds} rows, the number of folds; merge or drop rare "
            "groups, or use fewer folds.",
        )
        inputs, categories = _inputs(table)
        known_too, categories_too = _with_proxies(table)
        of_rows = None if table.weight is None else table.weight.double().numpy()
        if of_x is None or table.u is not None:
            of_x = CrossFittedTrees.grow(
                known_too, categories_too, stated, fold, groups, of_rows, seed,
                CrossFittedTrees.fewest_columns(attributes),
            )  # fmt: skip
        of = channel_of_groups(table, settings)
        dependence, conditions = None, conditions_of(table, of, settings)
        if conditions is not None:
            given = torch.from_numpy(labels.given(label, y_obs))[None]
            dependence = Dependence.of(table, conditions, of, given)
        withholding = calibrate_scores(
            of,
            torch.from_numpy(of_x.out_of_fold(known_too, fold))[None],
            table.a_obs[None],
            DRAWS,
            seed,
            dependence,
            settings.withholding_scale,
            table,
            _of_table(table),
        )
        known = np.where((stated < groups) & (y_obs < classes), stated, groups)
        weight = _weights(withholding, table, stated) * (1 if of_rows is None else of_rows)

        def grow(columns: np.ndarray, kinds: np.ndarray) -> CrossFittedTrees:
            scored = _scored(columns, label)
            with_label = np.column_stack([scored, np.where(y_obs < classes, y_obs, np.nan)])
            more = np.repeat([False, True], [scored.shape[1] - columns.shape[1], 1])
            kinds = np.concatenate([kinds, more])
            fewest = CrossFittedTrees.fewest_columns(attributes)
            return CrossFittedTrees.grow(with_label, kinds, known, fold, groups, weight, seed, fewest)

        return GroupImputer(
            grow(inputs, categories),
            withholding,
            None if table.u is None else grow(known_too, categories_too),
        )

    def out_of_fold(self, table: Observed, label: np.ndarray, fold: np.ndarray) -> np.ndarray:
        """P(a|x,y) of the rows it was learned from, (rows, classes, groups)."""
        return _by_label(lambda rows: self.trees.out_of_fold(rows, fold), _inputs(table)[0], label)

    def believed(self, table: Observed, label: np.ndarray, fold: np.ndarray | None) -> np.ndarray:
        """What imputes: P(a|x,y), or P(a|x,u,y) where there are proxies, (rows, classes, groups).

        Of the rows that it was learned from if ``fold`` is given, else of others, which may lack proxies.
        """
        proxied = self.with_proxies is not None and table.u is not None
        trees = self.with_proxies if proxied and self.with_proxies is not None else self.trees
        inputs = (_with_proxies(table) if proxied else _inputs(table))[0]
        if fold is None:
            return groups_by_label(trees, inputs, label)
        return _by_label(lambda rows: trees.out_of_fold(rows, fold), inputs, label)

    def joint(self, by_label: np.ndarray, label_given: np.ndarray, table: Observed) -> np.ndarray:
        """P(y, a|x, ỹ, ã) of rows with P(a|x,y) and P(y|x,ỹ), (rows, classes, groups).

        Where withholding depends on v, what is stated of the group tells of the label, too.
        """
        each = by_label * _likelihood(self.withholding, table)
        if self.withholding.by_row is not None:
            whole = label_given[..., None] * each
            return np.asarray(whole / whole.sum((1, 2), keepdims=True).clip(min=1e-300))
        return np.asarray(label_given[..., None] * (each / each.sum(2, keepdims=True).clip(min=1e-300)))


def _of_table(table: Observed) -> torch.Tensor | None:
    """Weights of rows, (1, rows)."""
    return None if table.weight is None else table.weight[None]


def groups_by_label(trees: CrossFittedTrees, inputs: np.ndarray, label: np.ndarray) -> np.ndarray:
    """P(a|x,y) of new rows, (rows, classes, groups), given P(y|x)."""
    return _by_label(trees.predict, inputs, label)


def _by_label(
    predict: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray, label: np.ndarray
) -> np.ndarray:
    """Scores of groups as if every row had each of the labels, (rows, classes, groups)."""
    scored, classes = _scored(inputs, label), label.shape[1]
    return np.stack(
        [predict(np.column_stack([scored, np.full(len(scored), y)])) for y in range(classes)], axis=1
    )


def _scored(inputs: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Columns for trees, and P(y|x) of all classes but the first."""
    return np.column_stack([inputs, label[:, 1:]])


def imputed(
    label: np.ndarray, labels: LabelImputer, groups: GroupImputer, table: Observed, fold: np.ndarray
) -> Imputed:
    """What is believed of the rows that the imputers were learned from, given P(y|x) out of fold."""
    by_label = groups.out_of_fold(table, label, fold)
    label_given = labels.given(label, table.y_obs.numpy())
    believed = by_label if groups.with_proxies is None else groups.believed(table, label, fold)
    joint = groups.joint(believed, label_given, table)
    if groups.withholding.by_row is not None:
        label_given = joint.sum(2)
    return Imputed(label, label[..., None] * by_label, joint, label_given)


@dataclass(frozen=True)
class TreeImputer:
    """P(y, a|x, ỹ, ã) by trees for labels and for groups, and who withholds."""

    labels: LabelImputer
    groups: GroupImputer
    scores: BoostedScores
    learned: Imputation  # of the rows that it was learned from, by trees of other folds

    @staticmethod
    def learn(
        table: Observed, fold: np.ndarray, settings: Settings, seed: int, scores: BoostedScores | None = None
    ) -> TreeImputer | None:
        """From rows in folds, and from ``scores`` of trees that were grown on them, if there are some.

        None where trees cannot impute: if rows are images, if people may misstate, or if too few rows state
        label and group; and where the settings of the risk ask for another imputation.
        """
        if not (_cross_fitted(settings.fairness, scores is not None) and _trees_impute(settings, table)):
            return None
        scores = BoostedScores.learn(table, fold, seed) if scores is None else scores
        found = scores.labels.out_of_fold(_inputs(table)[0], fold)
        labels = LabelImputer.learn(found, table, settings.prior_y, seed)
        label = recalibrated_labels(found, labels.recalibration)
        groups = GroupImputer.learn(table, label, labels, fold, settings, seed, scores.groups)
        believed = imputed(label, labels, groups, table, fold)
        learned = Imputation(torch.from_numpy(believed.joint), torch.from_numpy(believed.label))
        return TreeImputer(labels, groups, scores, learned)

    def of_training(self, train: Observed, fold: np.ndarray, settled: bool) -> Imputation:
        """Of training rows, by trees of other folds; of a table on disk, which trees saw a sample of, too.

        If decisions are only ``settled`` by it, of the rows on disk that they are settled on.
        """
        if not train.on_disk:
            return self.learned
        if settled:
            rows = torch.arange(0, train.rows, every_row(train))
            return self._of_fold(train.loaded(rows), fold[rows])
        joint = scratch((train.rows, train.classes, train.groups))
        label = scratch((train.rows, train.classes))
        for rows in torch.arange(train.rows).split(AT_ONCE):
            some = self._of_fold(train.loaded(rows), fold[rows])
            joint[rows], label[rows] = some.joint.float(), some.label.float()
        return Imputation(joint, label)

    def _of_fold(self, table: Observed, fold: np.ndarray) -> Imputation:
        found = self.scores.labels.out_of_fold(_inputs(table)[0], fold)
        label = recalibrated_labels(found, self.labels.recalibration)
        believed = imputed(label, self.labels, self.groups, table, fold)
        return Imputation(torch.from_numpy(believed.joint), torch.from_numpy(believed.label))

    @property
    def withholding(self) -> dict[str, Calibrated]:
        """Who withholds, by channel."""
        return {"a": self.groups.withholding, "y": self.labels.withholding}

    def joint(self, table: Observed) -> torch.Tensor:
        """P(y, a|x, ỹ, ã) of other rows, (rows, classes, groups)."""
        inputs, _ = _inputs(table)
        label = recalibrated_labels(self.scores.labels.predict(inputs), self.labels.recalibration)
        by_label = self.groups.believed(table, label, None)
        given = self.labels.given(label, table.y_obs.numpy())
        return torch.from_numpy(self.groups.joint(by_label, given, table))


def _cross_fitted(fairness: RiskSettings, has_trees: bool) -> bool:
    """Whether the risk takes imputations that are cross-fitted.

    By default where trees are grown anyway: P(a|x,y) of trees is calibrated along their own P(y|x), which
    are then close to the scores that decide.
    """
    wanted = fairness.imputation == "cross_fitted" or (fairness.imputation == "auto" and has_trees)
    return wanted and (fairness.imputer, fairness.labeller) == ("outcome", "head")


def _trees_impute(settings: Settings, train: Observed) -> bool:
    """Whether trees can impute: nobody misstates, and enough rows state label and group."""
    if not isinstance(train.columns, Columns):
        return False
    channels = (
        channel_of_groups(train, settings),
        channel("y", train.label_attributes, settings.prior_y),
    )
    stated = StatedGroups(train.a_obs.numpy(), train.group_attributes).codes
    known = stated[(stated < train.groups) & (train.y_obs.numpy() < train.classes)]
    return (
        all(of.truthful for of in channels)
        and int(np.bincount(known, minlength=train.groups).min()) >= FEWEST_OF_GROUP
    )


def _inputs(table: Observed) -> tuple[np.ndarray, np.ndarray]:
    assert isinstance(table.x, torch.Tensor)
    assert isinstance(table.columns, Columns)
    return tree_inputs(table.x, table.columns), are_categories(table.columns)


def _with_proxies(table: Observed) -> tuple[np.ndarray, np.ndarray]:
    """Columns of x for trees and, if there are some, of proxies u."""
    inputs, categories = _inputs(table)
    if table.u is None or table.u_columns is None:
        return inputs, categories
    known_too = tree_inputs(table.u, table.u_columns)
    return np.column_stack([inputs, known_too]), np.concatenate([categories, are_categories(table.u_columns)])


def _likelihood(withholding: Calibrated, table: Observed) -> np.ndarray:
    """P(ã|a,v) of what rows state, (rows, classes, groups); one class unless v has the label."""
    if withholding.by_row is not None:
        return withholding.by_row.likelihood(table)
    return _mean_matrix(withholding)[:, table.a_obs.numpy()].T[:, None]


def _weights(withholding: Calibrated, table: Observed, stated: np.ndarray) -> np.ndarray:
    """1/P(stated|a,v) of rows that state their group, as a multiple of its mean over groups, else 0.

    P(a|x,y) depends on how the weights of groups differ at the same v and label alone; so much as people with
    this v state less than others need not make a few of them count for many.
    """
    rows = np.flatnonzero(stated < table.groups)
    weight = np.zeros(len(stated))
    if withholding.by_row is None:
        names = list(table.group_attributes.outcome_names)
        whole = [names.index(name) for name in table.group_attributes.group_names]
        states = _mean_matrix(withholding)[np.arange(table.groups), whole].clip(min=LEAST_STATED)
        weight[rows] = 1 / states[stated[rows]]
    else:
        rates = withholding.by_row.stated(table).clip(min=LEAST_STATED)
        of_label = np.minimum(table.y_obs.numpy(), rates.shape[1] - 1)[rows]
        weight[rows] = rates[rows, of_label].mean(1) / rates[rows, of_label, stated[rows]]
    return weight


def _mean_matrix(posterior: Calibrated) -> np.ndarray:
    """P(observed|latent) at the posterior means, (values, outcomes)."""
    rows = [torch.from_numpy(row.mean((0, 1))[0]) for row in posterior.draws.rows]
    return posterior.draws.channel.matrix(rows).numpy()
