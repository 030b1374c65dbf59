"""How well the curve along which a number is withheld is recovered, over seeds and levels of missingness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.data import DATASETS, Splits
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.studies.config import DataConfig


def with_people(lines: list[dict[str, Any]], splits: Splits, data: DataConfig) -> list[dict[str, Any]]:
    """Lines of rates with the centre of each level, and its share of people in the test part."""
    levels = splits.test.attributes.levels
    if data.number is None or levels is None:
        return lines
    people = np.bincount(splits.test.a, minlength=len(levels.centres)) / splits.test.rows
    of = {name: (k, levels.centres[k], float(people[k])) for k, name in enumerate(levels.names)}
    for line in lines:
        if line["channel"] == "a" and line["given"] in of:
            line["place"], line["centre"], line["people"] = of[line["given"]]
    return lines


def are_numbers(dataset: str, found: pd.DataFrame) -> pd.Series:
    """Which lines are about a group that is a number."""
    return found["group"].isin(list(DATASETS[dataset].numbers))


def curves(found: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """The recovered curves of each number and level of missingness, a line for each seed and range."""
    rows = found[(found.channel == "a") & (found.says == UNAVAILABLE)]
    for (group, level), of in rows.groupby(["group", "level"], sort=False):
        yield str(group), str(level), of.sort_values(["seed", "place"])


def level_lines(found: pd.DataFrame) -> list[list[str]]:
    """Truth, what was found over seeds, its error, and how many bands held the truth, range by range."""
    titles = "group,level,range,people %,truth,found,± s.d.,|error|,width,held truth,guide"
    lines = [titles.split(",")]
    for group, level, of in curves(found):
        for given, seeds in of.groupby("given", sort=False):
            held = ((seeds.q05 <= seeds.truth) & (seeds.truth <= seeds.q95)).sum()
            spread = f"{seeds['mean'].std():.3f}" if len(seeds) > 1 else "–"
            lines.append(
                [
                    group, level, str(given), f"{100 * seeds.people.mean():.1f}", f"{seeds.truth.mean():.3f}",
                    f"{seeds['mean'].mean():.3f}", spread,
                    f"{(seeds['mean'] - seeds.truth).abs().mean():.4f}",
                    f"{(seeds.q95 - seeds.q05).mean():.3f}", f"{held}/{len(seeds)}",
                    f"{seeds.guide.mean():.3f}",
                ]
            )  # fmt: skip
    return lines


def error_lines(found: pd.DataFrame) -> list[list[str]]:
    """Mean absolute error of curves, weighed by people and over ranges, of each level, and coverage."""
    lines = [
        ["group", "level", "MAE by people", "worst seed", "MAE by range", "worst seed", "guide's, by people",
         "90 % bands that held the truth"]
    ]  # fmt: skip
    for group, level, of in curves(found):
        error, guide = (of["mean"] - of.truth).abs(), (of.guide - of.truth).abs()
        weighed = (error * of.people).groupby(of.seed).sum() / of.people.groupby(of.seed).sum()
        by_guide = (guide * of.people).groupby(of.seed).sum() / of.people.groupby(of.seed).sum()
        plain = error.groupby(of.seed).mean()
        held = (of.q05 <= of.truth) & (of.truth <= of.q95)
        lines.append(
            [
                group, level, f"{weighed.mean():.4f}", f"{weighed.max():.4f}", f"{plain.mean():.4f}",
                f"{plain.max():.4f}", f"{by_guide.mean():.4f}",
                f"{held.sum()} of {len(of)} ({100 * held.mean():.0f} %)",
            ]
        )  # fmt: skip
    return lines
