"""Who withholds in a data set in which withholding is real, beside a yardstick: with and without v and u."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_csv
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.options import option
from pyro_fairvae.base.reports import Report
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data import DATASETS, Missingness
from pyro_fairvae.data.missingness import hide
from pyro_fairvae.data.tables import Complete, Table
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.conditions import BY_FORM_ALONE, LABEL, feature_names
from pyro_fairvae.posterior.calibration import calibrate
from pyro_fairvae.posterior.summaries import INTERVAL
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.studies.config import DataConfig
from pyro_fairvae.studies.joint_fits import once

TABLE = "withholding.csv"


@dataclass(frozen=True)
class RecordedConfig:
    """The data, the seeds, and what withholding may depend on."""

    dataset: str = option("stops", "data set whose withholding is recorded")
    label: str | None = option(None, "what to predict, as in training (default: that of the data set)")
    seeds: int = option(3, "seeds 0 to N − 1, of folds and initial weights")
    rows: int | None = option(None, "use only this many rows, drawn at random (default: all)")
    prior_a: str = option("truthful", "prior on P(ã|a), as in training")
    withholding_depends_on: tuple[str, ...] | None = option(
        None, "v: names of features, or label, separated by commas (default: all features and the label)"
    )
    proxies: tuple[str, ...] | None = option(
        None, "proxies of the group, separated by commas (default: all that the data set has)"
    )

    def __post_init__(self) -> None:
        row = DATASETS[choose("data set", self.dataset, DATASETS)]
        require(row.recorded, f"who withholds is not recorded in {self.dataset}.", "dataset")
        require(self.seeds >= 1, f"seeds must be at least 1, got {self.seeds}.", "seeds")
        require(self.rows is None or self.rows >= 200, f"rows must be at least 200, got {self.rows}.", "rows")
        for name in self.known_proxies:
            choose(f"proxy of {self.dataset}", name, row.proxies)
        channel("a", row.attributes(row.group(None)), self.prior_a)

    @property
    def known_proxies(self) -> tuple[str, ...]:
        return DATASETS[self.dataset].proxies if self.proxies is None else self.proxies


def recorded_datasets() -> list[str]:
    """The data sets in which who withholds is recorded."""
    return [name for name, row in DATASETS.items() if row.recorded]


def recover_recorded(
    config: RecordedConfig, out: Path, device: torch.device, data_dir: Path | None, report: Report
) -> pd.DataFrame:
    """A line for each variant, seed and group, also in a CSV file. Finished parts are kept.

    The variants are with and without proxies, and with and without v. The posterior is the cross-fitted one;
    the classifier is not trained. The yardstick is the share of rows with ∅ among those whose group is known
    otherwise, such as from an officer's word.
    """
    table = DataConfig(config.dataset, config.label, rows=config.rows).table(0, data_dir)
    assert isinstance(table, Table)
    every = {"all": np.arange(table.rows)}
    features = feature_names(table.encode(every, standard="all")["all"].columns.names)
    depends_on = config.withholding_depends_on or (*features, LABEL)
    for name in depends_on:
        choose("name in withholding_depends_on", name, (*features, LABEL))
    with alone_in(out):
        lines: list[dict[str, Any]] = []
        options = {name: getattr(config, name) for name in ("dataset", "label", "rows", "prior_a")}
        for with_u, with_v in product((False, True) if config.known_proxies else (False,), (False, True)):
            proxies, conditions = (config.known_proxies if with_u else ()), (depends_on if with_v else ())
            part = table.encode(every, standard="all", proxies=proxies)["all"]
            settings = Settings(prior_a=config.prior_a, withholding_depends_on=conditions)
            name = f"{'with' if with_u else 'no'} proxy, {'with' if with_v else 'no'} v"
            for seed in range(config.seeds):
                report(f"{name}, seed {seed}")
                work = partial(_one, part, settings, seed, device, {"variant": name, "seed": seed})
                kept = options | {"proxies": list(proxies), "depends_on": list(conditions), "seed": seed}
                lines += once(out / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.json", kept, work)
        write_csv(out / TABLE, lines)
    return pd.DataFrame(lines)


def _one(
    part: Complete, settings: Settings, seed: int, device: torch.device, common: dict[str, Any]
) -> list[dict[str, Any]]:
    """The posterior of one variant and seed; a line for each group."""
    start = time.perf_counter()
    train = hide(part, Missingness(label_unavailable=(0.0,) * len(part.classes)), seed)
    channels = (
        channel("a", train.group_attributes, settings.prior_a),
        channel("y", train.label_attributes, settings.prior_y),
    )
    calibrated = calibrate(train.to(device, torch.float32), channels, settings, [seed])["a"]
    check = calibrated.checks[0] if calibrated.checks else None
    withheld = train.a_obs.numpy() == train.group_attributes.outcomes - 1
    lines = []
    for r, row in enumerate(channels[0].rows):
        rates = calibrated.draws.of(r, UNAVAILABLE)
        low, high = np.quantile(rates, INTERVAL)
        lines.append(
            common
            | {
                "group": row.label,
                "yardstick": float(withheld[np.isin(part.a, row.groups)].mean()),
                "found": float(rates.mean()),
                "q05": float(low),
                "q95": float(high),
                "p_value": None if check is None else check.p_value,
                "says": "" if check is None else check.in_words(),
                "by_form_alone": calibrated.by_form_alone,
                "seconds": time.perf_counter() - start,
            }
        )
    return lines


def recorded_lines(found: pd.DataFrame) -> list[list[str]]:
    """For each variant and group: the yardstick, what was found over seeds, intervals, and the check."""
    lines = [
        ["variant", "group", "yardstick", "found", "90 % interval", "|difference|", "held", "check rejects"]
    ]
    for (variant, group), of in found.groupby(["variant", "group"], sort=False):
        held = ((of.q05 <= of.yardstick) & (of.yardstick <= of.q95)).sum()
        rejects = (of.p_value < 0.01).sum()
        lines.append(
            [
                str(variant),
                str(group),
                f"{of.yardstick.iloc[0]:.3f}",
                f"{of.found.mean():.3f}",
                f"[{of.q05.mean():.3f}, {of.q95.mean():.3f}]",
                f"{(of.found - of.yardstick).abs().mean():.3f}",
                f"{held}/{len(of)}",
                f"{rejects}/{len(of)}",
            ]
        )
    return lines


def check_lines(found: pd.DataFrame) -> list[str]:
    """What is to be said of each variant: the check of the first seed, and whether rates are identified."""
    first = found[found.seed == 0].groupby("variant", sort=False).first()
    return [
        f"{variant}: {row.says}{' NOT IDENTIFIED by the data: ' + BY_FORM_ALONE if row.by_form_alone else ''}"
        for variant, row in first.iterrows()
    ]
