"""Figures of what makes people withhold, and of the check of the assumption on withholding."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from pyro_fairvae.posterior.summaries import EffectSummary
from pyro_fairvae.posterior.withholding_check import SCORES, CheckSummary, ColumnCheck, WithholdingCheck
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.text import effect_name, ordered_effects

PANELS = 3  # columns that the figure of a check shows
MOST_SHOWN = 40  # effects in a figure
MOST_CATEGORIES = 16  # of a column; those furthest from what is predicted
WITHIN = 1.645  # standard errors of a 90 % interval


def draw_effects(path: Path, effects: Sequence[EffectSummary]) -> None:
    """Changes in the log-odds of withholding with 90 % intervals, the largest at the top."""
    shown = ordered_effects(effects)[:MOST_SHOWN]
    figure = blank_figure(7.0, 1.1 + 0.26 * len(shown))
    axes = figure.add_subplot()
    bare_axes(axes)
    axes.axvline(0, color="grey", linewidth=0.8)
    mean = [effect["mean"] for effect in shown]
    below = [effect["mean"] - effect["q05"] for effect in shown]
    above = [effect["q95"] - effect["mean"] for effect in shown]
    ends = [[max(value, 0.0) for value in side] for side in (below, above)]
    axes.errorbar(mean, range(len(shown)), xerr=ends, fmt="o", markersize=4, capsize=2, color=COLOURS[0])
    names = [_short(effect_name(effect, effects)) for effect in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel("change in the log-odds of withholding (90 % interval)", fontsize=9)
    left = f", the {len(shown)} largest of {len(effects)}" if len(shown) < len(effects) else ""
    axes.set_title(f"What makes people withhold{left}", fontsize=10, loc="left")
    write_figure(figure, path)


def draw_check(path: Path, check: CheckSummary) -> None:
    """Who withholds as recorded and as predicted, by category of what speaks most against the model."""
    columns = shown_columns(check)
    counts = [min(len(column.categories), MOST_CATEGORIES) for column in columns]
    figure = blank_figure(max(5.2, 3.9 * len(columns)), 1.7 + 0.26 * max(counts))
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    for panel, column in zip(panels, columns, strict=True):
        _draw_column(panel, column)
        panel.set_xlabel("share who withhold", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    as_predicted = "As many people withhold as the rates predict"
    otherwise = "Not as many people withhold as the rates predict"
    figure.suptitle(otherwise if check["rejected"] else as_predicted, fontsize=10)
    write_figure(figure, path)


def shown_columns(check: CheckSummary) -> list[ColumnCheck]:
    """The columns that speak most against the model; the bins of scores if none does."""
    checked = WithholdingCheck.of(check)
    scores = [column for column in checked.columns if column.name == SCORES]
    return checked.against()[:PANELS] or scores or list(checked.columns[:1])


def _draw_column(panel: Axes, column: ColumnCheck) -> None:
    """Recorded shares as points, predicted ones with a 90 % interval of the difference around them."""
    furthest = sorted(column.categories, key=lambda category: category.distance, reverse=True)
    kept = furthest[:MOST_CATEGORIES]
    categories = [category for category in column.categories if category in kept]
    places = range(len(categories))
    panel.errorbar(
        [category.expected for category in categories], places,
        xerr=[WITHIN * category.standard_error for category in categories],
        fmt="|", markersize=8, capsize=3, color="0.45", label="predicted, 90 % interval",
    )  # fmt: skip
    panel.plot(
        [category.observed for category in categories], places, "o", markersize=5, color=COLOURS[1],
        label="recorded",
    )  # fmt: skip
    panel.set_yticks(
        places, [_short(category.name, 24) for category in categories], fontsize=8, parse_math=False
    )
    panel.set_ylim(len(categories) - 0.5, -0.5)
    panel.tick_params(axis="x", labelsize=8)
    name = "probability of the group" if column.name == SCORES else column.words
    p_value = f"p = {column.p_value:.2g}" if column.p_value >= 1e-6 else "p < 1e-6"
    title = "\n".join([*textwrap.wrap(f"by {_short(name, 60)}", 40), p_value])
    panel.set_title(title, fontsize=9, loc="left", parse_math=False)
    bare_axes(panel)


def _short(name: str, most: int = 44) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
