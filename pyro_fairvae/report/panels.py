"""Figures that compare methods, narrow enough for a telephone, and readable without colour.

A panel is a data set, group, level, metric and trunk. A method looks the same in every figure: colour, marker
and dashes are by its place in the registry; the one that the others are compared with is black.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.baselines import METHODS
from pyro_fairvae.data import LEVELS
from pyro_fairvae.report.comparison import (
    INFORMED_MEANS,
    level_title,
    metric_title,
    named,
    percent,
)
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.studies.comparison import OURS, PANEL, attained, by_panel, frontier
from pyro_fairvae.studies.resplits import ALIKE, BETTER, WORSE

WIDTH = 4.0625  # inches: 390 pixels of CSS
TEXT, SMALL = 9, 8  # points
MARKERS = "osD^vP<X>ph"  # eleven, coprime to the number of colours
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (4, 1, 1, 1)))
LIMIT = 0.2  # disparity up to which frontiers are compared
STEPS = 161  # of disparity along a frontier
LABELS = 0.385  # share of the width that is for names
WRAPPED = 26  # characters of a name in a line
NAMED_AT_MOST = 10  # methods whose ends are told in words


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
            "markersize": 8 if self.ours else 5,
        }

    @property
    def of_line(self) -> dict[str, Any]:
        return {"linestyle": self.dashes, "linewidth": 2.2 if self.ours else 1.3, **self.of_points}


def looks(frame: pd.DataFrame, ours: str = OURS) -> dict[str, Look]:
    """A look for each method: ours black, informed methods hollow."""
    main_first = sorted(METHODS, key=lambda name: not METHODS[name].main)
    methods = frame.drop_duplicates("method")
    order = [*main_first, *(name for name in methods["method"] if name not in METHODS)]
    by_method: dict[str, Look] = {}
    for method, label, informed in zip(methods["method"], methods["label"], methods["informed"], strict=True):
        i = order.index(method)
        look = Look(
            named(label, informed), COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)],
            DASHES[i // len(COLOURS) % len(DASHES)], bool(informed), method == ours,
        )  # fmt: skip
        by_method[method] = look._replace(colour="black", marker="*", dashes="-") if look.ours else look
    return by_method


def draw_frontiers(
    path: Path, results: pd.DataFrame, methods: Sequence[str] | None = None, ours: str = OURS
) -> None:
    """The least test error at most at each disparity, for the methods of one panel.

    Lines are means over seeds, bands their intervals; the area above a line, up to the constant classifier's
    error, is the hypervolume. Names stand at the ends of lines. A dotted line marks the DEO of chance alone.
    """
    panel = _one_panel(results)
    known = looks(results, ours)
    shown = list(known) if methods is None else [choose("method", name, known) for name in methods]
    curves = _curves(results, shown)
    figure = blank_figure(WIDTH, 4.3)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.145, 0.115, 1 - LABELS - 0.145, 0.8))
    right, (low, high) = _ranges(curves, results)
    axes.set_xlim(0, 100 * right)
    axes.set_ylim(100 * low, 100 * high)
    for place, (name, curve) in enumerate(curves.items()):
        _draw_curve(axes, curve, known[name], place, right)
    _draw_floor(axes, results, str(panel["metric"]))
    _name_ends(axes, {known[name]: curve for name, curve in curves.items()}, right)
    _plain(axes)
    axes.set_xlabel(f"{metric_title(panel['metric'])} on test, at most (%)", fontsize=TEXT)
    axes.set_ylabel("least error on test (%)", fontsize=TEXT)
    figure.text(0.02, 0.965, _title(panel), fontsize=TEXT + 1, fontweight="bold", va="top")
    if any(known[name].informed for name in shown):
        figure.text(0.99, 0.01, "† told what is hidden", fontsize=SMALL, color="0.35", ha="right")
    write_figure(figure, path)


def draw_every(path: Path, results: pd.DataFrame, ours: str = OURS) -> None:
    """A small panel for each method: its frontier in black, with its band, before those of main methods."""
    panel = _one_panel(results)
    known = looks(results, ours)
    curves = _curves(results, list(known))
    rows = -(-len(curves) // 2)
    figure = blank_figure(WIDTH, 0.55 + 1.45 * rows)
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True).flatten()
    right, (low, high) = _ranges(curves, results)
    grey = main_methods(results, ours)["method"].unique()
    thin = [_thinned(curve) for name, curve in curves.items() if name in grey]
    grid[0].set_xlim(0, 100 * right)
    grid[0].set_ylim(100 * low, 100 * high)
    for axes in grid[len(curves) :]:
        axes.set_visible(False)
    for axes, (name, curve) in zip(grid, curves.items(), strict=False):
        for other in thin:
            axes.plot(100 * other["disparity"], 100 * other["error"], color="0.85", linewidth=0.7, zorder=1)
        own = _thinned(curve)
        _draw_band(axes, own, "black", 0.15)
        axes.plot(100 * own["disparity"], 100 * own["error"], color="black", linewidth=1.6)
        _draw_floor(axes, results, str(panel["metric"]), named=False)
        axes.set_title("\n".join(textwrap.wrap(known[name].label, WRAPPED)), fontsize=SMALL, loc="left")
        _plain(axes)
    figure.supxlabel(f"{metric_title(panel['metric'])} on test, at most (%)", fontsize=TEXT)
    figure.supylabel("least error on test (%)", fontsize=TEXT)
    figure.suptitle(_title(panel), fontsize=TEXT + 1, fontweight="bold")
    write_figure(figure, path)


def frontiers_in_words(results: pd.DataFrame, methods: Sequence[str] | None = None, ours: str = OURS) -> str:
    """Alternative text of the figures of a panel: the first and the last point of each frontier.

    For many methods only their names; the tables have the numbers.
    """
    known = looks(results, ours)
    shown = list(known) if methods is None else list(methods)
    opening = f"Least test error at each disparity, {_title(_one_panel(results))}; means over seeds."
    if len(shown) > NAMED_AT_MOST:
        return f"{opening} Frontiers of {len(shown)} methods: {', '.join(known[m].label for m in shown)}."
    ends = []
    for name in shown:
        own = results[results["method"] == name]
        means = frontier(own).query("optimal").sort_values("error") if len(own) else own
        points = [f"({percent(x, 1)}, {percent(y, 1)})" for x, y in means[["disparity", "error"]].to_numpy()]
        if points:
            ends.append(f"{known[name].label} " + " to ".join(dict.fromkeys((points[0], points[-1]))))
    return f"{opening} (Disparity %, error %): {'; '.join(ends)}."


def _one_panel(results: pd.DataFrame) -> dict[str, Any]:
    require(not results.empty, "there are no results to draw.")
    panels = [panel for panel, _ in by_panel(results)]
    require(
        len(panels) == 1,
        f"a figure shows one panel ({', '.join(PANEL)}), got {len(panels)}; draw one figure for each.",
    )
    return panels[0]


def _title(panel: dict[str, Any]) -> str:
    return f"{panel['dataset']}, {panel['group']}: {metric_title(panel['metric'])}, {level_title(panel)}"


def main_methods(results: pd.DataFrame, ours: str) -> pd.DataFrame:
    """The lines of main methods, and of ours; all of them where there is none of these."""
    if "main" not in results:
        return results
    main = results["main"].astype(bool) | (results["method"] == ours)
    return results[main] if main.any() else results


def _curves(results: pd.DataFrame, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    grid = np.linspace(0, LIMIT, STEPS)
    by_method = {name: results[results["method"] == name] for name in methods}
    return {name: attained(own, grid) for name, own in by_method.items() if len(own)}


def _thinned(curve: pd.DataFrame) -> pd.DataFrame:
    """The ends of the stretches along which nothing changes; lines and bands through them are the same."""
    values = curve[["error", "half_width"]].to_numpy().round(5)
    moves = np.concatenate([[True], (np.diff(np.nan_to_num(values), axis=0) != 0).any(1), [True]])
    return curve[moves[:-1] | moves[1:]]


def _draw_band(axes: Axes, curve: pd.DataFrame, colour: str, alpha: float) -> None:
    """The interval of each error, but where the line falls so steeply that it would fill the panel."""
    x, y, half = (100 * curve[column] for column in ("disparity", "error", "half_width"))
    low, high = axes.get_ylim()
    narrow = half < 0.3 * (high - low)
    axes.fill_between(x, y - half, y + half, where=narrow, color=colour, alpha=alpha, linewidth=0, zorder=1)


def _ranges(curves: dict[str, pd.DataFrame], results: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    """The largest disparity that is shown, from which on lines are flat, and the range of errors.

    Lines may leave the panel at its top, on their way to the constant classifier.
    """
    errors = np.array([curve["error"] for curve in curves.values()])
    grid = next(iter(curves.values()))["disparity"].to_numpy()
    flat = (errors - errors[:, -1:] < 5e-4).argmax(1)
    right = float(grid[min(len(grid) - 1, int(np.quantile(flat, 0.9)) + STEPS // 20)])
    low = float(errors.min())
    constant = float(results["constant_error"].mean())
    high = min(constant, low + 2.2 * float(np.median(errors[:, -1]) - low) + 0.01)
    margin = 0.05 * max(high - low, 0.01)
    return right, (low - margin, max(high, low + 0.01) + margin)


def _draw_curve(axes: Axes, curve: pd.DataFrame, look: Look, place: int, right: float) -> None:
    top = 6 if look.ours else 3
    x, y = (100 * curve[column] for column in ("disparity", "error"))
    _draw_band(axes, _thinned(curve), look.colour, 0.2 if look.ours else 0.07)
    inside = int((curve["disparity"] <= right).sum())
    every = max(1, inside // 4)
    axes.plot(x, y, zorder=top, markevery=(place * every // 8 % every, every), **look.of_line)


def _name_ends(axes: Axes, curves: dict[Look, pd.DataFrame], right: float) -> None:
    """Names beside the ends of lines, each with a piece of its line, moved apart where they would meet."""
    low, high = axes.get_ylim()
    ends = []
    for look, curve in curves.items():
        end = float(np.interp(right, curve["disparity"], 100 * curve["error"]))
        ends.append((min(max((end - low) / (high - low), 0.0), 1.0), look))
    ends.sort(key=lambda pair: pair[0])
    lines = ["\n".join(textwrap.wrap(look.label, 19)) for _, look in ends]
    heights = np.array([0.017 + 0.031 * (1 + text.count("\n")) for text in lines])
    heights *= min(1.0, 1.02 / heights.sum())
    middle = _apart(np.array([end for end, _ in ends]), heights)
    for (end, look), y, text in zip(ends, middle, lines, strict=True):
        line: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        axes.plot([1.0, 1.05], [end, y], color=look.colour, linewidth=0.7, **line)
        axes.plot([1.05, 1.1, 1.15], [y] * 3, markevery=[1], **(look.of_line | line))
        weight = "bold" if look.ours else "normal"
        axes.text(
            1.17, y, text, transform=axes.transAxes, fontsize=SMALL, va="center", color="black",
            fontweight=weight, linespacing=0.95,
        )  # fmt: skip


def _apart(wanted: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Places in order, as near to those wanted as boxes of these heights that do not overlap can be."""
    before = np.cumsum(heights) - heights / 2
    # Without gaps the places are wanted − before; pooled where they would decrease.
    pooled: list[list[float]] = []
    for value in wanted - before:
        pooled.append([float(value), 1.0])
        while len(pooled) > 1 and pooled[-2][0] > pooled[-1][0]:
            (upper, many), (under, more) = pooled.pop(), pooled.pop()
            pooled.append([(upper * many + under * more) / (many + more), many + more])
    free = np.concatenate([np.full(int(count), value) for value, count in pooled])
    room = max(0.0, 1.02 - float(heights.sum()))
    return np.asarray(free.clip(-0.01, room - 0.01) + before)


