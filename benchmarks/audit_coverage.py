"""How often an audit's intervals cover the truth, on tables drawn from Adult, and how wide they are.

The people of half of Adult are the population, a classifier trained on the other half decides, and each
simulation audits rows that are drawn from the population with replacement, so that the truth is known. Women
withhold in 80 %, men in 40 % of the cases; in the second part those who earn more state their group half as
often. The imputer learned from the drawn rows is compared with a shuffled one, which carries no information,
and with stated rows alone.

  python benchmarks/audit_coverage.py --simulations 200 --jobs 2
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
from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.auditing.group_imputation import impute_groups
from pyro_fairvae.data import LEVELS, load
from pyro_fairvae.evaluation.metrics import evaluate

METRICS = ("deo", "deopp", "ddp")


def population(folder: Path | None) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels, decisions and groups of half of Adult, decided by trees of the other half."""
    table = load("adult", "gender", folder)
    features = pd.concat([table.numbers, table.categories.astype("category")], axis=1)
    half = np.random.default_rng(0).permutation(table.rows) < table.rows // 2
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=60, random_state=0)
    trees.fit(features[half], table.y[half])
    rest = ~half
    return features[rest], table.y[rest], trees.predict(features[rest]), table.a[rest]


def simulate(people: tuple, rows: int, by_label: bool, seed: int) -> dict[str, Audit]:
    """Audits of one drawn table, with learned and with shuffled probabilities of withheld groups."""
    draw = np.random.default_rng([seed, by_label])
    chosen = draw.integers(len(people[1]), size=rows)
    x, y, decided, group = people[0].iloc[chosen], *(column[chosen] for column in people[1:])
    stating = 1 - np.array(LEVELS["sparse"])[group]
    stated = draw.random(rows) < np.where((y == 1) & by_label, stating / 2, stating)
    stated_group = np.where(stated, group.astype(object), None)
    assumed = "group and label" if by_label else "group"
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        proba = impute_groups(x, AuditedRows(y, decided, np.where(stated, group, 2), 2, 2), seed)
        return {
            "imputed": audit(y, decided, stated_group, groups_proba=proba, depends_on=assumed),
            "shuffled": audit(
                y, decided, stated_group, groups_proba=draw.permutation(proba), depends_on=assumed
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0, help="first seed; each simulation has one")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    people = population(arguments.data_dir)
    truth = evaluate(people[1], people[2], people[3], 2)
    print(f"{len(people[1])} people, {arguments.rows} rows in each of {arguments.simulations} simulations")
    print("truth:", ", ".join(f"{name} {truth[name]:.4f}" for name in METRICS))
    for by_label in (False, True):
        audits = joblib.Parallel(arguments.jobs)(
            joblib.delayed(simulate)(people, arguments.rows, by_label, seed)
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.simulations)
        )
        print(f"\nwithholding depends on {'group and label' if by_label else 'group'}")
        print(f"{'metric':8}{'groups':14}{'within 90 %':>12}{'width':>9}{'mean error':>12}")
        for metric in METRICS:
            for kind, prefix in (("imputed", ""), ("shuffled", ""), ("imputed", "stated_")):
                lines = pd.DataFrame([one[kind].metrics.loc[metric] for one in audits])
                low, high = lines[f"{prefix}low"], lines[f"{prefix}high"]
                covered = ((low <= truth[metric]) & (truth[metric] <= high)).mean()
                bias = (lines[f"{prefix}estimate"] - truth[metric]).mean()
                print(
                    f"{metric:8}{'stated rows' if prefix else kind:14}{100 * covered:>10.1f} %"
                    f"{(high - low).mean():>9.3f}{bias:>+12.4f}"
                )


if __name__ == "__main__":
    main()
