"""Do 90 % intervals for the rates of withholding cover the truth in 90 % of data sets?

    python benchmarks/coverage.py [--tables 200] [--rows 4000] [--at-once 50] [--groups 2]
                                  [--figure docs/coverage.png]

Draws synthetic data sets from the model's own assumptions (missing depends on the group alone), trains them
as members, many at once, and prints how often the intervals of α, β and P(∅|y) cover the truth, calibrated
and under the guide given h, with their widths. The figure shows the rank of the truth among the posterior's
draws, which is uniform for a correct posterior. Parts are kept in --out. With more than two groups, each is
half as large as the one before, and the rates of each data set are drawn uniformly.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from pyro_fairvae.base.options import build
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import skip_validation
from pyro_fairvae.posterior.channel_draws import guide_draws
from pyro_fairvae.posterior.summaries import INTERVAL
from pyro_fairvae.report import align, draw_ranks
from pyro_fairvae.studies.joint_fits import once, rates, train_jointly

RATES = {"unavailable": (0.8, 0.4), "label_unavailable": (0.3, 0.2)}
SMALL = {"hidden": 32, "layers": 2, "latent": 4, "decoder_hidden": 16, "pieces": 0, "batch": 256, "lr": 3e-3}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=200, help="data sets")
    parser.add_argument(
        "--rows", type=int, default=4000, help="rows of each data set; 70 %% are for training"
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=50, help="data sets in one run")
    parser.add_argument("--out", type=Path, default=Path("runs/coverage"), help="folder for the parts")
    parser.add_argument("--figure", type=Path, default=Path("runs/coverage/ranks.png"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    skip_validation()
    options = {"rows": arguments.rows, "epochs": arguments.epochs, "groups": arguments.groups}
    lines: list[dict[str, Any]] = []
    for first in range(0, arguments.tables, arguments.at_once):
        seeds = list(range(first, min(first + arguments.at_once, arguments.tables)))
        work = partial(run_tables, seeds, **options)
        lines += once(arguments.out / f"{first}.json", options | {"seeds": seeds}, work)
        print(f"{seeds[-1] + 1} of {arguments.tables} data sets", flush=True)
    found = pd.DataFrame(lines)
    print(align(coverage_lines(found)))
    share = found.groupby("seed")[["calibration_seconds", "training_seconds"]].first().sum()
    print(f"calibration took {100 * share.iloc[0] / share.iloc[1]:.0f} % of the time of training")
    draw_ranks(arguments.figure, {str(k): of["rank"].to_numpy() for k, of in found.groupby("label")})


def missing_of(seed: int, groups: int) -> Missingness:
    """The rates of withholding in a data set."""
    if groups == 2:
        return Missingness(**RATES)
    uniform = np.random.default_rng([seed, groups]).uniform(size=groups)
    return Missingness(tuple(uniform.tolist()), (0.0,) * groups, RATES["label_unavailable"])


def run_tables(seeds: list[int], rows: int, epochs: int, groups: int) -> list[dict[str, Any]]:
    """Train several data sets together; a line for each data set and rate."""
    missing = [missing_of(seed, groups) for seed in seeds]
    shares = 0.5 ** np.arange(groups) if groups > 2 else np.ones(2)
    draw = partial(synthetic, rows, groups=groups, group_prevalence=shares / shares.sum())
    parts = [
        split(draw(seed=10_000 + seed), hidden, seed) for seed, hidden in zip(seeds, missing, strict=True)
    ]
    settings = build(Settings, SMALL | {"epochs": epochs})
    joint = train_jointly(parts, [0.0], settings, seeds, torch.device("cpu"))
    seconds = {
        "calibration_seconds": joint.calibration_seconds,
        "training_seconds": joint.training_seconds,
    }
    guide = joint.fit.program.guide
    of_guide = {
        channel.name: guide_draws(joint.fit, channel) for channel in (guide.channel_a, guide.channel_y)
    }
    lines = []
    for t, (seed, hidden) in enumerate(zip(seeds, missing, strict=True)):
        truth = {"a": hidden.group_channel(), "y": hidden.label_channel()}
        for line in rates(joint, t, truth, {"seed": seed}):
            if line["says"] != "unavailable":
                continue
            draws = of_guide[line["channel"]]
            row = [row.label for row in draws.channel.rows].index(line["given"])
            low, high = np.quantile(draws.of(row, "unavailable")[..., t], INTERVAL)
            label = f"P(∅ | {line['channel']} = {line['given']})"
            lines.append(line | seconds | {"label": label, "guide_q05": low, "guide_q95": high})
    return lines


def coverage_lines(found: pd.DataFrame) -> list[list[str]]:
    """By rate: how often intervals cover the truth, with a 95 % interval of that share, and their widths."""
    lines = [["rate", "truth", "held truth %", "95 %", "width", "bias", "given h: held %", "width"]]
    for label, of in found.groupby("label"):
        held = (of.q05 <= of.truth) & (of.truth <= of.q95)
        share = stats.binomtest(int(held.sum()), len(held)).proportion_ci(method="wilson")
        guide = (of.guide_q05 <= of.truth) & (of.truth <= of.guide_q95)
        lines.append(
            [
                str(label),
                f"{of.truth.iloc[0]:.2f}" if of.truth.nunique() == 1 else "uniform",
                f"{100 * held.mean():.1f}",
                f"[{100 * share.low:.1f}, {100 * share.high:.1f}]",
                f"{(of.q95 - of.q05).mean():.4f}",
                f"{(of['mean'] - of.truth).mean():+.4f}",
                f"{100 * guide.mean():.1f}",
                f"{(of.guide_q95 - of.guide_q05).mean():.4f}",
            ]
        )
    return lines


if __name__ == "__main__":
    main()
