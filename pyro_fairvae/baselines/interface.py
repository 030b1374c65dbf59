"""The common interface of the methods that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.boosting.scores import BoostedScores
from pyro_fairvae.data import Complete
from pyro_fairvae.data.augmentation import altered
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.observed import Features, Observed


@dataclass(frozen=True)
class Task:
    """Input of a method: rows as observed, and the settings of training.

    ``truth`` holds the true labels and groups of the training rows; only ``Method.informed`` methods get it.
    ``scores`` are the trees whose scores rows have, if the trunk takes some.
    """

    train: Observed
    validation: Observed
    settings: Settings
    seed: int = 0
    device: torch.device | str = "cpu"
    truth: Complete | None = None
    scores: BoostedScores | None = None

    def __post_init__(self) -> None:
        require(
            self.train.members is None and self.validation.members is None,
            "a task has one table for all members; make a task for each table.",
        )
        attributes = self.train.group_attributes.names
        require(
            len(attributes) == 1,
            f"methods are compared on one attribute, got {' and '.join(attributes)}; take them one by one.",
        )
        object.__setattr__(self, "train", self.train.to(self.device))

    def seen(self, index: Tensor) -> Tensor:
        """Features of training rows for one step; images are augmented anew at each call."""
        return altered(self.train.x[index], self.train.columns, self.settings.augmentation)

    @property
    def known(self) -> Complete:
        require(self.truth is not None, "this method needs the true labels and groups; give them as truth.")
        assert self.truth is not None
        return self.truth


class Classifier(Protocol):
    """Result of a method: a classifier for each weight of the trade-off, on the CPU."""

    def predict_proba(self, x: Features) -> Tensor:
        """P(y|x), (members, rows, classes)."""

    def decide(self, x: Features) -> Tensor:
        """Classes, (members, rows)."""


@dataclass(frozen=True)
class Method:
    """A row of the registry.

    ``fit`` trains a member for each weight of the trade-off: the larger the weight, the fairer; 0 is without
    fairness. ``weights`` are the default weights.
    """

    name: str
    label: str  # shown in tables and figures
    fit: Callable[[Task, Sequence[float]], Classifier]
    weights: tuple[float, ...]
    informed: bool = False  # gets hidden labels and groups, so it is a reference and not a competitor
    by_metric: bool = True  # whether it depends on the chosen risk
    by_level: bool = True  # whether it depends on the level of missingness
    by_trunk: bool = True  # whether it depends on the chosen trunk
    ablation: bool = False  # one of this library, compared with the first of several trunks alone
    complete: bool = False  # whether even the trees in its trunk are grown on rows with nothing hidden
    main: bool = False  # whether it is compared in every panel
    plain: str | None = None  # the method whose only member equals this one's member at weight 0
    paper: bool = False  # whether the paper's main figures show it
    not_for_images: str | None = None  # the reason, if it needs columns
    cost: float = 1.0  # time for a member, relative to a plain classifier
