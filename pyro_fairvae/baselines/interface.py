"""What every method that is compared has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.data import Complete
from pyro_fairvae.data.augmentation import altered
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.observed import Features, Observed


@dataclass(frozen=True)
class Task:
    """What a method is given: rows as they were written down, and how to train.

    ``truth`` is that of the training rows; only methods that are told it get it (``Method.informed``).
    """

    train: Observed
    validation: Observed
    settings: Settings
    seed: int = 0
    device: torch.device | str = "cpu"
    truth: Complete | None = None

    def __post_init__(self) -> None:
        require(
            self.train.members is None and self.validation.members is None,
            "a task has one table for all members; give each table a task of its own.",
        )
        attributes = self.train.group_attributes.names
        require(
            len(attributes) == 1,
            f"methods are compared on one attribute, got {' and '.join(attributes)}; take them one by one.",
        )
        object.__setattr__(self, "train", self.train.to(self.device))

    def seen(self, index: Tensor) -> Tensor:
        """Features of training rows as a step sees them: images altered anew."""
        return altered(self.train.x[index], self.train.columns, self.settings.augmentation)

    @property
    def known(self) -> Complete:
        require(self.truth is not None, "this method is told the true labels and groups; give them as truth.")
        assert self.truth is not None
        return self.truth


class Classifier(Protocol):
    """What a method leaves behind: a classifier for each weight of the trade-off, on the CPU."""

    def predict_proba(self, x: Features) -> Tensor:
        """P(y|x), (members, rows, classes)."""

    def decide(self, x: Features) -> Tensor:
        """Classes, (members, rows)."""


@dataclass(frozen=True)
class Method:
    """A row of the registry.

    ``fit`` trains a member for each weight of the trade-off, of which a larger one asks for more fairness and
    0 for none; ``weights`` are those worth trying.
    """

    name: str
    label: str  # for people
    fit: Callable[[Task, Sequence[float]], Classifier]
    weights: tuple[float, ...]
    informed: bool = False  # is told hidden labels and groups, so that it is no rival
    by_metric: bool = True  # whether the risk that is asked for makes a difference to it
    by_level: bool = True  # whether what is hidden does
    plain: str | None = None  # the method whose only member is this one's at weight 0
    paper: bool = False  # whether the paper's main figures show it
    not_for_images: str | None = None  # why, where it needs columns
    cost: float = 1.0  # time for a member, in those of a plain classifier
