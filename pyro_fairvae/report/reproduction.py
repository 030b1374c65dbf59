"""The page of ``fairvae reproduce``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pyro_fairvae.base.files import make_folder, write_whole
from pyro_fairvae.report.comparison import (
    INFORMED_MEANS,
    Lines,
    budget_lines,
    budget_title,
    chosen_lines,
    dominance_lines,
    glance_lines,
    hypervolume_lines,
    ladder_lines,
    level_title,
    metric_title,
    percent,
    power_lines,
    wins_lines,
)
from pyro_fairvae.report.faces import draw_faces, faces_in_words
from pyro_fairvae.report.page import Block, Grid, Picture, Section, write_page
from pyro_fairvae.report.panels import (
    draw_every,
    draw_frontiers,
    draw_hypervolumes,
    draw_ladder,
    frontiers_in_words,
    main_methods,
)
from pyro_fairvae.report.text import align
from pyro_fairvae.studies.comparison import (
    OURS,
    PANEL,
    budget_table,
    by_panel,
    chosen_table,
    dominance_table,
    hypervolume_table,
    power_table,
    wins_table,
)
from pyro_fairvae.studies.faces import Faces
from pyro_fairvae.studies.ladder import ladder_table
from pyro_fairvae.studies.recovery import point_lines, recovery_lines, summary_lines
from pyro_fairvae.studies.reproduction import Plan, Reproduction
from pyro_fairvae.studies.resplits import ALIKE, BETTER, WORSE
from pyro_fairvae.studies.results_file import Tables

REPRODUCTION_PAGE, TABLES_PAGE = "report.html", "tables.md"


def write_reproduction(out: Path, reproduction: Reproduction) -> None:
    """Tables, figures and page of a reproduction, from what :func:`~.results_file.store_tables` stores."""
    write_results(out, reproduction.tables, reproduction.config.ours, reproduction.faces)


def write_results(
    out: Path, tables: Tables, ours: str | None = None, faces: Mapping[str, Faces] | None = None
) -> None:
    """Draw every figure into ``out``, and write the tables as Markdown, and the page with all of them.

    ``ours`` is the method that others are compared with; unless given that of the reproduction that was
    stored.
    """
    make_folder(out)
    results = tables.get("results", pd.DataFrame())
    lines = tables.get("about", pd.DataFrame(columns=["dataset", "name", "value"]))
    if ours is None:
        named = lines.loc[lines["name"] == "ours", "value"]
        ours = str(named.iloc[0]) if len(named) else OURS
    figures: dict[str, list[Picture]] = {}
    if len(results):
        for (dataset, group), own in results.groupby(["dataset", "group"], sort=False):
            figures[f"{dataset}, {group}"] = _draw_group(out, f"{dataset}-{group}", own, ours, faces or {})
    ladder = tables.get("ladder")
    rungs = None if ladder is None else ladder_table(ladder)
    if rungs is not None:
        draw_ladder(out / "ladder.svg", rungs)
        words = "Hypervolume of each rung, from as printed to the default; the tables have the numbers."
        figures["what each part is worth"] = [Picture(out / "ladder.svg", words, "The ladder.", narrow=True)]
    failures = tables.get("failures", pd.DataFrame()).to_dict("records")
    shown = lines[["dataset", "name", "value"]].astype(str).to_numpy().tolist()
    recovery = tables.get("recovery")
    reproduction_page(
        out / REPRODUCTION_PAGE, results, recovery, [["data set", "name", "value"], *shown], {},
        [{str(name): value for name, value in line.items()} for line in failures], figures, ours, rungs,
        tables.get("printed"),
    )  # fmt: skip
    write_whole(out / TABLES_PAGE, tables_in_markdown(results, recovery, rungs, ours, tables.get("printed")))


def plan_text(planned: Plan) -> str:
    """The jobs and hours of each method, and of all."""
    lines = [["method", "jobs", "done", "seconds of a job", "", "hours left on one core"]]
    for line in planned.lines.to_dict("records"):
        lines.append(
            [
                str(line["label"]), str(line["jobs"]), str(line["done"]), f"{line['seconds']:.0f}",
                "as recorded" if line["recorded"] else "estimated", f"{line['hours']:.2f}",
            ]
        )  # fmt: skip
    return f"{align(lines)}\n\n{planned.in_words}"


def _draw_group(
    out: Path, name: str, results: pd.DataFrame, ours: str, faces: Mapping[str, Faces]
) -> list[Picture]:
    """Frontiers of the main methods in each panel, of every method where there are more, and hypervolumes."""
    pictures = []
    for panel, own in by_panel(results):
        where = "-".join(str(panel[part]) for part in ("metric", "level", "trunk"))
        main = main_methods(own, ours)
        path = out / f"{name}-{where}.svg"
        draw_frontiers(path, main, ours=ours)
        caption = "Main methods. Lines are means over seeds, bands their corrected 95 % intervals."
        pictures.append(Picture(path, frontiers_in_words(main, ours=ours), caption, narrow=True))
        if own["method"].nunique() > main["method"].nunique():
            path = out / f"{name}-{where}-every.svg"
            draw_every(path, own, ours)
            caption = "Every method, each before the main ones."
            pictures.append(Picture(path, frontiers_in_words(own, ours=ours), caption, narrow=True))
    volumes = hypervolume_table(results, ours)
    for (metric, trunk), own in volumes.groupby(["metric", "trunk"], sort=False):
        path = out / f"{name}-{metric}-{trunk}-hypervolumes.svg"
        draw_hypervolumes(path, own)
        words = (
            f"Hypervolume of every method, {name}, {metric_title(str(metric))}; the tables have the numbers."
        )
        pictures.append(Picture(path, words, "Hypervolume: the larger the better.", narrow=True))
    group = str(results["group"].iloc[0])
    if group in faces:
        path = out / f"{name}-faces.png"
        draw_faces(path, faces[group])
        caption = "Test images, their reconstructions, and the same z at every label and group (λ = 0)."
        pictures.append(Picture(path, faces_in_words(faces[group]), caption))
    return pictures


def tables_in_markdown(
    results: pd.DataFrame,
    recovery: pd.DataFrame | None,
    rungs: pd.DataFrame | None,
    ours: str = OURS,
    printed: pd.DataFrame | None = None,
) -> str:
    """Every table of the comparison as Markdown, for the documentation."""
    parts: list[tuple[str, Lines]] = []
    if len(results):
        volumes = hypervolume_table(results, ours)
        parts += [
            ("Hypervolumes at a glance, %", glance_lines(volumes)),
            ("Panels won and lost", wins_lines(wins_table(volumes, ours))),
            ("Hypervolumes, with intervals and tests", hypervolume_lines(volumes)),
            (
                "The least disparity within a budget of error",
                dominance_lines(dominance_table(results, ours=ours)),
            ),
            ("Chosen on validation", chosen_lines(chosen_table(results))),
            ("Seeds that a difference of one point of hypervolume needs", _power(results, ours)),
            ("Time of a method", seconds_lines(results)),
        ]
    for dataset, own in _by_dataset(recovery):
        parts += [(f"Rates of withholding recovered, {dataset}, beside the paper's", summary_lines(own))]
        parts += [(f"Rates of withholding in full, {dataset}", recovery_lines(own))]
    for dataset, own in _by_dataset(printed):
        parts += [(f"Rates of withholding by the method as printed, {dataset}", point_lines(own))]
    if rungs is not None:
        parts.append(("What each part is worth", ladder_lines(rungs)))
    return "\n".join(f"## {title}\n\n{markdown(lines)}\n" for title, lines in parts if len(lines) > 1)


def _by_dataset(table: pd.DataFrame | None) -> list[tuple[str, pd.DataFrame]]:
    if table is None or table.empty:
        return []
    if "dataset" not in table:
        return [("", table)]
    return [(str(dataset), own) for dataset, own in table.groupby("dataset", sort=False)]


def _power(results: pd.DataFrame, ours: str) -> Lines:
    table = power_table(results, ours=ours)
    return power_lines(table) if len(table) else [[]]


def seconds_lines(results: pd.DataFrame) -> Lines:
    """Seconds of a method's part of a panel on one core, means over panels and seeds."""
    parts = results.drop_duplicates([*PANEL, "method", "seed"])
    lines = [["method", "data set", "parts of panels", "seconds of one"]]
    for (dataset, label), own in parts.groupby(["dataset", "label"], sort=False):
        lines.append([str(label), str(dataset), str(len(own)), f"{own['seconds'].mean():.0f}"])
    return lines


