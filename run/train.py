"""Train a frontier of fair classifiers in one run, a member for each weight λ of the fairness risk.

The folder given by --out receives config.json (every option, and versions), history.csv (each part of
the objective by epoch and member), results.json (metrics of every member), posterior.json (who
withholds, with intervals), two figures and a checkpoint.

Examples:
  fairvae train --dataset adult --group gender --level sparse --out runs/gender
  fairvae train --lambdas 0,0.4 --epochs 10 --risk ddp --out runs/quick
  fairvae train --config runs/gender/config.json --seed 1 --out runs/gender-1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyro
import torch
from pyro_fairvae.run.command import add_options, given_options, run_command
from tqdm import tqdm

from pyro_fairvae.errors import require
from pyro_fairvae.options import build
from pyro_fairvae.posterior import channel_draws
from pyro_fairvae.report import draw_frontier, draw_posterior, results_table, withholding_table
from pyro_fairvae.studies.config import TrainConfig, read_options
from pyro_fairvae.studies.single_run import RunResult, train_run
from pyro_fairvae.training import Progress, resolve_device

SHOWN = {"x": "rec", "kl_z": "kl", "groups": "grp", "labels": "lab", "risk": "risk"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where and how")
    where.add_argument("--out", type=Path, required=True, help="folder for everything the run produces")
    where.add_argument(
        "--config", type=Path, help="YAML or JSON file with options by name; flags override it"
    )
    where.add_argument(
        "--data-dir",
        type=Path,
        help="folder with the data set's files (default: $FAIRVAE_DATA, then the cache, then fetched)",
    )
    where.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    where.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    where.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint in --out, if there is one"
    )
    where.add_argument("--overwrite", action="store_true", help="replace a run that --out already holds")
    where.add_argument("--quiet", action="store_true", help="no progress bar")
    add_options(parser, TrainConfig)


def run(arguments: argparse.Namespace) -> None:
    values = read_options(arguments.config) if arguments.config else {}
    config = build(TrainConfig, values | given_options(arguments, TrainConfig))
    device = resolve_device(arguments.device)
    if arguments.threads is not None:
        require(arguments.threads >= 1, f"--threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    pyro.enable_validation(False)  # costs a tenth of a step, and the program is tested with it on
    with tqdm(total=config.settings.epochs, unit="epoch", disable=arguments.quiet, file=sys.stderr) as bar:
        bar.set_description("training")

        def show(done: Progress) -> None:
            if bar.n < done.epoch - 1:  # resumed; epochs done earlier do not count for the time left
                bar.initial = bar.n = done.epoch - 1
            bar.set_postfix_str(_parts(done), refresh=False)
            bar.update()

        result = train_run(
            config, arguments.out, device, arguments.data_dir, arguments.resume, arguments.overwrite, show
        )
        bar.n = config.settings.epochs
    write_figures(config, result, arguments.out)
    print(f"\n{results_table(result.results)}\n")
    print(withholding_table(result.posterior, result.group_names, config.data.missingness().unavailable))
    print(f"\nEverything is in {arguments.out}")


def write_figures(config: TrainConfig, result: RunResult, out: Path) -> None:
    """``frontier.png`` and ``posterior.png``."""
    draw_frontier(out / "frontier.png", result.results)
    channel = result.fit.program.guide.channel_a
    drawn = channel_draws(result.fit, channel)[..., channel.unavailable].flatten(0, 1).numpy()
    truth = config.data.missingness().unavailable
    draws = {f"P(∅ | {name})": drawn[:, g] for g, name in enumerate(result.group_names)}
    draw_posterior(out / "posterior.png", draws, dict(zip(draws, truth, strict=True)))


def _parts(done: Progress) -> str:
    """The parts of the objective, as means over members, for the progress bar."""
    means = {short: sum(row[part] for row in done.rows) / len(done.rows) for part, short in SHOWN.items()}
    return " ".join(f"{short} {mean:.3f}" for short, mean in means.items())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pyro_fairvae.run.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(action=run)
    return run_command(parser, None)


if __name__ == "__main__":
    raise SystemExit(main())
