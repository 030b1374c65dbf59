"""Figures of a run."""

from __future__ import annotations

import io
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pyro_fairvae.checkpoint import write_whole

# Okabe and Ito's colours, told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def draw_frontier(path: Path, results: dict[str, Any], metric: str = "deo") -> None:
    """Test error against unfairness, a point for each λ; the member chosen on validation is ringed."""
    figure, axes = _figure(5.6, 4.2)
    members = results["members"]
    unfair = [100 * member["test"][metric] for member in members]
    error = [100 * member["test"]["error"] for member in members]
    axes.plot(unfair, error, "-o", color=COLOURS[0], linewidth=1, label="test")
    for member, x, y in zip(members, unfair, error, strict=True):
        axes.annotate(
            f"λ={member['weight']:g}", (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8
        )
    chosen = results["selected"]
    axes.plot(
        unfair[chosen], error[chosen], "o", markersize=14, fillstyle="none", color=COLOURS[1],
        label="chosen on validation",
    )  # fmt: skip
    axes.set_xlabel(f"{metric.upper()} on test (%)")
    axes.set_ylabel("error on test (%)")
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    _write(figure, path)


def draw_posterior(path: Path, draws: dict[str, np.ndarray], truth: dict[str, float] | None = None) -> None:
    """Densities of rates between 0 and 1, by label, with the truth as a dashed line where it is known."""
    figure, axes = _figure(5.6, 3.6)
    for (label, values), colour in zip(draws.items(), cycle(COLOURS), strict=False):
        low, high = np.quantile(values, [0.05, 0.95])
        if high - low < 1e-9:  # a point estimate has no density
            axes.axvline(float(values.mean()), color=colour, label=f"{label}: {values.mean():.3f}")
        else:
            text = f"{label}: {values.mean():.3f} [{low:.3f}, {high:.3f}]"
            axes.hist(values, bins=60, density=True, color=colour, alpha=0.6, label=text)
        if truth and label in truth:
            axes.axvline(truth[label], color=colour, linestyle="--", linewidth=1.5)
    if truth:
        axes.plot([], [], "--", color="black", label="truth")
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability of withholding the group")
    axes.set_ylabel("posterior density, given h")
    axes.legend(frameon=False, fontsize=8, loc="upper center")
    _write(figure, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _write(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."))
    write_whole(path, buffer.getvalue())