def markdown(lines: Lines) -> str:
    """A table in Markdown, titles first."""
    rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    shown = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([shown[0], "|" + "---|" * len(rows[0]), *shown[1:]])


def comparison_text(results: pd.DataFrame, ours: str = OURS) -> str:
    """Plain-text tables for each group: hypervolumes, and the members chosen on validation."""
    parts = []
    for (group, _), of_group in hypervolume_table(results, ours).groupby(["group", "dataset"], sort=False):
        chosen = chosen_table(results[results.group == group])
        parts.append(f"{group}\n\n{align(hypervolume_lines(of_group))}\n\n{align(chosen_lines(chosen))}")
    return "\n\n".join(parts)


def reproduction_page(
    path: Path,
    results: pd.DataFrame,
    recovery: pd.DataFrame | None,
    settings: Mapping[str, Any] | Lines,
    versions: Mapping[str, Any],
    failures: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Sequence[Picture]],
    ours: str = OURS,
    rungs: pd.DataFrame | None = None,
    printed: pd.DataFrame | None = None,
) -> None:
    """The page of ``fairvae reproduce``: what was run, the results, and how to read them.

    ``figures`` are by heading, such as a data set and group; ``failures`` are lines by name.
    """
    sections = []
    if not results.empty:
        volumes, dominance = hypervolume_table(results, ours), dominance_table(results, ours=ours)
        sections.append(_summary(volumes, dominance, recovery, len(failures), ours))
    sections += [Section(f"Frontiers: {heading}", pictures) for heading, pictures in figures.items()]
    if not results.empty:
        sections += _comparisons(results, volumes, dominance)
        sections.append(_certainty(results, ours))
    if recovery is not None and not recovery.empty:
        as_printed = dict(_by_dataset(printed))
        sections += [_recovered(own, name, as_printed.get(name)) for name, own in _by_dataset(recovery)]
    if rungs is not None:
        note = "Rungs of κ are compared with the last one before them."
        sections.append(
            Section("What each part is worth", [Grid("The ladder", ladder_lines(rungs), note, heading=1)])
        )
    if failures:
        titles = list(dict.fromkeys(key for failure in failures for key in failure))
        lines = [titles, *([str(failure.get(key, "–")) for key in titles] for failure in failures)]
        sections.append(Section("Failures", [Grid("Jobs that failed, and the reasons", lines)]))
    sections += [
        Section("How to read this", _READING),
        Section("Settings and versions", _settings(settings, versions)),
    ]
    opening = _what_ran(results, len(failures))
    write_page(path, "Fair-SS-VAE and its competitors, reproduced", *sections, opening=opening)


