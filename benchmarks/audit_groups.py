"""How often an audit's intervals cover the truth with many groups, on simulated tables.

Groups are of equal size and differ in how often they are decided rightly, or not at all; of each people
withhold with one of two rates. The imputer knows P(a | row), or there is none.

  python benchmarks/audit_groups.py --groups 10 --rows 5000 --simulations 200 --jobs 2
"""

from __future__ import annotations

import argparse
import warnings

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pyro_fairvae.auditing import audit

METRICS = ("deo", "deopp", "ddp")
SHARE = 0.4  # of label 1


def rates_of(groups: int, differing: bool) -> np.ndarray:
    """P(Ŷ = y | Y = y, A), the same for both labels, (groups,)."""
    return np.linspace(0.6, 0.85, groups) if differing else np.full(groups, 0.75)


def truth_of(right: np.ndarray) -> dict[str, float]:
    decided = SHARE * right + (1 - SHARE) * (1 - right)
    return {"deo": float(np.ptp(right)), "deopp": float(np.ptp(right)), "ddp": float(np.ptp(decided))}


def simulate(groups: int, rows: int, differing: bool, informed: bool, seed: int) -> pd.DataFrame:
    """The metrics of one audit."""
    draw = np.random.default_rng([seed, differing])
    right = rates_of(groups, differing)
    group = draw.integers(groups, size=rows)
    y = (draw.random(rows) < SHARE).astype(int)
    decided = np.where(draw.random(rows) < right[group], y, 1 - y)
    stated = draw.random(rows) < np.where(group % 2, 0.7, 0.5)
    words = np.array([f"group {g}" for g in range(groups)], dtype=object)
    score = np.eye(groups)[group] * 2 + draw.normal(size=(rows, groups))
    proba = np.exp(2 * score)
    proba /= proba.sum(1, keepdims=True)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        given = np.where(stated, words[group], None)
        names = sorted(words)
        table = pd.DataFrame(proba, columns=words)[names] if informed else None
        return audit(y, decided, given, groups_proba=table).metrics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--informed", action="store_true", help="give P(a | row)")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    groups, rows = arguments.groups, arguments.rows
    print(f"{groups} groups, {rows} rows in each of {arguments.simulations} simulations")
    for differing in (True, False):
        truth = truth_of(rates_of(groups, differing))
        audits = joblib.Parallel(arguments.jobs)(
            joblib.delayed(simulate)(groups, rows, differing, arguments.informed, seed)
            for seed in range(arguments.simulations)
        )
        print(f"\ngroups {'differ' if differing else 'are alike'}")
        print(
            f"{'metric':8}{'truth':>8}{'within 90 %':>14}{'above':>8}{'below':>8}{'width':>8}{'estimate':>10}"
        )
        for metric in METRICS:
            for prefix in ("", "stated_"):
                lines = pd.DataFrame([found.loc[metric] for found in audits])
                low, high = lines[f"{prefix}low"], lines[f"{prefix}high"]
                above, below = (low > truth[metric]).mean(), (high < truth[metric]).mean()
                estimate = lines[f"{prefix}estimate"].mean()
                print(
                    f"{metric:8}{truth[metric]:>8.3f}{100 * (1 - above - below):>12.1f} %{100 * above:>8.1f}"
                    f"{100 * below:>8.1f}{(high - low).mean():>8.3f}{estimate:>10.3f}"
                    f"{'  (stated rows alone)' if prefix else ''}"
                )


if __name__ == "__main__":
    main()
