"""The parts of a model's page that regulators ask for: impact ratios, predictive parity, calibration, tables
of Local Law 144."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.auditing import Audit
from pyro_fairvae.auditing.figures import MEANS, Figures
from pyro_fairvae.auditing.measuring import FOUR_FIFTHS
from pyro_fairvae.auditing.sensitivity import Sensitivity
from pyro_fairvae.auditing.tables import number
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.page import Block, Command, Grid, Picture, Section

MOST_CURVES = 8  # groups whose calibration curves are drawn


def regulators_sections(found: Audit, folder: Path, again: str) -> list[Section]:
    """Sections of what an audit found for regulators; the command ``again`` adds a missing sensitivity."""
    if found.figures is None:
        return []
    sections = [Section("Figures for regulators", _figures(found.figures, found.confidence, folder))]
    if found.local_law is not None:
        law = found.local_law
        grids = [Grid(f"Local Law 144: {name}", law.in_cells(name), law.note(name)) for name in law.tables]
        words = (
            "Counts and the first impact ratios are of applicants whose category is known, as the law asks "
            "for them; beside them stand estimates for all applicants."
        )
        sections.append(Section("Local Law 144", [words, *grids]))
    missing = Command("This audit does not say how far withholding may depart from what is modelled:", again)
    shown: list[Block] = [missing] if found.by_gamma is None else _sensitivity(found.by_gamma, folder)
    return [*sections, Section("Sensitivity", shown)]


def _sensitivity(found: Sensitivity, folder: Path) -> list[Block]:
    findings, curves = found.in_cells()
    curves[0] = [title.replace("_", " ") for title in curves[0]]
    picture = folder / "sensitivity.svg"
    draw_sensitivity(picture, found)
    words = (
        "The estimates rely on a model of who withholds. Here the odds of withholding may be up to Γ times "
        "as high or as low as modelled, for each decision and label apart; at Γ = 1 stands the audit, at the "
        "end the worst case. The larger the Γ that overturns a finding, the less it relies on the model."
    )
    shown = f"{100 * found.confidence:g} %"
    alt = "; ".join(f"{line[0]}: {line[1]}, overturned from Γ = {line[2]}" for line in findings[1:])
    return [
        words,
        Grid("What overturns each finding", findings),
        Picture(
            picture,
            alt,
            f"Ranges over all ways to withhold (dark) and {shown} intervals (light) by Γ; dotted is the "
            "limit of each finding, dashed the least Γ that overturns it.",
        ),
        Grid(f"{shown} intervals by Γ", curves),
    ]


def draw_sensitivity(path: Path, found: Sensitivity) -> None:
    """A panel for each measure: its range and its interval against Γ, and where its finding turns."""
    measures = list(found.findings["measure"])
    figure = blank_figure(7.0, 2.3 * ((len(measures) + 1) // 2))
    for k, measure in enumerate(measures):
        axes = figure.add_subplot((len(measures) + 1) // 2, 2, k + 1)
        bare_axes(axes)
        lines = found.curves[(found.curves["measure"] == measure) & np.isfinite(found.curves["gamma"])]
        for low, high, alpha in (("low", "high", 0.25), ("least", "most", 0.6)):
            axes.fill_between(
                lines["gamma"], lines[low], lines[high], color=COLOURS[0], alpha=alpha, linewidth=0
            )
        limit = FOUR_FIFTHS if measure == "impact_ratio" else found.tolerance
        axes.axhline(limit, linestyle=":", color="0.3", linewidth=1)
        turn = float(found.findings["overturns"].iloc[k])
        if turn <= lines["gamma"].max():
            axes.axvline(turn, linestyle="--", color=COLOURS[1], linewidth=1.2)
            axes.annotate(
                f"Γ = {turn:.2f}", (turn, 1), xytext=(3, -3), textcoords="offset points", fontsize=8, va="top"
            )
        axes.set_xscale("log")
        ticks = [gamma for gamma in (1, 2, 3, 5, 10) if gamma <= lines["gamma"].max()]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(0, 1)
        axes.set_title(measure.replace("_", " "), fontsize=9)
        axes.set_xlabel("Γ", fontsize=8)
    write_figure(figure, path)


def _figures(figures: Figures, confidence: float, folder: Path) -> list[Block]:
    shown = f"{100 * confidence:g} %"
    of_all = [["figure", "estimate", shown, "stated rows alone", shown, "what it is"]]
    for name, line in figures.disparities.iterrows():
        of_all.append([str(name), *_cells(line), MEANS.get(str(name), "largest difference between groups")])
    by_group = [["figure", "group", "estimate", shown, "stated rows alone", shown, "stated rows"]]
    for line in figures.by_group.to_dict("records"):
        by_group.append([line["measure"], line["group"], *_cells(line), str(line["stated_rows"])])
    blocks: list[Block] = [
        f"To be selected is to be decided {figures.positive}. {figures.four_fifths_in_words()}",
        Grid("Impact ratio and further disparities", of_all),
        Grid("Figures by group", by_group),
    ]
    if figures.calibration.empty:
        return blocks
    picture = folder / "calibration.svg"
    draw_calibration(picture, figures.calibration)
    curve = [["group", "scores", "mean score", f"share of {figures.positive}", shown, "stated rows"]]
    for line in figures.calibration.to_dict("records"):
        ends = f"[{number(line['low'])}, {number(line['high'])}]"
        scores = f"{line['start']:.3f} to {line['end']:.3f}"
        curve.append(
            [
                line["group"], scores, number(line["score"]), number(line["share"]), ends,
                str(line["stated_rows"]),
            ]
        )  # fmt: skip
    alt = "; ".join(f"{line[0]}: mean score {line[2]}, share {line[3]}" for line in curve[1:])
    caption = "Shares of people with the label against their mean scores; on the line scores are calibrated."
    return [*blocks, Picture(picture, alt, caption), Grid("Calibration", curve)]


def draw_calibration(path: Path, curve: pd.DataFrame) -> None:
    """The calibration curve of each group with intervals; of many groups the first are drawn."""
    figure = blank_figure(6.0, 4.5)
    axes = figure.add_subplot()
    bare_axes(axes)
    axes.plot([0, 1], [0, 1], linestyle=":", color="0.5", linewidth=1)
    for k, group in enumerate(curve["group"].unique()[:MOST_CURVES]):
        lines = curve[(curve["group"] == group) & curve["share"].notna() & curve["score"].notna()]
        bars = np.clip([lines["share"] - lines["low"], lines["high"] - lines["share"]], 0, None)
        label = str(group)[:40]
        axes.errorbar(
            lines["score"], lines["share"], yerr=bars, fmt="-o", color=COLOURS[k % len(COLOURS)], capsize=2,
            linewidth=1, label=label,
        )  # fmt: skip
    axes.set_xlabel("mean score")
    axes.set_ylabel("share with the label")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8)
    write_figure(figure, path)


def _cells(line: Any) -> list[str]:
    return [
        cell
        for prefix in ("", "stated_")
        for cell in (
            number(line[f"{prefix}estimate"]),
            f"[{number(line[f'{prefix}low'])}, {number(line[f'{prefix}high'])}]",
        )
    ]
