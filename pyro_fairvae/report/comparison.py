"""Tables that compare methods, as lines of cells; the first line has the titles."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from pyro_fairvae.evaluation.measures import MEASURES
from pyro_fairvae.studies.comparison import by_panel
from pyro_fairvae.studies.resplits import BETTER, WORSE

INFORMED = "†"
INFORMED_MEANS = f"{INFORMED} trained on values that are hidden from the others"

NEEDED = ("needed", "needed_of_all")

Lines = list[list[str]]


def named(label: str, informed: bool) -> str:
    """A method's label, marked if the method was given hidden values."""
    return f"{label} {INFORMED}" if informed else label


def metric_title(metric: str) -> str:
    """A metric's name for display."""
    return MEASURES[metric].title if metric in MEASURES else metric.replace("_", " ")


def hypervolume_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``hypervolume_table``, in per cent of the box."""
    titles = ("hypervolume %", "ours − it", "p (Holm)", "verdict", "seeds", "points per seed")
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
    """``hypervolume_table`` with a line for each method and a column for each panel, the best mean first.

    ▼ marks methods that are significantly worse than ours, ▲ those that are significantly better.
    """
    panels = [(panel, of_panel.set_index("method")) for panel, of_panel in by_panel(table)]
    signs = {BETTER: " ▼", WORSE: " ▲"}
    lines = [["method", *(f"{metric_title(panel['metric'])} {level_title(panel)} %" for panel, _ in panels)]]
    averages = table.groupby("method")["mean"].mean().sort_values(ascending=False)
    first = table.drop_duplicates("method").set_index("method")
    for method in averages.index:
        cells = [
            percent(by_method["mean"][method], 1) + signs.get(by_method["verdict"][method], "")
            if method in by_method.index
            else "–"
            for _, by_method in panels
        ]
        lines.append([named(first["label"][method], first["informed"][method]), *cells])
    return lines


def dominance_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``dominance_table``, in per cent."""
    titles = "panel,error allowed,best,least %,ours %,best other,other's %,ours − it,p,verdict,candidates"
    return [
        titles.split(","),
        *(
            [
                f"{level_title(line)}, {metric_title(line['metric'])}",
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


def wins_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``wins_table``."""
    titles = "method,trunk,panels,ours ahead,significantly,significantly behind,ours − it (mean)"
    return [
        titles.split(","),
        *(
            [
                named(line["label"], line["informed"]),
                str(line["trunk"]),
                *(str(line[name]) for name in ("panels", "ahead", "better", "worse")),
                percent(line["difference"]),
            ]
            for line in _records(table)
        ),
    ]


def power_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``power_table``; deviations in per cent of the box."""
    titles = "method,level,metric,seeds,deviation of differences %,seeds needed,with Holm's strictest level"
    return [
        titles.split(","),
        *(
            [
                *_place(line),
                str(line["pairs"]),
                percent(line["deviation"]),
                *("no number" if math.isnan(line[name]) else f"{line[name]:.0f}" for name in NEEDED),
            ]
            for line in _records(table)
        ),
    ]


def ladder_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``ladder_table``, in per cent of the box."""
    titles = "group,rung,hypervolume %,less the rung before,p (Holm),seeds"
    return [
        titles.split(","),
        *(
            [
                str(line["group"]),
                str(line["label"]),
                plus_minus(line["mean"], line["half_width"]),
                plus_minus(line["difference"], line["difference_half_width"]),
                probability(line["p"]),
                str(line["seeds"]),
            ]
            for line in _records(table)
        ),
    ]


def budget_lines(table: pd.DataFrame) -> Lines:
    """``budget_table``, a column for each budget: disparity in per cent, or how many seeds have a member."""
    budgets = list(dict.fromkeys(table["budget"]))
    lines = [["method", "level", "metric", *map(budget_title, budgets)]]
    for _, of_panel in by_panel(table):
        for _, of_method in of_panel.groupby("method", sort=False):
            records = list(_records(of_method))
            cells = {
                line["budget"]: _or_seeds(
                    plus_minus(line["disparity"], line["half_width"]), line["seeds"], line["of"]
                )
                for line in records
            }
            lines.append([*_place(records[0]), *(cells[budget] for budget in budgets)])
    return lines


def chosen_lines(table: pd.DataFrame) -> Lines:
    """The lines of ``chosen_table``, in per cent."""
    titles = ("error %", "disparity %", "DEO of chance %", "decided positive %", "seeds")
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
    return [named(line["label"], line["informed"]), level_title(line), metric_title(line["metric"])]


def level_title(line: dict[str, Any]) -> str:
    """A level for display, with the kind of trunk where it is not the default."""
    level, trunk = str(line["level"]), line.get("trunk", "default")
    return level if trunk == "default" else f"{level}, {trunk} trunk"


def budget_title(budget: float) -> str:
    """A budget of error for display."""
    return f"+{100 * budget:g} points"


def percent(share: float, digits: int = 2) -> str:
    """A share in per cent, with a typographic minus."""
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}".replace("-", "−")


def plus_minus(share: float, half_width: float) -> str:
    """A share and the half width of its interval in per cent."""
    return percent(share) + ("" if math.isnan(half_width) else f" ± {percent(half_width)}")


def probability(p: float) -> str:
    """A p-value."""
    return "–" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _or_seeds(text: str, seeds: int, total: int) -> str:
    return text if seeds == total else f"– ({seeds} of {total} seeds)"
