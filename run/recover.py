"""Recover who withholds how often, at three levels of missingness: the paper's Table 1.

For each group and level all seeds are trained as members of one run. Prints the mean of the calibrated
posterior beside the figure of the paper; "guide" is the mean under the variational guide. Finished parts are
kept in --out, so a killed study continues where it stopped.

Where who withholds is recorded (--dataset stops), the posterior is computed with and without proxies, and
with and without what withholding may depend on, and printed and drawn beside the yardstick.

Examples:
  fairvae recover --seeds 5
  fairvae recover --groups race5 --levels sparse --seeds 3 --out runs/race5
  fairvae recover --groups age --levels sparse --out runs/age    # the curve along which age is withheld
  fairvae recover --dataset celeba --seeds 3 --out runs/recover-celeba
  fairvae recover --dataset stops --seeds 3 --out runs/recover-stops
"""

from __future__ import annotations

import argparse

from pyro_fairvae.run.command import add_options, add_place, given_options, prepare, progress_of

from pyro_fairvae.base.options import build
from pyro_fairvae.report import align, draw_recovered, draw_yardstick
from pyro_fairvae.studies.number_recovery import are_numbers, curves, error_lines, level_lines
from pyro_fairvae.studies.recorded_withholding import (
    TABLE,
    RecordedConfig,
    check_lines,
    recorded_datasets,
    recorded_lines,
    recover_recorded,
)
from pyro_fairvae.studies.recovery import RecoverConfig, recover, recovery_lines, summary_lines

FIGURE, CURVES = "withholding.png", "curves.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(parser, "runs/recover")
    add_options(parser, RecoverConfig)
    parser.add_argument("--group", dest="groups", help=argparse.SUPPRESS)  # as train has it


def run(arguments: argparse.Namespace) -> None:
    given = given_options(arguments, RecoverConfig)
    device, report = prepare(arguments), progress_of(arguments)
    if given.get("dataset") in recorded_datasets():
        config = build(RecordedConfig, given)
        found = recover_recorded(config, arguments.out, device, arguments.data_dir, report)
        draw_yardstick(arguments.out / FIGURE, found)
        print("\n".join([align(recorded_lines(found)), "", *check_lines(found)]))
        print(f"\nEvery estimate is in {arguments.out / TABLE}, the figure in {arguments.out / FIGURE}")
        return
    study = build(RecoverConfig, given)
    recovered = recover(study, arguments.out, device, arguments.data_dir, report)
    numbers = are_numbers(study.dataset, recovered)
    if not numbers.all():
        groups = recovered[~numbers]
        print(f"{align(recovery_lines(groups))}\n\n{align(summary_lines(groups))}")
    if numbers.any():
        of_numbers = recovered[numbers]
        print(f"{align(level_lines(of_numbers))}\n\n{align(error_lines(of_numbers))}")
        draw_recovered(arguments.out / CURVES, list(curves(of_numbers)))
        print(f"\nCurves are drawn in {arguments.out / CURVES}")
    print(f"\nEvery estimate is in {arguments.out / 'recovery.csv'}")
