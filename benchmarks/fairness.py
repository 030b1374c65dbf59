"""Remedies for the collapse, imputers and gradients of the fairness risk, compared on Adult over seeds.

    python benchmarks/fairness.py [--groups gender,race] [--seeds 5] [--methods default,plain,…] [--jobs 2]

Every method trains on the same splits, at the sparse level. Prints, for each group, test error, DEO and
positive rate by method and λ, and at the λ chosen on validation under two budgets of validation error, one λ
for all seeds or one for each seed: means over seeds with 95 % intervals (Student's t). Runs are kept in
--out, so a killed grid continues where it stopped, and more methods or seeds can be added to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from grid import mean_and_interval, parser_of, run_once
from joblib import Parallel, delayed

from pyro_fairvae.base.errors import InputError, choose
from pyro_fairvae.evaluation.selection import select
from pyro_fairvae.report.text import align

METHODS: dict[str, dict[str, Any]] = {
    # Remedies for the collapse.
    "default": {},  # the envelope, the error of decisions, and decisions settled on all rows
    "unsettled": {"refine_decisions": 0.0},  # the same with decisions as trained
    "expected": {"risk_estimator": "expected"},  # the same without the envelope
    "smoothed": {"refine_decisions": 0.0, "decision_weight": 0.0},  # without the error of decisions
    "quarter": {"elbo_share": 0.25},  # the ELBO over a quarter of each batch's rows
    "tenth": {"elbo_share": 0.1},
    "remembered": {"risk_estimator": "sampled", "memory": 0.2, "decision_weight": 0.0},
    # The paper's estimator, from the start.
    "plain": {"risk_estimator": "sampled", "decision_weight": 0.0, "risk_from": 0.0, "risk_full": 0.0},
    # Imputers, and the ablation of the stopped gradient.
    "features": {"imputer": "features"},
    "stated": {"imputer": "stated"},
    "control_variate": {"imputer": "control_variate"},
    "rounded": {"imputer": "rounded"},
    "field": {"labeller": "propagation"},
    "vanilla": {"risk_gradient": "vanilla", "imputer": "features", "samples": 20},
}
BESIDE = (0.0, 0.4, 1.6, 10.0)  # λ of all methods but the default, which has its own
BUDGETS = (0.005, 0.015)  # validation error allowed above that of λ = 0


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--groups", default="gender,race", help="gender, race or both")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"some of {', '.join(METHODS)}")
    parser.add_argument("--out", type=Path, default=Path("runs/fairness"), help="folder for the runs")
    arguments = parser.parse_args()
    try:
        methods = [choose("method", name, METHODS) for name in arguments.methods.split(",")]
    except InputError as reason:
        parser.error(str(reason))
    groups = arguments.groups.split(",")
    jobs = [
        (group, method, seed) for group in groups for method in methods for seed in range(arguments.seeds)
    ]
    found = Parallel(n_jobs=arguments.jobs, verbose=5)(
        delayed(run_once)(
            options_of(method) | {"group": group, "seed": seed}, arguments.out / f"{group}-{method}-{seed}"
        )
        for group, method, seed in jobs
    )
    results = {job: result for job, (result, _) in zip(jobs, found, strict=True)}
    for group in groups:
        by_method = {
            method: [results[group, method, seed] for seed in range(arguments.seeds)] for method in methods
        }
        print(f"\nAdult-{group}, sparse, seeds 0 to {arguments.seeds - 1}\n")
        print(align(by_weight(by_method)), "\n")
        print(align(chosen(by_method)))


def options_of(method: str) -> dict[str, Any]:
    return METHODS[method] if method == "default" else METHODS[method] | {"lambdas": BESIDE}


def by_weight(results: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """A line for each method and λ."""
    lines = [["method", "λ", "error %", "DEO %", "floor %", "positive rate"]]
    for method, runs in results.items():
        for k, member in enumerate(runs[0]["members"]):
            tests = [run["members"][k]["test"] for run in runs]
            lines.append([method, f"{member['lambda']:g}", *describe(tests)])
    return lines


def chosen(results: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """A line for each method and budget: one λ for all seeds, by mean validation, and a λ for each seed."""
    lines = [["method", "budget %", "λ chosen", "error %", "DEO %", "floor %", "positive rate"]]
    for method, runs in results.items():
        validation = [[member["val"] for member in run["members"]] for run in runs]
        weights = tuple(member["lambda"] for member in runs[0]["members"])
        for budget in BUDGETS:
            one = select(weights, pooled(validation), within=budget)
            each = [select(weights, of_seed, within=budget) for of_seed in validation]
            for picked, words in (([one] * len(runs), f"{weights[one]:g}"), (each, "by seed")):
                tests = [run["members"][k]["test"] for run, k in zip(runs, picked, strict=True)]
                lines.append([method, f"{100 * budget:g}", words, *describe(tests)])
    return lines


def pooled(validation: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Means over seeds of each member's validation metrics, with the standard error of such a mean."""
    found = []
    for members in zip(*validation, strict=True):
        means = {name: float(np.mean([metrics[name] for metrics in members])) for name in members[0]}
        found.append(means | {"standard_error": means["standard_error"] / len(members) ** 0.5})
    return found


def describe(tests: list[dict[str, float]]) -> list[str]:
    """Error, DEO, its floor, and positive rate, over seeds."""
    percent = [
        mean_and_interval([test[name] for test in tests], scale=100, digits=2)
        for name in ("error", "deo", "deo_floor")
    ]
    return [*percent, f"{np.mean([test['positive_rate'] for test in tests]):.3f}"]


if __name__ == "__main__":
    main()
