"""Who withholds a number: a curve along its levels, with a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pyro_fairvae.posterior.summaries import PosteriorSummary
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.text import align, with_check_and_effects

CURVE_MEANS = (
    "levels of {name}, each with the mean of those who state it; withholding changes smoothly along them, "
    "and misstatement is left out for numbers"
)


def curve_lines(curve: pd.DataFrame, name: str) -> list[list[str]]:
    """The rate of each level with its interval, titles first; the truth where it is known."""
    known = [column for column in ("truth", "yardstick") if column in curve]
    lines = [[name, "mean", "P(∅ | level)", "5 %", "95 %", *known]]
    for _, line in curve.iterrows():
        numbers = [f"{line[column]:.3f}" for column in ("withheld", "low", "high", *known)]
        lines.append([str(line["level"]), f"{line['centre']:.4g}", *numbers])
    return lines


def curve_table(
    curve: pd.DataFrame, name: str, posterior: PosteriorSummary, depends_on: Sequence[str] = ()
) -> str:
    """Who withholds a number, level by level, with the check, and what else makes people withhold."""
    table = f"{align(curve_lines(curve, name))}\n({CURVE_MEANS.format(name=name)})"
    return with_check_and_effects(posterior, depends_on, table)


def curve_in_words(curve: pd.DataFrame, name: str) -> str:
    """Alternative text of :func:`draw_curve`."""
    rates = (f"{line['level']}: {line['withheld']:.3f}" for _, line in curve.iterrows())
    return f"P(∅ | {name}) by level: {'; '.join(rates)}."


def draw_curve(path: Path, curve: pd.DataFrame, name: str) -> None:
    """P(∅|level) as a curve with its 90 % band; the truth dashed where it is known."""
    figure = blank_figure(6.4, 3.8)
    axes = figure.add_subplot()
    add_curve(axes, curve)
    axes.set_xlabel(name)
    axes.set_ylabel(f"P(∅ | {name}), 90 % band")
    axes.legend(frameon=False, fontsize=8, loc="best")
    write_figure(figure, path)


def draw_recovered(path: Path, found: Sequence[tuple[str, str, pd.DataFrame]]) -> None:
    """Recovered curves with their bands, a colour for each seed, a panel for each level of missingness."""
    figure = blank_figure(max(5.4, 4.2 * len(found)), 3.8)
    panels = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for panel, (group, level, of) in zip(panels, found, strict=True):
        bare_axes(panel)
        for seed, curve in of.groupby("seed"):
            colour = COLOURS[int(seed) % len(COLOURS)]
            panel.fill_between(curve.centre, curve.q05, curve.q95, color=colour, alpha=0.12, linewidth=0)
            panel.plot(curve.centre, curve["mean"], color=colour, linewidth=1, label=f"seed {seed}")
        truth = of.groupby("centre").truth.mean()
        panel.plot(truth.index, truth, "k--", linewidth=1.4, label="truth")
        panel.set_title(f"P(∅ | {group}), {level}", fontsize=9)
        panel.set_xlabel(group)
    panels[0].set_ylim(0, 1)
    panels[0].set_ylabel("mean and 90 % band")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=6, loc="outside lower center")
    write_figure(figure, path)


def add_curve(axes: Axes, curve: pd.DataFrame, colour: str = COLOURS[0], label: str = "found") -> None:
    """Draw a curve with its band; points stand at the means of levels, bars below mark their ends."""
    bare_axes(axes)
    at = curve["centre"].to_numpy()
    axes.fill_between(at, curve["low"], curve["high"], color=colour, alpha=0.2, linewidth=0)
    axes.plot(at, curve["withheld"], "o-", color=colour, markersize=3.5, linewidth=1.2, label=label)
    for column in ("truth", "yardstick"):
        if column in curve:
            axes.plot(at, curve[column], "--", color="black", linewidth=1.2, label=column)
    edges = curve["to"].to_numpy()[:-1]
    axes.plot(edges[np.isfinite(edges)], np.zeros(len(edges)), "|", color="0.6", markersize=6)
    axes.set_ylim(0, max(0.05, min(1.0, 1.1 * float(curve["high"].max()))))
