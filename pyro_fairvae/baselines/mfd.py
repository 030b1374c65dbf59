r"""MFD, fair feature distillation by maximum mean discrepancy (Jung, Lee, Park and Moon 2021).

A teacher is trained without fairness and frozen. The student f minimises

.. math:: \mathrm{CE} + \lambda \sum_{y,a} \mathrm{MMD}^2\big( P(\phi_T | y),\; P(\phi_f | y, a) \big),

so that its features φ have the same distribution in all groups of a class, that of the teacher's features in
the whole class. The kernel is :math:`\exp(-\|u-v\|^2 / 2\sigma^2)`, with σ² the mean squared distance between
teacher's and student's features. The kernel needs all pairs of rows, so it is computed within blocks of a
batch, and the loss uses the mean of their MMD².

It needs every label and group. The paper fills them in three ways: with the truth; with the true labels and
groups at random; and with predictions where they are not stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.baselines.guesses import cells_of, guess_groups, guess_labels
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    as_weights,
    cross_entropy,
    networks,
    train_networks,
)
from pyro_fairvae.inference.training import check_lambdas

TEACHER = 4  # purpose of its network
BLOCK = 256  # rows of a block, within which the kernel is computed


def true_labels(task: Task) -> Tensor:
    return torch.from_numpy(task.known.y).to(task.train.x.device)


def true_groups(task: Task) -> Tensor:
    return torch.from_numpy(task.known.a).to(task.train.x.device)


def random_groups(task: Task) -> Tensor:
    generator = np.random.default_rng(derive_seed(task.seed, 14))
    return torch.from_numpy(generator.integers(task.train.groups, size=task.train.rows)).to(
        task.train.x.device
    )


FILLED: dict[str, tuple[Callable[[Task], Tensor], Callable[[Task], Tensor]]] = {
    "gty_gta": (true_labels, true_groups),
    "gty_randa": (true_labels, random_groups),
    "predy_preda": (guess_labels, guess_groups),
}


def fit_mfd(filled: str) -> Callable[[Task, Sequence[float]], NetworkClassifier]:
    """MFD with labels and groups filled in as ``FILLED[filled]``."""
    labels, groups = FILLED[filled]

    def fit_weights(task: Task, weights: Sequence[float]) -> NetworkClassifier:
        check_lambdas(weights)
        return _fit(task, weights, labels(task), groups(task))

    return fit_weights


def _fit(task: Task, weights: Sequence[float], y: Tensor, a: Tensor) -> NetworkClassifier:
    train, settings = task.train, task.settings
    rows = torch.arange(train.rows, device=train.x.device)
    teacher = networks(task, 1, train.classes, TEACHER)

    def teach(index: Tensor, done: float) -> Tensor:
        return cross_entropy(teacher(task.seen(index), in_dims=(None,))[1], y[index])

    train_networks(teach, teacher.parameters(), rows, settings, derive_seed(task.seed, 15))
    student = networks(task, len(weights), train.classes)
    cells = cells_of(y, a, train.classes, train.groups, train.x.dtype)
    weight = as_weights(weights, train.like)

    def loss(index: Tensor, done: float) -> Tensor:
        x = task.seen(index)
        with torch.no_grad():
            taught, _ = teacher(x, in_dims=(None,))
        features, logits = student(x, in_dims=(None,))
        pieces = (taught[0].split(BLOCK), features.split(BLOCK, dim=1), cells[index].split(BLOCK))
        apart = [squared_mmd(*block).sum((-1, -2)) for block in zip(*pieces, strict=True)]
        return cross_entropy(logits, y[index]) + weight * torch.stack(apart).mean(0)

    train_networks(loss, student.parameters(), rows, settings, derive_seed(task.seed, 13))
    return NetworkClassifier(student, task.device)


def squared_mmd(taught: Tensor, features: Tensor, cells: Tensor) -> Tensor:
    """MMD² of each cell, (members, classes, groups); 0 where it has no row.

    ``taught`` is (rows, width), ``features`` (members, rows, width), ``cells`` (rows, classes, groups) marks
    the cell of each row.
    """
    classes, groups = cells.shape[1:]
    teachers = _shares(cells.sum(-1))  # (rows, classes)
    students = _shares(cells.flatten(1))  # (rows, cells)
    between = _squared_distances(features, taught.expand(len(features), -1, -1))
    bandwidth = 2 * between.detach().mean((-1, -2), keepdim=True).clamp(min=1e-12)
    within_student = (-_squared_distances(features, features) / bandwidth).exp()
    across = (-between / bandwidth).exp()
    within_teacher = (-_squared_distances(taught, taught) / bandwidth).exp()
    of_student = torch.einsum("rc,krs,sc->kc", students, within_student, students).unflatten(
        -1, (classes, groups)
    )
    of_both = torch.einsum("krs,ryg,sy->kyg", across, students.unflatten(-1, (classes, groups)), teachers)
    of_teacher = torch.einsum("ry,krs,sy->ky", teachers, within_teacher, teachers).unsqueeze(-1)
    occupied = cells.sum(0) > 0
    return (of_student + of_teacher - 2 * of_both).clamp(min=0) * occupied


def _shares(marks: Tensor) -> Tensor:
    return marks / marks.sum(0).clamp(min=1)


def _squared_distances(u: Tensor, v: Tensor) -> Tensor:
    """‖u_i − v_j‖², (…, rows, rows)."""
    squares = u.square().sum(-1).unsqueeze(-1) + v.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * u @ v.mT).clamp(min=0)
