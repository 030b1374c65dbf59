"""Figures that compare methods, with a panel for each data set, group, level and metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data import LEVELS
from pyro_fairvae.report.comparison import INFORMED_MEANS, metric_title, named, percent
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.studies.comparison import OURS, by_panel, frontier
from pyro_fairvae.studies.resplits import ALIKE, BETTER, WORSE

MARKERS = "osD^vP<X>ph"  # eleven, coprime to the number of colours
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1, 1, 1)))
CROWD = 10  # with more methods panels are larger, bars fainter, and dominated means have no bars


class Look(NamedTuple):
    """How a method is drawn, the same in every figure."""

    label: str
    colour: str
    marker: str
    dashes: Any
    informed: bool
    ours: bool

    @property
    def of_points(self) -> dict[str, Any]:
        return {
            "marker": self.marker,
            "color": self.colour,
            "markerfacecolor": "white" if self.informed else self.colour,
            "markersize": 6.5 if self.ours else 5,
        }


def looks(frame: pd.DataFrame, ours: str = OURS) -> dict[str, Look]:
    """A look for each method: ours black, informed methods hollow."""
    by_method: dict[str, Look] = {}
    methods = frame.drop_duplicates("method")
    for method, label, informed in zip(methods["method"], methods["label"], methods["informed"], strict=True):
        i = len(by_method.keys() - {ours})
        look = Look(
            named(label, informed), COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)],
            DASHES[i // len(COLOURS) % len(DASHES)], bool(informed), method == ours,
        )  # fmt: skip
        by_method[method] = look._replace(colour="black", marker="*", dashes="-") if look.ours else look
    return by_method


def draw_panels(
    path: Path, results: pd.DataFrame, methods: Sequence[str] | None = None, title: str = ""
) -> None:
    """Frontiers of test error against disparity for a data set and group: metrics in rows, levels in columns.

    Points are means over seeds with 95 % intervals; the line connects those that no other mean of the
    method dominates. Axes leave out points far from most others, and a note gives their number.
    """
    require(not results.empty, "there are no results to draw.")
    one = results[["dataset", "group"]].drop_duplicates()
    require(
        len(one) == 1, f"a figure shows one data set and group, got {len(one)}; draw one figure for each."
    )
    known = looks(results)
    shown = list(known) if methods is None else [choose("method", name, known) for name in methods]
    means = {
        (panel["metric"], panel["level"], name): frontier(of_panel[of_panel["method"] == name])
        for panel, of_panel in by_panel(results)
        for name in shown
        if (of_panel["method"] == name).any()
    }
    metrics = list(dict.fromkeys(results["metric"]))
    levels = sorted(set(results["level"]), key=_order_of_level)
    crowded = len(shown) > CROWD
    columns = min(max(3, len(levels) + 1), 5)
    width, height = (5.0, 4.6) if crowded else (3.9, 3.3)
    figure = blank_figure(
        max(6.5, 0.6 + width * len(levels)), 0.5 + height * len(metrics) + 0.2 * (len(shown) // columns + 2)
    )
    grid = figure.subplots(len(metrics), len(levels), squeeze=False, sharex="row", sharey=True)
    for axes_of_metric, metric in zip(grid, metrics, strict=True):
        for axes, level in zip(axes_of_metric, levels, strict=True):
            here = {name: means[metric, level, name] for name in shown if (metric, level, name) in means}
            for name, points in here.items():
                _draw_frontier(axes, points, known[name], crowded)
            _draw_floor(axes, results[(results["metric"] == metric) & (results["level"] == level)], metric)
            axes.set_title(f"{metric_title(metric)}, {level}", fontsize=9)
            bare_axes(axes)
            axes.grid(color="0.92", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(labelsize=8)
        axes_of_metric[0].set_xlim(
            _range([points["disparity"] for key, points in means.items() if key[0] == metric], from_zero=True)
        )
        axes_of_metric[len(levels) // 2].set_xlabel(f"{metric_title(metric)} on test (%)")
        axes_of_metric[0].set_ylabel("error on test (%)")
    grid[0, 0].set_ylim(_range([points["error"] for points in means.values()]))
    for axes_of_metric, metric in zip(grid, metrics, strict=True):
        for axes, level in zip(axes_of_metric, levels, strict=True):
            _note_outside(axes, [points for key, points in means.items() if key[:2] == (metric, level)])
    if title:
        figure.suptitle(title, fontsize=11)
    _legend_below(figure, [known[name] for name in shown], columns, floor="deo" in metrics)
    write_figure(figure, path)


def panels_in_words(results: pd.DataFrame, methods: Sequence[str] | None = None) -> str:
    """Alternative text of :func:`draw_panels`: the first and the last point of each frontier.

    For many methods only their names; the tables have the numbers.
    """
    known = looks(results)
    shown = list(known) if methods is None else list(methods)
    first = results.iloc[0]
    sentences = [f"Test error against disparity, {first['dataset']}, {first['group']}; means over seeds."]
    if len(shown) > CROWD:
        return (
            f"{sentences[0]} Frontiers of {len(shown)} methods: {', '.join(known[m].label for m in shown)}."
        )
    for panel, of_panel in by_panel(results):
        ends = []
        for name in shown:
            of_method = of_panel[of_panel["method"] == name]
            means = frontier(of_method).query("optimal").sort_values("error") if len(of_method) else of_method
            points = [
                f"({percent(x, 1)}, {percent(y, 1)})" for x, y in means[["disparity", "error"]].to_numpy()
            ]
            if points:
                ends.append(f"{known[name].label} " + " to ".join(dict.fromkeys((points[0], points[-1]))))
        title = f"{metric_title(panel['metric'])} {panel['level']}"
        sentences.append(f"{title} (disparity %, error %): {'; '.join(ends)}.")
    return " ".join(sentences)


def _order_of_level(level: str) -> tuple[int, str]:
    known = list(LEVELS)
    return (known.index(level) if level in known else len(known), level)


def _draw_frontier(axes: Axes, means: pd.DataFrame, look: Look, crowded: bool) -> None:
    """One method: its optimal means joined, the others faint."""
    top = 5 if look.ours else 3
    for optimal, points in means.groupby("optimal"):
        points = points.sort_values("disparity")
        x, y = 100 * points["disparity"], 100 * points["error"]
        if optimal or not crowded:
            axes.errorbar(
                x, y, 100 * points["error_half_width"], 100 * points["disparity_half_width"], fmt="none",
                ecolor=look.colour, elinewidth=0.6, alpha=0.15 if crowded or not optimal else 0.35, zorder=1,
            )  # fmt: skip
        if optimal:
            width = 2.0 if look.ours else 1.1
            axes.plot(x, y, linestyle=look.dashes, linewidth=width, zorder=top, **look.of_points)
        else:
            faint = look.of_points | {"markersize": 3.5}
            axes.plot(x, y, linestyle="", alpha=0.3, markeredgewidth=0.6, zorder=2, **faint)


def _draw_floor(axes: Axes, results: pd.DataFrame, metric: str) -> None:
    """Mark the DEO of chance alone; for other metrics the floor is not known."""
    if metric == "deo" and bool(results["floor"].notna().any()):
        axes.axvline(
            100 * float(results["floor"].median()), color="0.45", linestyle=":", linewidth=1, zorder=0
        )


def _range(series: Sequence[pd.Series], from_zero: bool = False) -> tuple[float, float]:
    """Ends of an axis in per cent: all values but those beyond Tukey's fences, with a margin."""
    values = 100 * np.concatenate([part.to_numpy(dtype=float) for part in series])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    first, third = np.quantile(values, [0.25, 0.75])
    fence = 1.5 * (third - first)
    inside = values[(values >= first - fence) & (values <= third + fence)]
    low, high = float(inside.min()), float(inside.max())
    margin = 0.06 * max(high - low, 0.1)
    return (-0.03 * high if from_zero else low - margin), high + margin


