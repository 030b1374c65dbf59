r"""FairDA, fair classification by domain adaptation (Liang, Chen, Wu et al. 2023).

Rows that state their group are the source domain, the others the target domain.

1. A group classifier on features that do not separate the domains:
   :math:`\min_{\phi, h} \max_d \mathrm{CE}_\mathrm{source}(h(\phi(x)), a)
   - \mathrm{CE}(d(\phi(x)), \mathrm{domain})`, with equal weight for both domains.
   It predicts â for the target rows.
2. Adversarial debiasing with the stated groups and those estimates:
   :math:`\min_{\psi, f} \max_c \mathrm{CE}(f(\psi(x)), y) - \lambda\, \mathrm{CE}(c(\psi(x)), \hat a)`.

Both minimax problems are solved by reversing the gradient between features and adversary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.guesses import GROUPS_OF_GUESS
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    as_weights,
    cross_entropy,
    networks,
    train_networks,
)
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.nn.members import Members


def fit_fairda(task: Task, weights: Sequence[float]) -> NetworkClassifier:
    check_lambdas(weights)
    train, settings = task.train, task.settings
    groups = adapted_groups(task)
    network = networks(task, len(weights), train.classes)
    critic = _adversary(task, len(weights), train.groups, 16)
    weight = as_weights(weights, train.like)

    def loss(index: Tensor, done: float) -> Tensor:
        features, logits = network(task.seen(index), in_dims=(None,))
        stated = train.y_obs[index] < train.classes
        labels = torch.where(stated, train.y_obs[index], 0)
        critic_logits = critic(reverse(features, weight * settings.schedule.risk(done)), in_dims=(0,))
        return cross_entropy(logits, labels, stated) + cross_entropy(critic_logits, groups[index])

    rows = torch.arange(train.rows, device=train.x.device)
    train_networks(
        loss, [*network.parameters(), *critic.parameters()], rows, settings, derive_seed(task.seed, 13)
    )
    return NetworkClassifier(network, task.device)


def adapted_groups(task: Task) -> Tensor:
    """Stated groups, and estimates from features that do not predict who states the group."""
    train, settings = task.train, task.settings
    source = train.a_obs < train.groups
    require(bool(source.any()), "no row states its group: FairDA has no source domain.")
    if bool(source.all()):
        return train.a_obs
    network = networks(task, 1, train.groups, GROUPS_OF_GUESS)
    critic = _adversary(task, 1, 2, 17)
    balance = torch.where(source, 1 / source.sum(), 1 / (~source).sum()) * train.rows / 2
    one = torch.ones(1, device=train.x.device, dtype=train.x.dtype)

    def loss(index: Tensor, done: float) -> Tensor:
        features, logits = network(task.seen(index), in_dims=(None,))
        inside = source[index]
        critic_logits = critic(reverse(features, one * settings.schedule.risk(done)), in_dims=(0,))
        groups = torch.where(inside, train.a_obs[index], 0)
        adversarial = cross_entropy(critic_logits, inside.long(), balance[index])
        return cross_entropy(logits, groups, inside) + adversarial

    rows = torch.arange(train.rows, device=train.x.device)
    train_networks(
        loss, [*network.parameters(), *critic.parameters()], rows, settings, derive_seed(task.seed, 18)
    )
    guessed = NetworkClassifier(network, task.device).predict_proba(train.x)[0].argmax(-1)
    return torch.where(source, train.a_obs, guessed.to(train.a_obs.device))


def reverse(features: Tensor, weight: Tensor) -> Tensor:
    """The features unchanged; the backward pass multiplies their gradient by −``weight``, (members,)."""
    weight = weight.view(-1, *[1] * (features.dim() - 1))
    return features + (1 + weight) * (features.detach() - features)


def _adversary(task: Task, members: int, outputs: int, purpose: int) -> Members:
    hidden = task.settings.hidden
    made = Members(
        lambda _: nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs)),
        [derive_seed(task.seed, purpose)] * members,
    )
    return made.to(task.device, task.train.x.dtype)
