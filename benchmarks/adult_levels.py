"""Adult at the three levels of missingness, over seeds, at the default settings.

    python benchmarks/adult_levels.py [--group gender] [--seeds 5] [--jobs 2] [--out runs/levels]

Prints, for each level, how far the learned α and β are from the truth, how often their intervals hold it,
the test error at λ = 0, and the test DEO of λ = 0 and of the λ chosen on validation: means over seeds with
95 % intervals (Student's t). Runs are kept in --out, so a killed grid goes on where it stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from grid import mean_and_interval, parser_of, run_once
from joblib import Parallel, delayed

from pyro_fairvae.data import LEVELS
from pyro_fairvae.report.text import align


def one_run(group: str, level: str, seed: int, out: Path) -> dict[str, Any]:
    options = {"group": group, "level": level, "seed": seed}
    results, posteriors = run_once(options, out / f"{group}-{level}-{seed}")
    posterior = posteriors["a"]
    first, chosen = results["members"][0]["test"], results["members"][results["selected"]]
    beta, alpha = LEVELS[level]
    found: dict[str, Any] = {"level": level, "seed": seed, "λ": chosen["weight"]}
    for name, value, truth in (("α", "1", alpha), ("β", "0", beta)):
        rate = posterior[value]["unavailable"]
        found |= {
            name: rate["mean"],
            f"|{name}̂−{name}|": abs(rate["mean"] - truth),
            f"{name} width": rate["q95"] - rate["q05"],
            f"{name} held": float(rate["q05"] <= truth <= rate["q95"]),
        }
    return found | {
        "error, λ=0": first["error"],
        "DEO, λ=0": first["deo"],
        "error, chosen": chosen["test"]["error"],
        "DEO, chosen": chosen["test"]["deo"],
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--group", default="gender", help="gender or race")
    parser.add_argument("--out", type=Path, default=Path("runs/levels"), help="folder of the runs")
    arguments = parser.parse_args()
    jobs = [(level, seed) for level in LEVELS for seed in range(arguments.seeds)]
    runs = Parallel(n_jobs=arguments.jobs, verbose=5)(
        delayed(one_run)(arguments.group, level, seed, arguments.out) for level, seed in jobs
    )
    print(align(summary(runs)))
    for run in runs:
        print(
            "  ".join(
                f"{name} {value:.3f}" if isinstance(value, float) else str(value)
                for name, value in run.items()
            )
        )


def summary(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Lines of a table: each measure, and the ratio of the two DEOs, by level."""

    def of(level: str, name: str) -> list[float]:
        return [run[name] for run in runs if run["level"] == level]

    measures = [name for name in runs[0] if name not in ("level", "seed", "α", "β", "λ")]
    lines = [[name, *(mean_and_interval(of(level, name)) for level in LEVELS)] for name in measures]
    ratios = [np.mean(of(level, "DEO, chosen")) / np.mean(of(level, "DEO, λ=0")) for level in LEVELS]
    return [["", *LEVELS], *lines, ["DEO, chosen / λ=0", *(f"{ratio:.2f}" for ratio in ratios)]]


if __name__ == "__main__":
    main()