def _note_outside(axes: Axes, means: Sequence[pd.DataFrame]) -> None:
    points = 100 * np.concatenate([part[["disparity", "error"]].to_numpy(dtype=float) for part in means])
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    x, y = points.T
    outside = int((~((x >= left) & (x <= right) & (y >= bottom) & (y <= top))).sum())
    if outside:
        words = f"{outside} point{'s' if outside > 1 else ''} outside"
        axes.text(0.99, 0.99, words, transform=axes.transAxes, ha="right", va="top", fontsize=7, color="0.35")


def _legend_below(figure: Figure, shown: Sequence[Look], columns: int, floor: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            linestyle=look.dashes,
            linewidth=2.0 if look.ours else 1.1,
            label=look.label,
            **look.of_points,
        )
        for look in shown
    ]
    if floor:
        handles.append(Line2D([], [], color="0.45", linestyle=":", linewidth=1, label="DEO of chance alone"))
    words = f"{INFORMED_MEANS} (hollow)" if any(look.informed for look in shown) else None
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8,
        handlelength=3.6, columnspacing=1.4, title=words, title_fontsize=8,
    )  # fmt: skip


def draw_hypervolumes(path: Path, table: pd.DataFrame) -> None:
    """Means and 95 % intervals of ``hypervolume_table`` by panel, a line for each method, the best on top."""
    require(not table.empty, "there are no hypervolumes to draw.")
    panels = {tuple(panel.values()): of_panel.sort_values("mean") for panel, of_panel in by_panel(table)}
    rows = list(
        dict.fromkeys((dataset, group, metric, trunk) for dataset, group, _, metric, trunk in panels)
    )
    levels = sorted(set(table["level"]), key=_order_of_level)
    lines = max(len(of_panel) for of_panel in panels.values())
    figure = blank_figure(max(6.5, 4.2 * len(levels)), 0.6 + len(rows) * (0.8 + 0.19 * lines))
    grid = figure.subplots(len(rows), len(levels), squeeze=False)
    several = len({row[:2] for row in rows}) > 1
    trunks = len({row[-1] for row in rows}) > 1
    for axes_of_row, (dataset, group, metric, trunk) in zip(grid, rows, strict=True):
        for axes, level in zip(axes_of_row, levels, strict=True):
            of_panel = panels.get((dataset, group, level, metric, trunk))
            if of_panel is None:
                axes.set_visible(False)
                continue
            _draw_intervals(axes, of_panel)
            axes.set_title(
                f"{dataset}, {group}, " * several + f"{metric_title(metric)}, {level}" + f", trunk {trunk}" * trunks,
                fontsize=9,
                loc="left",
            )
    grid[-1, len(levels) // 2].set_xlabel(
        "hypervolume (% of the box), mean over seeds and 95 % interval", fontsize=9
    )
    verdicts = [
        Line2D([], [], linestyle="", marker=marker, color=colour, label=words)
        for words, (colour, marker) in _VERDICTS.items()
    ]
    title = f"{INFORMED_MEANS} (hollow)" if table["informed"].any() else None
    figure.legend(
        handles=verdicts, loc="outside lower center", ncols=4, frameon=False, fontsize=8, title=title,
        title_fontsize=8,
    )  # fmt: skip
    write_figure(figure, path)


