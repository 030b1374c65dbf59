r"""A classifier with the library's fairness risk at groups and labels that were imputed beforehand.

.. math:: \min_f \; -\frac{1}{|L|} \sum_{i \in L} \log P_f(y_i|x_i) + \omega\,\mathrm{err}
          + \lambda\, \hat E(P_f; P(y, a|\mathrm{row}))

over the rows L that state their label; Ê, the error of decisions and the schedule of λ are those of
:class:`~pyro_fairvae.inference.objective.FairELBO` at the settings of the task. Decisions stay as trained.
The methods differ in the source of P(y, a | row):

``stated``  rows that state both count as they are, the others not at all. If missingness depends on the group
            alone this is unbiased for rates within groups: the simplest competitor.
``guessed`` labels and groups by classifiers of the rows that state them, taken as certain.
``cgl``     the same, with groups of low confidence drawn at random (:func:`.guesses.confident_groups`).
``frozen``  P_g(y|x,ỹ) q(a|x,ã) of a semi-supervised VAE trained with λ = 0: soft, but learned in two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.guesses import cells_of, confident_groups, guess_groups, guess_labels
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    as_weights,
    cross_entropy,
    networks,
    train_networks,
)
from pyro_fairvae.inference.training import check_lambdas, fit
from pyro_fairvae.risks import RiskLoss


def stated_cells(task: Task) -> Tensor:
    train = task.train
    cells = cells_of(train.y_obs, train.a_obs, train.classes, train.groups, train.x.dtype)
    require(
        bool((cells.sum(0) > 0).all()),
        "some class and group have no row that states both, so the risk cannot compare groups.",
    )
    return cells


def guessed_cells(task: Task) -> Tensor:
    train = task.train
    return cells_of(guess_labels(task), guess_groups(task), train.classes, train.groups, train.x.dtype)


def cgl_cells(task: Task) -> Tensor:
    train = task.train
    labels = guess_labels(task)
    return cells_of(labels, confident_groups(task, labels), train.classes, train.groups, train.x.dtype)


def frozen_cells(task: Task) -> Tensor:
    first = fit(task.train, task.validation, [0.0], task.settings, task.seed, task.device)
    return first.impute(task.train, "features")[0].to(task.train.like)


CELLS: dict[str, Callable[[Task], Tensor]] = {
    "stated": stated_cells,
    "guessed": guessed_cells,
    "cgl": cgl_cells,
    "frozen": frozen_cells,
}


def fit_penalised(cells: str) -> Callable[[Task, Sequence[float]], NetworkClassifier]:
    """A method of this module by the name of its cells."""

    def fit_weights(task: Task, weights: Sequence[float]) -> NetworkClassifier:
        check_lambdas(weights)
        imputed = CELLS[cells](task)
        known = functional.one_hot(task.train.y_obs, task.train.classes + 1)[..., :-1].to(imputed)
        # Rows that state both are not a sample of all rows; rows that state the label are.
        return fit_cells(task, weights, imputed, known if cells == "stated" else imputed.sum(-1))

    return fit_weights


def fit_cells(task: Task, weights: Sequence[float], cells: Tensor, labels: Tensor) -> NetworkClassifier:
    """A classifier under the risk at P(y, a | row), (rows, classes, groups), and error at P(y | row)."""
    train, settings = task.train, task.settings
    network = networks(task, len(weights), train.classes)
    risk = RiskLoss(settings.fairness)
    weight = as_weights(weights, train.like)

    def loss(index: Tensor, done: float) -> Tensor:
        _, logits = network(task.seen(index), in_dims=(None,))
        y_obs = train.y_obs[index]
        stated = y_obs < train.classes
        imputed = cells[index].expand(len(weights), -1, -1, -1)
        share = settings.schedule.risk(done)
        fair = share * risk.estimator(logits, imputed, weight).penalty
        error = (
            share
            * settings.objective_weights.omega
            * (weight > 0)
            * decision_error(risk, logits, labels[index])
        )
        return cross_entropy(logits, torch.where(stated, y_obs, 0), stated) + error + fair

    rows = torch.arange(train.rows, device=train.x.device)
    train_networks(loss, network.parameters(), rows, settings, derive_seed(task.seed, 13))
    return NetworkClassifier(network, task.device)


def decision_error(risk: RiskLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """Expected error of softened decisions, (members,), under labels (rows, classes), 0 where unknown."""
    decided = risk.estimator.relax(logits).mean(-2)
    return 1 - (decided * labels).sum((-1, -2)) / labels.sum().clamp(min=1e-12)
