"""What audits cost with many groups, and fits with many columns: seconds of the processor and peak memory.

Each line is measured in a process of its own, on simulated rows. To compare with another version, run this
file by the interpreter of that version's environment.

  python benchmarks/costs.py
  python benchmarks/costs.py --groups 2 10 40 --columns 5000 --epochs 1
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
import warnings

import numpy as np
import pandas as pd


def people(rows: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, decisions that are right in four of five cases, and groups, which two of five rows withhold."""
    draw = np.random.default_rng(0)
    group = draw.integers(groups, size=rows)
    y = (draw.random(rows) < 0.3 + 0.4 * draw.random(groups)[group]).astype(int)
    decided = np.where(draw.random(rows) < 0.8, y, 1 - y)
    names = np.array([f"group {g}" for g in range(groups)], dtype=object)
    return y, decided, np.where(draw.random(rows) < 0.4, None, names[group])


def audit_groups(rows: int, groups: int) -> None:
    from pyro_fairvae import audit

    audit(*people(rows, groups))


def fit_columns(rows: int, columns: int, epochs: int) -> None:
    from pyro_fairvae import FairSSVAEClassifier

    y, _, group = people(rows, 2)
    x = np.random.default_rng(1).normal(size=(rows, columns)) + 0.1 * y[:, None]
    table = pd.DataFrame(x, columns=[f"column {j}" for j in range(columns)])
    FairSSVAEClassifier(epochs=epochs).fit(table, y, sensitive_features=group)


def measure(title: str, work: object, *sizes: int) -> None:
    """Run in a new process, whose imports are not counted in the seconds, but are in the memory."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_run, args=(queue, work, sizes))
    process.start()
    process.join()
    found = "failed" if process.exitcode else "{:8.1f} s {:8.0f} MB".format(*queue.get())
    print(f"{title:40}{found}", flush=True)


def _run(queue: object, work: object, sizes: tuple[int, ...]) -> None:
    from pyro_fairvae import FairSSVAEClassifier, audit  # noqa: F401  (imported on first access)

    warnings.simplefilter("ignore")
    start = time.process_time()
    work(*sizes)  # type: ignore[operator]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put((time.process_time() - start, peak))  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, nargs="*", default=[2, 10, 40])
    parser.add_argument("--audited-rows", type=int, default=4000)
    parser.add_argument("--columns", type=int, nargs="*", default=[5000])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    for groups in arguments.groups:
        rows = arguments.audited_rows
        measure(f"audit of {groups} groups, {rows} rows", audit_groups, rows, groups)
    for columns in arguments.columns:
        rows = arguments.rows
        title = f"fit of {columns} columns, {rows} rows"
        measure(title, fit_columns, rows, columns, arguments.epochs)


if __name__ == "__main__":
    main()
