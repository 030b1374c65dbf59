"""One page about a fitted model: its trade-off, rates of withholding, audit, data, and limits of use."""

from __future__ import annotations

import math
import shlex
import tempfile
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.ticker import PercentFormatter

from pyro_fairvae.auditing import AUDITED, Audit, NumberAudit
from pyro_fairvae.auditing.survey_design import design_in_words
from pyro_fairvae.evaluation.measures import in_unit, unit_of
from pyro_fairvae.posterior.curves import withholding_curve
from pyro_fairvae.posterior.summaries import EffectSummary, withholding_rates
from pyro_fairvae.posterior.withholding_check import CheckSummary
from pyro_fairvae.report.choosing import choosing
from pyro_fairvae.report.curves import CURVE_MEANS, curve_in_words, curve_lines, draw_curve
from pyro_fairvae.report.figures import COLOURS, bare_axes, blank_figure, write_figure
from pyro_fairvae.report.numbers import number_audit, number_frontier
from pyro_fairvae.report.page import Block, Command, Grid, Heading, Notice, Picture, Section, write_page
from pyro_fairvae.report.regulators import regulators_sections
from pyro_fairvae.report.statements import (
    audit_command,
    depends_in_words,
    intended_use,
    limits_of,
    measure_in_words,
    opening_of,
    report_command,
    source_in_words,
    without_audit,
)
from pyro_fairvae.report.text import (
    EFFECTS_MEAN,
    SUGGESTED,
    check_in_words,
    effect_lines,
    members_in_words,
    rows_judged_on,
    spread_columns,
    suggestion_lines,
)
from pyro_fairvae.report.verdicts import members_of, named_members, verdicts
from pyro_fairvae.report.withholding import draw_check, draw_effects, shown_columns
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.storage.stored_model import StoredModel


def write_model_page(path: Path, model: StoredModel, found: Audit | NumberAudit | None, name: str) -> None:
    """Write the page of a model, and of its audit if there is one, as a single HTML file."""
    word = shlex.quote(name)  # quoted for a command line
    again = audit_command(model, name)
    with tempfile.TemporaryDirectory() as folder:
        sections = [
            Section("Choose a member", choosing(model, found, word)),
            Section("The frontier", _frontier(model, word, Path(folder))),
            Section("Who withholds", _withholding(model, Path(folder))),
            Section("Audit", _audit(model, found, name)),
            *(regulators_sections(found, Path(folder), again) if isinstance(found, Audit) else ()),
            Section("Data", _data(model)),
            Section("Use and limits", _use_and_limits(model)),
        ]
        notices = verdicts(model, found)
        write_page(path, f"Model {name}", *sections, opening=opening_of(model), notices=notices)


def _use_and_limits(model: StoredModel) -> list[Block]:
    return [Heading("Intended use"), intended_use(model), Heading("Limits"), *limits_of(model)]


