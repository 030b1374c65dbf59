"""Figures of a run."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from scipy import stats

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.base.messages import printable
from pyro_fairvae.evaluation.measures import unit_of
from pyro_fairvae.posterior.channel_draws import ChannelDraws
from pyro_fairvae.report.comparison import metric_title
from pyro_fairvae.report.text import members_in_words
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.cells import Cell

# Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


PART_TITLES = {
    "labels": "labels, −log P(ỹ|x)",
    "groups": "groups, −log P(ã|x)",
    "imputer": "imputers",
    "decisions": "error of decisions",
    "risk": "risk",
    "x": "reconstruction",
    "kl_z": "KL of z",
    "kl_channels": "KL of channels",
}


def draw_frontier(path: Path, results: dict[str, Any]) -> None:
    """Test error against unfairness, a point for each member; that chosen on validation is ringed."""
    metric = results["metric"]
    figure = blank_figure(5.6, 4.2)
    axes = figure.add_subplot()
    bare_axes(axes)
    members = results["members"]
    scale = 100 if unit_of(metric) == "%" else 1
    unfair = [scale * member["test"][metric] for member in members]
    error = [100 * member["test"]["error"] for member in members]
    axes.plot(unfair, error, "-o", color=COLOURS[0], linewidth=1, label="test")
    title, names = members_in_words(pd.DataFrame(members))
    for name, x, y in zip(names, unfair, error, strict=True):
        words = f"λ={name}" if title == "λ" else name
        axes.annotate(words, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    chosen = results["selected"]
    axes.plot(
        unfair[chosen], error[chosen], "o", markersize=14, fillstyle="none", color=COLOURS[1],
        label="chosen on validation",
    )  # fmt: skip
    name = metric.replace("_", " ")
    unit = f" ({unit_of(metric)})" if unit_of(metric) else ""
    axes.set_xlabel(f"{name.upper() if scale == 100 else name} on test{unit}")
    axes.set_ylabel("error on test (%)")
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    write_figure(figure, path)


def draw_training(
    path: Path, history: list[dict[str, float]], member: int, classes: Sequence[str], groups: Sequence[str]
) -> None:
    """By epoch: the parts of a member's objective, every member's risk, and the member's gap in each cell."""
    figure = blank_figure(11.0, 4.2)
    parts, risks, cells = figure.subplots(1, 3)
    of_member = [row for row in history if row["member"] == member]
    epochs = [row["epoch"] for row in of_member]
    weight = of_member[0]["lambda"]
    for name, colour, style in zip(PART_TITLES, cycle(COLOURS), ["-"] * 6 + ["--"] * 6, strict=False):
        parts.plot(
            epochs,
            [row[name] for row in of_member],
            style,
            color=colour,
            linewidth=1.2,
            label=PART_TITLES[name],
        )
    parts.set_yscale("symlog", linthresh=0.01)
    parts.set_title(f"parts of the objective, λ={weight:g}", fontsize=9)
    members = sorted({row["member"] for row in history})
    for k in members:
        rows = [row for row in history if row["member"] == k]
        gap, error = (100 * np.array([row[name] for row in rows]) for name in ("gap", "gap_error"))
        shade = 0.15 + 0.85 * (members.index(k) + 1) / len(members)
        risks.plot(
            epochs, gap, color=COLOURS[0], alpha=shade, linewidth=1.2, label=f"λ={rows[0]['lambda']:g}"
        )
        risks.fill_between(
            epochs, gap - 2 * error, gap + 2 * error, color=COLOURS[0], alpha=0.15, linewidth=0
        )
    risks.set_ylim(bottom=0)
    risks.set_title("risk (%), band: ±2 Monte Carlo s.e.", fontsize=9)
    compared = [cell for cell in map(Cell.of_column, of_member[0]) if cell is not None]
    for cell, colour, style in zip(compared, cycle(COLOURS), cycle(["-", "--", ":", "-."]), strict=False):
        values = [100 * row[cell.column] for row in of_member]
        label = f"{classes[cell.y]}, {groups[cell.a]}"
        cells.plot(epochs, values, style, color=colour, linewidth=1.2, label=label)
    cells.axhline(0, color="grey", linewidth=0.6)
    cells.set_title(f"rate of a cell less that of all groups (%), λ={weight:g}", fontsize=9)
    for axes in (parts, risks, cells):
        axes.set_xlabel("epoch")
        bare_axes(axes)
        if axes.lines and axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    write_figure(figure, path)


