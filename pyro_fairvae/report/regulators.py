"""The parts of a model's page that regulators ask for: impact ratios, predictive parity, calibration, tables
of Local Law 144."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.auditing import Audit
from pyro_fairvae.auditing.figures import MEANS, Figures
from pyro_fairvae.auditing.tables import number
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.page import Block, Grid, Picture, Section

MOST_CURVES = 8  # groups whose calibration curves are drawn


def regulators_sections(found: Audit | None, folder: Path) -> list[Section]:
    """Sections of what an audit found for regulators; none without an audit."""
    if found is None or found.figures is None:
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
    return sections


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
        label = str(group)[:40].replace("$", r"\$")
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
