"""A report as one self-contained HTML file: no network, no other files, no fonts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pyro_fairvae.base.errors import InputError, choose
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.report.comparison import Lines

# Colours of text and links on the page and on raised parts; tests check the contrast.
THEMES = {
    "light": {"page": "#ffffff", "raised": "#f1f3f5", "text": "#1b1f24", "quiet": "#505862",
              "line": "#c8ced5", "link": "#0a58a6"},
    "dark": {"page": "#15181c", "raised": "#20252b", "text": "#e8eaed", "quiet": "#aab2bc",
             "line": "#434b55", "link": "#8cc2ff"},
}  # fmt: skip
PICTURE_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
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
figure.narrow { display: inline-block; width: min(100%%, 390px); margin: .5rem 1rem .5rem 0;
  vertical-align: top; }
figure img { display: block; max-width: 100%%; height: auto; background: #fff; border-radius: 4px; }
figure img.large { max-width: none; width: 110rem; }
figcaption, .note { color: var(--quiet); font-size: .9rem; }
.notice { padding: .6rem 1rem; background: var(--raised); border-left: .5rem solid #d55e00;
  font-weight: 600; }
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

# The script makes the buttons, so that a page without scripts has no buttons that do nothing.
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
    """A figure from an SVG or PNG file; ``alt`` is its alternative text.

    ``narrow`` ones stand beside each other where there is room.
    """

    path: Path
    alt: str
    caption: str
    narrow: bool = False


@dataclass(frozen=True)
class Grid:
    """A table: lines of cells, titles first. The cells of column ``heading`` name their lines."""

    caption: str
    lines: Lines
    note: str = ""
    heading: int = 0


@dataclass(frozen=True)
class Notice:
    """A paragraph that must not be overlooked."""

    words: str


Block = str | Picture | Grid | Notice  # a paragraph, a figure, a table, a warning


@dataclass(frozen=True)
class Section:
    """A part of a page, under its title."""

    title: str
    blocks: Sequence[Block]


def write_page(path: Path, title: str, *sections: Section, opening: str = "") -> None:
    """Write a page of sections to one file. All arguments are plain text and are escaped."""
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
    """The CSP source that allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def _block(block: Block, name: str) -> str:
    if isinstance(block, Picture):
        return _picture(block)
    if isinstance(block, Notice):
        return f'<p class="notice" role="note">{escape(block.words)}</p>'
    return _table(block, name) if isinstance(block, Grid) else f"<p>{escape(block)}</p>"


def _picture(picture: Picture) -> str:
    kind = PICTURE_KINDS[
        choose(f"ending of the figure {picture.path.name}", picture.path.suffix, PICTURE_KINDS)
    ]
    try:
        content = base64.b64encode(picture.path.read_bytes()).decode()
    except OSError as reason:
        raise InputError(f"cannot read the figure {picture.path}: {reason.strerror}.") from reason
    opening = '<figure class="narrow">' if picture.narrow else "<figure>"
    return (
        f'{opening}\n<div class="scroll">'
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
    match = re.match(r"[<+]?([−-]?\d+(?:\.\d+)?)(?![\w.])", text)
    return match[1].replace("−", "-") if match else None


def _is_numeric(column: Sequence[str]) -> bool:
    """Whether every cell is a number, or a dash for a missing one."""
    known = [text for text in column if not text.startswith("–")]
    return bool(known) and all(_leading_number(text) for text in known)