def _draw_floor(axes: Axes, results: pd.DataFrame, metric: str, named: bool = True) -> None:
    """Mark the DEO of chance alone; for other metrics the floor is not known."""
    if metric != "deo" or not bool(results["floor"].notna().any()):
        return
    floor = 100 * float(results["floor"].median())
    axes.axvline(floor, color="0.35", linestyle=":", linewidth=1.2, zorder=0)
    if named and floor < 0.95 * axes.get_xlim()[1]:
        axes.text(
            floor,
            0.01,
            " chance",
            transform=axes.get_xaxis_transform(),
            fontsize=SMALL,
            color="0.3",
            va="bottom",
        )


def _plain(axes: Axes) -> None:
    bare_axes(axes)
    axes.grid(color="0.93", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL)


def _order_of_level(level: str) -> tuple[int, str]:
    known = list(LEVELS)
    return (known.index(level) if level in known else len(known), level)


def draw_hypervolumes(path: Path, table: pd.DataFrame) -> None:
    """Means and 95 % intervals of ``hypervolume_table``, a panel below the other, the best method on top."""
    require(not table.empty, "there are no hypervolumes to draw.")
    panels = sorted(by_panel(table), key=lambda pair: _order_of_level(str(pair[0]["level"])))
    heights = [0.5 + 0.175 * len(of_panel) for _, of_panel in panels]
    figure = blank_figure(WIDTH, 0.9 + sum(heights))
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    for axes, (panel, of_panel) in zip(grid, panels, strict=True):
        _draw_intervals(axes, of_panel.sort_values("mean"))
        axes.set_title(_title(panel), fontsize=TEXT, fontweight="bold", loc="right")
    grid[-1].set_xlabel("hypervolume (% of the box)", fontsize=TEXT)
    verdicts = [
        Line2D([], [], linestyle="", marker=marker, color=colour, label=words)
        for words, (colour, marker) in _VERDICTS.items()
    ]
    title = f"{INFORMED_MEANS.replace('that are ', '')} (hollow)" if table["informed"].any() else None
    figure.legend(
        handles=verdicts, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL, title=title,
        title_fontsize=SMALL,
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
    axes.set_yticks(range(len(methods)), [textwrap.shorten(of, 30, placeholder="…") for of in labels],
                    fontsize=SMALL)  # fmt: skip
    axes.set_ylim(-0.7, len(methods) - 0.3)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="0.93", linewidth=0.6)
    axes.set_axisbelow(True)
    bare_axes(axes)


