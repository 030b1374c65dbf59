"""Schedules of weights over the course of training."""

from __future__ import annotations

from dataclasses import dataclass

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import option


@dataclass(frozen=True)
class Schedule:
    """The share of a weight that applies at each share of training done."""

    risk_from: float = option(0.2, "share of training after which λ starts to rise from 0")
    risk_full: float = option(0.6, "share of training from which λ has its full value")
    kl_full: float = option(0.1, "share of training from which the KL of z has its full weight")

    def __post_init__(self) -> None:
        require(
            0 <= self.risk_from <= self.risk_full <= 1 and 0 <= self.kl_full <= 1,
            "risk_from, risk_full and kl_full are shares of training within [0, 1], the first at most the "
            f"second; got {self.risk_from}, {self.risk_full} and {self.kl_full}.",
        )

    def risk(self, progress: float) -> float:
        return _ramp(progress, self.risk_from, self.risk_full)

    def kl(self, progress: float) -> float:
        return _ramp(progress, 0.0, self.kl_full)


def _ramp(at: float, start: float, full: float) -> float:
    if at >= full:
        return 1.0
    return 0.0 if at <= start else (at - start) / (full - start)
