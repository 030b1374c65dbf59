"""Ordinary networks, written for one member, and :class:`Members`, which runs K copies at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map

from pyro_fairvae.base.seeds import seeded

SCORE = 8.0  # log-probabilities below −SCORE count as −SCORE to the imputer of groups


class Members(nn.Module):
    """K copies of a network whose parameters are stacked along a leading dimension of members.

    ``build(k)`` makes copy ``k``, which is initialised with ``seeds[k]`` (equal seeds make equal copies, but
    for what ``build`` itself makes different). The forward pass is one ``vmap``, so copies never see each
    other.
    """

    def __init__(self, build: Callable[[int], nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        copies = []
        for k, seed in enumerate(seeds):
            with seeded(seed):
                copies.append(build(k))
        parameters, buffers = stack_module_state(copies)
        self.count = len(seeds)
        self.names = tuple(parameters)
        for name, stacked in parameters.items():
            self.register_parameter(self._flat(name), nn.Parameter(stacked.detach().clone()))
        for name, stacked in buffers.items():
            self.register_buffer(self._flat(name), stacked)
        self.buffer_names = tuple(buffers)
        # In a tuple, so that its own parameters are not registered beside the stacked ones.
        self.skeleton = (copies[0].to("meta"),)
        self.mixed = False  # whether products are taken in bfloat16
        self.norms = tuple(
            self._flat(f"{path}.{name}")
            for path, module in self.skeleton[0].named_modules()
            if isinstance(module, nn.GroupNorm)
            for name, _ in module.named_parameters()
        )

    @staticmethod
    def _flat(name: str) -> str:
        return name.replace(".", "/")

    def train(self, mode: bool = True) -> Members:
        self.skeleton[0].train(mode)
        return super().train(mode)

    def forward(self, *inputs: Tensor, in_dims: tuple[int | None, ...], out_dims: Any = 0) -> Any:
        """Apply copy ``k`` to slice ``k`` of each input along its member dimension (None: shared)."""
        state = {name: getattr(self, self._flat(name)) for name in self.names + self.buffer_names}

        def apply(state: dict[str, Tensor], *inputs: Tensor) -> Any:
            return functional_call(self.skeleton[0], state, inputs)

        if not self.mixed:
            return vmap(apply, in_dims=(0, *in_dims), out_dims=out_dims)(state, *inputs)
        with torch.autocast(inputs[0].device.type, torch.bfloat16):
            found = vmap(apply, in_dims=(0, *in_dims), out_dims=out_dims)(state, *inputs)
        return tree_map(lambda each: each.to(inputs[0].dtype), found)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """The network in its mode of evaluation, without gradients, for the time of a ``with``."""
    before = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(before)


class Encoded(NamedTuple):
    """What an encoder says of a row; each is (members, rows, …) after :class:`Members`."""

    z_loc: Tensor
    z_scale: Tensor
    class_logits: Tensor  # g(y|x), the classifier
    group_logits: Tensor  # h(a|x)
    # For the risk; none has a gradient into the trunk.
    features: Tensor  # of the trunk
    label_logits: Tensor  # P_g(y|x)
    group_logits_by_label: Tensor  # r(a|x,y), (…, classes, groups)


class NumberPieces(nn.Module):
    r"""Columns as they are, and each number also in pieces (Gorishniy, Rubachev and Babenko 2022).

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
        return torch.cat([x, ((numbers - self.low) / self.width).clamp(0, 1).flatten(-2)], dim=-1)


def piece_edges(numbers: Tensor, pieces: int) -> Tensor:
    """Edges of each column, (columns, pieces + 1), evenly spread over its distinct values.

    Rows would be a worse measure than values: of capital gains nine in ten are 0.
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


class Encoder(nn.Module):
    r"""A trunk and its heads: q(z|x), g(y|x), h(a|x), and the imputers P_g(y|x) and r(a|x,y).

    r is h, calibrated anew for each y along h's own scores and the classifier's:

    .. math:: r(\cdot|x,y) = \mathrm{softmax}(U_y \log h(\cdot|x) + V_y \log g(\cdot|x) + b_y).

    A gap compares the classifier's scores within a cell, so along them the imputed groups must be right,
    and so few parameters can be learned from the few rows of a rare cell that state their group.

    ``apart`` keeps z from what h and g read: z is to hold what is left of x once a and y are known, and a
    decoder to which z says both has no use for a and y themselves.
    """

    def __init__(
        self, trunk: nn.Module, features: int, latent: int, classes: int, groups: int, apart: bool = False
    ) -> None:
        super().__init__()
        self.trunk, self.apart = trunk, apart
        self.z_loc = nn.Linear(features, latent)
        self.z_scale = nn.Linear(features, latent)
        self.classifier = nn.Linear(features, classes)
        self.group = nn.Linear(features, groups)
        self.labeller = nn.Linear(features, classes)
        self.grouper = nn.Linear(groups + classes, classes * groups)
        self.by_label = (classes, groups)
        with torch.no_grad():  # r starts at h
            self.grouper.weight.copy_(torch.eye(groups, groups + classes).repeat(classes, 1))
            self.grouper.bias.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.trunk(x)
        fixed = features.detach()
        class_logits, group_logits = self.classifier(features), self.group(features)
        scores = torch.cat([group_logits.log_softmax(-1), class_logits.log_softmax(-1)], dim=-1)
        rest = self._rest(features) if self.apart else features
        return (
            self.z_loc(rest),
            nn.functional.softplus(self.z_scale(rest)) + 1e-3,
            class_logits,
            group_logits,
            fixed,
            self.labeller(fixed),
            self.grouper(scores.detach().clamp(min=-SCORE)).unflatten(-1, self.by_label),
        )

    def _rest(self, features: Tensor) -> Tensor:
        """Features without the directions by which h and g tell groups and classes apart."""
        heads = [head.weight.detach() for head in (self.group, self.classifier)]
        contrasts = torch.cat([weight[1:] - weight[:1] for weight in heads])
        basis, _ = torch.linalg.qr(contrasts.T)
        return features - features @ basis @ basis.T


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