def draw_channel(path: Path, draws: ChannelDraws, truth: np.ndarray | None = None) -> None:
    """Densities of posterior and prior for all outcomes but the row's own value; the truth if known."""
    channel = draws.channel
    known = None if truth is None else channel.row_probabilities(truth)
    shown = [
        (r, e)
        for r, row in enumerate(channel.rows)
        for e, outcome in enumerate(row.outcomes)
        if outcome != row.own
    ]
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure = blank_figure(3.0 * columns, 0.4 + 2.6 * lines)
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    for panel, (r, e) in zip(panels, shown, strict=False):
        row = channel.rows[r]
        outcome = row.outcomes[e]
        point = None if known is None or np.isnan(known[r][e]) else float(known[r][e])
        name = "∅" if outcome == UNAVAILABLE else outcome
        _density(panel, draws.of(r, outcome).flatten(), row.prior[e], sum(row.prior) - row.prior[e], point,
                 COLOURS[r % len(COLOURS)])  # fmt: skip
        title = panel.get_title()
        panel.set_title(f"P({name} | {row.label})\n{title}", fontsize=9)
    figure.supxlabel(
        "rate (filled: posterior, line: prior" + (", dashed: truth)" if known else ")"), fontsize=9
    )
    write_figure(figure, path)


def draw_yardstick(path: Path, found: pd.DataFrame) -> None:
    """Rates of withholding by group, for each variant and seed, with intervals, and the yardstick."""
    groups, variants = list(dict.fromkeys(found.group)), list(dict.fromkeys(found.variant))
    figure = blank_figure(1.2 + 1.9 * len(groups), 3.6)
    panel = figure.subplots()
    for v, variant in enumerate(variants):
        of = found[found.variant == variant]
        seeds = len(set(of.seed))
        place = of.group.map(groups.index) + 0.18 * (v - (len(variants) - 1) / 2)
        place = place + 0.03 * (of.seed - (seeds - 1) / 2)
        # The mean of a skewed posterior may lie outside its interval.
        below, above = (of.found - of.q05).clip(lower=0), (of.q95 - of.found).clip(lower=0)
        panel.errorbar(
            place, of.found, [below, above], fmt="o", markersize=3, capsize=2,
            linewidth=1, color=COLOURS[v % len(COLOURS)], label=variant,
        )  # fmt: skip
    for g, group in enumerate(groups):
        rate = found[found.group == group].yardstick.iloc[0]
        label = "yardstick" if g == 0 else None
        panel.plot([g - 0.42, g + 0.42], [rate, rate], "--", color="black", linewidth=1.2, label=label)
    panel.set_xticks(range(len(groups)), groups)
    panel.set_ylabel("P(∅ | group), 90 % intervals")
    panel.set_ylim(bottom=0)
    bare_axes(panel)
    figure.legend(frameon=False, fontsize=8, ncols=3, loc="outside upper center")
    write_figure(figure, path)


def draw_ranks(path: Path, ranks: dict[str, np.ndarray], bins: int = 10) -> None:
    """Histograms of the rank of the truth among draws, with the 95 % band of a uniform distribution."""
    figure = blank_figure(3.0 * len(ranks), 2.8)
    panels = figure.subplots(1, len(ranks), squeeze=False)[0]
    for panel, (label, values), colour in zip(panels, ranks.items(), cycle(COLOURS), strict=False):
        low, high = stats.binom.ppf([0.025, 0.975], len(values), 1 / bins)
        panel.axhspan(low, high, color="grey", alpha=0.25, linewidth=0)
        panel.hist(values, bins=np.linspace(0, 1, bins + 1).tolist(), color=colour, alpha=0.7)
        panel.set_title(label, fontsize=9)
        panel.set_xlabel("rank of the truth", fontsize=9)
        bare_axes(panel)
    panels[0].set_ylabel("data sets (band: 95 % of chance)", fontsize=9)
    write_figure(figure, path)


def draw_prior_study(path: Path, rates: pd.DataFrame) -> None:
    """Rates of withholding against the number of rows, a colour for each prior, a panel for each rate."""
    shown = rates[(rates.channel == "a") & (rates.says == UNAVAILABLE)]
    panels_of = list(shown.groupby(["level", "given"], sort=False))
    priors = list(dict.fromkeys(shown.prior))
    figure = blank_figure(3.4 * len(panels_of), 3.6)
    panels = figure.subplots(1, len(panels_of), squeeze=False)[0]
    for panel, ((level, given), of) in zip(panels, panels_of, strict=True):
        _by_rows(panel, of, priors, "mean", lambda by_rows: (by_rows["q05"].mean(), by_rows["q95"].mean()))
        if np.isfinite(of.truth.iloc[0]):
            panel.axhline(of.truth.iloc[0], color="black", linestyle="--", linewidth=1.2)
        panel.set_title(f"P(∅ | {given}), {level}", fontsize=9)
    panels[0].set_ylabel("posterior mean and 90 % interval,\nmeans over seeds (dashed: truth)")
    _legend(figure, priors)
    write_figure(figure, path)


