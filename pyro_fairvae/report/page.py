"""A report as one HTML file that needs nothing else: no network, no other file, no font."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from pyro_fairvae.checkpoint import write_whole
from pyro_fairvae.errors import InputError, choose
from pyro_fairvae.report.panels import (
    INFORMED_MEANS,
    Lines,
    budget_lines,
    budget_title,
    chosen_lines,
    dominance_lines,
    glance_lines,
    hypervolume_lines,
    metric_title,
    percent,
)
from pyro_fairvae.studies.comparison import (
    ALIKE,
    BETTER,
    OURS,
    PANEL,
    WORSE,
    budget_table,
    by_panel,
    chosen_table,
    dominance_table,
    hypervolume_table,
)
from pyro_fairvae.studies.recovery import recovery_lines, summary_lines

# Text and links on the page and on raised parts; contrast is tested.
THEMES = {
    "light": {"page": "#ffffff", "raised": "#f1f3f5", "text": "#1b1f24", "quiet": "#505862",
              "line": "#c8ced5", "link": "#0a58a6"},
    "dark": {"page": "#15181c", "raised": "#20252b", "text": "#e8eaed", "quiet": "#aab2bc",
             "line": "#434b55", "link": "#8cc2ff"},
}  # fmt: skip
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
LONG = 40  # lines above which a table is folded

_STYLE = """
:root { color-scheme: light dark; %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
p { max-width: 70ch; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .25rem 0; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%%; height: auto; background: #fff; border-radius: 4px; }
figure img.large { max-width: none; width: 110rem; }
figcaption, .note { color: var(--quiet); font-size: .9rem; }
.scroll { overflow-x: auto; margin: 1rem 0 .25rem; }
table { width: max-content; border-collapse: collapse; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 3rem); }
th, td { max-width: min(28rem, 70vw); padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: break-word; }
thead th { max-width: 8rem; background: var(--raised); vertical-align: bottom; }
tbody th { max-width: min(28rem, 45vw); }
tbody th:first-child { position: sticky; left: 0; background: var(--page); }
tbody tr:hover > * { background: var(--raised); }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
button { font: inherit; font-weight: inherit; color: inherit; background: none; border: 1px solid transparent;
  border-radius: 4px; padding: .25rem 0; text-align: inherit; cursor: pointer; }
th button::after { content: "\\00a0↕"; color: var(--quiet); }
th[aria-sort=ascending] button::after { content: "\\00a0↑"; color: inherit; }
th[aria-sort=descending] button::after { content: "\\00a0↓"; color: inherit; }
figure button { border-color: var(--line); padding: .25rem .6rem; margin: .25rem 0; }
summary { cursor: pointer; padding: .4rem 0; color: var(--link); }
"""

# Buttons are made here, so that a reader who runs no script sees none that does nothing.
_SCRIPT = """
"use strict";
const buttonOf = () => {
  const button = document.createElement("button");
  button.type = "button";
  return button;
};
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = buttonOf();
    button.append(...head.childNodes);
    head.append(button);
    const cell = row => row.cells[column];
    const missing = row => cell(row).textContent.startsWith("–");
    const number = row => cell(row).dataset.value;
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const order = (a, b) => {
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        if (number(a) !== undefined && number(b) !== undefined) return sign * (number(a) - number(b));
        return sign * cell(a).textContent.localeCompare(cell(b).textContent);
      };
      body.append(...[...body.rows].sort(order));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    });
  });
}
for (const picture of document.querySelectorAll("figure img")) {
  const button = buttonOf();
  button.textContent = "Enlarge";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const large = picture.classList.toggle("large");
    button.setAttribute("aria-pressed", String(large));
    picture.parentElement.tabIndex = large ? 0 : -1;
  });
  picture.parentElement.after(button);
}
"""


@dataclass(frozen=True)
class Picture:
    """A figure from an SVG or PNG file; ``alt`` is what it says, for whoever cannot see it."""

    path: Path
    alt: str
    caption: str


@dataclass(frozen=True)
class Grid:
    """A table: lines of cells, titles first. The cells of column ``heading`` name their lines."""

    caption: str
    lines: Lines
    note: str = ""
    heading: int = 0


Block = str | Picture | Grid  # a paragraph, a figure, a table


@dataclass(frozen=True)
class Section:
    """A part of a page, under its title."""

    title: str
    blocks: Sequence[Block]


def write_page(path: Path, title: str, *sections: Section, opening: str = "") -> None:
    """Write a page of sections, whole. Everything given is text, none of it HTML."""
    style = _STYLE % {
        name: " ".join(f"--{role}: {colour};" for role, colour in theme.items())
        for name, theme in THEMES.items()
    }
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(_SCRIPT)}; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "\n".join(
        f'<li><a href="#part-{s}">{escape(section.title)}</a></li>' for s, section in enumerate(sections)
    )
    parts = "\n".join(
        f'<section id="part-{s}">\n<h2>{escape(section.title)}</h2>\n'
        + "\n".join(_block(block, f"part-{s}-{b}") for b, block in enumerate(section.blocks))
        + "\n</section>"
        for s, section in enumerate(sections)
    )
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
{f"<p>{escape(opening)}</p>" if opening else ""}
<nav aria-label="Contents">
<ul>
{links}
</ul>
</nav>
</header>
<main>
{parts}
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""
    write_whole(path, page)


def _hash(inline: str) -> str:
    """The source by which a policy allows this very script or style and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def _block(block: Block, name: str) -> str:
    if isinstance(block, Picture):
        return _picture(block)
    return _table(block, name) if isinstance(block, Grid) else f"<p>{escape(block)}</p>"


