"""What each part gives: trees, network, ELBO, imputer and settling, left out one at a time.

    python benchmarks/parts.py --group gender --seeds 40 41 42 --out runs/parts

Adult, withheld as in the paper's sparse level, a quarter of labels hidden. Prints for every variant and
member the means over seeds of error and DEO on test rows, with half of a 95 % interval, and the seconds of a
fit. Without trees members with a λ also impute for themselves. Parts are kept in --out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from scipy import stats
from targets import adult

from pyro_fairvae import FairDecisions, FairSSVAEClassifier
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.report import align
from pyro_fairvae.studies.joint_fits import once

TARGETS, LAMBDAS = (0.05, 0.035, 0.025), (0.0, 0.1, 0.4, 1.6)
network = partial(FairSSVAEClassifier, intervals="given_h")
settled, weighed = partial(network, targets=TARGETS), partial(network, lambdas=LAMBDAS)
VARIANTS: dict[str, Any] = {
    "targets (default)": settled,
    "targets, no ELBO": partial(settled, options={"elbo_weight": 0}),
    "targets, no trees": partial(settled, trunk="mlp"),
    "targets, no network": partial(FairDecisions, targets=TARGETS),
    "λ": weighed,
    "λ, imputed by members": partial(weighed, options={"imputation": "own"}),
    "λ, decisions as trained": partial(weighed, options={"refine_decisions": 0}),
    "λ, no ELBO": partial(weighed, options={"elbo_weight": 0}),
    "λ, no trees": partial(weighed, trunk="mlp"),
}


def run(variant: str, group: str, seed: int, data_dir: Path | None) -> list[dict[str, Any]]:
    """A line for each member."""
    (X, y, a), test = adult(group, seed, data_dir)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = VARIANTS[variant](random_state=seed).fit(X, y, sensitive_features=a)
    seconds = time.perf_counter() - start
    lines = []
    for member, line in model.frontier_.iterrows():
        model.selected_ = member
        found = evaluate(test[1], model.predict(test[0]).astype(int), test[2], 2)
        named = f"λ = {line['lambda']:g}" if "lambda" in line else f"ε = {line['target']:g}"
        lines.append(
            {"variant": variant, "member": named.replace("ε = nan", "no target"), "seed": seed,
             "error": found["error"], "deo": found["deo"], "seconds": seconds}
        )  # fmt: skip
    return lines


def summary(found: pd.DataFrame) -> list[list[str]]:
    lines = [["variant", "member", "test error %", "test DEO %", "seconds"]]
    for (variant, member), of in found.groupby(["variant", "member"], sort=False):
        cells = []
        for name in ("error", "deo"):
            half = stats.t.ppf(0.975, len(of) - 1) * of[name].std(ddof=1) / len(of) ** 0.5
            cells.append(f"{100 * of[name].mean():.2f} ± {100 * half:.2f}")
        lines.append([str(variant), str(member), *cells, f"{of['seconds'].mean():.0f}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", choices=("gender", "race"), default="gender")
    parser.add_argument("--seeds", type=int, nargs="+", default=[40, 41, 42])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/parts"), help="folder for the parts")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        for number, variant in enumerate(VARIANTS):
            name = f"{arguments.group}-{number}-{seed}"
            work = partial(run, variant, arguments.group, seed, arguments.data_dir)
            lines += once(arguments.out / f"{name}.json", {"name": name}, work)
    print(align(summary(pd.DataFrame(lines))))


if __name__ == "__main__":
    main()
