"""Label a part of a finished run's data so that error and expected unfairness are low together.

Rounding the classifier's probabilities is where every rule starts; the objective and the metrics of both are
printed, and decisions-PART.csv and decisions-PART.json go into the run's folder.

Examples:
  fairvae decide runs/gender
  fairvae decide runs/gender --part validation --rule thresholds --member 3 --risk-weight 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyro_fairvae.run.command import add_options, given_options, report

from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.options import build
from pyro_fairvae.report import decision_table
from pyro_fairvae.studies.deciding import DecideConfig, decide_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's files, as in training")
    add_options(parser, DecideConfig)


def run(arguments: argparse.Namespace) -> None:
    config = build(DecideConfig, given_options(arguments, DecideConfig))
    device = resolve_device(arguments.device)
    results = decide_run(arguments.run, config, device, arguments.data_dir, report)
    print(decision_table(results))
    print(f"\nLabels are in {arguments.run / f'decisions-{config.part}.csv'}")
