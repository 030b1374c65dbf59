"""How often intervals of regulators' figures cover the truth, on tables drawn from Adult, and how wide they
are.

The people of half of Adult are the population, trees of the other half score them and decide, and each
simulation audits rows that are drawn with replacement, so that the truth is known. Women withhold in 80 %,
men in 40 % of the cases; with --by-label those who earn more state their group half as often.

  python benchmarks/regulators_coverage.py --simulations 200
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.data import LEVELS, load

BY_GROUP = ("selection rate", "impact ratio", "positive predictive value", "false omission rate", "AUC")


def population(folder: Path | None) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels, scores and groups of half of Adult, scored by trees of the other half."""
    table = load("adult", "gender", folder)
    features = pd.concat([table.numbers, table.categories.astype("category")], axis=1)
    half = np.random.default_rng(0).permutation(table.rows) < table.rows // 2
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=60, random_state=0)
    trees.fit(features[half], table.y[half])
    rest = ~half
    return features[rest], table.y[rest], trees.predict_proba(features[rest])[:, 1], table.a[rest]


def simulate(people: tuple, rows: int, by_label: bool, seed: int) -> Audit:
    """The audit of one drawn table."""
    draw = np.random.default_rng([seed, by_label])
    chosen = draw.integers(len(people[1]), size=rows)
    x, y, score, group = people[0].iloc[chosen], *(column[chosen] for column in people[1:])
    stating = 1 - np.array(LEVELS["sparse"])[group]
    stated = draw.random(rows) < np.where((y == 1) & by_label, stating / 2, stating)
    assumed = "group and label" if by_label else "group"
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        return audit(
            y, (score > 0.5).astype(int), np.where(stated, group.astype(object), None), X=x,
            depends_on=assumed, scores=score, random_state=seed,
        )  # fmt: skip


def figures_of(audited: Audit) -> pd.DataFrame:
    """Disparities, and the figures of each group, under one name each."""
    assert audited.figures is not None
    by_group = audited.figures.by_group
    kept = by_group[by_group["measure"].isin(BY_GROUP)]
    names = kept["measure"] + " of " + kept["group"]
    return pd.concat([audited.figures.disparities, kept.set_index(names)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0, help="first seed; each simulation has one")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--by-label", action="store_true", help="withholding depends on the label, too")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    people = population(arguments.data_dir)
    decided = (people[2] > 0.5).astype(int)
    truth = figures_of(audit(people[1], decided, people[3], scores=people[2]))["estimate"]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.simulations)
    audits = joblib.Parallel(arguments.jobs)(
        joblib.delayed(simulate)(people, arguments.rows, arguments.by_label, seed) for seed in seeds
    )
    found = [figures_of(one) for one in audits]
    print(f"{len(people[1])} people, {arguments.rows} rows in each of {len(found)} simulations")
    print(f"withholding depends on {'group and label' if arguments.by_label else 'group'}")
    print(f"{'figure':36}{'truth':>7}{'rows':>9}{'within 90 %':>13}{'width':>9}{'mean error':>12}")
    for name, value in truth.items():
        for kind, prefix in (("all", ""), ("stated", "stated_")):
            lines = pd.DataFrame([one.loc[name] for one in found])
            low, high = lines[f"{prefix}low"].astype(float), lines[f"{prefix}high"].astype(float)
            covered = ((low - 1e-9 <= value) & (value <= high + 1e-9)).mean()
            error = (lines[f"{prefix}estimate"].astype(float) - value).mean()
            print(
                f"{name:36}{value:7.3f}{kind:>9}{100 * covered:11.1f} %{(high - low).mean():9.3f}"
                f"{error:+12.4f}"
            )
    broken = np.mean([one.figures.four_fifths["probability"] > 0.95 for one in audits if one.figures])
    print(f"probability that the four-fifths rule is broken above .95: in {100 * broken:.1f} %")


if __name__ == "__main__":
    main()