def _what_ran(results: pd.DataFrame, failures: int) -> str:
    """A sentence about the methods, panels and seeds of the results."""
    failed = f" {_count(failures, 'part')} failed." if failures else ""
    if results.empty:
        return f"Nothing finished.{failed}"
    places = results[["dataset", "group"]].drop_duplicates().itertuples(index=False)
    metrics = " and ".join(metric_title(metric) for metric in dict.fromkeys(results["metric"]))
    return (
        f"{_count(results['method'].nunique(), 'method')}, measured at {_count(len(results), 'point')} in "
        f"all, on {_count(len(results[list(PANEL)].drop_duplicates()), 'panel')} "
        f"({'; '.join(f'{dataset}, {group}' for dataset, group in places)}; missingness "
        f"{', '.join(dict.fromkeys(results['level']))}; {metrics}), "
        f"over {_count(results['seed'].nunique(), 'seed')}.{failed}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _summary(
    volumes: pd.DataFrame, dominance: pd.DataFrame, recovery: pd.DataFrame | None, failures: int, ours: str
) -> Section:
    others = volumes[~volumes["informed"].astype(bool) & (volumes["method"] != ours)]
    counts = {words: int((others["verdict"] == words).sum()) for words in (BETTER, ALIKE, WORSE)}
    of_ours = volumes[volumes["method"] == ours]
    name = of_ours["label"].iloc[0] if len(of_ours) else ours
    blocks: list[Block] = [
        f"“Ours” is {name}. By hypervolume, of {_count(len(others), 'comparison')} with an uninformed "
        f"method in a panel, ours is better in {counts[BETTER]}, worse in {counts[WORSE]}, and without a "
        f"significant difference in {counts[ALIKE]} (paired t-tests over seeds at 5 %, corrected for the "
        "overlap of splits, and by Holm within a panel).",
        Grid("Panels won and lost", wins_lines(wins_table(volumes, ours)), f"{INFORMED_MEANS}."),
        Grid("The largest hypervolumes of uninformed methods", _leaders(volumes, ours)),
        Grid("In how many panels ours has the least disparity at a given error", _wins(dominance, ours)),
    ]
    if recovery is not None and not recovery.empty:
        blocks += [
            Grid(f"Rates of withholding recovered, beside the paper's {dataset}".strip(), summary_lines(own))
            for dataset, own in _by_dataset(recovery)
        ]
    if failures:
        blocks.append(
            f"The tables do not include what failed: {_count(failures, 'part')}, listed under Failures."
        )
    return Section("Summary", blocks)


