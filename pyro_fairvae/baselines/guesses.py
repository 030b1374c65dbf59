"""Unstated groups and labels, guessed once and for all before the classifier is trained."""

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
    """Stated labels, and for other rows the likeliest under a classifier of those that state theirs."""
    train = task.train
    rows = rows_with_label(train.y_obs, train.classes)
    guessed = learn_probabilities(task, train.y_obs, rows, train.classes, LABELS).argmax(-1)
    return torch.where(train.y_obs < train.classes, train.y_obs, guessed)


def guess_groups(task: Task) -> Tensor:
    """Stated groups, and for other rows the likeliest under a classifier of those that state theirs."""
    train = task.train
    guessed = group_probabilities(task, rows_with_label(train.a_obs, train.groups)).argmax(-1)
    return torch.where(train.a_obs < train.groups, train.a_obs, guessed)


def group_probabilities(task: Task, rows: Tensor, purpose: int = GROUPS_OF_GUESS) -> Tensor:
    """P(a|x) of all rows, by a classifier of ``rows``, which state their group."""
    train = task.train
    require(len(rows) > 0, "no row states its group, so that no classifier of groups can be trained.")
    return learn_probabilities(task, train.a_obs, rows, train.groups, purpose)


def confident_groups(task: Task, labels: Tensor, held_out: float = 0.2) -> Tensor:
    """CGL (Jung, Chun and Moon 2022): guesses of low confidence are replaced by draws.

    A classifier of groups is trained on a part of the rows that state theirs. The threshold is the one that
    best tells its right guesses from its wrong ones, by confidence, on the other part. Where the confidence
    is above it the guess stands; below, the group is drawn from P(a|y) among the rows that state theirs,
    which leaves such rows without influence on what differs between groups.
    """
    train = task.train
    stated = rows_with_label(train.a_obs, train.groups)
    generator = np.random.default_rng(derive_seed(task.seed, 12))
    order = stated[torch.from_numpy(generator.permutation(len(stated))).to(stated.device)]
    cut = round(held_out * len(order))
    require(cut >= 1, f"{len(order)} rows state their group, too few to hold some out.")
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
    """The threshold at which "confidence > threshold" says most often what ``right`` says."""
    order = confidence.argsort()
    sorted_right = right[order].long()
    # With the threshold at the k-th smallest, those up to k are called wrong, the others right.
    wrong_below = (1 - sorted_right).cumsum(0)
    right_above = sorted_right.sum() - sorted_right.cumsum(0)
    agreement = torch.cat([sorted_right.sum().reshape(1), wrong_below + right_above])
    ranked = confidence[order]
    agreement[1:-1][ranked[1:] == ranked[:-1]] = -1  # equal confidences fall on the same side
    best = int(agreement.argmax())
    return 0.0 if best == 0 else float(ranked[best - 1])


def cells_of(labels: Tensor, groups: Tensor, classes: int, values: int, dtype: torch.dtype) -> Tensor:
    """P(y, a | row), (rows, classes, groups), of certain labels and groups; ∅ in either leaves a row out."""
    y, a = (
        functional.one_hot(each, size + 1)[..., :size].to(dtype)
        for each, size in ((labels, classes), (groups, values))
    )
    return y.unsqueeze(-1) * a.unsqueeze(-2)
