"""Decisions about the test rows of Adult together, by each rule, beside decisions about each row alone.

One run trains a frontier on Adult (gender, withheld sparsely). Test rows state their group as the others do,
and no label. For each rule: seconds of processor time, objective, expected error and risk as imputed, and
error and DEO in truth. With --rows the rules instead decide about rows of a simulation, whose number grows,
to see what a row costs.

  python benchmarks/together.py --seeds 3 --epochs 10
  python benchmarks/together.py --rows 1000 10000 100000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.data import Missingness, hide, load, split
from pyro_fairvae.decisions.joint_objective import DecisionProblem
from pyro_fairvae.decisions.rules import RULES
from pyro_fairvae.evaluation.joint_decisions import JointProblem, JointRule
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.risks import RISKS

SPARSE, NO_LABEL = Missingness().unavailable, (1.0, 1.0)


def on_adult(seed: int, epochs: int, lambdas: tuple[float, ...]) -> Iterator[dict[str, object]]:
    """A line for each member, kind of table and rule."""
    parts = split(load("adult", "gender"), Missingness(unavailable=SPARSE), seed)
    fitted = fit(parts.train, parts.validation, lambdas, Settings(epochs=epochs), seed)
    test = hide(parts.test, Missingness(unavailable=SPARSE, label_unavailable=NO_LABEL), seed)
    for member, lambda_ in enumerate(lambdas):
        for asked in (True, False):
            for name in RULES:
                rule = JointRule(rule=name, decision_lambda=lambda_ or 1.0, seed=seed)
                start = time.process_time()
                problem = JointProblem.of_fit(fitted, member, test, rule, asked)
                found = problem.decide(rule, np.arange(test.classes), parts.test.groups)
                seconds = time.process_time() - start
                truth = evaluate(parts.test.y, found.decisions, parts.test.a, test.classes)
                yield {
                    "seed": seed, "trained at λ": lambda_, "decided at λ": rule.decision_lambda,
                    "groups": "as stated" if asked else "unknown", "rule": name, "seconds": seconds,
                    "changed": found.changed, **found.summary.loc["after"],
                    "true error %": 100 * truth["error"], "true DEO %": 100 * truth["deo"],
                }  # fmt: skip


def simulated(rows: int, seed: int = 0) -> DecisionProblem:
    """Two classes and groups, 40 % of which are stated; scores differ between groups."""
    draw = np.random.default_rng(seed)
    a = draw.integers(2, size=rows)
    logits = 1.5 * draw.normal(size=(rows, 2)) + 1.5 * np.outer(a - 0.5, [0, 1])
    label = torch.tensor(logits).softmax(-1)
    group = draw.dirichlet((1, 1), size=rows) / 2 + np.eye(2)[a] / 2
    group = np.where(draw.random((rows, 1)) < 0.4, np.eye(2)[a], group)
    imputed = label.unsqueeze(-1) * torch.from_numpy(group).unsqueeze(-2)
    return DecisionProblem(label.log(), imputed, RISKS["deo"], 1.0, seed=seed, loss="error")


def by_rows(sizes: list[int]) -> Iterator[dict[str, object]]:
    """A line for each number of rows and rule."""
    for rows in sizes:
        problem = simulated(rows)
        for name, rule in RULES.items():
            start = time.process_time()
            found = rule(problem, lambda message: None, 8)
            yield {
                "rows": rows, "rule": name, "seconds": time.process_time() - start,
                "before": found.before, "after": found.after,
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lambdas", type=float, nargs="+", default=[0.0, 0.4])
    parser.add_argument("--rows", type=int, nargs="+")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.rows:
        table = pd.DataFrame(by_rows(arguments.rows))
        print(table.to_string(index=False, float_format="{:.4f}".format))
        return
    lines = (on_adult(seed, arguments.epochs, tuple(arguments.lambdas)) for seed in range(arguments.seeds))
    table = pd.DataFrame(line for of_seed in lines for line in of_seed)
    kinds = ["trained at λ", "decided at λ", "groups", "rule"]
    means = table.drop(columns="seed").groupby(kinds, sort=False).mean()
    print(means.reset_index().to_string(index=False, float_format="{:.4f}".format))


if __name__ == "__main__":
    main()