def _leaders(volumes: pd.DataFrame, ours: str) -> Lines:
    """Panel by panel: the best uninformed method, ours, and the best other one."""
    lines = [["panel", "best", "its %", "ours %", "place of ours", "best other", "its %", "ours and it"]]
    for panel, of_panel in by_panel(volumes):
        uninformed = of_panel[~of_panel["informed"].astype(bool)]
        ranked = uninformed.sort_values("mean", ascending=False).reset_index(drop=True)
        here, others = ranked[ranked["method"] == ours], ranked[ranked["method"] != ours]
        place = f"{here.index[0] + 1} of {len(ranked)}" if len(here) else "–"
        lines.append(
            [
                f"{panel['dataset']}, {panel['group']}, {level_title(panel)}, "
                f"{metric_title(panel['metric'])}",
                *(_first(ranked, "label"), _first(ranked, "mean"), _first(here, "mean"), place),
                *(_first(others, "label"), _first(others, "mean"), _first(others, "verdict")),
            ]
        )
    return lines


def _first(table: pd.DataFrame, column: str) -> str:
    if table.empty:
        return "–"
    value = table[column].iloc[0]
    return (percent(value) if column == "mean" else str(value)) or "–"


def _wins(dominance: pd.DataFrame, ours: str) -> Lines:
    """For each budget: panels where ours is best, and where it differs significantly from the best other."""
    lines = [
        [
            "error above SS-VAE's",
            "panels",
            "ours within",
            "ours best",
            "significantly better",
            "significantly worse",
        ]
    ]
    for budget in dict.fromkeys(dominance["budget"]):
        within = dominance[dominance["budget"] == budget]
        counts = (
            within["ours_disparity"].notna(), within["best"] == ours, within["verdict"] == BETTER,
            within["verdict"] == WORSE,
        )  # fmt: skip
        lines.append([budget_title(budget), str(len(within)), *(str(int(count.sum())) for count in counts)])
    return lines


def _comparisons(results: pd.DataFrame, volumes: pd.DataFrame, dominance: pd.DataFrame) -> list[Section]:
    """Tables of each data set and group: hypervolumes, dominance and chosen members."""
    titles = ("Hypervolumes", "The best method at each error", "Chosen on validation")
    blocks: list[list[Block]] = [[] for _ in titles]
    chosen, budgets = chosen_table(results), budget_table(results)
    for dataset, group in results[["dataset", "group"]].drop_duplicates().itertuples(index=False):
        place = f"{dataset}, {group}"
        in_volumes, in_dominance, in_budgets, in_chosen = (
            table[(table["dataset"] == dataset) & (table["group"] == group)]
            for table in (volumes, dominance, budgets, chosen)
        )
        blocks[0] += [
            Grid(
                f"{place}: hypervolumes at a glance", glance_lines(in_volumes),
                f"Means over seeds; ▼ is significantly worse than ours, ▲ significantly better. "
                f"{INFORMED_MEANS}.",
            ),
            Grid(f"{place}: hypervolumes in full", hypervolume_lines(in_volumes), f"{INFORMED_MEANS}."),
        ]  # fmt: skip
        blocks[1] += [
            Grid(
                f"{place}: the least disparity within a budget of error", dominance_lines(in_dominance),
                "Uninformed methods only. The p-value is of one test and not corrected for the others.",
            ),
            Grid(
                f"{place}: the least disparity of every method", budget_lines(in_budgets),
                "In %, where the method has a member within the budget in every seed; otherwise the "
                "number of seeds. "
                f"{INFORMED_MEANS}.",
            ),
        ]  # fmt: skip
        blocks[2].append(
            Grid(f"{place}: members chosen on validation", chosen_lines(in_chosen), f"{INFORMED_MEANS}.")
        )
    return [Section(title, parts) for title, parts in zip(titles, blocks, strict=True)]


