"""The semi-supervised VAE of this library as a method: complete, ablated, or on other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import changed
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import rows_with_label
from pyro_fairvae.baselines.trees import targets_of
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import fit
from pyro_fairvae.schema.observed import Imputation, Observed


def all_rows(task: Task) -> Observed:
    return task.train


def rows_with_group(task: Task) -> Observed:
    """Only the training rows that state their group."""
    rows = rows_with_label(task.train.a_obs, task.train.groups)
    require(len(rows) > 0, "no row states its group, so there is nothing to train on.")
    return task.train.take(rows)


def rows_with_truth(task: Task) -> Observed:
    """Training rows with nothing hidden."""
    y, a = (torch.from_numpy(codes).to(task.train.x.device) for codes in (task.known.y, task.known.a))
    return replace(task.train, y_obs=y, a_obs=a)


def fit_library(
    options: dict[str, Any] | None = None, rows: Callable[[Task], Observed] = all_rows
) -> Callable[[Task, Sequence[float]], Fit]:
    """The semi-supervised VAE with some options changed."""

    def fit_weights(task: Task, weights: Sequence[float]) -> Fit:
        settings, train = changed(task.settings, options or {}), rows(task)
        believed = imputation(task, train, settings) if any(weights) else None
        return fit(
            train, task.validation, list(weights), settings, task.seed, task.device, imputation=believed
        )

    return fit_weights


def fit_settled(rows: Callable[[Task], Observed] = all_rows) -> Callable[[Task, Sequence[float]], Fit]:
    """The semi-supervised VAE without a risk, its decisions settled to targets, 1/w of the weights w > 0.

    With the scores of boosted trees in the trunk, trees impute labels and groups; else networks of other
    folds.
    """

    def fit_weights(task: Task, weights: Sequence[float]) -> Fit:
        targets, train, settings = targets_of(weights), rows(task), task.settings
        require(
            0 in weights,
            f"settled decisions have a member without a target: give weight 0, too, got {list(weights)}.",
        )
        if not targets:
            return fit(train, task.validation, [0.0] * len(weights), settings, task.seed, task.device)
        fold = torch.from_numpy(folds_of(train.to("cpu"), task.seed)).to(train.y_obs.device)
        return fit_to_targets(
            train, task.validation, targets, fold, settings, task.seed, task.device,
            imputation=imputation(task, train, settings),
        )  # fmt: skip

    return fit_weights


def imputation(task: Task, train: Observed, settings: Settings) -> Imputation | None:
    """P(y, a | row) by the trees whose scores the trunk sees, as ``fairvae train`` has it; else None.

    Trees of all rows say nothing of how they would have been cross-fitted on some of them.
    """
    if task.scores is None or train.rows != task.train.rows:
        return None
    table = train.to("cpu")
    imputer = TreeImputer.learn(table, folds_of(table, task.seed), settings, task.seed, task.scores)
    return None if imputer is None else imputer.learned
