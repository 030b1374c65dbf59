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
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.training import fit
from pyro_fairvae.schema.observed import Observed


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
        settings = changed(task.settings, options or {})
        return fit(rows(task), task.validation, list(weights), settings, task.seed, task.device)

    return fit_weights
