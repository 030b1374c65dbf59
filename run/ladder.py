"""What each part is worth: a ladder from the paper's method as printed to the default, one change at a time.

Every rung is trained at the weights of its trade-off on the same splits, and compared with the one before by
its hypervolume, with intervals and tests that allow for the overlap of splits. Beside the last rung the
ELBO's own share is varied, κ from 0 to 1. Writes ladder.csv and ladder.svg to --out; finished jobs are kept
there, so that a killed ladder continues where it stopped. --store adds the results to those of fairvae
reproduce.

Examples:
  fairvae ladder --groups gender,race --seeds 5 --out runs/ladder --store docs/results
  fairvae ladder --rungs as_printed,bracket,weights --seeds 2 --epochs 10 --out runs/steps
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyro_fairvae.run.command import (
    add_data_dir,
    add_device,
    add_escape_formulas,
    add_options,
    add_quiet,
    device_of,
    given_options,
    progress_of_jobs,
)

from pyro_fairvae.base.options import build
from pyro_fairvae.report.comparison import ladder_lines
from pyro_fairvae.report.panels import draw_ladder
from pyro_fairvae.report.text import align
from pyro_fairvae.studies.ladder import LadderConfig, climb, ladder_table
from pyro_fairvae.studies.pools import BACKENDS
from pyro_fairvae.studies.results_file import FILE, check_parquet, store_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("runs/ladder"), metavar="DIR",
        help="folder for the results (default: runs/ladder)",
    )  # fmt: skip
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help=f"folder in whose {FILE} the results are kept, too"
    )
    parser.add_argument(
        "--backend", default="local", metavar="NAME",
        help=f"where jobs run: {', '.join(BACKENDS)} (default: local)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", help="jobs at a time, one thread each (default: all cores)"
    )
    add_quiet(parser)
    add_device(parser, default="cpu")
    add_data_dir(parser)
    add_escape_formulas(parser)
    add_options(parser, LadderConfig)


def run(arguments: argparse.Namespace) -> None:
    config = build(LadderConfig, given_options(arguments, LadderConfig))
    if arguments.store is not None:
        check_parquet()
    device = str(device_of(arguments.device, arguments.quiet))
    with progress_of_jobs(arguments.quiet) as (report, show):
        lines = climb(
            config,
            arguments.out,
            device,
            arguments.data_dir,
            arguments.backend,
            arguments.workers,
            report,
            show,
        )
    table = ladder_table(lines)
    draw_ladder(arguments.out / "ladder.svg", table)
    print(f"\n{align(ladder_lines(table))}")
    if arguments.store is not None:
        print(f"\nThe results are in {store_tables(arguments.store, {'ladder': lines})}")
    print(f"\nEverything is in {arguments.out}")
