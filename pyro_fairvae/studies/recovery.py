"""The paper's Table 1: how well the rates of withholding are recovered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_csv
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.options import build, option, options_of
from pyro_fairvae.base.reports import Report
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.data import DATASETS, DEFAULT_DATASET, LEVELS, split
from pyro_fairvae.data.registry import names_help, studied_help
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.studies.config import DataConfig, check_simulated
from pyro_fairvae.studies.joint_fits import once, rates, train_jointly
from pyro_fairvae.studies.number_recovery import with_people

# Jiang, Fan, Li and Zhang (2025), Table 1: α and β, by group and level.
PAPER = {key: rates for row in DATASETS.values() for key, rates in row.published.items()}


@dataclass(frozen=True)
class RecoverConfig:
    """The groups, levels and seeds of a study of recovery."""

    dataset: str = option(DEFAULT_DATASET, names_help)
    label: str | None = option(None, "what to predict, as in training (default: that of the data set)")
    groups: tuple[str, ...] | None = option(None, studied_help)
    levels: tuple[str, ...] = option(
        tuple(LEVELS), f"levels of missingness: {', '.join(LEVELS)}, separated by commas"
    )
    seeds: int = option(5, "seeds 0 to N − 1, of split, missingness and weights")
    epochs: int = option(15, "passes over the training rows")
    rows: int | None = option(
        None, "use only this many rows, drawn at random (default: all; for celeba at most 50,000)"
    )
    prior_a: str = option("truthful", "prior on P(ã|a), as in training")
    withholding_depends_on: tuple[str, ...] | None = option(
        None,
        "what withholding may depend on besides the group, as in training (default: nothing; where "
        "withholding is recorded, all features and the label)",
    )
    proxies: tuple[str, ...] | None = option(
        None, "proxies of the group, where withholding is recorded (default: all that the data set has)"
    )

    group_levels: int | None = option(None, options_of(DataConfig)["group_levels"].help)

    def __post_init__(self) -> None:
        check_simulated(self.dataset)
        require(
            self.proxies is None,
            f"proxies {list(self.proxies or ())} were given, but who withholds in {self.dataset} is "
            "simulated; leave them out, or choose a data set whose withholding is recorded.",
            "proxies",
        )
        for case in self.cases():
            case.missingness()
        require(self.seeds >= 1, f"seeds must be at least 1, got {self.seeds}.")
        require(self.rows is None or self.rows >= 20, f"rows must be at least 20, got {self.rows}.")
        self.settings()

    def cases(self) -> list[DataConfig]:
        """A data set for each group and level."""
        dataset = DATASETS[choose("data set", self.dataset, DATASETS)]
        groups = self.groups or dataset.studied_groups
        return [
            DataConfig(
                self.dataset, self.label, group, self.rows, level=level, group_levels=self.group_levels
            )
            for group in groups
            for level in self.levels
        ]

    def settings(self) -> Settings:
        given = {
            "epochs": self.epochs,
            "prior_a": self.prior_a,
            "withholding_depends_on": self.withholding_depends_on or (),
        }
        return build(Settings, {**DATASETS[self.dataset].suits, **given})


def recover(
    config: RecoverConfig, out: Path, device: torch.device, data_dir: Path | None, report: Report
) -> pd.DataFrame:
    """A line for each group, level, seed and outcome; also in ``recovery.csv``. Finished parts are kept."""
    with alone_in(out):
        lines: list[dict[str, Any]] = []
        options = {
            name: getattr(config, name) for name in ("dataset", "label", "seeds", "epochs", "rows", "prior_a")
        }
        if config.group_levels is not None:
            options["group_levels"] = config.group_levels
        if config.withholding_depends_on:
            options["withholding_depends_on"] = list(config.withholding_depends_on)
        for data in config.cases():
            report(f"{data.group}, {data.level}")
            work = partial(_recover_level, config, data, data_dir, device, report)
            lines += once(out / f"{data.group}-{data.level}.json", options, work)
        write_csv(out / "recovery.csv", lines)
    return pd.DataFrame(lines)


def _recover_level(
    config: RecoverConfig, data: DataConfig, data_dir: Path | None, device: torch.device, report: Report
) -> list[dict[str, Any]]:
    """All seeds of one group and level, as members of one run.

    Levels have different splits and draws, so that their intervals are separate evidence on coverage.
    """
    table = data.table(0, data_dir)
    seeds = [derive_seed(seed, list(LEVELS).index(str(data.level))) for seed in range(config.seeds)]
    parts = [split(table, data.missingness(), seed) for seed in seeds]
    joint = train_jointly(parts, [0.0], config.settings(), seeds, device, report)
    lines = []
    for seed, splits in enumerate(parts):
        common = {"group": data.group, "level": data.level, "seed": seed}
        lines += with_people(rates(joint, seed, data.truth_of(splits), common), splits, data)
    return lines


def recovery_lines(found: pd.DataFrame) -> list[list[str]]:
    """Table 1: truth, the paper's figure, ours over seeds, its error, how many intervals cover the truth."""
    titles = "group,level,rate,truth,paper,found,± s.d.,|error|,width,held truth,guide"
    lines = [titles.split(",")]
    rows = found[(found.channel == "a") & (found.says == "unavailable")]
    for (group, level, given), over_seeds in rows.groupby(["group", "level", "given"], sort=False):
        index = list(dict.fromkeys(rows[(rows.group == group)].given)).index(given)
        binary = (str(group), str(level)) in PAPER and index < 2
        paper = PAPER.get((str(group), str(level)))
        covered = ((over_seeds.q05 <= over_seeds.truth) & (over_seeds.truth <= over_seeds.q95)).sum()
        lines.append(
            [
                str(group),
                str(level),
                (f"{'βα'[index]}, " if binary else "") + f"P(∅|{given})",
                f"{over_seeds.truth.iloc[0]:.2f}",
                f"{paper[1 - index]:.2f}" if paper and binary else "–",
                f"{over_seeds['mean'].mean():.3f}",
                f"{over_seeds['mean'].std():.3f}",
                f"{(over_seeds['mean'] - over_seeds.truth).abs().mean():.4f}",
                f"{(over_seeds.q95 - over_seeds.q05).mean():.3f}",
                f"{covered}/{len(over_seeds)}",
                f"{over_seeds.guide.mean():.3f}",
            ]
        )
    return lines


