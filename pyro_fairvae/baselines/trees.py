r"""Boosted trees for labels and groups, and three ways to make their decisions fair.

They have no trunk, so they are the same beside every one.

``fit_trees_settled``    decisions adjusted by P(y, a|x) and settled to targets
(:mod:`pyro_fairvae.decisions.targets`):
                         ``FairDecisions`` in the interface of this room. The weight w > 0 of a member is 1/ε.
``fit_trees_thresholds`` post-processing (Hardt, Price and Srebro 2016): a threshold on P(y|x) for each group
of
                         argmax P(a|x), which minimise error + λF on training rows. Labels and groups that are
                         not stated are guessed, as if they were certain.
``fit_trees_reduced``    Fairlearn's exponentiated gradient (:mod:`.reductions`) on all rows, with such
guesses.

Trees are cross-fitted: no row is guessed or judged by trees that were grown on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.baselines.guesses import cells_of
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.reductions import RandomisedClassifiers, fit_exponentiated_gradient
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees
from pyro_fairvae.boosting.scores import BoostedScores, folds_of
from pyro_fairvae.boosting.tree_inputs import tree_inputs
from pyro_fairvae.decisions.group_thresholds import tuned_thresholds
from pyro_fairvae.decisions.joint_objective import DecisionProblem
from pyro_fairvae.decisions.targets import settle
from pyro_fairvae.estimator.fair_decisions import adjusted
from pyro_fairvae.estimator.imputation import (
    GroupImputer,
    LabelImputer,
    groups_by_label,
    imputed,
    recalibrated_labels,
)
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.risks import ComposedRisk
from pyro_fairvae.schema.observed import Columns, Features, in_pieces

Decide = Callable[[np.ndarray, np.ndarray, int], np.ndarray]  # of inputs, P(y|x) and the number of a member


@dataclass(frozen=True)
class TreeClassifier:
    """Trees for labels, and how members decide by them."""

    labels: Callable[[np.ndarray], np.ndarray]  # P(y|x) of inputs
    columns: Columns
    members: int
    decided: Decide

    def _inputs(self, x: Features) -> np.ndarray:
        return tree_inputs(torch.cat(list(in_pieces(x))), self.columns)

    def predict_proba(self, x: Features) -> Tensor:
        probability = torch.from_numpy(self.labels(self._inputs(x)))
        return probability.expand(self.members, *probability.shape)

    def decide(self, x: Features) -> Tensor:
        inputs = self._inputs(x)
        label = self.labels(inputs)
        return torch.from_numpy(np.stack([self.decided(inputs, label, k) for k in range(self.members)]))


def targets_of(weights: Sequence[float]) -> list[float]:
    """ε = 1/w of the weights above 0."""
    check_lambdas(weights)
    small = [weight for weight in weights if 0 < weight < 1]
    require(not small, f"weights of settled decisions are 0 or at least 1, as 1/target, got {small}.")
    return [1 / weight for weight in weights if weight > 0]


def risk_of_rates(task: Task) -> ComposedRisk:
    """The risk of the task, which must be a function of rates."""
    risk = task.settings.fairness.chosen()
    require(
        isinstance(risk, ComposedRisk), f"the risk {task.settings.fairness.risk!r} is no function of rates."
    )
    assert isinstance(risk, ComposedRisk)
    return risk


def fit_trees_settled(task: Task, weights: Sequence[float]) -> TreeClassifier:
    targets, risk = targets_of(weights), risk_of_rates(task)
    train = on_cpu(task).train
    assert isinstance(train.columns, Columns)
    fold = folds_of(train, task.seed)
    scores = BoostedScores.learn(train, fold, task.seed)
    inputs = tree_inputs(_features(train.x), train.columns)
    out_of_fold = scores.labels.out_of_fold(inputs, fold)
    labeller = LabelImputer.learn(out_of_fold, train, task.settings.prior_y, task.seed)
    recalibration = labeller.recalibration
    label = recalibrated_labels(out_of_fold, recalibration)
    groups = GroupImputer.learn(train, label, labeller, fold, task.settings, task.seed, scores.groups)
    found = imputed(label, labeller, groups, train, fold)
    scored, cells, joint, given = (
        torch.from_numpy(part) for part in (found.label, found.cells, found.joint, found.label_given)
    )
    none = np.zeros((1, train.classes, train.classes, train.groups))
    aims = torch.tensor(targets, dtype=torch.float64)
    settled = settle(scored, cells, joint, given, risk, aims) if targets else None
    nu = none if settled is None else np.concatenate([none, settled.adjustment.numpy()])
    of_member = [0 if weight == 0 else 1 + targets.index(1 / weight) for weight in weights]
    grouper = groups.trees

    def decided(inputs: np.ndarray, label: np.ndarray, k: int) -> np.ndarray:
        cells = label[..., None] * groups_by_label(grouper, inputs, label)
        return adjusted(label, cells, nu[of_member[k]]).argmax(1)

    def labels(inputs: np.ndarray) -> np.ndarray:
        return recalibrated_labels(scores.labels.predict(inputs), recalibration)

    return TreeClassifier(labels, train.columns, len(weights), decided)


def fit_trees_thresholds(task: Task, weights: Sequence[float]) -> TreeClassifier:
    check_lambdas(weights)
    train, risk = on_cpu(task).train, risk_of_rates(task)
    require(train.classes == 2, f"thresholds need two classes, but there are {train.classes}.")
    found = guessed_by_trees(task)
    cells = cells_of(found.labels, found.groups, train.classes, train.groups, torch.float64)
    log_q = torch.from_numpy(found.label.clip(min=1e-12)).log()
    thresholds = []
    for weight in weights:
        problem = DecisionProblem(log_q, cells, risk, weight, samples=1, loss="error")
        problem.likeliest_group = found.likeliest  # as for new rows, of which no group is known
        halves = torch.full((train.groups,), 0.5, dtype=torch.float64)
        thresholds.append((tuned_thresholds(problem, _silent) if weight > 0 else halves).numpy())
    labels, groups = found.scores.labels, found.scores.groups
    assert isinstance(train.columns, Columns)

    def decided(inputs: np.ndarray, label: np.ndarray, k: int) -> np.ndarray:
        return (label[:, 1] > thresholds[k][groups.predict(inputs).argmax(1)]).astype(int)

    return TreeClassifier(labels.predict, train.columns, len(weights), decided)


def fit_trees_reduced(task: Task, weights: Sequence[float]) -> RandomisedClassifiers:
    found = guessed_by_trees(task)
    train = task.train
    guessed = replace(
        train, y_obs=found.labels.to(train.y_obs.device), a_obs=found.groups.to(train.a_obs.device)
    )
    return fit_exponentiated_gradient(replace(task, train=guessed), weights)


@dataclass(frozen=True)
class Guessed:
    """Labels and groups of training rows as stated, or as trees of other folds guess them."""

    labels: Tensor  # (rows,)
    groups: Tensor  # (rows,)
    likeliest: Tensor  # argmax P(a|x), (rows,)
    label: np.ndarray  # P(y|x), (rows, classes)
    scores: BoostedScores


def guessed_by_trees(task: Task) -> Guessed:
    """Labels and groups that are not stated, by trees that were not grown on the row."""
    train = on_cpu(task).train
    require(
        bool((train.a_obs < train.groups).any()), "no row states its group, so that no tree can guess one."
    )
    assert isinstance(train.columns, Columns)
    fold = folds_of(train, task.seed)
    scores = BoostedScores.learn(train, fold, task.seed)
    inputs = tree_inputs(_features(train.x), train.columns)
    label, group = (_out_of_fold(trees, inputs, fold) for trees in (scores.labels, scores.groups))
    likeliest = group.argmax(-1)
    return Guessed(
        torch.where(train.y_obs < train.classes, train.y_obs, label.argmax(-1)),
        torch.where(train.a_obs < train.groups, train.a_obs, likeliest),
        likeliest,
        label.numpy(),
        scores,
    )


def on_cpu(task: Task) -> Task:
    """The task where trees grow."""
    return replace(task, device="cpu")


def _out_of_fold(trees: CrossFittedTrees, inputs: np.ndarray, fold: np.ndarray) -> Tensor:
    return torch.from_numpy(trees.out_of_fold(inputs, fold))


def _features(x: object) -> Tensor:
    assert isinstance(x, Tensor)
    return x


def _silent(words: str) -> None:
    """No progress in words."""