def draw_ladder(path: Path, table: pd.DataFrame) -> None:
    """Hypervolumes of ``ladder_table``, a panel for each group, from the first rung on top to the last.

    A hollow circle marks a rung that a test tells from the one before, a filled one any other.
    """
    require(not table.empty, "there are no rungs to draw.")
    groups = list(table.groupby(["dataset", "group"], sort=False))
    rungs = max(len(own) for _, own in groups)
    figure = blank_figure(WIDTH, 0.6 + len(groups) * (0.6 + 0.22 * rungs))
    grid = figure.subplots(len(groups), 1, squeeze=False, sharex=True)[:, 0]
    for axes, ((dataset, group), own) in zip(grid, groups, strict=True):
        found = own["p"] < 0.05
        for y, (mean, half, told) in enumerate(
            zip(100 * own["mean"], 100 * own["half_width"], found, strict=True)
        ):
            axes.errorbar(
                mean, y, xerr=half, fmt="o", color=COLOURS[0], elinewidth=1, capsize=2, markersize=6,
                markerfacecolor="white" if told else COLOURS[0],
            )  # fmt: skip
        steps = own[~own["method"].str.startswith("kappa_")]
        axes.plot(100 * steps["mean"], range(len(steps)), color="0.7", linewidth=1, zorder=0)
        labels = ["\n".join(textwrap.wrap(label, 28)) for label in own["label"]]
        axes.set_yticks(range(len(own)), labels, fontsize=SMALL)
        axes.set_ylim(len(own) - 0.5, -0.5)
        axes.set_title(f"{dataset}, {group}", fontsize=TEXT, fontweight="bold", loc="right")
        _plain(axes)
        axes.tick_params(axis="y", length=0)
    grid[-1].set_xlabel("hypervolume (% of the box)", fontsize=TEXT)
    if bool((table["p"] < 0.05).any()):
        words = "significantly other than the rung before"
        handle = Line2D(
            [], [], marker="o", linestyle="", color=COLOURS[0], markerfacecolor="white", label=words
        )
        figure.legend(handles=[handle], loc="outside lower center", frameon=False, fontsize=SMALL)
    write_figure(figure, path)
