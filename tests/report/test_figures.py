"""Figures of what is unusual."""

from __future__ import annotations

import json
from pathlib import Path

from pyro_fairvae.base.files import write_json
from pyro_fairvae.report import draw_frontier, draw_training
from pyro_fairvae.report.figures import PART_TITLES, blank_figure, write_figure


def test_figures_of_a_risk_without_cells_and_without_bound(tmp_path: Path) -> None:
    """A user's own risk has no cells to draw, and disparate impact may be infinite."""
    history = [
        {
            "epoch": epoch,
            "member": 0,
            "lambda": 0.5,
            "gap": 0.1,
            "gap_error": 0.01,
            **dict.fromkeys(PART_TITLES, 1.0),
        }
        for epoch in (1, 2)
    ]
    draw_training(tmp_path / "training.png", history, 0, ["0", "1"], ["0", "1"])
    members = [
        {"lambda": weight, "test": {"error": 0.2, "disparate_impact": value}}
        for weight, value in ((0.0, float("inf")), (1.0, 0.5))
    ]
    results = {"members": members, "metric": "disparate_impact", "selected": 1}
    draw_frontier(tmp_path / "frontier.png", results)
    write_json(tmp_path / "results.json", results)
    assert (
        json.loads((tmp_path / "results.json").read_text())["members"][0]["test"]["disparate_impact"] is None
    )


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    for kind in ("svg", "png"):
        written = []
        for name in ("once", "again"):
            figure = blank_figure(2, 2)
            figure.subplots().plot([1, 2], [3, 4], marker="o", linestyle="--")
            write_figure(figure, tmp_path / f"{name}.{kind}")
            written.append((tmp_path / f"{name}.{kind}").read_bytes())
        assert written[0] == written[1]
