"""What is believed beforehand about who writes down what."""

from __future__ import annotations

from collections.abc import Callable

from pyro_fairvae.channels import Channel
from pyro_fairvae.errors import choose


def _rows(values: int, own: float, other: float, unavailable: float) -> tuple[tuple[float, ...], ...]:
    return tuple(
        (*(own if outcome == value else other for outcome in range(values)), unavailable)
        for value in range(values)
    )


PRIORS: dict[str, Callable[[int], tuple[tuple[float, ...], ...]]] = {
    # Nobody misstates; every rate of withholding is equally likely.
    "truthful": lambda values: _rows(values, 1.0, 0.0, 1.0),
    # Every channel is equally likely, misstatement included.
    "flat": lambda values: _rows(values, 1.0, 1.0, 1.0),
    # The paper's Dir(.5, .1, .4) on own value, another value, ∅.
    "paper": lambda values: _rows(values, 0.5, 0.1, 0.4),
}


def channel(name: str, values: int, prior: str = "truthful") -> Channel:
    """The channel of ``values`` latent values with a prior by name."""
    return Channel(name, PRIORS[choose("prior", prior, PRIORS)](values))