def _picture(picture: Picture) -> str:
    kind = KINDS[choose(f"ending of the figure {picture.path.name}", picture.path.suffix, KINDS)]
    try:
        content = base64.b64encode(picture.path.read_bytes()).decode()
    except OSError as reason:
        raise InputError(f"cannot read the figure {picture.path}: {reason.strerror}.") from reason
    return (
        '<figure>\n<div class="scroll">'
        f'<img src="data:{kind};base64,{content}" alt="{escape(picture.alt)}">'
        f"</div>\n<figcaption>{escape(picture.caption)}</figcaption>\n</figure>"
    )


def _table(grid: Grid, name: str) -> str:
    titles, *lines = grid.lines
    numeric = [j != grid.heading and _is_numeric([line[j] for line in lines]) for j in range(len(titles))]
    head = "".join(
        f'<th scope="col"{_NUMBER * number}>{escape(title)}</th>'
        for title, number in zip(titles, numeric, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(text)}</th>' if j == grid.heading else _cell(text, numeric[j])
            for j, text in enumerate(line)
        )
        + "</tr>"
        for line in lines
    )
    table = (
        f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0">\n<table>\n'
        f'<caption id="{name}"><span>{escape(grid.caption)}</span></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )
    if grid.note:
        table += f'\n<p class="note">{escape(grid.note)}</p>'
    if len(lines) <= LONG:
        return table
    return f"<details>\n<summary>{escape(grid.caption)} ({len(lines)} lines)</summary>\n{table}\n</details>"


_NUMBER = ' class="number"'


def _cell(text: str, number: bool) -> str:
    value = _leading_number(text) if number else None
    sorted_by = f' data-value="{value}"' if value else ""
    return f"<td{_NUMBER * number}{sorted_by}>{escape(text)}</td>"


def _leading_number(text: str) -> str | None:
    """The number by which a cell such as ``<0.001``, ``4.2 ± 0.3`` or ``3 of 5`` is sorted."""
    found = re.match(r"[<+]?([−-]?\d+(?:\.\d+)?)(?![\w.])", text)
    return found[1].replace("−", "-") if found else None


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether every cell is a number, or a dash where there is none."""
    known = [text for text in column if not text.startswith("–")]
    return bool(known) and all(_leading_number(text) for text in known)


def reproduction_page(
    path: Path,
    results: pd.DataFrame,
    recovery: pd.DataFrame | None,
    settings: Mapping[str, Any],
    versions: Mapping[str, Any],
    failures: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Sequence[Picture]],
    ours: str = OURS,
) -> None:
    """The page of ``fairvae reproduce``: what was run, what was found, and how to read it.

    ``figures`` are by heading, such as a data set and group; ``failures`` are lines by name.
    """
    sections = []
    if not results.empty:
        volumes, dominance = hypervolume_table(results, ours), dominance_table(results, ours=ours)
        sections.append(_summary(volumes, dominance, recovery, len(failures), ours))
    sections += [Section(f"Frontiers: {heading}", pictures) for heading, pictures in figures.items()]
    if not results.empty:
        sections += _comparisons(results, volumes, dominance)
    if recovery is not None and not recovery.empty:
        sections.append(_recovered(recovery))
    if failures:
        titles = list(dict.fromkeys(key for failure in failures for key in failure))
        lines = [titles, *([str(failure.get(key, "–")) for key in titles] for failure in failures)]
        sections.append(Section("Failures", [Grid("What did not finish, and why", lines)]))
    sections += [
        Section("How to read this", _READING),
        Section("Settings and versions", [_named("Settings", settings), _named("Versions", versions)]),
    ]
    opening = _what_ran(results, len(failures))
    write_page(path, "Fair-SS-VAE and its competitors, reproduced", *sections, opening=opening)


def _what_ran(results: pd.DataFrame, failures: int) -> str:
    """In a sentence."""
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
    rivals = volumes[~volumes["informed"].astype(bool) & (volumes["method"] != ours)]
    told = {words: int((rivals["verdict"] == words).sum()) for words in (BETTER, ALIKE, WORSE)}
    own = volumes[volumes["method"] == ours]
    name = own["label"].iloc[0] if len(own) else ours
    blocks: list[Block] = [
        f"“Ours” is {name}. By hypervolume, of {_count(len(rivals), 'comparison')} with an uninformed "
        f"method in a panel, ours is better in {told[BETTER]}, worse in {told[WORSE]}, and not told apart in "
        f"{told[ALIKE]} (paired t-tests over seeds at 5 %, corrected by Holm within a panel).",
        Grid("The largest hypervolumes of uninformed methods", _leaders(volumes, ours)),
        Grid("In how many panels ours has the least disparity at a given error", _wins(dominance, ours)),
    ]
    if recovery is not None and not recovery.empty:
        blocks.append(Grid("Rates of withholding recovered, beside the paper's", summary_lines(recovery)))
    if failures:
        blocks.append(f"What failed is in no table: {_count(failures, 'part')}, listed under Failures.")
    return Section("Summary", blocks)


def _leaders(volumes: pd.DataFrame, ours: str) -> Lines:
    """Panel by panel: the best uninformed method, ours, and the best other one."""
    lines = [["panel", "best", "its %", "ours %", "place of ours", "best other", "its %", "ours and it"]]
    for panel, of in by_panel(volumes):
        ranked = of[~of["informed"].astype(bool)].sort_values("mean", ascending=False).reset_index(drop=True)
        here, others = ranked[ranked["method"] == ours], ranked[ranked["method"] != ours]
        place = f"{here.index[0] + 1} of {len(ranked)}" if len(here) else "–"
        lines.append(
            [
                f"{panel['dataset']}, {panel['group']}, {panel['level']}, {metric_title(panel['metric'])}",
                *(_first(ranked, "label"), _first(ranked, "mean"), _first(here, "mean"), place),
                *(_first(others, "label"), _first(others, "mean"), _first(others, "verdict")),
            ]
        )
    return lines


def _first(of: pd.DataFrame, column: str) -> str:
    if of.empty:
        return "–"
    value = of[column].iloc[0]
    return (percent(value) if column == "mean" else str(value)) or "–"


def _wins(dominance: pd.DataFrame, ours: str) -> Lines:
    """Budget by budget: panels in which ours is best, and in which it is told apart from the best other."""
    lines = [["error above SS-VAE's", "panels", "ours within", "ours best", "told better", "told worse"]]
    for budget in dict.fromkeys(dominance["budget"]):
        of = dominance[dominance["budget"] == budget]
        counts = (
            of["ours_disparity"].notna(), of["best"] == ours, of["verdict"] == BETTER, of["verdict"] == WORSE
        )  # fmt: skip
        lines.append([budget_title(budget), str(len(of)), *(str(int(count.sum())) for count in counts)])
    return lines


def _comparisons(results: pd.DataFrame, volumes: pd.DataFrame, dominance: pd.DataFrame) -> list[Section]:
    """Hypervolumes, dominance and chosen members, tables of each data set and group."""
    titles = ("Hypervolumes", "Who is best at what error", "Chosen on validation")
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
                f"Means over seeds; ▼ is told apart as worse than ours, ▲ as better. {INFORMED_MEANS}.",
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
                "In %, where the method has a member within the budget in every seed; else in how many. "
                f"{INFORMED_MEANS}.",
            ),
        ]  # fmt: skip
        blocks[2].append(
            Grid(f"{place}: members chosen on validation", chosen_lines(in_chosen), f"{INFORMED_MEANS}.")
        )
    return [Section(title, found) for title, found in zip(titles, blocks, strict=True)]


def _recovered(recovery: pd.DataFrame) -> Section:
    return Section(
        "Table 1: who withholds",
        [
            "How often people of each group withhold it, as found from masked data alone. α is the rate of "
            "the group numbered 1 and β that of the group numbered 0; “paper” is the paper's Table 1.",
            Grid(
                "Rates of withholding: truth, the paper's figure, ours over seeds",
                recovery_lines(recovery),
                "Width is that of the 90 % interval; guide is the variational posterior, before calibration.",
                heading=2,
            ),
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
    "trained at several weights of its trade-off, in several seeds; a frontier is what its weights reach. "
    "Error and disparity are of the test part, and less of both is better: towards the lower left.",
    "DEO is the difference of equalized odds, DEOPP that of equal opportunity. Chance alone gives a "
    "perfectly fair classifier a DEO above 0, because groups of a test part are small. That floor is dotted "
    "in the figures; differences below it say little.",
    f"{INFORMED_MEANS}: they were given true labels or true groups that are masked in the data. They show "
    "what could be reached and are no fair rivals; they are never counted as best.",
    "The hypervolume of a frontier is the share of a box that its points dominate. The box reaches from 0 to "
    "the error of the constant classifier and to a disparity of 20 %. More is better; none reaches 100 %, "
    "for that takes no error at all. A method with more points has more chances, so that the hypervolume of "
    "one with a single point, such as SS-VAE, is small by nature.",
    "A budget of error allows a method those members whose test error is at most so much above that of "
    "SS-VAE without a fairness risk in the same seed. The least disparity among them is chosen on test, "
    "which flatters every method, and one of many points or much noise most. Members chosen on validation "
    "are free of that.",
    "Intervals are 95 % t-intervals over seeds. A seed draws split, mask and initial weights anew, but from "
    "the same rows: test parts overlap between seeds. Intervals and tests therefore speak of repeated splits "
    "of this data set, not of new data, for which they would be wider.",
    "“Not told apart” does not mean equal: few seeds tell little apart.",
)