def draw_study_metrics(path: Path, metrics: pd.DataFrame) -> None:
    """Test error and DEO against the number of rows, a colour for each prior, a panel for each λ."""
    shown = metrics.assign(value=100 * metrics["value"])
    panels_of = list(shown.groupby(["metric", "level", "lambda"], sort=False))
    columns = len(panels_of) // 2
    priors = list(dict.fromkeys(shown.prior))
    figure = blank_figure(3.4 * columns, 6.4)
    panels = figure.subplots(2, columns, squeeze=False).flatten()
    order = sorted(panels_of, key=lambda panel: panel[0][0] != "error")
    for panel, ((metric, level, weight), of) in zip(panels, order, strict=True):
        _by_rows(panel, of, priors, "value", lambda by_rows: (by_rows["value"].min(), by_rows["value"].max()))
        panel.set_title(f"{metric_title(str(metric))}, λ={weight:g}, {level}", fontsize=9)
    for row in (0, columns):
        panels[row].set_ylabel("% on test, mean and range over seeds")
    _legend(figure, priors)
    write_figure(figure, path)


def _by_rows(
    panel: Axes,
    of: pd.DataFrame,
    priors: Sequence[str],
    column: str,
    ends: Callable[[Any], tuple[Any, Any]],
) -> None:
    """Means of a column against the number of rows, with bars between ``ends``, a colour for each prior."""
    for p, prior in enumerate(priors):
        by_rows = of[of.prior == prior].groupby("rows")
        if not by_rows.groups:
            continue
        sizes = by_rows[column].mean().index.to_numpy(dtype=float) * 1.06 ** (p - (len(priors) - 1) / 2)
        mean = by_rows[column].mean().to_numpy()
        low, high = (end.to_numpy() for end in ends(by_rows))
        panel.errorbar(
            sizes, mean, [mean - low, high - mean], fmt="o-", color=COLOURS[p % len(COLOURS)],
            linewidth=1, markersize=4, capsize=2,
        )  # fmt: skip
    panel.set_xscale("log")
    sizes = sorted(set(of.rows))
    panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel("rows")
    bare_axes(panel)


def _legend(figure: Figure, priors: Sequence[str]) -> None:
    """One legend for all panels."""
    handles = [
        Line2D([], [], marker="o", markersize=4, linewidth=1, color=COLOURS[p % len(COLOURS)])
        for p in range(len(priors))
    ]
    labels = [prior if len(prior) <= 60 else prior[:57] + "…" for prior in priors]
    figure.legend(
        handles, labels, frameon=False, fontsize=7, ncols=min(3, len(priors)), loc="outside upper center"
    )


def _density(
    panel: Axes, values: np.ndarray, mass: float, rest: float, truth: float | None, colour: str
) -> None:
    """One rate: the posterior filled, the prior (a Beta) as a line, the truth dashed."""
    mean, (low, high) = values.mean(), np.quantile(values, [0.05, 0.95])
    around = [low, high, *([] if truth is None else [truth])]
    margin = max(max(around) - min(around), 0.01)
    left, right = max(0.0, min(around) - margin), min(1.0, max(around) + margin)
    panel.set_xlim(left, right)
    if high - low < 1e-9:  # a point estimate has no density
        panel.axvline(float(mean), color=colour)
    else:
        panel.hist(values, bins=np.linspace(left, right, 60).tolist(), density=True, color=colour, alpha=0.6)
    grid = np.linspace(left, right, 200)[1:-1]
    panel.plot(grid, stats.beta.pdf(grid, mass, rest), color="grey", linewidth=1.2)
    if truth is not None:
        panel.axvline(truth, color="black", linestyle="--", linewidth=1.2)
    panel.set_title(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
    panel.set_ylim(bottom=0)
    panel.set_yticks([])
    bare_axes(panel)


def blank_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def bare_axes(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure by the ending of its name; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    known = figure.canvas.get_supported_filetypes()
    require(kind in known, f"cannot draw {path}: its ending must be one of {', '.join(sorted(known))}.")
    for text in figure.findobj(Text):  # names are no formulas, although $ may stand in them
        assert isinstance(text, Text)
        text.set_parse_math(False)
        text.set_text(printable(text.get_text()))
    buffer = io.BytesIO()
    undated = {"Date": None} if kind == "svg" else None
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "pyro_fairvae"}):
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # of a script that the font lacks
        figure.savefig(buffer, format=kind, metadata=undated)
    write_whole(path, buffer.getvalue())