def point_lines(found: pd.DataFrame) -> list[list[str]]:
    """Rates without intervals over seeds, as by the method as printed, beside the paper's figure."""
    lines = [["group", "level", "rate", "truth", "paper", "found", "± s.d.", "|error|"]]
    rows = found[(found.channel == "a") & (found.says == "unavailable")]
    for (group, level, given), own in rows.groupby(["group", "level", "given"], sort=False):
        index = list(dict.fromkeys(rows[rows.group == group].given)).index(given)
        paper = PAPER.get((str(group), str(level)))
        lines.append(
            [
                str(group),
                str(level),
                f"P(∅|{given})",
                f"{own.truth.iloc[0]:.2f}",
                f"{paper[1 - index]:.2f}" if paper and index < 2 else "–",
                f"{own['mean'].mean():.3f}",
                f"{own['mean'].std():.3f}",
                f"{(own['mean'] - own.truth).abs().mean():.4f}",
            ]
        )
    return lines


def summary_lines(found: pd.DataFrame) -> list[list[str]]:
    """Mean absolute error over levels, seeds and rates by group, beside the paper's, and coverage."""
    lines = [["group", "mean |error|", "paper's", "guide's", "90 % intervals that held the truth"]]
    rows = found[(found.channel == "a") & (found.says == "unavailable")]
    for group, of_group in rows.groupby("group", sort=False):
        known = [
            abs(value - truth)
            for level in dict.fromkeys(of_group.level)
            if (str(group), level) in PAPER
            for value, truth in zip(PAPER[str(group), level], reversed(LEVELS[level]), strict=True)
        ]
        covered = (of_group.q05 <= of_group.truth) & (of_group.truth <= of_group.q95)
        lines.append(
            [
                str(group),
                f"{(of_group['mean'] - of_group.truth).abs().mean():.4f}",
                f"{np.mean(known):.4f}" if known else "–",
                f"{(of_group.guide - of_group.truth).abs().mean():.4f}",
                f"{covered.sum()} of {len(of_group)} ({100 * covered.mean():.0f} %)",
            ]
        )
    return lines
