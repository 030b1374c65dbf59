"""Do intervals of who withholds cover the truth, and does the check reject when it should?

    python benchmarks/withholding.py CASE [--tables 200] [--at-once 25] [--out runs/withholding]

CASE is one of those below, or all. Draws tables whose truth is known, computes the cross-fitted posterior of
each (without training the classifier) and its check, and prints how often 90 % intervals of the population's
P(∅|a) cover the truth, their width, and how often the check rejects at 5 %. Parts are kept in --out.

  auc AUC ROWS   two groups, x tells them apart with this AUC, P(∅|a) = .8 and .4
  five           five groups, each half as large as the one before, rates uniform, 8,000 rows
  v              withholding also depends on a number and a category of x, which are in v, 4,000 rows
  label          withholding also depends on the label, which is in v, 4,000 rows
  label-unknown  the same with an odds ratio of 2 at 20,000 rows, and v empty: the check should reject
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from scipy.special import expit, logit

from pyro_fairvae.base.options import build
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.calibration import calibrate
from pyro_fairvae.posterior.summaries import INTERVAL
from pyro_fairvae.report import align
from pyro_fairvae.schema.observed import Columns, Observed
from pyro_fairvae.studies.joint_fits import once

SMALL = {"hidden": 32, "layers": 2, "pieces": 0}
CASES: dict[str, dict[str, Any]] = {
    f"auc {auc} {rows}": {"auc": auc, "rows": rows, "rates": (0.8, 0.4)}
    for auc in (0.6, 0.7, 0.9)
    for rows in (2000, 20000)
} | {
    "five": {"auc": 0.9, "rows": 8000, "groups": 5},
    "v": {
        "auc": 0.85,
        "rows": 4000,
        "rates": (0.5, 0.25),
        "by_x": 0.7,
        "leaning": 0.3,
        "depends_on": ("x0", "c"),
    },
    "label": {"auc": 0.85, "rows": 4000, "rates": (0.5, 0.25), "by_label": 0.7, "depends_on": ("label",)},
    "label-unknown": {"auc": 0.85, "rows": 20000, "rates": (0.5, 0.25), "by_label": float(np.log(2))},
}
NUMBERS, CATEGORIES = 6, 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="+", help="a case, or all")
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=25, help="tables side by side")
    parser.add_argument("--out", type=Path, default=Path("runs/withholding"), help="folder for the parts")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    asked = " ".join(arguments.case)
    for name in CASES if asked == "all" else [asked]:
        lines: list[dict[str, Any]] = []
        start = time.perf_counter()
        for first in range(0, arguments.tables, arguments.at_once):
            seeds = list(range(first, min(first + arguments.at_once, arguments.tables)))
            part = arguments.out / f"{name.replace(' ', '-')}-{first}.json"
            options = {"case": name, "seeds": seeds}
            lines += once(part, options, partial(run_tables, seeds, **CASES[name]))
        print(f"\n{name}: {arguments.tables} tables, {time.perf_counter() - start:.0f} s", flush=True)
        print(align(coverage_lines(pd.DataFrame(lines))), flush=True)


def draw_table(
    seed: int,
    auc: float,
    rows: int,
    rates: tuple[float, ...] | None = None,
    groups: int = 2,
    by_x: float = 0.0,
    by_label: float = 0.0,
    leaning: float = 0.0,
) -> tuple[Observed, np.ndarray]:
    """A table, and the P(∅|a) of its people."""
    draw = np.random.default_rng([seed, groups])
    shares = 0.5 ** np.arange(groups) if groups > 2 else np.ones(2)
    known = np.array(rates) if rates is not None else draw.uniform(size=groups)
    a = draw.choice(groups, size=rows, p=shares / shares.sum())
    y = (draw.random(rows) < 0.3 + 0.2 * (a % 2)).astype(int)
    # Two groups at distance d are told apart with the AUC Φ(d / √2).
    distance = np.sqrt(2) * stats.norm.ppf(auc)
    numbers = draw.normal(size=(rows, NUMBERS))
    if groups == 2:
        numbers[:, 1] += distance * a
    else:
        numbers[np.arange(rows), a] += distance
    numbers[:, -1] += 0.5 * y
    category = np.where(draw.random(rows) < leaning * (a % 2), 0, draw.integers(0, CATEGORIES, size=rows))
    depends = by_x * (numbers[:, 0] + (category == 0) - (category == 1)) + by_label * (y - 0.4)
    withheld = expit(logit(known.clip(1e-9, 1 - 1e-9))[a] + depends)
    a_obs = np.where(draw.random(rows) < withheld, groups, a)
    y_obs = np.where(draw.random(rows) < 0.25, 2, y)
    names = tuple(f"x{k}" for k in range(NUMBERS))
    table = Observed(
        torch.from_numpy(np.c_[numbers, np.eye(CATEGORIES)[category]]).float(),
        torch.from_numpy(y_obs),
        torch.from_numpy(a_obs),
        Columns(NUMBERS, (CATEGORIES,), (*names, "c"), (tuple(map(str, range(CATEGORIES))),)),
        2,
        groups,
    )
    return table, np.array([withheld[a == g].mean() for g in range(groups)])


def run_tables(seeds: list[int], depends_on: tuple[str, ...] = (), **world: Any) -> list[dict[str, Any]]:
    """Tables side by side; a line for each table and group."""
    drawn = [draw_table(seed, **world) for seed in seeds]
    train = Observed.stack([table for table, _ in drawn])
    channels = (channel("a", train.group_attributes), channel("y", train.label_attributes))
    settings = build(Settings, SMALL | {"withholding_depends_on": depends_on})
    calibrated = calibrate(train, channels, settings, seeds)["a"]
    lines = []
    for t, (seed, (_, truth)) in enumerate(zip(seeds, drawn, strict=True)):
        check = calibrated.checks[t]
        assert check is not None
        for g, true in enumerate(truth):
            rates = calibrated.draws.of(g, "unavailable")[..., t]
            low, high = np.quantile(rates, INTERVAL)
            lines.append(
                {"seed": seed, "group": g, "truth": float(true), "mean": float(rates.mean()),
                 "q05": float(low), "q95": float(high), "p_value": check.p_value}
            )  # fmt: skip
    return lines


def coverage_lines(found: pd.DataFrame) -> list[list[str]]:
    lines = [
        ["rate", "truth", "mean", "|error|", "width", "covered %", "below %", "above %", "check rejects %"]
    ]
    rejects = f"{100 * (found.groupby('seed').p_value.first() < 0.05).mean():.1f}"
    for group, of in found.groupby("group"):
        below, above = of.truth < of.q05, of.truth > of.q95
        lines.append(
            [
                f"P(∅|{group})",
                f"{of.truth.mean():.3f}",
                f"{of['mean'].mean():.3f}",
                f"{(of['mean'] - of.truth).abs().mean():.4f}",
                f"{(of.q95 - of.q05).mean():.3f}",
                f"{100 * (1 - (below | above).mean()):.1f}",
                f"{100 * below.mean():.1f}",
                f"{100 * above.mean():.1f}",
                rejects,
            ]
        )
    return lines


if __name__ == "__main__":
    main()
