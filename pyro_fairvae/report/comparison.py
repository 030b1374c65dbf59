"""Tables of methods compared, as lines of cells, titles first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from pyro_fairvae.evaluation.measures import MEASURES
from pyro_fairvae.studies.comparison import BETTER, WORSE, by_panel

INFORMED = "†"
INFORMED_MEANS = f"{INFORMED} saw what is hidden from the others"

Lines = list[list[str]]


def named(label: str, informed: bool) -> str:
    """A method's label, marked if the method saw hidden truth."""
    return f"{label} {INFORMED}" if informed else label


def metric_title(metric: str) -> str:
    """A metric's name for people."""
    return MEASURES[metric].title if metric in MEASURES else metric.replace("_", " ")


def hypervolume_lines(table: pd.DataFrame) -> Lines:
    """Of ``hypervolume_table``, in per cent of the box."""
    titles = ("hypervolume %", "ours − it", "p (Holm)", "verdict", "seeds", "points a seed")
    return [
        ["method", "level", "metric", *titles],
        *(
            [
                *_place(line),
                plus_minus(line["mean"], line["half_width"]),
                percent(line["difference"]),
                probability(line["p"]),
                str(line["verdict"]) or "–",
                str(line["seeds"]),
                f"{line['members']:.0f}",
            ]
            for line in _records(table)
        ),
    ]


def glance_lines(table: pd.DataFrame) -> Lines:
    """Of ``hypervolume_table``, a method a line and a panel a column, the best on average above.

    ▼ marks what is told apart as worse than ours, ▲ as better.
    """
    panels = [(panel, of.set_index("method")) for panel, of in by_panel(table)]
    signs = {BETTER: " ▼", WORSE: " ▲"}
    lines = [["method", *(f"{metric_title(panel['metric'])} {panel['level']} %" for panel, _ in panels)]]
    averages = table.groupby("method")["mean"].mean().sort_values(ascending=False)
    first = table.drop_duplicates("method").set_index("method")
    for method in averages.index:
        cells = [
            percent(of["mean"][method], 1) + signs.get(of["verdict"][method], "")
            if method in of.index
            else "–"
            for _, of in panels
        ]
        lines.append([named(first["label"][method], first["informed"][method]), *cells])
    return lines


def dominance_lines(table: pd.DataFrame) -> Lines:
    """Of ``dominance_table``, in per cent."""
    titles = "panel,error allowed,best,least %,ours %,best other,other's %,ours − it,p,verdict,candidates"
    return [
        titles.split(","),
        *(
            [
                f"{line['level']}, {metric_title(line['metric'])}",
                budget_title(line["budget"]),
                line["best_label"] or "–",
                percent(line["best_disparity"]),
                _or_seeds(percent(line["ours_disparity"]), line["ours_seeds"], line["seeds"]),
                line["other_label"] or "–",
                percent(line["other_disparity"]),
                percent(line["difference"]),
                probability(line["p"]),
                str(line["verdict"]),
                str(line["candidates"]),
            ]
            for line in _records(table)
        ),
    ]


def budget_lines(table: pd.DataFrame) -> Lines:
    """Of ``budget_table``, a budget a column: disparity in per cent, else in how many seeds it had any."""
    budgets = list(dict.fromkeys(table["budget"]))
    lines = [["method", "level", "metric", *map(budget_title, budgets)]]
    for _, of in by_panel(table):
        for _, own in of.groupby("method", sort=False):
            each = list(_records(own))
            cells = {
                line["budget"]: _or_seeds(
                    plus_minus(line["disparity"], line["half_width"]), line["seeds"], line["of"]
                )
                for line in each
            }
            lines.append([*_place(each[0]), *(cells[budget] for budget in budgets)])
    return lines


def chosen_lines(table: pd.DataFrame) -> Lines:
    """Of ``chosen_table``, in per cent."""
    titles = ("error %", "disparity %", "DEO of chance %", "said positive %", "seeds")
    return [
        ["method", "level", "metric", *titles],
        *(
            [
                *_place(line),
                plus_minus(line["error"], line["error_half_width"]),
                plus_minus(line["disparity"], line["disparity_half_width"]),
                percent(line["floor"]),
                percent(line["positive_rate"], 1),
                str(line["seeds"]),
            ]
            for line in _records(table)
        ),
    ]


def _records(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for line in table.to_dict("records"):
        yield {str(key): value for key, value in line.items()}


def _place(line: dict[str, Any]) -> list[str]:
    return [named(line["label"], line["informed"]), str(line["level"]), metric_title(line["metric"])]


def budget_title(budget: float) -> str:
    """A budget of error for people."""
    return f"+{100 * budget:g} points"


def percent(share: float, digits: int = 2) -> str:
    """A share in per cent, with a true minus."""
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}".replace("-", "−")


def plus_minus(share: float, half_width: float) -> str:
    """A share and the half width of its interval in per cent."""
    return percent(share) + ("" if math.isnan(half_width) else f" ± {percent(half_width)}")


def probability(p: float) -> str:
    """A p-value."""
    return "–" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _or_seeds(found: str, seeds: int, of: int) -> str:
    return found if seeds == of else f"– ({seeds} of {of} seeds)"
