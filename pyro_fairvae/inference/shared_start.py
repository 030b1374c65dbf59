r"""Members that are equal until λ rises are trained as one until then.

Members with the same seed and the same rows differ in λ alone, and λ has no effect before the share
``risk_from`` of training is done: their gradients are the same numbers. So one of each is trained for these
epochs, two at least, and its state, parameters, optimizer and memory, is copied for the others. What separate
members would have is the same, since a member does not depend on how many others there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.inference.schedule import Schedule

ONE_FOR_ALL = ("step",)  # tensors of a state that have no dimension of members


@dataclass(frozen=True)
class SharedStart:
    """Which members start as one, and for how many epochs.

    Attributes
    ----------
    epochs : int
        Epochs that are trained once.
    first : tuple of int
        The member that is trained, for each seed.
    place : tuple of int
        For each member, the place in ``first`` of the one that it starts as.

    Examples
    --------
    >>> from pyro_fairvae.inference.schedule import Schedule
    >>> from pyro_fairvae.inference.shared_start import SharedStart
    >>> SharedStart.of([4, 4, 7], epochs=30, schedule=Schedule(risk_from=0.2))
    SharedStart(epochs=6, first=(0, 2), place=(0, 0, 1))
    """

    epochs: int
    first: tuple[int, ...]
    place: tuple[int, ...]

    @staticmethod
    def of(seeds: Sequence[int], epochs: int, schedule: Schedule) -> SharedStart:
        """That of members that share their rows."""
        first = [k for k, seed in enumerate(seeds) if seed not in seeds[:k]]
        place = [[seeds[k] for k in first].index(seed) for seed in seeds]
        if len(first) == 1:
            # Two of them: sums and products of a single member are computed otherwise, and round otherwise.
            first, place = [0, 1][: len(seeds)], [0, *[1] * (len(seeds) - 1)]
        # λ must be 0 at the end of the epoch, too, when labels are propagated for the next.
        idle = [epoch for epoch in range(1, epochs) if schedule.risk(epoch / epochs) == 0]
        return SharedStart(len(idle) if len(first) < len(seeds) else 0, tuple(first), tuple(place))

    def of_all(self, state: dict[str, Any], lambdas: Sequence[float]) -> dict[str, Any]:
        """The state of all members, from that of the first ones."""
        return picked(state, self.place) | {"history": self.rows_of_all(state["history"], lambdas)}

    def of_first(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of the first ones, from that of all members."""
        kept = [row | {"member": self.first.index(row["member"])}
                for row in state["history"] if row["member"] in self.first]  # fmt: skip
        return picked(state, self.first) | {"history": kept}

    def rows_of_all(
        self, rows: Sequence[dict[str, float]], lambdas: Sequence[float]
    ) -> list[dict[str, float]]:
        """Lines of the history, each epoch's of all members in turn."""
        by_epoch: dict[float, list[dict[str, float]]] = {}
        for row in rows:
            by_epoch.setdefault(row["epoch"], []).append(row)
        return [
            of_epoch[place] | {"member": k, "lambda": weight}
            for of_epoch in by_epoch.values()
            for k, (place, weight) in enumerate(zip(self.place, lambdas, strict=True))
        ]


def picked(value: Any, members: Sequence[int], name: str = "") -> Any:
    """Copies of the tensors of a state, with some of their members, the first dimension."""
    if isinstance(value, Tensor):
        return value.clone() if name in ONE_FOR_ALL else value[torch.tensor(members, device=value.device)]
    if isinstance(value, dict):
        return {key: picked(entry, members, str(key)) for key, entry in value.items()}
    return [picked(entry, members) for entry in value] if isinstance(value, list) else value
