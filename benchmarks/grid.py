"""Functions shared by the studies over seeds: runs that are kept, and means with intervals."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from pyro_fairvae.base.documents import read_document
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.inference.training import skip_validation
from pyro_fairvae.schema.documents import PosteriorDocument, ResultsDocument, as_plain
from pyro_fairvae.studies.config import TrainConfig, read_options
from pyro_fairvae.studies.jobs import numbers
from pyro_fairvae.studies.single_run import train_run


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Options of every study over seeds; ``doc`` is its description."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N − 1")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    return parser


def run_once(options: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Results and posterior of a run, trained on one thread unless its folder has them already."""
    config = build(TrainConfig, options)
    if not (folder / "posterior.json").exists():
        torch.set_num_threads(1)
        skip_validation()
        train_run(config, folder, torch.device("cpu"), resume=True)
    elif read_options(folder / "config.json") != config.flat():
        raise InputError(f"{folder} holds a run of another config; delete it or choose another --out.")
    results = read_document(folder / "results.json", ResultsDocument, "the results of a run")
    posterior = read_document(folder / "posterior.json", PosteriorDocument, "the posterior of a run")
    return numbers(as_plain(results)), numbers(as_plain(posterior))


def mean_and_interval(values: list[float], scale: float = 1.0, digits: int = 4) -> str:
    """Mean and half of a 95 % interval (Student's t)."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else float("nan")
    return f"{scale * np.mean(values):.{digits}f} ± {scale * half:.{digits}f}"
