"""How often a frontier's disparities hold the truth: as imputed, and by the audit of the same decisions.

    python benchmarks/frontier_intervals.py --rows 3000 --tables 40

Tables whose features tell little of the group; of two groups 80 and 40 % withhold theirs, and a quarter of
the labels is hidden. FairDecisions around a logistic regression is settled to three targets. The truth is the
DEO of its decisions about 100,000 other people. Prints, by target, how often the imputed disparity, give or
take 1.645 standard errors, and the interval from ``low`` to ``high`` hold it.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.report import align

OTHERS = 100_000
TARGETS = (0.1, 0.05, 0.02)
Z = 1.645  # of a 90 % interval


def people(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and groups."""
    draw = np.random.default_rng([seed, 5])
    a = (draw.random(rows) < 0.55).astype(int)
    x = draw.normal(size=(rows, 5))
    x[:, 0] += 0.6 * a
    x[:, 1] += 0.5 * a
    y = (draw.random(rows) < expit(-0.8 + 1.1 * x[:, 0] + 0.9 * x[:, 2] + 0.3 * a)).astype(int)
    return x, y, a


def run(seed: int, rows: int) -> list[dict[str, Any]]:
    """A line for each member of one fit."""
    x, y, a = people(seed, rows + OTHERS)
    draw = np.random.default_rng([seed, 9])
    said = np.where(draw.random(rows) < np.array([0.8, 0.4])[a[:rows]], np.nan, a[:rows])
    label = np.where(draw.random(rows) < 0.25, np.nan, y[:rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairDecisions(LogisticRegression(), targets=TARGETS, random_state=seed)
        model.fit(x[:rows], label, sensitive_features=said)
    lines = []
    for member, line in model.frontier_.iterrows():
        model.selected_ = member
        truth = evaluate(y[rows:], model.predict(x[rows:]).astype(int), a[rows:], 2)["deo"]
        lines.append(
            {
                "target": line["target"],
                "truth": truth,
                "imputed": line["disparity"],
                "as imputed": abs(truth - line["disparity"]) <= Z * line["standard_error"],
                "by audit": line["low"] <= truth <= line["high"],
                "width": line["high"] - line["low"],
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = pd.DataFrame([line for seed in range(arguments.tables) for line in run(seed, arguments.rows)])
    lines = [["target", "DEO %", "as imputed %", "held as imputed %", "held by audit %", "its width"]]
    for target, of in found.groupby("target", dropna=False):
        means = of.mean()
        lines.append(
            [
                "none" if np.isnan(target) else f"{target:g}",
                f"{100 * means['truth']:.1f}",
                f"{100 * means['imputed']:.1f}",
                f"{100 * means['as imputed']:.1f}",
                f"{100 * means['by audit']:.1f}",
                f"{means['width']:.3f}",
            ]
        )
    print(align(lines))


if __name__ == "__main__":
    main()
