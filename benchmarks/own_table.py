"""A user's own table: how long a fit takes, and how good it is, beside Fairlearn's exponentiated gradient.

Raw Adult with 60 % of the column sex blanked (women 80 %, men 50 %). FairSSVAEClassifier is fitted with its
defaults, including a frontier of members and intervals for the rates of withholding; so is FairDecisions,
boosted trees settled to targets. Fairlearn, which takes no gaps in sensitive features, gets all groups for
the same rows: one classifier at its own default of eps, by a small MLP or by gradient boosting. All run in
this process, one after the other.

  python benchmarks/own_table.py --seeds 3 --rivals mlp boosting
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pyro_fairvae.auditing import audit
from pyro_fairvae.data import raw_adult
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.evaluation.metrics import evaluate

WITHHELD = {"Female": 0.8, "Male": 0.5}
ROWS = 36_000
RIVALS: dict[str, Callable[[int], object]] = {
    "mlp": lambda seed: MLPClassifier((64,), early_stopping=True, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}


def features_of(table: pd.DataFrame) -> np.ndarray:
    """The table for scikit-learn: gaps filled, numbers standardised, categories one-hot."""
    words = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    numbers = [name for name in table if name not in words]
    coded = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )
    return np.asarray(coded.fit_transform(table), dtype=np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows to fit; the others are for testing")
    parser.add_argument("--rivals", nargs="*", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    people = raw_adult(arguments.data_dir)
    for seed in range(arguments.seeds):
        draw = np.random.default_rng(seed)
        table = people.iloc[draw.permutation(len(people))].reset_index(drop=True)
        sex = table["sex"].mask(draw.random(len(table)) < table["sex"].map(WITHHELD))
        X, y = table.drop(columns=["income", "sex"]), table["income"]
        train, test = slice(0, arguments.rows), slice(arguments.rows, None)
        truth = (y[test] == ">50K").to_numpy(int), (table["sex"][test] == "Male").to_numpy(int)

        start = time.perf_counter()
        model = FairSSVAEClassifier(random_state=seed).fit(X[train], y[train], sensitive_features=sex[train])
        ours = time.perf_counter() - start
        print(f"\nseed {seed}: FairSSVAEClassifier {ours:.0f} s for {len(model.frontier_)} members")
        print("  chosen λ", model.frontier_["lambda"][model.selected_])
        print(model.channels_.to_string(index=False))
        for weight in model.frontier_["lambda"]:
            decided = model.select(lambda_=weight).predict(X[test])
            found = evaluate(truth[0], (decided == ">50K").astype(int), truth[1], 2)
            audited = audit(y[test], decided, sex[test], X=X[test], model=model).metrics.loc["deo"]
            ends = [
                "{:.4f} [{:.4f}, {:.4f}]".format(*audited[[f"{by}estimate", f"{by}low", f"{by}high"]])
                for by in ("", "stated_")
            ]
            print(
                f"  λ {weight:<4g} error {found['error']:.4f}  DEO {found['deo']:.4f}  audited {ends[0]}, "
                f"stated rows alone {ends[1]}"
            )
        start = time.perf_counter()
        trees = FairDecisions(random_state=seed).fit(X[train], y[train], sensitive_features=sex[train])
        settling = time.perf_counter() - start
        print(f"  FairDecisions {settling:.0f} s for {len(trees.frontier_) - 1} targets")
        for line, chosen in enumerate(np.arange(len(trees.frontier_)) == trees.selected_):
            trees.selected_ = line
            found = evaluate(truth[0], (trees.predict(X[test]) == ">50K").astype(int), truth[1], 2)
            expected = trees.frontier_.loc[line]
            print(
                f"  target {expected['target']:<5g} as imputed {expected['disparity']:.4f}  error "
                f"{found['error']:.4f}  DEO {found['deo']:.4f}{'  *' if chosen else ''}"
            )
        coded = features_of(X)
        for name in arguments.rivals:
            rival = ExponentiatedGradient(RIVALS[name](seed), EqualizedOdds())
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rival.fit(
                    coded[train],
                    (y[train] == ">50K").astype(int),
                    sensitive_features=table["sex"][train],
                )
            theirs = time.perf_counter() - start
            decided = np.asarray(rival.predict(coded[test], random_state=seed)).astype(int)
            found = evaluate(truth[0], decided, truth[1], 2)
            print(
                f"  Fairlearn, {name}: {theirs:.0f} s ({rival.n_oracle_calls_} fits), ours / theirs "
                f"{ours / theirs:.2f}, FairDecisions / theirs {settling / theirs:.2f}; error "
                f"{found['error']:.4f}  DEO {found['deo']:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
