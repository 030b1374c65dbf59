"""Two processes beside one: the largest difference of parameters, and the time of an epoch.

    python benchmarks/processes.py [--processes 2] [--members 8] [--rows 16384] [--epochs 3]

Random rows with the columns of Adult, the networks of `fairvae train`, λ from the start. Each process has one
thread, so that two on two cores are beside one on one. Parameters are compared after all epochs, in double
precision; times are of single precision, without the first epoch, and of the slowest process: by the clock,
and of the processor, which tells what an idle machine would need, but for the waiting. Members divided mean
half of the members for each, rows divided half of each batch.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.step import random_table
from pyro_fairvae.base.options import build
from pyro_fairvae.base.ranks import joined
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import Progress, fit, skip_validation

KINDS = ("one process", "members", "rows")


def trained(
    arguments: argparse.Namespace, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], list[tuple[float, float]]]:
    """Parameters, and the seconds of each epoch, by the clock and of the processor."""
    settings = build(
        Settings,
        {"epochs": arguments.epochs + 1, "batch": arguments.batch, "risk_from": 0.0, "risk_full": 0.0,
         "channel_steps": 1, "decision_steps": 1},
    )  # fmt: skip
    table, lambdas = random_table(arguments.rows), [0.1 * k for k in range(arguments.members)]
    times = [(time.perf_counter(), time.process_time())]

    def told(_: Progress) -> None:
        times.append((time.perf_counter(), time.process_time()))

    held_out = table.take(torch.arange(2048))
    whole = fit(table, held_out, lambdas, settings, seeds=list(range(arguments.members)), dtype=dtype,
                after_epoch=told)  # fmt: skip
    seconds = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(times)]
    return whole.program.state(), seconds[1:]


def work(arguments: argparse.Namespace) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    skip_validation()
    sharding = "auto" if arguments.work == KINDS[0] else arguments.work
    with joined(sharding) as ranks:
        state, _ = trained(arguments, torch.float64)
        _, seconds = trained(arguments, torch.float32)
        by_rank = torch.tensor(ranks.gather(seconds))  # (ranks, epochs, 2)
        if ranks.is_first:
            slowest = by_rank.amax(0).median(0).values.tolist()
            torch.save({"state": state, "seconds": slowest}, arguments.out)


def run(kind: str, count: int, folder: Path) -> dict[str, Any]:
    """The parameters and seconds of so many processes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    out = folder / "found.pt"
    command = [sys.executable, "-m", "benchmarks.processes", *sys.argv[1:], "--work", kind, "--out", str(out)]
    told = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | {name: str(value) for name, value in told.items()} | {"RANK": str(rank)},
            cwd=Path(__file__).parent.parent,
        )
        for rank in range(count)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a process has failed.")
    found_there: dict[str, Any] = torch.load(out, weights_only=True)
    return found_there


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rows", type=int, default=16384, help="training rows")
    parser.add_argument("--batch", type=int, default=1024, help="rows in a step")
    parser.add_argument("--epochs", type=int, default=3, help="epochs that are timed, after one that is not")
    parser.add_argument("--work", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return
    steps = -(-arguments.rows // arguments.batch) * (arguments.epochs + 1)
    print(f"{arguments.members} members, {arguments.rows} rows, {arguments.batch} in a step, {steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        counts = {kind: 1 if kind == KINDS[0] else arguments.processes for kind in KINDS}
        found = {kind: run(kind, count, Path(folder)) for kind, count in counts.items()}
    alone = found[KINDS[0]]
    clock, processor = alone["seconds"]
    for kind, of in found.items():
        largest = max(
            float((of["state"][name] - value).abs().max())
            for name, value in alone["state"].items()
            if value.numel()
        )
        seconds, busy = of["seconds"]
        name = kind if kind == KINDS[0] else f"{arguments.processes} processes, {kind} divided"
        print(
            f"{name:28s} {seconds:6.2f} s an epoch, {seconds / clock:4.2f} x one process; of the processor "
            f"{busy:5.2f} s, {busy / processor:4.2f} x; largest difference of parameters {largest:.1e}"
        )


if __name__ == "__main__":
    main()