def _frontier(model: StoredModel, name: str, folder: Path) -> list[Block]:
    metric = model.metric
    if model.number is not None:
        figure = folder / "frontier.svg"
        draw_choice(figure, model.frontier, model.selected, metric, percent=False)
        return number_frontier(model, figure, rows_judged_on(model.summary))
    chosen = model.frontier.iloc[model.selected]
    title, names = members_in_words(model.frontier)
    flag = "max-disparity" if title == "target" else "lambda"
    spread, of_spread, note = spread_columns(model.frontier)
    lines = [
        [title, "error %", f"{metric} {unit_of(metric)}".rstrip(), *of_spread, "decides", "to decide by it"]
    ]
    for k, (value, (_, member)) in enumerate(zip(names, model.frontier.iterrows(), strict=True)):
        lines.append(
            [
                value, _percent(member["error"]), in_unit(metric, member["disparity"]),
                *(in_unit(metric, member[column]) for column in spread), "yes" if k == model.selected else "",
                f"fairvae predict {name} DATA --{flag} {value}" if value != "none" else "",
            ]
        )  # fmt: skip
    differ = (
        f"Each member is settled to its own target, {_allowed(metric)}."
        if title == "target"
        else "Each member weighs fairness by its own λ."
    )
    words = (
        f"{differ} The one that decides has the {title} {names[model.selected]}: an error of "
        f"{_percent(chosen['error'])} % and a disparity of "
        f"{in_unit(metric, chosen['disparity'])} {unit_of(metric)}".rstrip()
        + ", on "
        f"{rows_judged_on(model.summary)}. Disparity is {measure_in_words(model)}."
    )
    figure = folder / "frontier.svg"
    draw_choice(figure, model.frontier, model.selected, metric)
    picture = Picture(
        figure,
        "; ".join(
            f"{title} {line[0]}: error {line[1]} %, {metric} {line[2]} {unit_of(metric)}".rstrip()
            for line in lines[1:]
        ),
        f"Error against disparity on these rows, with bars from {of_spread[0]} to {of_spread[-1]}; the ring "
        "marks the member that decides."
        if len(spread) > 1
        else "Error against disparity on these rows; bars are one standard error, the ring marks the member "
        "that decides.",
    )
    note = f"Disparity is expected under the imputed groups; {note}."
    return [words, picture, Grid("Members to choose from", lines, note)]


def _allowed(metric: str) -> str:
    """What a target of a measure is."""
    if unit_of(metric) == "%":
        return "the largest difference between groups that is allowed"
    return "the most dependence of decisions on the group that is allowed"


def draw_choice(path: Path, frontier: pd.DataFrame, selected: int, metric: str, percent: bool = True) -> None:
    """Error against disparity of each member, with an interval, or else a bar of one standard error."""
    error = frontier["standard_error"]
    bars = [error, error]
    if not frontier["low"].isna().all():
        bars = [
            (frontier["disparity"] - frontier["low"]).clip(lower=0),
            (frontier["high"] - frontier["disparity"]).clip(lower=0),
        ]
    figure = blank_figure(6.0, 4.0)
    axes = figure.add_subplot()
    bare_axes(axes)
    axes.errorbar(
        frontier["disparity"], frontier["error"], xerr=bars, fmt="-o", color=COLOURS[0],
        linewidth=1, elinewidth=0.8, capsize=2,
    )  # fmt: skip
    chosen = frontier.iloc[selected]
    axes.plot(chosen["disparity"], chosen["error"], "o", markersize=14, fillstyle="none", color=COLOURS[1])
    title, names = members_in_words(frontier)
    for name, (_, member) in zip(names, frontier.iterrows(), strict=True):
        at = (member["disparity"], member["error"])
        words = f"λ={name}" if title == "λ" else name
        axes.annotate(words, at, xytext=(6, 6), textcoords="offset points", fontsize=8)
    axes.set_xlabel(f"{metric} on held-out rows")
    axes.set_ylabel("error on held-out rows")
    axes.set_xlim(left=0)
    in_percent = (percent and unit_of(metric) == "%", percent)
    for axis in compress((axes.xaxis, axes.yaxis), in_percent):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    write_figure(figure, path)


def _withholding(model: StoredModel, folder: Path) -> list[Block]:
    channels = withholding_rates(model.posterior, model.knows_groups)
    curve = withholding_curve(model.posterior["a"], model.attributes) if model.knows_groups else None
    of_number = [] if curve is None else _curve(curve, model.attributes.names[0], folder)
    if curve is not None:
        channels = channels[channels["what"] == "label"].reset_index(drop=True)
    lines = [["withheld", "of", "rate", "5 %", "95 %"]]
    lines += [
        [line["what"], line["of"], *(f"{line[key]:.3f}" for key in ("withheld", "low", "high"))]
        for line in channels.to_dict("records")
    ]
    figure = folder / "withholding.svg"
    draw_withholding(figure, channels)
    picture = Picture(
        figure,
        "; ".join(f"{line[1]} withhold the {line[0]} at a rate of {line[2]}" for line in lines[1:]),
        "Rates of withholding with 90 % intervals.",
    )
    what = "group and label are" if curve is None else "the label is"
    grid = Grid(f"How often {what} withheld", lines, model.posterior["describes"])
    depends_on = model.depends_on
    named: list[Block] = []
    if model.knows_groups:
        named.append(depends_in_words(model))
    check = model.posterior["check"]
    if check is not None:
        words = check_in_words(check, depends_on)
        named.append(Notice(words) if check["rejected"] else words)
    return [
        *named,
        *of_number,
        picture,
        grid,
        *model.posterior["warnings"],
        *_effects(model.posterior["effects"], folder),
        *_check(check, folder),
    ]


