"""Run every method on the same splits and compare them: the paper's experiments in one command.

Writes results.parquet (a line for each panel, method, seed and weight), recovery.csv (Table 1), the figures
and report.html, one page with everything, to --out. Weights are chosen on the masked validation part; test
rows are read once, at the end of a job. A job that is done is kept there and never done again, so a killed
grid goes on where it stopped; one that fails is reported and does not stop the others.

Presets: smoke (seconds for each method, on few rows: does everything run?), quick (both groups, sparse, DEO,
three seeds), paper (everything, five seeds; overnight). Options given beside a preset override it.

Examples:
  fairvae reproduce --preset quick
  fairvae reproduce --preset paper --workers 8 --out runs/paper
  fairvae reproduce --preset quick --methods fair_ssvae,fairda --groups gender --out runs/two
  fairvae reproduce --dataset celeba_cheekbones --trunk wrn28_2 --device cuda --out runs/cheekbones
  RAY_ADDRESS=… fairvae reproduce --preset paper --backend ray
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import joblib
import torch
from pyro_fairvae.run.command import add_options, given_options, report
from tqdm import tqdm

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import make_folder, write_json, write_whole
from pyro_fairvae.base.options import build
from pyro_fairvae.data import DEFAULT_DATASET
from pyro_fairvae.inference.training import resolve_device
from pyro_fairvae.report import align, draw_faces, faces_in_words
from pyro_fairvae.report.comparison import chosen_lines, hypervolume_lines
from pyro_fairvae.report.page import Picture
from pyro_fairvae.report.panels import draw_hypervolumes, draw_panels, panels_in_words
from pyro_fairvae.report.reproduction import reproduction_page
from pyro_fairvae.studies.comparison import chosen_table, hypervolume_table
from pyro_fairvae.studies.config import ENVIRONMENT, environment
from pyro_fairvae.studies.jobs import Left, Outcome
from pyro_fairvae.studies.pools import BACKENDS
from pyro_fairvae.studies.reproduction import (
    GRID_PRESETS,
    ReproduceConfig,
    Reproduction,
    estimate,
    in_words,
    preset,
    reproduce,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", help=f"{', '.join(GRID_PRESETS)} (default: quick)", default="quick")
    parser.add_argument("--out", type=Path, help="folder for everything (default: runs/reproduce-PRESET)")
    parser.add_argument("--backend", default="local", help=f"{', '.join(BACKENDS)} (default: local)")
    parser.add_argument("--workers", type=int, help="jobs at a time, one thread each; all cores unless given")
    parser.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's files, as in training")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_options(parser, ReproduceConfig)


def run(arguments: argparse.Namespace) -> None:
    given = given_options(arguments, ReproduceConfig)
    config = build(ReproduceConfig, preset(arguments.preset, given.get("dataset", DEFAULT_DATASET)) | given)
    choose("backend", arguments.backend, BACKENDS)
    workers = arguments.workers if arguments.workers is not None else joblib.cpu_count()
    require(workers >= 1, f"workers must be at least 1, got {workers}.")
    device = str(resolve_device(arguments.device))
    out = arguments.out or Path(f"runs/reproduce-{arguments.preset}")
    make_folder(out)
    if not (out / "jobs").exists():
        seconds = estimate(config, workers, device, arguments.data_dir)
        report(in_words(config, seconds, workers))
    with tqdm(unit="job", disable=arguments.quiet, file=sys.stderr) as bar:

        def show(outcome: Outcome, left: Left) -> None:
            bar.total, bar.n = left.total, left.done + left.failed
            bar.set_postfix_str(f"{left}: {outcome.job.name}")

        def tell(words: str) -> None:
            bar.write(words, file=sys.stderr)

        found = reproduce(
            config, out, device, arguments.data_dir, arguments.backend, arguments.workers, tell, show
        )
    for failure in found.failures:
        report(f"failed: {failure['job']}: {failure['reason'].strip().splitlines()[0]}")
    require(len(found.results) > 0, f"every job failed; their reasons are in {out / 'jobs'}.")
    write_everything(config, found, out, device)
    table = hypervolume_table(found.results)
    for (group, _), own in table.groupby(["group", "dataset"], sort=False):
        print(f"\n{group}\n\n{align(hypervolume_lines(own))}\n")
        print(align(chosen_lines(chosen_table(found.results[found.results.group == group]))))
    print(f"\nEverything is in {out}; read {out / 'report.html'}")


def write_everything(config: ReproduceConfig, found: Reproduction, out: Path, device: str) -> None:
    """Tables, figures and the page."""
    versions = environment(torch.device(device))
    write_json(out / "config.json", asdict(config) | {ENVIRONMENT: versions})
    write_whole(out / "results.parquet", found.results.to_parquet(index=False))
    if len(found.recovery):
        write_whole(out / "recovery.csv", found.recovery.to_csv(index=False))
    figures: dict[str, list[Picture]] = {}
    for group, own in found.results.groupby("group", sort=False):
        shown = list(dict.fromkeys(own[own.paper].method))
        pictures = []
        for name, methods, words in (
            ("main", shown, "the methods of the paper's main figures"),
            ("all", None, "every method, as in the paper's appendix"),
        ):
            if methods == []:
                continue
            path = out / f"{group}-{name}.svg"
            draw_panels(path, own, methods, f"{config.dataset}, {group}")
            caption = f"Error against unfairness: {words}. Means over seeds with 95 % intervals."
            pictures.append(Picture(path, panels_in_words(own, methods), caption))
        path = out / f"{group}-hypervolumes.svg"
        draw_hypervolumes(path, hypervolume_table(own))
        pictures.append(
            Picture(path, f"Hypervolume of every method, {group}", "Hypervolume: the larger the better.")
        )
        if str(group) in found.faces:
            faces = found.faces[str(group)]
            path = out / f"{group}-faces.png"
            draw_faces(path, faces)
            caption = "Test images, their reconstructions, and the same z at every label and group (λ = 0)."
            pictures.append(Picture(path, faces_in_words(faces), caption))
        figures[str(group)] = pictures
    recovery = found.recovery if len(found.recovery) else None
    reproduction_page(
        out / "report.html", found.results, recovery, asdict(config), versions, found.failures, figures
    )
