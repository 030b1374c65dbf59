"""Channels P(observed | latent): what people write down, given what they are.

A channel over ``L`` latent values has ``L`` rows and ``L + 1`` outcomes, the last being ∅. Each row
has a Dirichlet prior on its *support*, the outcomes it can produce at all. "Cannot misstate" means
that row ``g`` has the support {g, ∅}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.errors import require


@dataclass(frozen=True)
class Channel:
    """Support and prior of P(observed | latent).

    ``prior[g][o]`` is the Dirichlet concentration of outcome ``o`` in row ``g``; 0 puts ``o`` outside
    the support of ``g``, so that no Dirichlet ever holds a zero.
    """

    name: str
    prior: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for value, row in enumerate(self.prior):
            where = f"prior of channel {self.name!r}, row {value}"
            require(len(row) == self.outcomes, f"{where}: {len(row)} outcomes, expected {self.outcomes}.")
            require(
                all(0 <= mass < float("inf") for mass in row),
                f"{where}: {list(row)} has a negative or infinite mass; give positive masses, "
                "or 0 for an outcome that cannot happen.",
            )
            require(
                sum(mass > 0 for mass in row) >= 2,
                f"{where}: {list(row)} leaves fewer than two outcomes; a channel needs something to learn.",
            )

    @property
    def values(self) -> int:
        """How many latent values there are."""
        return len(self.prior)

    @property
    def outcomes(self) -> int:
        return len(self.prior) + 1

    @property
    def unavailable(self) -> int:
        """The outcome that is ∅."""
        return len(self.prior)

    def site(self, value: int) -> str:
        """The name of the Pyro site of row ``value``."""
        return f"channel_{self.name}_{value}"

    def support(self, value: int) -> list[int]:
        return [outcome for outcome, mass in enumerate(self.prior[value]) if mass > 0]

    def concentration(self, value: int, like: Tensor | None = None) -> Tensor:
        """Prior concentration of row ``value`` on its support, with dtype and device of ``like``."""
        masses = [mass for mass in self.prior[value] if mass > 0]
        return torch.tensor(masses) if like is None else like.new_tensor(masses)

    def matrix(self, rows: Sequence[Tensor]) -> Tensor:
        """Full P(observed | latent), (…, values, outcomes), of rows given on their supports."""
        full = [
            row.new_zeros(*row.shape[:-1], self.outcomes).index_copy(
                -1, torch.tensor(self.support(value), device=row.device), row
            )
            for value, row in enumerate(rows)
        ]
        return torch.stack(full, dim=-2)

    def log_likelihood(self, matrix: Tensor, observed: Tensor) -> Tensor:
        """log P(observed | latent) for each latent value; −∞ outside the support.

        ``matrix`` is (members, values, outcomes), ``observed`` (rows,) or (members, rows); the result
        is (members, rows, values).
        """
        # A product instead of an index: on CUDA the gradient of an index is not deterministic.
        likelihood = functional.one_hot(observed, self.outcomes).to(matrix.dtype) @ matrix.mT
        possible = likelihood > 0
        return torch.where(possible, likelihood, 1).log().masked_fill(~possible, -torch.inf)

    def initial_concentration(self, value: int, observed: Tensor) -> Tensor:
        """Where a posterior of row ``value`` may start: (members or none, support).

        Prior plus the counts of ``observed`` within the support, tilted by the prior's mean so that
        symmetric rows start apart, and scaled to a row's share of the table.
        """
        support = torch.tensor(self.support(value), device=observed.device)
        counts = (observed.unsqueeze(-1) == support).sum(-2).to(torch.get_default_dtype())
        prior = self.concentration(value, counts)
        shares = (counts + 1) * prior / prior.sum()
        return prior + observed.shape[-1] / self.values * shares / shares.sum(-1, keepdim=True)