# A method compared with ours: colour and marker.
_VERDICTS = {
    "ours": ("black", "*"),
    "worse than ours": (COLOURS[1], "v"),
    ALIKE: ("0.45", "o"),
    "better than ours": (COLOURS[0], "^"),
}
_BESIDE_OURS = {"ours": "ours", BETTER: "worse than ours", WORSE: "better than ours"}


def _draw_intervals(axes: Axes, methods: pd.DataFrame) -> None:
    """One panel; lines are drawn from the bottom up."""
    for y, (mean, half, informed, verdict) in enumerate(
        zip(
            100 * methods["mean"],
            100 * methods["half_width"],
            methods["informed"],
            methods["verdict"],
            strict=True,
        )
    ):
        colour, marker = _VERDICTS[_BESIDE_OURS.get(verdict, ALIKE)]
        axes.errorbar(
            mean, y, xerr=half, fmt=marker, color=colour, elinewidth=1, capsize=2,
            markersize=8 if verdict == "ours" else 5, markerfacecolor="white" if informed else colour,
        )  # fmt: skip
        if verdict == "ours":
            axes.axvline(mean, color="0.8", linewidth=0.8, zorder=0)
    labels = [named(*method) for method in zip(methods["label"], methods["informed"], strict=True)]
    axes.set_yticks(range(len(methods)), labels, fontsize=7)
    axes.set_ylim(-0.7, len(methods) - 0.3)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="0.93", linewidth=0.6)
    axes.set_axisbelow(True)
    bare_axes(axes)
