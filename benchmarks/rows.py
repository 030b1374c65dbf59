"""What fits and predictions of large tables on disk cost: seconds and peak memory as rows grow.

Synthetic Parquet of 20 columns (12 numbers, 8 categories), a label and a group that two in five withhold is
written for each size, some rows at a time. Each fit, of 5 epochs and with an audit, and each prediction of
all rows runs in a process of its own. Memory is RssAnon of /proc/self/status, read every 50 ms: what the
process holds itself, without the pages of the mapped file, which the system drops when others need memory.
The exponent is the slope of the logarithm of processor seconds by that of rows from one size to the next.

  python benchmarks/rows.py
  python benchmarks/rows.py --rows 100000 300000 1000000 3000000 --threads 2
  python benchmarks/rows.py --rows 100000 --streaming never
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NUMBERS, SIZES = 12, (3, 4, 5, 6, 8, 10, 12, 16)
AT_ONCE = 100_000


def write(path: Path, rows: int) -> None:
    """Rows whose label depends on numbers, categories and the group, which numbers tell of."""
    import pyarrow
    import pyarrow.parquet as pq

    slopes = np.random.default_rng(0).normal(size=(NUMBERS, 2)) * 0.5
    words = [np.array([f"value {v}" for v in range(size)]) for size in SIZES]
    writer = None
    for number, first in enumerate(range(0, rows, AT_ONCE)):
        draw, size = np.random.default_rng([1, number]), min(AT_ONCE, rows - first)
        group = draw.integers(2, size=size)
        x = draw.normal(size=(size, NUMBERS)) + slopes[:, 0] * group[:, None]
        codes = [draw.integers(len(of), size=size) for of in words]
        score = x @ slopes[:, 1] + 0.4 * codes[0] + 0.5 * group - 1
        y = draw.random(size) < 1 / (1 + np.exp(-score))
        x[draw.random(size) < 0.05, 0] = np.nan
        table = {f"number {j}": x[:, j] for j in range(NUMBERS)}
        table |= {f"category {j}": of[code] for j, (of, code) in enumerate(zip(words, codes, strict=True))}
        sex = np.where(draw.random(size) < 0.4, None, np.array(["f", "m"], dtype=object)[group])
        hired = np.where(draw.random(size) < 0.2, None, np.array(["no", "yes"], dtype=object)[y.astype(int)])
        batch = pyarrow.Table.from_pandas(pd.DataFrame(table | {"sex": sex, "hired": hired}))
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    assert writer is not None
    writer.close()


def fit(path: Path, out: Path, epochs: int, streaming: str, targets: bool) -> None:
    from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
    from pyro_fairvae.studies.user_fit import fit_table

    members: dict[str, Any] = {} if targets else {"lambdas": (0.0, 1.0)}
    model = FairSSVAEClassifier(epochs=epochs, device="cpu", **members)
    fit_table(path, "hired", ["sex"], out, model=model, streaming=streaming)


def predict(path: Path, out: Path) -> None:
    from pyro_fairvae.run.__main__ import main

    if main(["predict", str(out), str(path), "--out", str(out.parent / "decisions.parquet")]):
        raise SystemExit("the prediction failed.")


def measured(work: Callable[..., None], *arguments: Any, threads: int = 1) -> tuple[float, ...]:
    """Seconds, those of the processor, peak RssAnon and, at that time, RssFile in MB, of a new process."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_run, args=(queue, work, arguments, threads))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"a process failed with exit code {process.exitcode}.")
    found: tuple[float, ...] = queue.get()
    return found


def _run(queue: Any, work: Callable[..., None], arguments: tuple[Any, ...], threads: int) -> None:
    import pyro_fairvae.run.predict
    import torch

    import pyro_fairvae.studies.user_fit  # noqa: F401  (imports are not counted in the seconds)

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    peak, done = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            anonymous, mapped = (int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
            peak[:] = max(peak, [anonymous, mapped])

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, busy = time.perf_counter(), time.process_time()
    work(*arguments)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    done.set()
    watcher.join()
    queue.put((seconds, busy, *peak))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--streaming", default="always", choices=("always", "never"))
    parser.add_argument("--lambdas", action="store_true", help="two members with λ in place of targets")
    parser.add_argument("--folder", type=Path, help="for the files (default: a temporary one)")
    arguments = parser.parse_args()
    print(
        f"{NUMBERS + len(SIZES)} columns, {arguments.epochs} epochs, {arguments.threads} thread(s), "
        f"streaming {arguments.streaming}; MB are of RssAnon, without the mapped file"
    )
    before: dict[str, tuple[int, float]] = {}
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            folder = Path(name)
            os.environ["FAIRVAE_CACHE"] = str(folder / "cache")
            write(folder / "rows.parquet", rows)
            size = (folder / "rows.parquet").stat().st_size / 2**20
            fitted = (folder / "rows.parquet", folder / "model")
            costs = {
                "fit": measured(
                    fit, *fitted, arguments.epochs, arguments.streaming, not arguments.lambdas,
                    threads=arguments.threads,
                ),
                "predict": measured(predict, *fitted, threads=arguments.threads),
            }  # fmt: skip
        for what, (seconds, busy, memory, mapped) in costs.items():
            line = (
                f"{what:8s} {rows:9,} rows ({size:4.0f} MB of Parquet) {busy:7.1f} s of the processor "
                f"({seconds:7.1f} s passed) {memory:6.0f} MB ({mapped:5.0f} MB of mapped pages)"
            )
            if what in before:
                smaller, of_smaller = before[what]
                line += f"   exponent {math.log(busy / of_smaller) / math.log(rows / smaller):5.2f}"
            print(line, flush=True)
            before[what] = rows, busy


if __name__ == "__main__":
    main()
