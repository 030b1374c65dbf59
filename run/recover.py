"""Recover who withholds how often, at three levels of missingness: the paper's Table 1.

For each group and level all seeds are trained as members of one run. Prints the mean of the calibrated
posterior beside the figure of the paper; "guide" is the mean under the variational guide. Finished parts are
kept in --out, so a killed study continues where it stopped.

Examples:
  fairvae recover --seeds 5
  fairvae recover --groups race5 --levels sparse --seeds 3 --out runs/race5
  fairvae recover --dataset celeba --seeds 3 --out runs/recover-celeba
"""

from __future__ import annotations

import argparse

from pyro_fairvae.run.command import add_options, add_place, given_options, prepare, progress_of

from pyro_fairvae.base.options import build
from pyro_fairvae.report import align
from pyro_fairvae.studies.recovery import RecoverConfig, recover, recovery_lines, summary_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "runs/recover")
    add_options(parser, RecoverConfig)


def run(arguments: argparse.Namespace) -> None:
    config = build(RecoverConfig, given_options(arguments, RecoverConfig))
    recovered = recover(config, arguments.out, prepare(arguments), arguments.data_dir, progress_of(arguments))
    print(f"{align(recovery_lines(recovered))}\n\n{align(summary_lines(recovered))}")
    print(f"\nEvery estimate is in {arguments.out / 'recovery.csv'}")
