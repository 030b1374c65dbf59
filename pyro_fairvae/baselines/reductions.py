"""Fairlearn's exponentiated gradient (Agarwal et al. 2018) on rows that state both label and group.

A typical use of that library: a gradient boosting classifier, under the constraint that rates differ by at
most 1/weight (weight 0: no constraint). The result is a randomised classifier; the seed fixes its draws.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient, TruePositiveRateParity
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.schema.observed import Features, in_pieces

# Small trees: the constraint is on training rows, which larger trees would overfit.
BOOSTING = {"max_iter": 40, "max_leaf_nodes": 6, "min_samples_leaf": 40, "early_stopping": False}
CONSTRAINTS = {"deo": EqualizedOdds, "deopp": TruePositiveRateParity}


@dataclass(frozen=True)
class RandomisedClassifiers:
    """For each member, classifiers and the probability that each of them decides."""

    members: list[tuple[list[Any], np.ndarray]]
    seed: int

    def predict_proba(self, x: Features) -> Tensor:
        rows = torch.cat(list(in_pieces(x))).cpu().numpy()
        positive = [
            sum(chance * classifier.predict(rows) for classifier, chance in zip(*member, strict=True))
            for member in self.members
        ]
        of_positive = torch.from_numpy(np.stack(positive).astype(np.float64))
        return torch.stack([1 - of_positive, of_positive], dim=-1)

    def decide(self, x: Features) -> Tensor:
        """A draw for each row; the same rows get the same draws in every call."""
        uniform = np.random.default_rng(self.seed).random(x.shape[0])
        return (torch.from_numpy(uniform) < self.predict_proba(x)[..., 1]).long()


def fit_exponentiated_gradient(task: Task, weights: Sequence[float]) -> RandomisedClassifiers:
    check_lambdas(weights)
    train = task.train
    risk = choose("risk of Fairlearn's reductions", task.settings.fairness.risk, CONSTRAINTS)
    require(train.classes == 2, f"Fairlearn's reductions take two classes, got {train.classes}.")
    complete = ((train.y_obs < train.classes) & (train.a_obs < train.groups)).cpu()
    require(bool(complete.any()), "no row states both its label and its group.")
    rows = train.take(complete.to(train.y_obs.device))
    x = torch.cat(list(in_pieces(rows.x))).cpu().numpy()
    y, a = rows.y_obs.cpu().numpy(), rows.a_obs.cpu().numpy()
    members = []
    for weight in weights:
        plain = HistGradientBoostingClassifier(**BOOSTING, random_state=derive_seed(task.seed, 19) % 2**31)
        if weight == 0:
            members.append(([plain.fit(x, y)], np.ones(1)))
            continue
        reduction = ExponentiatedGradient(plain, CONSTRAINTS[risk](difference_bound=1 / weight), max_iter=20)
        with warnings.catch_warnings():
            # Fairlearn 0.15 adds entries to a Series in ways that pandas has deprecated.
            warnings.filterwarnings("ignore", message="Setting an? ")
            reduction.fit(x, y, sensitive_features=a)
        chances = reduction.weights_
        used = chances[chances > 0]
        members.append(([reduction.predictors_[t] for t in used.index], used.to_numpy()))
    return RandomisedClassifiers(members, derive_seed(task.seed, 20))
