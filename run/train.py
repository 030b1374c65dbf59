"""Train a frontier of fair classifiers in one run, a member for each weight λ of the fairness risk.

The folder given by --out receives config.json (every option, and versions), history.csv (each part of
the objective by epoch and member), results.json (metrics of every member), posterior.json (who
withholds, with intervals), figures, a checkpoint, and the model itself (model.json, weights.safetensors and
draws.safetensors), which predict, audit, report, inspect and decide read. For images also faces.png:
reconstructions, and the same z with label and group switched.

Examples:
  fairvae train --dataset adult --group gender --level sparse --out runs/gender
  fairvae train --lambdas 0,0.4 --epochs 10 --risk ddp --out runs/quick
  fairvae train --dataset adult --group age --group-levels 16 --out runs/age
  fairvae train --config runs/gender/config.json --seed 1 --out runs/gender-1
  fairvae train --preset as_printed --lambdas 0,0.4,1.6 --out runs/printed
  fairvae train --dataset celeba --label High_Cheekbones --group Male --out runs/cheekbones
  torchrun --nproc-per-node 4 -m pyro_fairvae.run train --dataset celeba --shard rows --out runs/celeba
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from pyro_fairvae.run.command import (
    DataFolder,
    Machine,
    add_escape_formulas,
    add_options,
    add_processes,
    add_quiet,
    add_suggest,
    given_options,
    run_command,
)
from tqdm import tqdm

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import build, nested, option
from pyro_fairvae.base.ranks import current
from pyro_fairvae.inference.training import Progress
from pyro_fairvae.posterior.curves import withholding_curve
from pyro_fairvae.posterior.stored_draws import kept_draws, kept_sources
from pyro_fairvae.report import (
    curve_table,
    draw_channel,
    draw_check,
    draw_curve,
    draw_effects,
    draw_faces,
    draw_frontier,
    draw_training,
    imputation_table,
    results_table,
    suggestion_table,
    withholding_table,
)
from pyro_fairvae.storage.model_folder import (
    CHECK_FIGURE,
    EFFECTS_FIGURE,
    FACES_FIGURE,
    FRONTIER_FIGURE,
    POSTERIOR_FIGURE,
    TRAINING_FIGURE,
)
from pyro_fairvae.studies.config import (
    TRAIN_PRESETS,
    TrainConfig,
    preset_of_training,
    read_options,
    suiting,
)
from pyro_fairvae.studies.single_run import RunResult, train_run

PARTS_SHOWN = {"x": "rec", "kl_z": "kl", "groups": "grp", "labels": "lab", "risk": "risk"}


@dataclass(frozen=True)
class Place(DataFolder, Machine):
    """Folders, device, threads and workers of a run. They do not change its results."""

    out: str | None = option(None, "folder for everything the run produces (required)")
    workers: int = option(0, "processes that read images ahead of training")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.out is not None, "no output folder was given; give out.", "out")
        require(self.workers >= 0, f"workers must not be negative, got {self.workers}.")


@dataclass(frozen=True)
class Everything:
    """All options that flags or a file may set."""

    place: Place = nested(Place)
    config: TrainConfig = nested(TrainConfig)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how")
    how.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML or JSON file with options by name; flags override it",
    )
    how.add_argument(
        "--preset", default="default", metavar="NAME",
        help=f"options to start from: {', '.join(TRAIN_PRESETS)} (the paper's method, and its ablation); "
        "flags and a file override it (default: default)",
    )  # fmt: skip
    how.add_argument(
        "--resume", action="store_true", help="continue from the checkpoint in --out, if there is one"
    )
    how.add_argument("--overwrite", action="store_true", help="replace a run that --out already holds")
    add_processes(how)
    add_quiet(how)
    add_suggest(how)
    add_escape_formulas(how)
    add_options(parser, Everything)


def run(arguments: argparse.Namespace) -> None:
    values = read_options(arguments.config) if arguments.config else {}
    given = values | given_options(arguments, Everything)
    given = preset_of_training(arguments.preset, given) | given
    everything = build(Everything, {**suiting(given), **given})
    place, config = everything.place, everything.config
    out, device = Path(str(place.out)), place.prepare(arguments.quiet)
    bar = ProgressBar(config.settings.epochs, arguments.quiet)
    try:
        result = train_run(
            config,
            out,
            device,
            place.data_dir,
            arguments.resume,
            arguments.overwrite,
            bar.start,
            bar.show,
            place.workers,
        )
    finally:
        bar.close()
    if not current().is_first:
        return
    write_figures(config, result, out)
    print(f"\n{results_table(result.results)}\n")
    posterior = result.model.posterior
    depends_on, attributes = config.settings.withholding_depends_on, result.model.attributes
    curve = withholding_curve(posterior["a"], attributes)
    if curve is None:
        print(withholding_table(posterior, depends_on))
    else:
        print(curve_table(curve, attributes.names[0], posterior, depends_on))
    if arguments.suggest:
        print(f"\n{suggestion_table(posterior['check'])}")
    if result.results["imputation"]:
        print(f"\n{imputation_table(result.results['imputation'])}")
    print(f"\nEverything is in {out}")


class ProgressBar:
    """Epochs, the parts of the objective and the time left, shown once training has started."""

    def __init__(self, epochs: int, quiet: bool) -> None:
        self.epochs, self.quiet = epochs, quiet
        self.bar: tqdm | None = None

    def start(self, epochs_done: int) -> None:
        self.bar = tqdm(
            total=self.epochs,
            initial=epochs_done,
            unit="epoch",
            desc="training",
            disable=self.quiet,
            file=sys.stderr,
        )

    def show(self, done: Progress) -> None:
        if self.bar is not None:
            if done.epoch == done.epochs:
                self.bar.set_description("settling, calibrating and evaluating", refresh=False)
            self.bar.set_postfix_str(_parts(done), refresh=False)
            self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def write_figures(config: TrainConfig, result: RunResult, out: Path) -> None:
    """Error against unfairness, the course of training, who withholds and why, and the check of it."""
    draw_frontier(out / FRONTIER_FIGURE, result.results)
    draw_training(
        out / TRAINING_FIGURE,
        result.fit.history,
        result.results["selected"],
        tuple(map(str, result.model.classes)),
        result.model.attributes.group_names,
    )
    draws = result.model.draws
    channel = kept_draws(draws, kept_sources(draws)[0], result.fit.program.guide.channel_a)
    posterior = result.model.posterior
    curve = withholding_curve(posterior["a"], result.model.attributes)
    if curve is None:
        draw_channel(out / POSTERIOR_FIGURE, channel, config.data.truth_by_channel().get("a"))
    else:
        draw_curve(out / POSTERIOR_FIGURE, curve, result.model.attributes.names[0])
    if posterior["check"] is not None:
        draw_check(out / CHECK_FIGURE, posterior["check"])
    if posterior["effects"]:
        draw_effects(out / EFFECTS_FIGURE, posterior["effects"])
    if result.faces is not None:
        draw_faces(out / FACES_FIGURE, result.faces)


def _parts(done: Progress) -> str:
    """The parts of the objective, as means over members, for the progress bar."""
    means = {
        short: sum(row[part] for row in done.rows) / len(done.rows) for part, short in PARTS_SHOWN.items()
    }
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
