"""Run every method on the same splits and compare them: the paper's experiments in one command.

Writes results.csv (a line for each panel, method, seed and weight), recovery.csv (Table 1), the figures,
tables.md and report.html, one page with everything, to --out. Weights are chosen on the masked validation
part; test rows are read once, at the end of a job. Results of finished jobs are kept in --out and not
computed again, so a killed grid continues where it stopped; a job that fails is reported and does not stop
the others.

Presets: smoke (seconds for each method, on few rows: does everything run?), quick (both groups, sparse, DEO,
three seeds), paper (the main methods in every panel, with the library's best trunk; the others, and the
paper's trunk, at the sparse level; five seeds), celeba (three levels, three seeds, 10,000 images). Options
given beside a preset override it. Before the first job the number of jobs and an estimate of their time are
printed; --plan prints the plan by method, and stops.

--store adds the results to a Parquet file, from which --from makes every table and figure again.

Examples:
  fairvae reproduce --preset quick
  fairvae reproduce --preset paper --plan
  fairvae reproduce --preset paper --workers 2 --out runs/paper --store docs/results
  fairvae reproduce --from docs/results
  fairvae reproduce --preset quick --methods fair_ssvae,fairda --groups gender --out runs/two
  fairvae reproduce --dataset celeba_cheekbones --trunk wrn28_2 --device cuda --out runs/cheekbones
  fairvae reproduce --preset paper --backend ray --ray-address auto --device auto
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from joblib import cpu_count
from pyro_fairvae.run.command import (
    add_data_dir,
    add_device,
    add_escape_formulas,
    add_options,
    add_quiet,
    device_of,
    flag_of,
    given_options,
    progress_of_jobs,
)

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import build
from pyro_fairvae.baselines import METHODS
from pyro_fairvae.data import DEFAULT_DATASET
from pyro_fairvae.report.reproduction import (
    REPRODUCTION_PAGE,
    TABLES_PAGE,
    comparison_text,
    plan_text,
    write_reproduction,
    write_results,
)
from pyro_fairvae.studies.pools import BACKENDS, Cluster
from pyro_fairvae.studies.reproduction import GRID_PRESETS, ReproduceConfig, plan, preset, reproduce
from pyro_fairvae.studies.results_file import FILE, check_parquet, read_tables, store_tables


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
    parser.add_argument(
        "--plan", action="store_true", help="print the jobs and hours of each method, and run nothing"
    )
    parser.add_argument(
        "--store", type=Path, metavar="DIR", help=f"folder in whose {FILE} the results are kept, too"
    )
    parser.add_argument(
        "--from", dest="from_", type=Path, metavar="DIR",
        help=f"make the tables and figures of a folder's {FILE} and run nothing; they go to --out (default: "
        "DIR)",
    )  # fmt: skip
    add_quiet(parser)
    add_device(parser, default="cpu")
    add_data_dir(parser)
    add_escape_formulas(parser)
    add_options(parser, ReproduceConfig)


def run(arguments: argparse.Namespace) -> None:
    given = given_options(arguments, ReproduceConfig)
    if arguments.from_ is not None:
        return _from_stored(arguments, given)
    if arguments.store is not None:
        check_parquet()
    config = build(ReproduceConfig, preset(arguments.preset, given.get("dataset", DEFAULT_DATASET)) | given)
    device, cluster = arguments.device, None
    if arguments.backend == "ray":
        cluster = Cluster(arguments.ray_address, device, arguments.gpus)
    else:
        require(arguments.ray_address is None, "--ray-address is for --backend ray; give both.")
        device = str(device_of(device, arguments.quiet))
    out = arguments.out or Path(f"runs/reproduce-{arguments.preset}")
    if arguments.plan:
        workers = cpu_count() if arguments.workers is None else arguments.workers
        require(workers >= 1, f"workers must be at least 1, got {workers}.", "workers")
        here = device if cluster is None else "cpu"
        return print(plan_text(plan(config, workers, out, here, arguments.data_dir)))
    with progress_of_jobs(arguments.quiet) as (report, show):
        reproduction = reproduce(
            config, out, device, arguments.data_dir, arguments.backend, arguments.workers, cluster, report,
            show,
        )  # fmt: skip
    write_reproduction(out, reproduction)
    print(f"\n{comparison_text(reproduction.results, config.ours)}")
    if arguments.store is not None:
        print(f"\nThe results are in {store_tables(arguments.store, reproduction.tables)}")
    print(f"\nEverything is in {out}; read {out / REPRODUCTION_PAGE}")


def _from_stored(arguments: argparse.Namespace, given: dict[str, Any]) -> None:
    """Tables and figures of results that were stored."""
    others = {"--plan": arguments.plan, "--store": arguments.store}
    unused = [flag_of(name) for name in given if name != "ours"] + [flag for flag, on in others.items() if on]
    require(not unused, f"{', '.join(unused)} cannot be given with --from, which runs nothing; leave it out.")
    ours = given.get("ours")
    if ours is not None:
        choose("method", ours, METHODS)
    tables = read_tables(arguments.from_)
    out = arguments.out or arguments.from_
    write_results(out, tables, ours)
    print(f"Tables are in {out / TABLES_PAGE}, with the figures in {out / REPRODUCTION_PAGE}")
