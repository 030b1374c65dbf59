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

        seconds = {}
        for estimator in (FairSSVAEClassifier, FairDecisions):
            start = time.perf_counter()
            model = estimator(random_state=seed).fit(X[train], y[train], sensitive_features=sex[train])
            seconds[estimator.__name__] = time.perf_counter() - start
            print(f"\nseed {seed}: {estimator.__name__} {seconds[estimator.__name__]:.0f} s")
            print(model.channels_.to_string(index=False))
            chosen = model.selected_
            for member, line in model.frontier_.iterrows():
                model.selected_ = member
                decided = model.predict(X[test])
                found = evaluate(truth[0], (decided == ">50K").astype(int), truth[1], 2)
                audited = audit(y[test], decided, sex[test], X=X[test], model=model).metrics.loc["deo"]
                print(
                    f"  target {line['target']:<5g} as imputed {line['disparity']:.4f}  error "
                    f"{found['error']:.4f}  DEO {found['deo']:.4f}  audited {audited['estimate']:.4f} "
                    f"[{audited['low']:.4f}, {audited['high']:.4f}]{'  *' if member == chosen else ''}",
                    flush=True,
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
                f"{', '.join(f'{of} {ours / theirs:.2f}' for of, ours in seconds.items())}; error "
                f"{found['error']:.4f}  DEO {found['deo']:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