def _certainty(results: pd.DataFrame, ours: str) -> Section:
    return Section(
        "What could be seen, and time",
        [
            "How many seeds a difference of one point of hypervolume would need to be found with a chance of "
            "80 %, by the deviation of differences between seeds: for one test at 5 %, and for the strictest "
            "of Holm's. Where no number is enough, these rows are too few for it, however they are split.",
            *([Grid("Seeds needed", power)] if len(power := _power(results, ours)) > 1 else []),
            Grid("Seconds of a method's part of a panel, on one core", seconds_lines(results)),
        ],
    )


def _settings(settings: Mapping[str, Any] | Lines, versions: Mapping[str, Any]) -> list[Block]:
    if isinstance(settings, Mapping):
        return [_named("Settings", settings), _named("Versions", versions)]
    return [Grid("Settings and versions", settings, heading=1)]


def _recovered(recovery: pd.DataFrame, dataset: str, printed: pd.DataFrame | None) -> Section:
    points = [Grid("The same by the method as printed", point_lines(printed))] if printed is not None else []
    return Section(
        f"Table 1: who withholds{', ' if dataset else ''}{dataset}",
        [
            "How often people of each group withhold it, as estimated from masked data alone. α is the rate "
            "of the group numbered 1 and β that of the group numbered 0; “paper” is the paper's Table 1.",
            Grid(
                "Rates of withholding: truth, the paper's figure, ours over seeds",
                recovery_lines(recovery),
                "Width is that of the 90 % interval; guide is the variational posterior, before calibration. "
                "The levels of a seed share split and random numbers, so their intervals are correlated.",
                heading=2,
            ),
            *points,
        ],
    )


def _named(caption: str, values: Mapping[str, Any]) -> Grid:
    shown = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }
    return Grid(caption, [["name", "value"], *([name, value] for name, value in shown.items())])


_READING = (
    "A panel is a data set, a group, a level of missingness and a metric of disparity. Each method was "
    "trained at several weights of its trade-off, in several seeds; a frontier is the set of points "
    "of its weights. "
    "Error and disparity are of the test part, and less of both is better: towards the lower left.",
    "DEO is the difference of equalized odds, DEOPP that of equal opportunity. Chance alone gives a "
    "perfectly fair classifier a DEO above 0, because groups of a test part are small. That floor is dotted "
    "in the figures; differences below it mean little.",
    f"{INFORMED_MEANS}: they were given true labels or true groups that are masked in the data. They show "
    "what could be reached, are not comparable with the others, and are never counted as best.",
    "The hypervolume of a frontier is the share of a box that its points dominate. The box reaches from 0 to "
    "the error of the constant classifier and to a disparity of 20 %. More is better; none reaches 100 %, "
    "which would need zero error. A method with more points has more chances, so the hypervolume of one with "
    "a single point, such as SS-VAE, is necessarily small.",
    "A budget of error allows the members of a method whose test error is at most that much above that of "
    "SS-VAE without a fairness risk in the same seed. The least disparity among them is chosen on test, "
    "which favours every method, most of all one with many points or much noise. Members chosen on "
    "validation, by its rows that state label and group, do not have this bias.",
    "Intervals are 95 % t-intervals over seeds. A seed draws split, mask and initial weights anew, but from "
    "the same rows: training and test parts overlap between seeds. Intervals and tests allow for it as "
    "Nadeau and Bengio (2003) do: the variance of a mean over J splits is taken as 1/J + n(test)/n(training) "
    "times that of a split.",
    "“Not significant” does not mean equal: with few seeds, tests detect only large differences.",
)
