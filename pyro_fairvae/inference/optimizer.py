"""One fused optimiser for all parameters of all members."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyro
import torch
from pyro.optim import PyroOptim
from torch import Tensor

from pyro_fairvae.base.ranks import ALONE, Ranks


class MembersAdamW(PyroOptim):
    """AdamW over parameters with a leading dimension of members.

    Pyro keeps an optimiser for each parameter; this class keeps one, with two rates: ``lr`` for networks and
    ``sites_lr`` for the few parameters of shared sites, which ``sites`` lists by name. Parameters in
    ``sites`` and in ``undecayed`` have no weight decay. Names are those of Pyro's parameter store. Gradients
    are clipped to the norm ``clip`` *for each member*, so that members stay independent. Those of ``ranks``,
    which have parts of the rows, are added up before.
    """

    ranks: Ranks = ALONE

    def __init__(
        self,
        lr: float,
        sites_lr: float,
        weight_decay: float,
        clip: float,
        sites: Collection[str] = (),
        undecayed: Collection[str] = (),
    ) -> None:
        super().__init__(torch.optim.AdamW, {})
        self.rates = {"networks": lr, "undecayed": lr, "sites": sites_lr}
        self.sites, self.undecayed = frozenset(sites), frozenset(undecayed)
        self.weight_decay = weight_decay
        self.clip = clip
        self.optimizer: torch.optim.AdamW | None = None
        self._waiting: dict[str, Any] | None = None

    def __call__(self, params: Iterable[Tensor], share: float = 1.0, **kwargs: Any) -> None:
        """Take a step with the learning rates multiplied by ``share``."""
        if self.optimizer is None:
            self.optimizer = self._build(list(params))
        groups = self.optimizer.param_groups
        grads = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        self.ranks.add_up(grads)
        clip_members(grads, self.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = share * self.rates[group["name"]]
        self.optimizer.step()

    def _build(self, params: list[Tensor]) -> torch.optim.AdamW:
        store = pyro.get_param_store()
        named = sorted(((str(store.param_name(param)), param) for param in params), key=lambda pair: pair[0])
        sites = [param for name, param in named if name in self.sites]
        undecayed = [param for name, param in named if name in self.undecayed]
        networks = [param for name, param in named if name not in self.sites | self.undecayed]
        groups = [
            {"name": "undecayed", "params": undecayed, "weight_decay": 0.0},
            {"name": "networks", "params": networks, "weight_decay": self.weight_decay},
            {"name": "sites", "params": sites, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW([group for group in groups if group["params"]], foreach=True)
        if self._waiting is not None:
            optimizer.load_state_dict(self._waiting)
        return optimizer

    def get_state(self) -> dict[str, Any]:
        return {} if self.optimizer is None else self.optimizer.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        self._waiting = state or None


def clip_members(grads: list[Tensor], clip: float) -> None:
    """Scale each member's gradient, over all its parameters, to a norm of at most ``clip``, in place.

    A gradient that is not finite is dropped, so that one bad batch does not end a member.
    """
    norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)  # (members,)
    finite = norms.isfinite()
    factor = torch.where(finite, (clip / norms.clamp(min=1e-12)).clamp(max=1.0), 0.0)
    for grad in grads:
        shape = (-1, *[1] * (grad.dim() - 1))
        grad.masked_fill_(~finite.view(shape), 0.0).mul_(factor.view(shape))
