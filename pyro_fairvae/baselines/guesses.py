"""Unstated groups and labels, guessed once before the classifier is trained."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import learn_probabilities, rows_with_label

LABELS, GROUPS_OF_GUESS, CONFIDENCE = 1, 2, 3  # purposes of networks


def guess_labels(task: Task) -> Tensor:
    """Stated labels; for other rows the likeliest under a classifier trained on rows with a label."""
    train = task.train
    rows = rows_with_label(train.y_obs, train.classes)
    guessed = learn_probabilities(task, train.y_obs, rows, train.classes, LABELS).argmax(-1)
    return torch.where(train.y_obs < train.classes, train.y_obs, guessed)


def guess_groups(task: Task) -> Tensor:
    """Stated groups; for other rows the likeliest under a classifier trained on rows with a group."""
    train = task.train
    guessed = group_probabilities(task, rows_with_label(train.a_obs, train.groups)).argmax(-1)
    return torch.where(train.a_obs < train.groups, train.a_obs, guessed)


def group_probabilities(task: Task, rows: Tensor, purpose: int = GROUPS_OF_GUESS) -> Tensor:
    """P(a|x) of all rows, by a classifier trained on ``rows``, which state their group."""
    train = task.train
    require(len(rows) > 0, "no row states its group, so no classifier of groups can be trained.")
    return learn_probabilities(task, train.a_obs, rows, train.groups, purpose)


def confident_groups(task: Task, labels: Tensor, held_out: float = 0.2) -> Tensor:
    """CGL (Jung, Chun and Moon 2022): guesses of low confidence are replaced by draws.

    A classifier of groups is trained on a part of the rows that state their group. The threshold on its
    confidence is the one that best separates right from wrong guesses on the other part. Above the threshold
    the guess is kept; below, the group is drawn from P(a|y) among the rows that state their group, so that
    such rows have no influence on differences between groups.
    """
    train = task.train
    stated = rows_with_label(train.a_obs, train.groups)
    generator = np.random.default_rng(derive_seed(task.seed, 12))
    order = stated[torch.from_numpy(generator.permutation(len(stated))).to(stated.device)]
    cut = round(held_out * len(order))
    require(cut >= 1, f"{len(order)} rows state their group, which is too few to hold some out.")
    confidence, guessed = group_probabilities(task, order[cut:], CONFIDENCE).max(-1)
    part = order[:cut]
    threshold = best_threshold(confidence[part], guessed[part] == train.a_obs[part])
    of_label = train.like.new_zeros(train.classes, train.groups)
    of_label.index_put_(
        (labels[stated], train.a_obs[stated]), train.like.new_ones(len(stated)), accumulate=True
    )
    cumulative = (of_label + 1e-6).cumsum(-1)
    uniform = torch.from_numpy(generator.random(train.rows)).to(train.like)
    drawn = (uniform.unsqueeze(-1) >= (cumulative / cumulative[:, -1:])[labels][:, :-1]).sum(-1)
    groups = torch.where(confidence > threshold, guessed, drawn)
    return torch.where(train.a_obs < train.groups, train.a_obs, groups)


def best_threshold(confidence: Tensor, right: Tensor) -> float:
    """The threshold at which "confidence > threshold" agrees with ``right`` most often."""
    order = confidence.argsort()
    sorted_right = right[order].long()
    # With the threshold at the k-th smallest, the first k are classified as wrong, the others as right.
    wrong_below = (1 - sorted_right).cumsum(0)
    right_above = sorted_right.sum() - sorted_right.cumsum(0)
    agreement = torch.cat([sorted_right.sum().reshape(1), wrong_below + right_above])
    ranked = confidence[order]
    agreement[1:-1][ranked[1:] == ranked[:-1]] = -1  # equal confidences fall on the same side
    best = int(agreement.argmax())
    return 0.0 if best == 0 else float(ranked[best - 1])


def cells_of(labels: Tensor, groups: Tensor, classes: int, values: int, dtype: torch.dtype) -> Tensor:
    """P(y, a | row), (rows, classes, groups), of certain labels and groups; 0 for a row with ∅ in either."""
    y, a = (
        functional.one_hot(codes, size + 1)[..., :size].to(dtype)
        for codes, size in ((labels, classes), (groups, values))
    )
    return y.unsqueeze(-1) * a.unsqueeze(-2)
