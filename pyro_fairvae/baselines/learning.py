"""Plain classifiers, trained together as members, and their training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.inference import minimising
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.nn.trunks import trunks
from pyro_fairvae.schema.observed import Features, in_pieces


class Network(nn.Module):
    """The encoder's trunk and one head: features and logits."""

    def __init__(self, trunk: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(x)
        return features, self.head(features)


def networks(task: Task, members: int, outputs: int, purpose: int = 0) -> Members:
    """Equal copies of a network, one for each member; ``purpose`` changes the seed of the initial weights."""
    trunk = trunks(task.train, task.settings)
    hidden = task.settings.hidden
    seed = derive_seed(task.seed, 10, purpose)
    made = Members(lambda k: Network(trunk(k), hidden, outputs), [seed] * members)
    made.mixed = task.settings.mixed(task.train.columns, task.device)
    return made.to(task.device, task.train.x.dtype)


@dataclass(frozen=True)
class NetworkClassifier:
    """Members that decide for the likeliest class."""

    networks: Members
    device: torch.device | str

    def __post_init__(self) -> None:
        self.networks.eval()

    def predict_proba(self, x: Features) -> Tensor:
        with evaluating(self.networks):
            pieces = [
                self.networks(piece.to(self.device), in_dims=(None,))[1].softmax(-1).cpu()
                for piece in in_pieces(x)
            ]
        return torch.cat(pieces, dim=1)

    def decide(self, x: Features) -> Tensor:
        return self.predict_proba(x).argmax(-1)


def train_networks(
    loss: Callable[[Tensor, float], Tensor],
    parameters: Iterable[nn.Parameter],
    rows: Tensor,
    settings: Settings,
    seed: int,
) -> None:
    """Train by AdamW like the library: cosine learning rate, gradients clipped for each member.

    ``loss`` takes the rows of a batch, among ``rows``, and the share of training done; it returns (members,).
    """
    require(len(rows) > 0, "no row states the value to learn, so there is nothing to train on.")
    optimizer = torch.optim.AdamW(
        list(parameters), lr=settings.lr, weight_decay=settings.weight_decay, foreach=True
    )
    steps = math.ceil(len(rows) / settings.batch)

    def batches(epoch: int) -> tuple[Tensor, ...]:
        order = np.random.default_rng(derive_seed(seed, epoch, 0)).permutation(len(rows))
        return rows[torch.from_numpy(order).to(rows.device)].tensor_split(steps)

    minimising.minimise(
        optimizer, loss, batches, settings.epochs, lambda epoch: derive_seed(seed, epoch, 1), settings.clip
    )


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over rows for each member, (members,), of logits (members, rows, classes) and (rows,) targets.

    ``weight`` is the weight of each row, (rows,) or (members, rows); rows of weight 0 do not count.
    """
    losses = functional.cross_entropy(
        logits.transpose(-1, -2), target.expand(logits.shape[:-1]), reduction="none"
    )
    weight = torch.ones_like(losses) if weight is None else weight.to(losses).expand_as(losses)
    return (losses * weight).sum(-1) / weight.sum(-1).clamp(min=1e-12)


def rows_with_label(observed: Tensor, values: int) -> Tensor:
    """Indices of the rows, (some,), that state a value and not ∅."""
    return torch.nonzero(observed < values).squeeze(-1)


def learn_probabilities(task: Task, target: Tensor, rows: Tensor, outputs: int, purpose: int) -> Tensor:
    """P(target|x) of all training rows, (rows, outputs), by a classifier trained on some ``rows`` of them."""
    network = networks(task, 1, outputs, purpose)

    def loss(index: Tensor, done: float) -> Tensor:
        _, logits = network(task.seen(index), in_dims=(None,))
        return cross_entropy(logits, target[index])

    train_networks(loss, network.parameters(), rows, task.settings, derive_seed(task.seed, 11, purpose))
    return NetworkClassifier(network, task.device).predict_proba(task.train.x)[0].to(task.device)


def as_weights(weights: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(list(weights), device=like.device, dtype=like.dtype)