def _curve(curve: pd.DataFrame, name: str, folder: Path) -> list[Block]:
    """Who withholds a number, as a figure and level by level."""
    figure = folder / "curve.svg"
    draw_curve(figure, curve, name)
    words = f"How often {name} is withheld along it, with a 90 % band."
    means = f"{CURVE_MEANS.format(name=name).capitalize()}."
    return [
        Picture(figure, curve_in_words(curve, name), words),
        Grid(f"Who withholds along {name}", curve_lines(curve, name), means),
    ]


def _effects(effects: Sequence[EffectSummary], folder: Path) -> list[Block]:
    """What makes people withhold, if more than the group does."""
    if not effects:
        return []
    figure, lines = folder / "effects.svg", effect_lines(effects)
    draw_effects(figure, effects)
    alt = "; ".join(f"{name}: {mean}, from {low} to {high}" for name, mean, low, high in lines[1:])
    caption = "What makes people withhold: changes in the log-odds, with 90 % intervals."
    return [
        Heading("What withholding depends on"),
        Picture(figure, alt, caption),
        Grid("What makes people withhold", lines, f"{EFFECTS_MEAN.capitalize()}."),
    ]


def _check(check: CheckSummary | None, folder: Path) -> list[Block]:
    """Recorded and predicted shares of those who withhold, and what withholding could depend on."""
    if check is None:
        return []
    figure, columns = folder / "check.svg", shown_columns(check)
    draw_check(figure, check)
    alt = "; ".join(
        f"{column.words} {category.name}: recorded {category.observed:.3f}, predicted {category.expected:.3f}"
        for column in columns
        for category in column.categories
    )
    caption = "The check: shares of people who withhold as recorded, and as the rates above predict them."
    title = Heading("The check of the assumption on withholding")
    blocks: list[Block] = [title, Picture(figure, alt, caption)]
    lines = suggestion_lines(check)
    if len(lines) > 1:
        blocks.append(Grid("What else withholding could depend on", lines, f"{SUGGESTED.capitalize()}."))
    return blocks


