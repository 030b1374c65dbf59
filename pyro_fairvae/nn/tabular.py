"""Networks for tables, written for one member: numbers in pieces, a trunk of layers, and a decoder."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


class NumberPieces(nn.Module):
    r"""Unchanged columns, and each number encoded in pieces (Gorishniy, Rubachev and Babenko 2022).

    Between edges e₀ < … < e_T a number v becomes :math:`\min(1, \max(0, (v - e_{t-1}) / (e_t - e_{t-1})))`
    for t = 1 … T, which lets the next layer bend at every edge. The numbers are the first columns;
    ``edges`` is (numbers, T + 1).
    """

    low: Tensor
    width: Tensor

    def __init__(self, edges: Tensor) -> None:
        super().__init__()
        width = edges.diff(dim=-1)
        self.register_buffer("low", edges[:, :-1])
        self.register_buffer("width", torch.where(width > 0, width, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        numbers = x[..., : self.low.shape[-2]].unsqueeze(-1)
        # In place where it can be, as this is many times as large as x; x has no gradient.
        pieces = (numbers - self.low).div_(self.width).clamp(0, 1)
        return torch.cat([x, pieces.flatten(-2)], dim=-1)


def piece_edges(numbers: Tensor, pieces: int) -> Tensor:
    """Edges of each column, (columns, pieces + 1), evenly spread over its distinct values.

    Quantiles over rows would be worse than over distinct values: nine in ten capital gains are 0.
    """
    shares = np.linspace(0, 1, pieces + 1)
    columns = numbers.flatten(0, -2).double().cpu().numpy().T
    edges = np.array([np.quantile(np.unique(column), shares) for column in columns])
    return torch.from_numpy(edges.reshape(len(columns), pieces + 1)).to(numbers.dtype)


def mlp_trunk(width: int, hidden: int, layers: int) -> nn.Sequential:
    """``layers`` fully connected layers with ReLU."""
    sizes = [width] + [hidden] * layers
    steps: list[nn.Module] = []
    for before, after in pairwise(sizes):
        steps += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*steps)


class ColumnDecoder(nn.Module):
    """Parameters of p(x | a, y, z) for tables: one hidden layer, then a value for each column.

    ``z`` is (rows, latent); ``a`` and ``y`` broadcast against (rows,) and may carry enumeration
    dimensions on the left, which the result keeps.
    """

    def __init__(self, latent: int, classes: int, groups: int, hidden: int, columns: int) -> None:
        super().__init__()
        self.from_z = nn.Linear(latent, hidden)
        self.from_a = nn.Embedding(groups, hidden)
        self.from_y = nn.Embedding(classes, hidden)
        self.columns = nn.Linear(hidden, columns)

    def forward(self, z: Tensor, a: Tensor, y: Tensor) -> Tensor:
        return self.columns(torch.relu(self.from_z(z) + self.from_a(a) + self.from_y(y)))
