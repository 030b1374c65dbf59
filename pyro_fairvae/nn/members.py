"""Copies of a network that run together, stacked along a leading dimension of members."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map

from pyro_fairvae.base.seeds import seeded
from pyro_fairvae.base.threads import GENERATORS


class Skeletons:
    """Modules without values, one for each pass that is under way: ``functional_call`` changes them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module  # a pattern, which no pass uses
        self._idle: deque[nn.Module] = deque()

    def __reduce__(self) -> tuple[type[Skeletons], tuple[nn.Module]]:
        return Skeletons, (self.module,)  # those in use are not copied

    @contextmanager
    def one(self, training: bool) -> Iterator[nn.Module]:
        """One that no other thread uses inside the ``with`` block."""
        try:
            skeleton = self._idle.pop()
        except IndexError:
            skeleton = copy.deepcopy(self.module)
        if skeleton.training != training:
            skeleton.train(training)
        try:
            yield skeleton
        finally:
            self._idle.append(skeleton)


class Members(nn.Module):
    """K copies of a network whose parameters are stacked along a leading dimension of members.

    The forward pass is one ``vmap``, so copies are independent of each other. In a Pyro program they stand in
    ``pyro.plate("members", K, dim=-2)``, to the left of the plate of rows.

    Parameters
    ----------
    build : callable
        ``build(k)`` makes copy k.
    seeds : sequence of int
        Copy k is initialised with ``seeds[k]``: equal seeds give equal copies, except where ``build`` itself
        depends on k.

    Examples
    --------
    >>> import torch
    >>> from pyro_fairvae import Members
    >>> networks = Members(lambda k: torch.nn.Linear(3, 2), seeds=[0, 1])
    >>> networks(torch.zeros(5, 3), in_dims=(None,)).shape  # rows that all members share
    torch.Size([2, 5, 2])
    """

    def __init__(self, build: Callable[[int], nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        copies = []
        with GENERATORS.held():
            for k, seed in enumerate(seeds):
                with seeded(seed):
                    copies.append(build(k))
        parameters, buffers = stack_module_state(copies)
        skeleton = copies[0].to("meta")
        copies.clear()  # networks of wide tables are large
        self.count = len(seeds)
        self.names = tuple(parameters)
        for name, stacked in parameters.items():
            self.register_parameter(self._flat(name), nn.Parameter(stacked.detach()))
        for name, stacked in buffers.items():
            self.register_buffer(self._flat(name), stacked)
        self.buffer_names = tuple(buffers)
        self.skeletons = Skeletons(skeleton)
        self.mixed = False  # whether products are computed in bfloat16
        self.norms = tuple(
            self._flat(f"{path}.{name}")
            for path, module in self.skeletons.module.named_modules()
            if isinstance(module, nn.GroupNorm)
            for name, _ in module.named_parameters()
        )

    @staticmethod
    def _flat(name: str) -> str:
        return name.replace(".", "/")

    def forward(self, *inputs: Tensor, in_dims: tuple[int | None, ...], out_dims: Any = 0) -> Any:
        """Apply copy ``k`` to slice ``k`` of each input along its member dimension (None: shared)."""
        state = {name: getattr(self, self._flat(name)) for name in self.names + self.buffer_names}

        with self.skeletons.one(self.training) as skeleton:

            def apply(state: dict[str, Tensor], *inputs: Tensor) -> Any:
                return functional_call(skeleton, state, inputs)

            if not self.mixed:
                return vmap(apply, in_dims=(0, *in_dims), out_dims=out_dims)(state, *inputs)
            with torch.autocast(inputs[0].device.type, torch.bfloat16):
                outputs = vmap(apply, in_dims=(0, *in_dims), out_dims=out_dims)(state, *inputs)
        return tree_map(lambda output: output.to(inputs[0].dtype), outputs)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Set the network to evaluation mode, without gradients, inside the ``with`` block.

    A network that is in this mode already, as those of a finished fit are, is not touched: threads share it.
    """
    before = network.training
    if before:
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if before:
            network.train()
