"""Run every method on the same splits and compare them: the paper's experiments in one command.

Writes results.csv (a line for each panel, method, seed and weight), recovery.csv (Table 1), the figures
and report.html, one page with everything, to --out. Weights are chosen on the masked validation part; test
rows are read once, at the end of a job. Results of finished jobs are kept in --out and not computed again, so
a killed grid continues where it stopped; a job that fails is reported and does not stop the others.

Presets: smoke (seconds for each method, on few rows: does everything run?), quick (both groups, sparse, DEO,
three seeds), paper (everything, five seeds; overnight). Options given beside a preset override it.

Examples:
  fairvae reproduce --preset quick
  fairvae reproduce --preset paper --workers 8 --out runs/paper
  fairvae reproduce --preset quick --methods fair_ssvae,fairda --groups gender --out runs/two
  fairvae reproduce --dataset celeba_cheekbones --trunk wrn28_2 --device cuda --out runs/cheekbones
  fairvae reproduce --preset paper --backend ray --ray-address auto --device auto
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyro_fairvae.run.command import (
    add_data_dir,
    add_device,
    add_escape_formulas,
    add_options,
    add_quiet,
    device_of,
    given_options,
)
from tqdm import tqdm

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import build
from pyro_fairvae.data import DEFAULT_DATASET
from pyro_fairvae.report.reproduction import REPRODUCTION_PAGE, comparison_text, write_reproduction
from pyro_fairvae.studies.jobs import Left, Outcome
from pyro_fairvae.studies.pools import BACKENDS, Cluster
from pyro_fairvae.studies.reproduction import GRID_PRESETS, ReproduceConfig, preset, reproduce


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preset", default="quick", metavar="NAME", help=f"{', '.join(GRID_PRESETS)} (default: quick)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the results (default: runs/reproduce-PRESET)"
    )
    parser.add_argument(
        "--backend", default="local", metavar="NAME",
        help=f"where jobs run: {', '.join(BACKENDS)} (default: local)",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, metavar="N", help="jobs at a time, one thread each (default: all cores)"
    )
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT",
        help="Ray cluster for --backend ray, such as auto on one of its nodes (default: $RAY_ADDRESS, or "
        "this machine alone)",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=float, default=1.0, metavar="X",
        help="share of a GPU that each job on a cluster takes, with --device cuda or auto (default: 1)",
    )  # fmt: skip
    add_quiet(parser)
    add_device(parser, default="cpu")
    add_data_dir(parser)
    add_escape_formulas(parser)
    add_options(parser, ReproduceConfig)


def run(arguments: argparse.Namespace) -> None:
    given = given_options(arguments, ReproduceConfig)
    config = build(ReproduceConfig, preset(arguments.preset, given.get("dataset", DEFAULT_DATASET)) | given)
    device, cluster = arguments.device, None
    if arguments.backend == "ray":
        cluster = Cluster(arguments.ray_address, device, arguments.gpus)
    else:
        require(arguments.ray_address is None, "--ray-address is for --backend ray; give both.")
        device = str(device_of(device, arguments.quiet))
    out = arguments.out or Path(f"runs/reproduce-{arguments.preset}")
    with tqdm(unit="job", disable=arguments.quiet, file=sys.stderr) as bar:

        def show(outcome: Outcome, left: Left) -> None:
            bar.total, bar.n = left.total, left.done + left.failed
            bar.set_postfix_str(f"{left}: {outcome.job.name}")

        def report(words: str) -> None:
            bar.write(words, file=sys.stderr)

        reproduction = reproduce(
            config, out, device, arguments.data_dir, arguments.backend, arguments.workers, cluster, report,
            show,
        )  # fmt: skip
    write_reproduction(out, reproduction)
    print(f"\n{comparison_text(reproduction.results)}")
    print(f"\nEverything is in {out}; read {out / REPRODUCTION_PAGE}")
