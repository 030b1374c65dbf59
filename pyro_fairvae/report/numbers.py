"""Tables and sections of a page about a model that predicts a number."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from pyro_fairvae.auditing.number_audit import ASSUMED, NumberAudit
from pyro_fairvae.auditing.survey_design import design_in_words
from pyro_fairvae.report.page import Block, Grid, Picture
from pyro_fairvae.report.text import align, spread_columns
from pyro_fairvae.risks import NUMBER_RISKS
from pyro_fairvae.storage.stored_model import StoredModel

MEANINGS = {
    "mean_gap": "the largest difference between groups of the mean prediction",
    "mean_gap_given_y": "the mean over bins of the outcome of the largest difference of mean predictions",
    "correlation_ratio": "the share of the variance of predictions between groups",
    "correlation_ratio_given_y": "the mean over bins of the outcome of that share within a bin",
    "kolmogorov_smirnov": "the largest distance between two groups' distribution functions of predictions",
    "wasserstein": "the largest area between two groups' distribution functions of predictions",
}
NUMBER_LIMITS = (
    "Fairness here means that predictions are alike in the groups named here. It does not cover "
    "other groups, single persons, or whether a model should make the prediction at all.",
    "How often people withhold is learned under the assumption that it depends on their group, and on "
    "nothing else unless it is named here; that of outcomes, that it depends on the outcome alone, and "
    "that the density of outcomes given the features is right.",
    "Imputed groups are probabilities for estimating means over many people. Do not use them as a statement "
    "about a person.",
)


def number_frontier_lines(frontier: pd.DataFrame, selected: int, metric: str) -> list[list[str]]:
    """λ, error and disparity of each member, titles first; the chosen one is starred."""
    spread, of_spread, _ = spread_columns(frontier)
    lines = [["λ", "RMSE", metric.replace("_", " "), *of_spread, ""]]
    for k, (_, member) in enumerate(frontier.iterrows()):
        numbers = [_number(member[column]) for column in ("error", "disparity", *spread)]
        lines.append([f"{member['lambda']:g}", *numbers, "*" if k == selected else ""])
    return lines


def number_frontier_table(frontier: pd.DataFrame, selected: int, metric: str, judged_on: str) -> str:
    """Error and disparity of each member in text."""
    note = spread_columns(frontier)[2]
    words = f"(on {judged_on}, in the outcome's unit but for shares, groups as imputed; {note}; * predicts)"
    return f"{align(number_frontier_lines(frontier, selected, metric))}\n{words}"


def number_frontier(model: StoredModel, figure: Path, judged_on: str) -> list[Block]:
    """The section of the frontier, whose figure was drawn."""
    chosen, metric = model.frontier.iloc[model.selected], model.metric
    lines = number_frontier_lines(model.frontier, model.selected, metric)
    unit = "in the outcome's unit" if NUMBER_RISKS[metric].in_unit else "a share"
    words = (
        f"Each member weighs fairness by its own λ. The one that predicts has λ = {chosen['lambda']:g}: a "
        f"root mean squared error of {_number(chosen['error'])} and a disparity of "
        f"{_number(chosen['disparity'])} ({unit}), on {judged_on}. Disparity is {metric}: {MEANINGS[metric]}."
    )
    alt = "; ".join(f"λ {line[0]}: error {line[1]}, {metric} {line[2]}" for line in lines[1:])
    note = f"Disparity is expected under the imputed groups; {spread_columns(model.frontier)[2]}."
    picture = Picture(figure, alt, "Error against disparity; the ring marks the member that predicts.")
    return [words, picture, Grid("Members to choose from", lines, note)]


def number_audit(found: NumberAudit) -> list[Block]:
    """The section of an audit."""
    counts = found.rows
    differences, means = found.lines()
    return [
        *([] if found.design is None else [design_in_words(found.design, counts["rows"])]),
        f"{counts['rows']} rows, of which {counts['stated']} state their group and {counts['withheld']} do "
        f"not; {counts['unlabelled']} have no outcome. {ASSUMED}",
        Grid("Differences between groups", differences),
        Grid("Means in groups", means),
        *(f"Note: {note}" for note in found.notes),
    ]


def _number(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.4g}"
