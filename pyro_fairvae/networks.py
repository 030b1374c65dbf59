"""Ordinary networks, written for one member, and :class:`Members`, which runs K copies at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from pyro_fairvae.seeds import seeded


class Members(nn.Module):
    """K copies of a network whose parameters are stacked along a leading dimension of members.

    ``build()`` makes one copy; copy ``k`` is initialised with ``seeds[k]`` (equal seeds make equal
    copies). The forward pass is one ``vmap``, so copies never see each other.
    """

    def __init__(self, build: Callable[[], nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        copies = []
        for seed in seeds:
            with seeded(seed):
                copies.append(build())
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

    @staticmethod
    def _flat(name: str) -> str:
        return name.replace(".", "/")

    def forward(self, *inputs: Tensor, in_dims: tuple[int | None, ...], out_dims: Any = 0) -> Any:
        """Apply copy ``k`` to slice ``k`` of each input along its member dimension (None: shared)."""
        state = {name: getattr(self, self._flat(name)) for name in self.names + self.buffer_names}

        def apply(state: dict[str, Tensor], *inputs: Tensor) -> Any:
            return functional_call(self.skeleton[0], state, inputs)

        return vmap(apply, in_dims=(0, *in_dims), out_dims=out_dims)(state, *inputs)


class Encoded(NamedTuple):
    """What an encoder says of a row; each is (members, rows, …) after :class:`Members`."""

    z_loc: Tensor
    z_scale: Tensor
    class_logits: Tensor  # g(y|x), the classifier
    group_logits: Tensor  # h(a|x)
    # Imputers for the risk; neither has a gradient into the trunk.
    label_logits: Tensor  # P_g(y|x)
    group_logits_by_label: Tensor  # r(a|x,y), (…, classes, groups)


def mlp_trunk(width: int, hidden: int, layers: int) -> nn.Sequential:
    """``layers`` fully connected layers with ReLU."""
    sizes = [width] + [hidden] * layers
    steps: list[nn.Module] = []
    for before, after in pairwise(sizes):
        steps += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*steps)


class Encoder(nn.Module):
    """A trunk and its heads: q(z|x), g(y|x), h(a|x), and the imputers P_g(y|x) and r(a|x,y)."""

    def __init__(self, trunk: nn.Module, features: int, latent: int, classes: int, groups: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.z_loc = nn.Linear(features, latent)
        self.z_scale = nn.Linear(features, latent)
        self.classifier = nn.Linear(features, classes)
        self.group = nn.Linear(features, groups)
        self.labeller = nn.Linear(features, classes)
        self.grouper = nn.Linear(features, classes * groups)
        self.by_label = (classes, groups)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.trunk(x)
        fixed = features.detach()
        return (
            self.z_loc(features),
            nn.functional.softplus(self.z_scale(features)) + 1e-3,
            self.classifier(features),
            self.group(features),
            self.labeller(fixed),
            self.grouper(fixed).unflatten(-1, self.by_label),
        )


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
