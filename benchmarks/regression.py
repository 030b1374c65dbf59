"""Predictions of a number, and how they depend on the group, on test rows that nothing was chosen on.

    python benchmarks/regression.py --risk mean_gap --seeds 0 1 2 3 4

Adult's hours per week, predicted from the other columns and the income; gender is withheld as in the paper's
sparse level and is no feature, a quarter of the outcomes are hidden. Prints for every λ the means over seeds,
with half of a 95 % interval, of the root mean squared error, of the largest difference of mean predictions
between groups, of the Wasserstein distance, and of the share of the variance of predictions between groups.
Beside it, told every outcome and group: ridge regression with a penalty on the difference of means, for each
of its weights, and boosted trees without any; and what was learned of who withholds. Parts are kept in --out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

from pyro_fairvae import FairSSVAERegressor
from pyro_fairvae.data import Missingness
from pyro_fairvae.data.adult import read_adult
from pyro_fairvae.data.missingness import LEVELS
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.evaluation.number_metrics import evaluate_numbers
from pyro_fairvae.report import align
from pyro_fairvae.risks import NUMBER_RISKS
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.studies.joint_fits import once

OUTCOME = "hours-per-week"
TEST = 0.2
WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)  # of the penalty of ridge regression
SHOWN = ("rmse", "mean_gap", "wasserstein", "correlation_ratio")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--risk", choices=NUMBER_RISKS, default="mean_gap")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/regression"), help="folder for the parts")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        name = f"{arguments.risk}-{seed}"
        make = partial(run, arguments.risk, seed, arguments.data_dir)
        lines += once(arguments.out / f"{name}.json", {"name": name}, make)
    found = pd.DataFrame(lines)
    print(align(summary(found)))
    print(f"{found.seconds.dropna().mean():.0f} s for a frontier")


def run(risk: str, seed: int, data_dir: Path | None) -> list[dict[str, Any]]:
    """A line for each member and each reference, and one for the rates of withholding."""
    X, y, a = adult_hours(data_dir)
    draw = np.random.default_rng([seed, 20])
    tested = draw.random(len(y)) < TEST
    rates = Missingness(unavailable=LEVELS["sparse"])
    stated_a = np.where(draw.random(len(y)) < np.array(rates.unavailable)[a], np.nan, a)
    stated_y = np.where(draw.random(len(y)) < rates.label_unavailable[0], np.nan, y)
    bins = NumberOutcome.of(y[~tested]).bin_codes(y[tested])
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FairSSVAERegressor(risk=risk, random_state=seed, intervals="given_h")
        model.fit(X[~tested], stated_y[~tested], sensitive_features=stated_a[~tested])
    seconds = time.perf_counter() - start

    def line(of: str, weight: float, predicted: np.ndarray, **more: float) -> dict[str, Any]:
        found = evaluate_numbers(y[tested], predicted, a[tested], bins)
        return {"of": of, "weight": weight, "seed": seed, **found, **more}

    lines, chosen = [], model.selected_
    for weight in model.fit_.lambdas:
        predicted = model.select(lambda_=weight).predict(X[tested])
        lines.append(line("FairSSVAERegressor", weight, predicted, seconds=seconds))
    predicted = model.select(lambda_=model.fit_.lambdas[chosen]).predict(X[tested])
    lines.append(line("FairSSVAERegressor, chosen", np.nan, predicted))
    encoder = TableEncoder.learn(X[~tested])
    x, x_test = (encoder.encode(X[part]).astype(float) for part in (~tested, tested))
    for weight in WEIGHTS:
        predicted = fair_ridge(x, y[~tested], a[~tested], weight)(x_test)
        lines.append(line("ridge, all known", weight, predicted))
    trees = HistGradientBoostingRegressor(random_state=seed).fit(x, y[~tested])
    lines.append(line("boosted trees, all known", 0.0, trees.predict(x_test)))
    for rate in model.channels_.itertuples():
        lines.append({"of": f"{rate.what} of {rate.of} withheld", "seed": seed, "rate": rate.withheld})
    return lines


def adult_hours(data_dir: Path | None) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Features, hours per week and gender, 0 for women."""
    table = read_adult("gender", data_dir)
    income = np.array(["<=50K", ">50K"])[table.y]
    X = pd.concat([table.numbers.drop(columns=OUTCOME), table.categories], axis=1).assign(income=income)
    return X, table.numbers[OUTCOME].to_numpy(), table.a


def fair_ridge(x: np.ndarray, y: np.ndarray, a: np.ndarray, weight: float) -> Any:
    """Ridge regression that minimises the mean squared error + weight · (difference of mean predictions)²."""
    centre, level = x.mean(0), y.mean()
    centred = x - centre
    apart = x[a == 1].mean(0) - x[a == 0].mean(0)
    curvature = centred.T @ centred / len(x) + 1e-3 * np.eye(x.shape[1]) + weight * np.outer(apart, apart)
    slope = np.linalg.solve(curvature, centred.T @ (y - level) / len(x))
    return lambda rows: level + (rows - centre) @ slope


def summary(found: pd.DataFrame) -> list[list[str]]:
    lines = [["", "weight", *SHOWN, "seeds"]]
    of_rates = found.rate.notna()
    for (of, weight), part in found[~of_rates].groupby(["of", "weight"], dropna=False, sort=False):
        cells = [in_words(part[name]) for name in SHOWN]
        lines.append([of, "" if np.isnan(weight) else f"{weight:g}", *cells, str(len(part))])
    groups = found[of_rates & found.of.str.startswith("group")].groupby("of", sort=False)
    return lines + [[of, "", in_words(part.rate), "", "", "", str(len(part))] for of, part in groups]


def in_words(values: pd.Series) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.3f} ± {half * values.std(ddof=1):.3f}"


if __name__ == "__main__":
    main()
