"""How the cost of a training step grows with members, groups, classes, samples and rows in a step.

Steps of random tables with the columns of Adult; one thing is changed at a time from 1 member, 2 groups, 2
classes and 1,024 rows. The risk is taken over cells without samples, except where samples are asked for. All
are timed in turns in one process; figures are medians over rounds.

  python benchmarks/growth.py
  python benchmarks/growth.py --rounds 5 --threads 1
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pyro
import torch
from step import COLUMNS, members_step

from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.schema.observed import Observed


def table(rows: int, groups: int, classes: int) -> Observed:
    """Random rows, of which a quarter state no label and three in five no group."""
    torch.manual_seed(0)
    blocks = [torch.eye(size)[torch.randint(size, (rows,))] for size in COLUMNS.blocks]
    x = torch.cat([torch.randn(rows, COLUMNS.numbers), *blocks], dim=-1)
    y = torch.randint(classes, (rows,)).masked_fill(torch.rand(rows) < 0.25, classes)
    a = torch.randint(groups, (rows,)).masked_fill(torch.rand(rows) < 0.6, groups)
    return Observed(x, y, a, COLUMNS, classes, groups)


def step_of(
    members: int = 1, groups: int = 2, classes: int = 2, samples: int | None = None, rows: int = 1024
) -> Callable[[], object]:
    settings = Settings(precision="full")
    if samples is not None:
        fairness = replace(settings.fairness, risk_estimator="sampled", samples=samples)
        settings = replace(settings, fairness=fairness)
    made = table(rows, groups, classes)
    return members_step(members, settings, made.batch(torch.arange(rows)), made)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pyro.enable_validation(False)
    changed = {
        "members": (1, 2, 4, 8, 16),
        "groups": (2, 4, 8, 16),
        "classes": (2, 4, 8, 16),
        "samples": (10, 100, 1000),
        "rows": (256, 1024, 4096),
    }
    steps = {(what, size): step_of(**{what: size}) for what, sizes in changed.items() for size in sizes}
    times: dict[tuple[str, int], list[float]] = {case: [] for case in steps}
    for number in range(arguments.rounds + 2):
        for case, step in steps.items():
            start = time.process_time()
            step()
            if number >= 2:  # the first rounds warm up
                times[case].append(time.process_time() - start)
    print(f"processor time of a step, {arguments.threads} thread(s), median of {arguments.rounds} rounds")
    for what, sizes in changed.items():
        costs = [f"{size}: {1e3 * statistics.median(times[what, size]):.1f} ms" for size in sizes]
        print(f"{what:8s} {'   '.join(costs)}")


if __name__ == "__main__":
    main()
