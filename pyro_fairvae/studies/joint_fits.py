"""Many data sets at once, each a member of one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyro_fairvae.base.documents import read_document, write_sealed
from pyro_fairvae.base.errors import require
from pyro_fairvae.base.reports import Report
from pyro_fairvae.boosting.scores import for_trunk
from pyro_fairvae.data import Splits
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.posterior.calibration import Calibrated, calibrate_fit
from pyro_fairvae.posterior.summaries import INTERVAL
from pyro_fairvae.schema.documents import StudyRows
from pyro_fairvae.schema.observed import Observed


@dataclass(frozen=True)
class JointFit:
    """A fit whose member ``t · weights + w`` has data set ``t`` and weight ``w``; calibrated posteriors."""

    fit: Fit
    calibrated: dict[str, Calibrated]  # a table for each data set
    training_seconds: float
    calibration_seconds: float


def train_jointly(
    parts: Sequence[Splits],
    weights: Sequence[float],
    settings: Settings,
    seeds: Sequence[int],
    device: torch.device,
    report: Report | None = None,
) -> JointFit:
    """Train a member for each data set and weight λ, and calibrate the posteriors of each data set."""
    parts = [for_trunk(splits, settings, seed)[0] for splits, seed in zip(parts, seeds, strict=True)]
    each = [(splits, weight, seed) for splits, seed in zip(parts, seeds, strict=True) for weight in weights]

    def after_epoch(done: Progress) -> None:
        if report is not None and (done.epoch % 5 == 0 or done.epoch == done.epochs):
            report(f"  epoch {done.epoch} of {done.epochs}, {len(each)} members at once")

    start = time.perf_counter()
    fitted = fit(
        Observed.stack([splits.train for splits, _, _ in each]),
        Observed.stack([splits.validation for splits, _, _ in each]),
        [weight for _, weight, _ in each],
        settings,
        [seed for _, _, seed in each],
        device,
        after_epoch=after_epoch,
    )
    trained = time.perf_counter()
    tables = Observed.stack([splits.train for splits in parts])
    calibrated = calibrate_fit(fitted, tables, list(seeds))
    return JointFit(fitted, calibrated, trained - start, time.perf_counter() - trained)


def once(
    path: Path, options: dict[str, Any], work: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The rows of a job: from its file if it was done before with the same options, else from ``work``."""
    if path.is_file():
        remedy = "Delete it to have it done again."
        kept = read_document(path, StudyRows, "a part of a study", remedy, sealed=True)
        require(
            kept.options == json.loads(json.dumps(options)),
            f"{path} was made with other options ({kept.options}); delete it, or choose another folder.",
            "out",
        )
        return kept.rows
    rows = work()
    write_sealed(path, {"options": options, "rows": rows})
    return rows


def point_rates(fitted: Fit, truth: dict[str, Any], common: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each outcome of each group: the mean under the guide of the first member, and the truth."""
    guide = fitted.at_chosen_epoch().guide
    channel = guide.channel_a
    known = channel.row_probabilities(truth["a"])
    lines = []
    for r, (row, site) in enumerate(zip(channel.rows, channel.sites, strict=True)):
        found = guide.sites.mean(site)[0, 0].detach().cpu()
        for e, outcome in enumerate(row.outcomes):
            line = {"channel": "a", "given": row.label, "says": outcome, "truth": float(known[r][e])}
            lines.append(common | line | {"mean": float(found[e])})
    return lines


def rates(many: JointFit, table: int, truth: dict[str, Any], common: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each outcome of each row of a data set's channels: posterior, the guide's mean, truth."""
    lines = []
    guide = many.fit.at_chosen_epoch().guide
    members = len(many.fit.lambdas) // next(iter(many.calibrated.values())).bins.counts.shape[0]
    means = {
        channel.name: [guide.sites.mean(site)[:, 0].detach().cpu() for site in channel.sites]
        for channel in (guide.channel_a, guide.channel_y)
    }
    for name, calibrated in many.calibrated.items():
        channel = calibrated.draws.channel
        known = channel.row_probabilities(truth[name])
        for r, row in enumerate(channel.rows):
            for e, outcome in enumerate(row.outcomes):
                values = calibrated.draws.of(r, outcome)[..., table]
                low, high = np.quantile(values, INTERVAL)
                lines.append(
                    common
                    | {
                        "channel": name,
                        "given": row.label,
                        "says": outcome,
                        "truth": float(known[r][e]),
                        "mean": float(values.mean()),
                        "q05": float(low),
                        "q95": float(high),
                        "rank": float((values < known[r][e]).mean()),
                        "guide": float(means[name][r][table * members, e]),
                    }
                )
    return lines
