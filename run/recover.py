"""Recover who withholds how often, on Adult at three levels of missingness: the paper's Table 1.

For each group and level all seeds are trained as members of one run. What is found is the mean of the
calibrated posterior, beside the paper's own figure; "guide" is the mean under the variational guide. Finished
parts are kept in --out, so a killed study goes on where it stopped.

Examples:
  fairvae recover --seeds 5
  fairvae recover --groups race5 --levels sparse --seeds 3 --out runs/race5
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyro
import torch
from pyro_fairvae.run.command import add_options, given_options

from pyro_fairvae.errors import require
from pyro_fairvae.options import build
from pyro_fairvae.report import align
from pyro_fairvae.studies.recovery import RecoverConfig, recover, recovery_lines, summary_lines
from pyro_fairvae.training import resolve_device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("runs/recover"), help="folder (default: runs/recover)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's files, as in training")
    parser.add_argument("--threads", type=int, help="CPU threads; all cores unless given")
    add_options(parser, RecoverConfig)


def run(arguments: argparse.Namespace) -> None:
    config = build(RecoverConfig, given_options(arguments, RecoverConfig))
    if arguments.threads is not None:
        require(arguments.threads >= 1, f"threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    pyro.enable_validation(False)

    def report(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    found = recover(config, arguments.out, resolve_device(arguments.device), arguments.data_dir, report)
    print(f"{align(recovery_lines(found))}\n\n{align(summary_lines(found))}")
    print(f"\nEvery estimate is in {arguments.out / 'recovery.csv'}")
