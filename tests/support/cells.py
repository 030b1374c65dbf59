"""Cell sums by a plain loop over rows, and rows to take them of."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.risks import CellSums


def sums_of(predictions: np.ndarray, y: np.ndarray, a: np.ndarray, classes: int, groups: int) -> CellSums:
    mass, predicted = np.zeros((classes, groups)), np.zeros((classes, groups, classes))
    for row, label, group in zip(predictions, y, a, strict=True):
        mass[label, group] += 1
        predicted[label, group] += row
    return CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))


def some_rows(rows: int, members: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits, and an imputation of which half the rows are certain."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(members, rows, 2, generator=generator, dtype=torch.float64)
    imputed = torch.rand(members, rows, 4, generator=generator, dtype=torch.float64)
    certain = torch.eye(4, dtype=torch.float64)[torch.randint(4, (members, rows), generator=generator)]
    half = torch.rand(members, rows, 1, generator=generator) < 0.5
    imputed = torch.where(half, certain, imputed / imputed.sum(-1, keepdim=True))
    return logits, imputed.view(members, rows, 2, 2)
