r"""FairRF, fair classification by features related to the group (Zhao, Dai, Shu and Wang 2022).

No group is used at all. For features j that are assumed to be related to it,

.. math:: \min_{f,\, \mu \in \Delta} \mathrm{CE} + \lambda \sum_j \mu_j R_j(f) + \beta \|\mu\|^2,

where R_j is the size of the correlation, within a batch, between feature j and the predicted probability of
the last class; for a category it is the mean over its values. For fixed f the weights μ on the simplex Δ have
a closed form: the projection of :math:`-\lambda R / 2\beta`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    as_weights,
    cross_entropy,
    networks,
    train_networks,
)
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.schema.observed import Columns

BETA = 0.5


def fit_fairrf(related: Sequence[str]) -> Callable[[Task, Sequence[float]], NetworkClassifier]:
    """FairRF with the columns that are assumed to be related to the group."""

    def fit_weights(task: Task, weights: Sequence[float]) -> NetworkClassifier:
        check_lambdas(weights)
        return _fit(task, weights, related)

    return fit_weights


def _fit(task: Task, weights: Sequence[float], related: Sequence[str]) -> NetworkClassifier:
    train, settings = task.train, task.settings
    described = train.columns
    if not (isinstance(described, Columns) and described.names):
        raise InputError(
            "FairRF needs named columns, to know which features are related to the group; the data have none."
        )
    require(train.classes == 2, f"FairRF takes two classes, got {train.classes}.")
    columns = [described.of(name) for name in related]
    network = networks(task, len(weights), train.classes)
    weight = as_weights(weights, train.like)
    rows = torch.arange(train.rows, device=train.x.device)
    stated = train.y_obs < train.classes
    labels = torch.where(stated, train.y_obs, 0)

    def loss(index: Tensor, done: float) -> Tensor:
        x = train.x[index]
        _, logits = network(x, in_dims=(None,))
        predicted = logits.softmax(-1)[..., -1]
        related_to = torch.stack(
            [correlation(x[:, of_one], predicted).mean(-1) for of_one in columns], dim=-1
        )
        importance = simplex_weights(weight.unsqueeze(-1) * related_to.detach(), BETA)
        return cross_entropy(logits, labels[index], stated[index]) + weight * (importance * related_to).sum(
            -1
        )

    train_networks(loss, network.parameters(), rows, settings, derive_seed(task.seed, 13))
    return NetworkClassifier(network, task.device)


def correlation(columns: Tensor, predicted: Tensor) -> Tensor:
    """|Pearson's correlation| of (rows, columns) with (members, rows), (members, columns); 0 if constant."""
    x = columns - columns.mean(0)
    p = predicted - predicted.mean(-1, keepdim=True)
    size = x.square().sum(0) * p.square().sum(-1, keepdim=True)
    return (p @ x).abs() / size.clamp(min=1e-12).sqrt()


def simplex_weights(costs: Tensor, beta: float) -> Tensor:
    """μ on the simplex with the least Σ_j μ_j cost_j + β‖μ‖², over the last dimension."""
    target = -costs / (2 * beta)
    falling, _ = target.sort(-1, descending=True)
    place = torch.arange(1, costs.shape[-1] + 1, device=costs.device)
    levels = (falling.cumsum(-1) - 1) / place
    kept = (falling > levels).sum(-1, keepdim=True)
    return (target - levels.gather(-1, kept - 1)).clamp(min=0)
