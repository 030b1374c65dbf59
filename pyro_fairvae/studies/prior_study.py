"""How results change with the prior, the rates of withholding, and the number of rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_csv
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.options import build, option
from pyro_fairvae.base.reports import Report
from pyro_fairvae.channels.priors import sketched_channel
from pyro_fairvae.data import DATASETS, LEVELS, Splits, split
from pyro_fairvae.data.registry import DRAWN_DATASET, names_help
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.schema.observed import stack_features
from pyro_fairvae.studies.config import DataConfig, check_simulated
from pyro_fairvae.studies.joint_fits import once, rates, train_jointly


@dataclass(frozen=True)
class StudyConfig:
    """The priors and the data of a study."""

    priors: tuple[str, ...] = option(("truthful", "flat", "paper", "mar"), "presets, or mappings in YAML")
    dataset: str = option(DRAWN_DATASET, names_help)
    group: str | None = option(None, "group to be fair to (default: the data set's first)")
    levels: tuple[str, ...] = option(
        ("sparse",), f"levels of missingness: {', '.join(LEVELS)}, separated by commas"
    )
    rows: tuple[int, ...] = option(
        (500, 2000, 8000), "numbers of rows before they are split, separated by commas"
    )
    seeds: int = option(5, "seeds 0 to N − 1, of rows, split and missingness")
    misstated: float = option(0.0, "rate at which people state a group that is not theirs")
    lambdas: tuple[float, ...] = option(
        (0.0, 1.0), "λ, weights of the risk, separated by commas; error and DEO are reported for each"
    )
    withholding_depends_on: tuple[str, ...] = option(
        (), "what withholding may depend on besides the group: features, or label, separated by commas"
    )
    epochs: int = option(20, "passes over the training rows")
    batch: int = option(256, "rows in a step")

    def __post_init__(self) -> None:
        check_simulated(self.dataset)
        for level in self.levels:
            choose("level", level, LEVELS)
        require(self.seeds >= 1, f"seeds must be at least 1, got {self.seeds}.")
        for rows in self.rows:
            require(rows >= 20, f"rows must be at least 20, got {rows}.")
        check_lambdas(self.lambdas)
        attributes = self.data(self.levels[0]).attributes
        for prior in self.priors:
            sketched_channel(attributes, prior)
            self.settings(prior)

    def data(self, level: str) -> DataConfig:
        return DataConfig(dataset=self.dataset, group=self.group, level=level, misstated=self.misstated)

    def settings(self, prior: str) -> Settings:
        options = {
            "epochs": self.epochs,
            "batch": self.batch,
            "prior_a": prior,
            "withholding_depends_on": self.withholding_depends_on,
        }
        return build(Settings, {**options, **DATASETS[self.dataset].suits_priors})


# Options on which every part of a study depends.
OF_PARTS = ("dataset", "group", "levels", "seeds", "misstated", "lambdas", "epochs", "batch")


def study(
    config: StudyConfig, out: Path, device: torch.device, data_dir: Path | None, report: Report
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rates and metrics, a line for each prior, level, number of rows and seed; also as CSV files.

    All levels and seeds of a prior and a number of rows are members of one run. Finished parts are kept.
    """
    with alone_in(out):
        lines: list[dict[str, Any]] = []
        for prior, rows in product(config.priors, config.rows):
            report(f"prior {prior}, {rows} rows")
            name = hashlib.sha256(f"{prior}/{rows}".encode()).hexdigest()[:12]
            options = {
                "prior": prior,
                "rows": rows,
                **{key: getattr(config, key) for key in OF_PARTS},
            }
            if config.withholding_depends_on:
                options["withholding_depends_on"] = config.withholding_depends_on
            work = partial(_study_one, config, prior, rows, device, data_dir, report)
            lines += once(out / f"{name}.json", options, work)
        of_rates, of_metrics = (
            [line for line in lines if ("metric" in line) == metric] for metric in (False, True)
        )
        write_csv(out / "rates.csv", of_rates)
        write_csv(out / "metrics.csv", of_metrics)
    return pd.DataFrame(of_rates), pd.DataFrame(of_metrics)


def _study_one(
    config: StudyConfig, prior: str, rows: int, device: torch.device, data_dir: Path | None, report: Report
) -> list[dict[str, Any]]:
    cases = [(config.data(level), seed) for level in config.levels for seed in range(config.seeds)]
    parts = [_parts(data, rows, seed, data_dir) for data, seed in cases]
    joint = train_jointly(
        parts, config.lambdas, config.settings(prior), [seed for _, seed in cases], device, report
    )
    weights = len(config.lambdas)
    tests = [splits.test.features for splits in parts for _ in config.lambdas]
    decided = joint.fit.decide(stack_features(tests)).numpy()
    lines = []
    for t, (data, seed) in enumerate(cases):
        common = {"prior": prior, "rows": rows, "level": data.level, "seed": seed}
        lines += rates(joint, t, data.truth_of(parts[t]), common)
        test = parts[t].test
        for w, weight in enumerate(config.lambdas):
            metrics = evaluate(test.y, decided[t * weights + w], test.a, len(test.classes))
            lines += [
                common | {"lambda": weight, "metric": metric, "value": metrics[metric]}
                for metric in ("error", "deo")
            ]
    return lines


def _parts(data: DataConfig, rows: int, seed: int, data_dir: Path | None) -> Splits:
    """The split data of a seed; each seed has different rows."""
    dataset = DATASETS[data.dataset]
    if dataset.draw is not None:
        table = dataset.draw(rows, seed, dataset.group(data.group))
    else:
        table = replace(data, rows=rows).table(seed, data_dir)
    return split(table, data.missingness(), seed)


def rate_lines(found: pd.DataFrame) -> list[list[str]]:
    """How the rates change with the prior: means over seeds."""
    lines = [["prior", "level", "rows", "rate", "truth", "mean", "± s.d.", "width", "held truth"]]
    rows = found[(found.channel == "a") & (found.says == "unavailable")]
    for (prior, level, size, given), over_seeds in rows.groupby(
        ["prior", "level", "rows", "given"], sort=False
    ):
        covered = ((over_seeds.q05 <= over_seeds.truth) & (over_seeds.truth <= over_seeds.q95)).sum()
        known = over_seeds.truth.notna().all()  # false where groups with different rates share a row
        lines.append(
            [
                str(prior),
                str(level),
                str(size),
                f"P(∅|{given})",
                f"{over_seeds.truth.iloc[0]:.2f}" if known else "–",
                f"{over_seeds['mean'].mean():.3f}",
                f"{over_seeds['mean'].std():.3f}",
                f"{(over_seeds.q95 - over_seeds.q05).mean():.3f}",
                f"{covered}/{len(over_seeds)}" if known else "–",
            ]
        )
    return lines


def metric_lines(found: pd.DataFrame) -> list[list[str]]:
    """How error and DEO on test change with the prior: means over seeds, in per cent."""
    lines = [["prior", "level", "rows", "λ", "error %", "± s.d.", "DEO %", "± s.d."]]
    for (prior, level, size, weight), over_seeds in found.groupby(
        ["prior", "level", "rows", "lambda"], sort=False
    ):
        cells = []
        for metric in ("error", "deo"):
            values = 100 * over_seeds[over_seeds.metric == metric]["value"]
            cells += [f"{values.mean():.2f}", f"{values.std():.2f}"]
        lines.append([str(prior), str(level), str(size), f"{weight:g}", *cells])
    return lines
