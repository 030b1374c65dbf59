"""The unfairness that training and choosing see, beside the true one: who imputes makes the difference.

    python benchmarks/honest.py [--rows 12000] [--seeds 3] [--jobs 2] [--group gender] [--lambdas 0,0.4,1.6]

Adult with groups and labels hidden at the sparse level, so that the truth is known. Members are trained with
each imputation (``own``: every member imputes for itself; ``cross_fitted``: trees that know of no fairness,
and were not grown on the row), and the DEO of their decisions is printed as imputed and as it is, in percent,
on training, validation and test rows (means over seeds); and P(∅|y = 1) as each member learned it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyro
from grid import parser_of
from joblib import Parallel, delayed
from torch import arange, from_numpy, set_num_threads

from pyro_fairvae.base.options import build
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import load, split_complete
from pyro_fairvae.data.missingness import hide
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.inference.training import fit
from pyro_fairvae.posterior.summaries import summarise
from pyro_fairvae.report.text import align
from pyro_fairvae.risks import RISKS, CellSums
from pyro_fairvae.studies.config import TrainConfig
from pyro_fairvae.studies.single_run import TEST_MASK, load_parts

IMPUTATIONS = ("own", "cross_fitted")


def one_seed(group: str, lambdas: tuple[float, ...], rows: int, seed: int) -> list[dict[str, Any]]:
    """A line for each imputation, member and part."""
    set_num_threads(1)
    pyro.enable_validation(False)
    options = {"group": group, "seed": seed, "lambdas": lambdas, "imputation": "cross_fitted"}
    config = build(TrainConfig, options)
    parts, truth = load_parts(config), split_complete(load("adult", group), seed)
    train = parts.train.take(arange(rows))
    test = hide(parts.test, config.data.missingness(), derive_seed(seed, TEST_MASK))
    imputer = TreeImputer.learn(train, folds_of(train, seed), config.settings, seed)
    assert imputer is not None
    lines = []
    for imputation in IMPUTATIONS:
        given = imputer.learned if imputation == "cross_fitted" else None
        fitted = fit(train, parts.validation, lambdas, config.settings, seed, imputation=given)
        withheld = summarise(fitted)["members"]
        for part, table, known in (
            ("training", train, truth["train"]),
            ("validation", parts.validation, truth["validation"]),
            ("test", test, parts.test),
        ):
            decided = fitted.decide(table.x).numpy()
            cells = np.zeros((table.rows, 2, 2))
            cells[np.arange(table.rows), known.y[: table.rows], known.a[: table.rows]] = 1
            own = fitted.impute(table).double().numpy()
            for k, weight in enumerate(lambdas):
                believed = own[k]
                if given is not None:
                    believed = (given.joint if part == "training" else imputer.joint(table)).numpy()
                lines.append(
                    {"imputation": imputation, "λ": weight, "part": part,
                     "imputed": deo(decided[k], believed), "true": deo(decided[k], cells),
                     "withheld": list(withheld[k]["y"].values())[1]["unavailable"]["mean"]}
                )  # fmt: skip
    return lines


def deo(decided: np.ndarray, cells: np.ndarray) -> float:
    """DEO of decisions under (rows, 2, 2) masses."""
    one_hot = np.eye(2)[decided]
    sums = (cells.sum(0), np.einsum("rc,rya->yac", one_hot, cells))
    return float(RISKS["deo"](CellSums(*map(from_numpy, sums))).value)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--group", default="gender", help="gender or race")
    parser.add_argument("--rows", type=int, default=12000, help="training rows")
    parser.add_argument("--lambdas", default="0,0.4,1.6")
    arguments = parser.parse_args()
    lambdas = tuple(map(float, arguments.lambdas.split(",")))
    found = Parallel(n_jobs=arguments.jobs, verbose=5)(
        delayed(one_seed)(arguments.group, lambdas, arguments.rows, seed) for seed in range(arguments.seeds)
    )
    table = pd.DataFrame([line for lines in found for line in lines])
    lines = [["imputed by", "λ", "rows", "DEO % as imputed", "DEO %", "off", "P(∅|y = 1)"]]
    for (imputation, weight, part), of in table.groupby(["imputation", "λ", "part"], sort=False):
        off = (of["imputed"] - of["true"]).abs().mean()
        numbers = (100 * of["imputed"].mean(), 100 * of["true"].mean(), 100 * off)
        rate = f"{of['withheld'].mean():.3f}"
        lines.append([imputation, f"{weight:g}", part, *(f"{number:.2f}" for number in numbers), rate])
    print(f"\nAdult-{arguments.group}, sparse, {arguments.rows} training rows\n\n{align(lines)}")


if __name__ == "__main__":
    main()
