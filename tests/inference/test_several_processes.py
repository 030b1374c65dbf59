"""Two processes beside one: the same parameters, posteriors and decisions, however the work is divided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pyro_fairvae.base.options import build
from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.posterior.calibration import calibrate_fit
from pyro_fairvae.risks import custom
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Imputation, Observed
from tests.support.processes import on_ranks
from tests.support.small import small_settings

LAMBDAS = (0.0, 0.5, 2.0)
STEPS = {"epochs": 4, "batch": 33, "risk_from": 0.25, "risk_full": 0.5}  # 5 steps in an epoch
# How rows and members are divided, settings, and whatever else a case is about.
CASES: dict[str, dict[str, Any]] = {
    "members": {"sharding": "members"},
    "members with critics": {"sharding": "members", "risk": "mine", "lambdas": (0.0, 0.0, 1.0)},
    "rows": {"sharding": "rows"},
    "some rows of the ELBO": {"sharding": "rows", "elbo_share": 0.3, "elbo_weight": 0.5},
    "sampled": {"sharding": "rows", "risk_estimator": "sampled", "memory": 0.2},
    "vanilla": {"sharding": "rows", "risk_gradient": "vanilla", "imputer": "features",
                "risk_estimator": "sampled"},
    "critics": {"sharding": "rows", "risk": "infonce", "withholding_depends_on": "label"},
    "propagation": {"sharding": "rows", "labeller": "propagation"},
    "custom": {"sharding": "rows", "risk": "gap_of_means", "risk_estimator": "sampled"},
    "images": {"sharding": "rows"},
    "own rows": {"sharding": "rows"},
    "own rows, members": {"sharding": "members"},
    "imputed": {"sharding": "rows"},
}  # fmt: skip


def gap_of_means(p: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """A risk that is no function of cell sums: of squares of means."""
    means = [(p[..., -1] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return (means[0] - means[1]).square()


def tables(case: str) -> tuple[Observed, Observed]:
    parts = split(synthetic(rows=240, seed=2), Missingness((0.2, 0.4)), 2)
    train, validation = parts.train, parts.validation
    if case.startswith("own rows"):
        others = [split(synthetic(rows=240, seed=s), Missingness((0.2, 0.4)), 2) for s in (2, 3, 4)]
        return Observed.stack([p.train for p in others]), Observed.stack([p.validation for p in others])
    if case == "images":
        stored = torch.randint(256, (240, 3 * 64), generator=torch.Generator().manual_seed(0))
        of = PixelRows(stored.to(torch.uint8), torch.arange(240), dtype=torch.float64)
        return (
            replace(train, x=of.take(torch.arange(train.rows)), columns=Pixels(3, 8)),
            replace(validation, x=of.take(torch.arange(100, 100 + validation.rows)), columns=Pixels(3, 8)),
        )
    return train, validation


def settings_of(given: dict[str, Any]) -> Settings:
    return small_settings(**STEPS, hidden=16, **given)


def fitted(case: str, state: dict[str, Any] | None = None, **more: Any) -> tuple[Fit, list[Any]]:
    """A fit, and the states after its epochs."""
    if "gap_of_means" not in custom.CUSTOM:
        custom.register("gap_of_means", gap_of_means)
    given = {name: value for name, value in CASES[case].items() if name not in ("sharding", "lambdas")}
    if case == "images":
        given |= {"trunk": "cnn"}
    train, validation = tables(case)
    states: list[Any] = []

    def keep(done: Progress) -> None:
        states.append(done.state())
        assert [row["member"] for row in done.rows] == [0, 1, 2]

    imputation = None
    if case == "imputed":
        joint = torch.rand(train.rows, 2, 2, generator=torch.Generator().manual_seed(1)) + 0.1
        joint = joint / joint.sum((1, 2), keepdim=True)
        imputation = Imputation(joint, joint.sum(-1))
    found = fit(
        train, validation, CASES[case].get("lambdas", LAMBDAS), settings_of(given), 7, dtype=torch.float64,
        after_epoch=keep, state=state, imputation=imputation, **more,
    )  # fmt: skip
    return found, states


def content(found: Fit) -> dict[str, Any]:
    lines = {f"{row['epoch']} {row['member']} {name}": value for row in found.history for name, value in row.items()}
    return {
        "program": found.program.state(), "chosen": found.chosen, "epochs": found.chosen_epoch,
        "adjustment": found.adjustment, "history": lines, "lambdas": found.lambdas,
    }  # fmt: skip


def settled() -> Fit:
    """Decisions settled to targets, by networks of folds."""
    train, validation = tables("targets")
    fold = torch.arange(train.rows) % 2
    return fit_to_targets(train, validation, (0.1, 0.3), fold, settings_of({}), 7)


def calibrated(whole: Fit) -> dict[str, Any]:
    train, _ = tables("rows")
    found = calibrate_fit(whole, train.to("cpu", torch.float64), [3])
    return {name: [torch.from_numpy(row) for row in of.draws.rows] for name, of in found.items()}


def all_cases(ranks: Ranks) -> dict[str, Any]:
    """What every case finds on these ranks."""
    found: dict[str, Any] = {}
    for case in CASES:
        with sharing(ranks, CASES[case]["sharding"]):
            whole, states = fitted(case)
            found[case] = content(whole)
            if case in ("members", "rows"):
                found[f"{case}, states"] = states
                found[f"{case}, resumed"] = content(fitted(case, states[1])[0])
                found[f"{case}, targets"] = content(settled())
            if case == "rows":
                found["calibrated"] = calibrated(whole)
    return found


class sharing:
    """The current ranks divide what is said inside of the ``with`` block."""

    def __init__(self, ranks: Ranks, what: str) -> None:
        self.ranks = replace(ranks, sharding=what)

    def __enter__(self) -> None:
        from pyro_fairvae.base import ranks

        self.before, ranks._current = ranks._current, self.ranks

    def __exit__(self, *_: Any) -> None:
        from pyro_fairvae.base import ranks

        ranks._current = self.before