def draw_withholding(path: Path, channels: pd.DataFrame) -> None:
    """The rate of withholding of each group and each class, with its interval."""
    figure = blank_figure(6.0, 0.8 + 0.36 * len(channels))
    axes = figure.add_subplot()
    bare_axes(axes)
    places = range(len(channels))
    below, above = channels["withheld"] - channels["low"], channels["high"] - channels["withheld"]
    axes.errorbar(
        channels["withheld"], places, xerr=[below.clip(lower=0), above.clip(lower=0)], fmt="o", capsize=3,
        color=COLOURS[0],
    )  # fmt: skip
    names = [_short(f"{line['what']}: {line['of']}") for line in channels.to_dict("records")]
    axes.set_yticks(list(places), names, parse_math=False)  # a name such as $0–$50 is not a formula
    axes.set_ylim(len(channels) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xlabel("P(withheld)")
    write_figure(figure, path)


def _audit(model: StoredModel, found: Audit | NumberAudit | None, name: str) -> Sequence[Block]:
    if found is None:
        return _without_audit(model, name)
    again: list[Block] = []
    if members_of(model, found) is None and model.knows_groups:
        words = "This audit says nothing of the members that do not decide. For the slider to show them:"
        again = [Command(words, audit_command(model, name))]
    elif found.members is not None and found.members.audited not in (None, model.selected):
        names = named_members(model.frontier)
        words = f"This audit is of {names[found.members.audited]}, and {names[model.selected]} decides."
        again = [Notice(words)]
    if isinstance(found, NumberAudit):
        return [*number_audit(found), *again]
    interval = f"{100 * found.confidence:g} %"
    counts = found.rows
    words = (
        f"{counts['rows']} rows, of which {counts['stated']} state their group and {counts['withheld']} do "
        f"not; {counts['unlabelled']} have no label. The estimates assume that withholding depends on "
        f"the {found.depends_on} alone; the bounds, which are for exactly these rows, do not."
    )
    if found.design is not None:
        words += f" {design_in_words(found.design, counts['rows'])}"
    metrics = [["metric", "estimate", interval, "stated rows alone", interval, "bounds", "what it is"]]
    for metric, line in found.metrics.iterrows():
        metrics.append(
            [
                str(metric), _plain(line["estimate"]), _range(line, ""), _plain(line["stated_estimate"]),
                _range(line, "stated_"), _range(line, "bound_"),
                AUDITED[str(metric)].means if metric in AUDITED else "",
            ]
        )  # fmt: skip
    groups = [["group", "stated rows", "withhold", interval, "of those who withhold"]]
    for group, line in found.groups.iterrows():
        count = line["withheld"]
        groups.append(
            [
                str(group), f"{line['stated']:.0f}", _plain(line["withhold"]), _range(line, "withhold_"),
                "–" if math.isnan(count) else f"{count:.0f}",
            ]
        )  # fmt: skip
    rates = [["rate", "group", "estimate", interval, "stated rows alone", interval, "stated rows"]]
    for line in found.rates.to_dict("records"):
        rates.append(
            [
                line["rate"], line["group"], _plain(line["estimate"]), _range(line, ""),
                _plain(line["stated_estimate"]), _range(line, "stated_"), str(line["stated_rows"]),
            ]
        )  # fmt: skip
    said: list[Block] = []
    if found.check is not None:
        says = check_in_words(found.check, found.depends_on.split(", ")[1:], "Audit")
        said.append(Notice(says) if found.check["rejected"] else says)
    return [
        words,
        *said,
        Grid("Disparities", metrics),
        Grid("Groups", groups),
        Grid("Rates of decisions by group", rates),
        *again,
        *(f"Note: {note}" for note in found.notes),
    ]


def _without_audit(model: StoredModel, name: str) -> list[Block]:
    """What the page lacks, and what adds it."""
    if isinstance(model.columns, Pixels):
        return [without_audit(model)]
    return [
        without_audit(model),
        Command("To audit new rows:", audit_command(model, name)),
        Command("and then again:", report_command(name)),
    ]


def _data(model: StoredModel) -> list[Block]:
    summary = model.summary

    def counted(title: str, counts: dict[str, int]) -> list[list[str]]:
        lines = [[title, "rows"]]
        return lines + [["not stated" if k == UNAVAILABLE else k, str(n)] for k, n in counts.items()]

    columns = [["column", "kind", "values", "missing"]]
    columns += [[c["name"], c["kind"], str(c["values"]), str(c["missing"])] for c in summary["columns"]]
    blocks: list[Block] = [source_in_words(model)]
    blocks.append(Grid("Labels", counted("label", summary["labels"])))
    if model.knows_groups:
        blocks.append(Grid("Groups", counted("group", summary["groups"])))
    if isinstance(model.columns, Pixels):
        return [*blocks, f"Rows are images of {model.columns.side} × {model.columns.side} pixels."]
    if model.proxies is not None:
        names = ", ".join(model.proxies.names)
        blocks.append(f"Proxies, which tell of the group in fitting and never decide: {names}.")
    return [*blocks, Grid("Columns", columns)]


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.2f}"


def _plain(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _range(line: Any, prefix: str) -> str:
    return f"[{_plain(line[f'{prefix}low'])}, {_plain(line[f'{prefix}high'])}]"
