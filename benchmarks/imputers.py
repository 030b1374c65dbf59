"""How good the imputers are where values are hidden, on Adult over seeds.

    python benchmarks/imputers.py [--group gender] [--seeds 5] [--jobs 2]

For each seed one plain classifier (λ = 0) is trained at the sparse level, and the hidden values of its
training rows are compared with those of the imputers: accuracy, log score and calibration error of groups and
labels, and how far the classifier's FPR and TPR gaps under the imputed groups and labels are from the true
ones. Means over seeds with 95 % intervals (Student's t), and the time of a Gaussian field of 36,000 rows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyro
from grid import mean_and_interval, parser_of
from joblib import Parallel, delayed

# By name: a worker cannot be sent a function that reads an attribute "classes" beside the module torch.
from torch import cat, from_numpy, full, no_grad, set_num_threads

from pyro_fairvae.base.options import build
from pyro_fairvae.data import load, split_complete
from pyro_fairvae.evaluation.members import score_imputers
from pyro_fairvae.evaluation.metrics import imputation_scores
from pyro_fairvae.inference.training import fit
from pyro_fairvae.report.text import align
from pyro_fairvae.risks import IMPUTERS, propagate_labels
from pyro_fairvae.studies.config import TrainConfig
from pyro_fairvae.studies.single_run import load_parts

FIELD_ROWS = 36_000


def one_seed(group: str, seed: int) -> dict[str, Any]:
    """Scores by what is imputed and how, and gaps by imputer, of one split."""
    set_num_threads(1)
    pyro.enable_validation(False)
    config = build(TrainConfig, {"group": group, "seed": seed, "lambdas": (0.0,)})
    parts = load_parts(config)
    whole = split_complete(load("adult", group), seed)
    truth = whole["train"]
    fitted = fit(parts.train, parts.validation, config.lambdas, config.settings, seed)
    scores = score_imputers(fitted, truth, parts.train, member=0)

    with fitted.at_chosen_epoch() as program, no_grad():
        rows = np.concatenate([part.x for part in whole.values()])[:FIELD_ROWS]
        features = program.guide.heads(from_numpy(rows)).features[0]
    hidden = parts.train.y_obs == parts.train.classes
    labels = cat([parts.train.y_obs, full((len(rows) - truth.rows,), parts.train.classes)])
    start = time.perf_counter()
    field = propagate_labels(features, labels, parts.train.classes)[: truth.rows]
    seconds = time.perf_counter() - start
    scores["label"]["field"] = imputation_scores(field[hidden].numpy(), truth.y[hidden.numpy()])

    decided = fitted.decide(parts.train.x)[0].numpy()
    known = np.zeros((truth.rows, 2, 2))
    known[np.arange(truth.rows), truth.y, truth.a] = 1
    gaps = {name: gap_of(decided, fitted.impute(parts.train, name)[0].double().numpy()) for name in IMPUTERS}
    return {"scores": scores, "gaps": gaps, "truth": gap_of(decided, known), "seconds": seconds}


def gap_of(decided: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Group 1's rate of decisions for class 1 less group 0's, in each class, under (rows, 2, 2) masses."""
    rates = np.einsum("r,ryg->yg", decided, cells) / cells.sum(0)
    return rates[:, 1] - rates[:, 0]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--group", default="gender", help="gender or race")
    arguments = parser.parse_args()
    found = Parallel(n_jobs=arguments.jobs, verbose=5)(
        delayed(one_seed)(arguments.group, seed) for seed in range(arguments.seeds)
    )
    lines = [["hidden", "imputer", "accuracy %", "log score", "calibration error %"]]
    for what, by_imputer in found[0]["scores"].items():
        for name in by_imputer:
            each = [run["scores"][what][name] for run in found]
            lines.append(
                [
                    what,
                    name,
                    mean_and_interval([scores["accuracy"] for scores in each], 100, 2),
                    mean_and_interval([scores["log_score"] for scores in each], 1, 4),
                    mean_and_interval([scores["calibration"] for scores in each], 100, 2),
                ]
            )
    print(f"\nAdult-{arguments.group}, sparse, hidden values of the training rows\n\n{align(lines)}\n")
    lines = [["gap by", "off in FPR, points", "off in TPR, points"]]
    for name in IMPUTERS:
        off = np.array([100 * np.abs(run["gaps"][name] - run["truth"]) for run in found])
        lines.append([name, *(mean_and_interval(list(column), 1, 2) for column in off.T)])
    print(align(lines))
    seconds = [run["seconds"] for run in found]
    print(f"\nGaussian field of {FIELD_ROWS:,} rows, one thread: {mean_and_interval(seconds, 1, 1)} s")


if __name__ == "__main__":
    main()
