r"""FairDSR: fairness on the rows whose group is certain (Kenfack, Ebrahimi Kahou and Aïvodji 2024).

1. A classifier of groups, self-ensembled: a student with dropout learns the stated groups, and to agree, on
   all rows, with its teacher, the moving average of its own weights. The uncertainty of a row is the entropy
   of the mean of PASSES predictions of the teacher with dropout, as a share of the largest one.
2. A classifier of labels under a fairness risk over rows that state their group, and over those whose
   uncertainty is at most the mean uncertainty of the rows that do not; the risk leaves the others out:

.. math:: \min_f \; -\frac{1}{|L|} \sum_{i \in L} \log P_f(y_i|x_i) + \omega\,\mathrm{err}
          + \lambda\, \hat E(P_f; \{i : u_i \le \bar u\})

Risk, error of decisions and schedule are those of :mod:`.penalised`; labels that are not stated are guessed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.seeds import derive_seed, seeded
from pyro_fairvae.baselines.guesses import cells_of, guess_labels
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import (
    NetworkClassifier,
    cross_entropy,
    networks,
    rows_with_label,
    train_networks,
)
from pyro_fairvae.baselines.penalised import fit_cells
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.schema.observed import in_pieces

ENSEMBLE = 5  # purpose of its network
DROPOUT, DECAY, PASSES = 0.2, 0.99, 30


def fit_fairdsr(task: Task, weights: Sequence[float]) -> NetworkClassifier:
    check_lambdas(weights)
    train = task.train
    labels = guess_labels(task)
    cells = cells_of(labels, certain_groups(task), train.classes, train.groups, train.x.dtype)
    known = functional.one_hot(labels, train.classes).to(cells)
    return fit_cells(task, weights, cells, known)


def certain_groups(task: Task) -> Tensor:
    """Stated groups, the likeliest ones where they are certain, and ∅ elsewhere, (rows,)."""
    train = task.train
    stated = train.a_obs < train.groups
    if bool(stated.all()):
        return train.a_obs
    probability = ensembled_groups(task)
    doubt = uncertainty(probability)
    certain = doubt <= doubt[~stated].mean()
    guessed = torch.where(certain, probability.argmax(-1), train.groups)
    return torch.where(stated, train.a_obs, guessed)


def uncertainty(probability: Tensor) -> Tensor:
    """Entropy of each row, (rows,), as a share of the largest one."""
    return torch.special.entr(probability).sum(-1) / math.log(probability.shape[-1])


def ensembled_groups(task: Task) -> Tensor:
    """Mean of the teacher's predictions with dropout, (rows, groups)."""
    train = task.train
    rows = rows_with_label(train.a_obs, train.groups)
    student, teacher = (networks(task, 1, train.groups, ENSEMBLE) for _ in range(2))
    stated = train.a_obs < train.groups

    def loss(index: Tensor, done: float) -> Tensor:
        x = task.seen(index)
        with torch.no_grad():
            for own, followed in zip(teacher.parameters(), student.parameters(), strict=True):
                own.lerp_(followed, 1 - DECAY)
            taught = _dropped(teacher, x).softmax(-1)
        logits = _dropped(student, x)
        groups = torch.where(stated[index], train.a_obs[index], 0)
        agreement = (logits.softmax(-1) - taught).square().sum(-1).mean(-1)
        return cross_entropy(logits, groups, stated[index]) + agreement

    every = torch.arange(train.rows, device=train.x.device)
    # Without a stated group there is nothing to learn, which training says.
    train_networks(
        loss, student.parameters(), every if len(rows) else rows, task.settings, derive_seed(task.seed, 21)
    )
    total = []
    with evaluating(teacher), seeded(derive_seed(task.seed, 22)):
        for piece in in_pieces(train.x):
            passes = [_dropped(teacher, piece).softmax(-1)[0] for _ in range(PASSES)]
            total.append(torch.stack(passes).mean(0))
    return torch.cat(total)


def _dropped(network: Members, x: Tensor) -> Tensor:
    """Logits of groups, (1, rows, groups), with some features left out at random."""
    features, _ = network(x, in_dims=(None,))
    weight, bias = (getattr(network, f"head/{name}") for name in ("weight", "bias"))
    kept = functional.dropout(features, DROPOUT)
    return kept @ weight.mT + bias.unsqueeze(1)
