"""The page of periods that were audited one after another."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from pyro_fairvae.auditing.monitoring import Monitoring
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.page import Block, Grid, Notice, Picture, Section, write_page

MOST_LINES = 8  # groups that are drawn
HOW = (
    "Compared are how often everyone and each group withhold, and how often each group is selected. The "
    "evidence is a factor by which the periods so far speak for a change against none; an alarm is given "
    "where the mean over all rates reaches 1 / alpha, which without a change happens with at most the "
    "probability alpha, however often one looks. Intervals are of each period by itself, under the "
    "assumptions of its audit."
)


def write_monitoring_page(path: Path, found: Monitoring, name: str) -> None:
    """Write the page of some periods as a single HTML file."""
    words = found.in_words()
    grids = [Grid(caption, cells) for caption, cells in found.in_cells().items()]
    with tempfile.TemporaryDirectory() as folder:
        figure = Path(folder) / "rates.svg"
        draw_rates(figure, found)
        lines = found.rates.to_dict("records")
        alt = "; ".join(
            f"{line['period']}: {line['rate']} of {line['group']} {line['estimate']:.3f}" for line in lines
        )
        picture = Picture(figure, alt, "Rates by period, with intervals.")
        opening: list[Block] = [Notice(words) if found.alarm is not None else words, picture]
        notes = [f"Note: {note}" for note in found.notes]
        write_page(
            path,
            f"Periods of {name}",
            Section("What changed", [*opening, grids[0], *notes]),
            Section("Rates and disparities by period", grids[1:]),
            Section("How changes are found", [HOW]),
        )


def draw_rates(path: Path, found: Monitoring) -> None:
    """A panel for each rate: estimates of the groups with intervals, by period."""
    kinds = list(found.rates["rate"].unique())
    periods = list(found.periods["period"])
    figure = blank_figure(7.0, 3.0 * len(kinds))
    for k, kind in enumerate(kinds):
        axes = figure.add_subplot(len(kinds), 1, k + 1)
        bare_axes(axes)
        of_kind = found.rates[found.rates["rate"] == kind]
        for g, (group, lines) in enumerate(list(of_kind.groupby("group", sort=False))[:MOST_LINES]):
            lines = lines[lines["estimate"].notna()]
            places = [periods.index(period) + 0.08 * g for period in lines["period"]]
            bars = np.clip([lines["estimate"] - lines["low"], lines["high"] - lines["estimate"]], 0, None)
            axes.errorbar(
                places, lines["estimate"], yerr=bars, fmt="-o", color=COLOURS[g % len(COLOURS)], capsize=2,
                linewidth=1, markersize=4, label=str(group)[:40],
            )  # fmt: skip
        axes.set_xticks(range(len(periods)), [period[:20] for period in periods], rotation=30, fontsize=8)
        axes.set_title(kind, fontsize=9)
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, fontsize=8)
    write_figure(figure, path)
