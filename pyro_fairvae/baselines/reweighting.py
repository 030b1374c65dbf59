r"""Reweighting by label and guessed group (Kamiran and Calders 2012).

Rows that state their label weigh

.. math:: w_i = \Big( \frac{P(y_i) P(\hat a_i)}{P(y_i, \hat a_i)} \Big)^\lambda

in the cross-entropy, with shares over those rows; at λ = 1 label and guessed group are independent under
these weights, at λ = 0 nothing is reweighed. A classifier trained on the rows that state their group
guesses the other groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.guesses import cells_of, guess_groups
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    as_weights,
    cross_entropy,
    networks,
    train_networks,
)
from pyro_fairvae.inference.training import check_lambdas


def fit_reweighted(task: Task, weights: Sequence[float]) -> NetworkClassifier:
    check_lambdas(weights)
    train, settings = task.train, task.settings
    stated = train.y_obs < train.classes
    labels = torch.where(stated, train.y_obs, 0)
    groups = guess_groups(task)
    cells = cells_of(train.y_obs, groups, train.classes, train.groups, train.x.dtype)
    balance = balancing(cells[stated].mean(0))
    of_row = (cells.flatten(1) @ balance.flatten()).clamp(min=1e-12)  # (rows,), balance of each row's cell
    power = as_weights(weights, train.like).unsqueeze(-1)
    network = networks(task, len(weights), train.classes)

    def loss(index: Tensor, done: float) -> Tensor:
        _, logits = network(task.seen(index), in_dims=(None,))
        return cross_entropy(logits, labels[index], stated[index] * of_row[index].pow(power))

    rows = torch.arange(train.rows, device=train.x.device)
    train_networks(loss, network.parameters(), rows, settings, derive_seed(task.seed, 13))
    return NetworkClassifier(network, task.device)


def balancing(joint: Tensor) -> Tensor:
    """P(y) P(a) / P(y, a) of shares (classes, groups); 1 where a cell is empty."""
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return torch.where(joint > 0, independent / joint.clamp(min=1e-12), 1.0)
