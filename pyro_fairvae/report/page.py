"""A report as one self-contained HTML file: no network, no other files, no fonts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pyro_fairvae.base.errors import InputError, choose
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.report.comparison import Lines
from pyro_fairvae.report.drawings import Bar, Plane, bar_svg, plane_svg
from pyro_fairvae.report.page_style import SCRIPT, STYLE, THEMES

PICTURE_KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
LONG = 40  # lines above which a table is folded


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


@dataclass(frozen=True)
class Heading:
    """The title of what follows within a section."""

    words: str


@dataclass(frozen=True)
class Command:
    """A paragraph that ends with a command to type."""

    words: str
    command: str


@dataclass(frozen=True)
class Tile:
    """A figure that stands out, with what it is and a note."""

    title: str
    figure: str
    note: str = ""


@dataclass(frozen=True)
class Tiles:
    """Figures side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Bars:
    """Bars by kind; ``ends`` has those of the axis of each kind, which are all from 0 to 1 without it."""

    caption: str
    bars: Sequence[Bar]
    note: str = ""
    ends: Mapping[str, tuple[float, float]] | None = None


@dataclass(frozen=True)
class Choice:
    """One of several that are shown one at a time: its name, what it is in one sentence, and the rest."""

    name: str
    words: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Chooser:
    """A slider over choices, of which one is ``chosen`` at first, and on paper none.

    ``ends`` are what the first and the last choice are; ``back`` is a button's label.
    """

    label: str
    ends: tuple[str, str]
    back: str
    choices: Sequence[Choice]
    chosen: int
    plane: Plane | None = None


# A paragraph, a figure, a table, a warning, ….
Block = str | Picture | Grid | Notice | Heading | Command | Tiles | Bars | Chooser


@dataclass(frozen=True)
class Section:
    """A part of a page, under its title."""

    title: str
    blocks: Sequence[Block]


def write_page(
    path: Path, title: str, *sections: Section, opening: str = "", notices: Sequence[str] = ()
) -> None:
    """Write a page of sections to one file. All arguments are plain text and are escaped.

    ``notices`` stand at the top.
    """
    style = STYLE % {
        name: " ".join(f"--{role}: {colour};" for role, colour in theme.items())
        for name, theme in THEMES.items()
    }
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(SCRIPT)}; "
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
    alarms = "\n".join(_block(Notice(words), "") for words in notices)
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
{alarms}
<nav aria-label="Contents">
<ul>
{links}
</ul>
</nav>
</header>
<main>
{parts}
</main>
<script>{SCRIPT}</script>
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
    if isinstance(block, Grid):
        return _table(block, name)
    if isinstance(block, Bars):
        return _bars(block, name)
    if isinstance(block, Chooser):
        return _chooser(block, name)
    if isinstance(block, Notice):
        return f'<p class="notice" role="note">{escape(block.words)}</p>'
    if isinstance(block, Heading):
        return f"<h3>{escape(block.words)}</h3>"
    if isinstance(block, Command):
        return f"<p>{escape(block.words)} <code>{escape(block.command)}</code></p>"
    return _tiles(block) if isinstance(block, Tiles) else f"<p>{escape(block)}</p>"


def _tiles(block: Tiles) -> str:
    tiles = "\n".join(
        f'<div><dt>{escape(tile.title)}</dt><dd class="figure">{_unbroken(tile.figure)}</dd>'
        + (f'<dd class="note">{_unbroken(tile.note)}</dd>' if tile.note else "")
        + "</div>"
        for tile in block.tiles
    )
    return f'<dl class="tiles">\n{tiles}\n</dl>'


def _unbroken(words: str) -> str:
    """Text in which a number and its unit stay on one line."""
    return escape(words).replace(" %", "&nbsp;%")


def _bars(block: Bars, name: str) -> str:
    """A table with a bar in each line; what is drawn is also said in words."""
    lines = []
    kind = None
    for bar in block.bars:
        if bar.kind != kind:
            kind = bar.kind
            lines.append(f'<tr><th class="kind" scope="rowgroup" colspan="3">{escape(kind)}</th></tr>')
        ends = (0.0, 1.0) if block.ends is None else block.ends[kind]
        lines.append(
            f'<tr><th scope="row">{escape(bar.of)}</th><td aria-hidden="true">{bar_svg(bar, ends)}</td>'
            f"<td{_NUMBER}>{escape(bar.text)} <span>{escape(bar.ends)}</span></td></tr>"
        )
    note = f'\n<p class="note">{escape(block.note)}</p>' if block.note else ""
    body = "\n".join(lines)
    return (
        f'<table class="bars">\n<caption id="{name}"><span>{escape(block.caption)}</span></caption>\n'
        '<colgroup><col class="name"><col><col class="words"></colgroup>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>{note}"
    )


def _chooser(block: Chooser, name: str) -> str:
    """A slider, which the script shows, and all choices, of which it then shows one at a time."""
    choices = "\n".join(
        f'<div class="choice" data-name="{escape(choice.name)}" data-words="{escape(choice.words)}">\n'
        f'<h3>{escape(choice.name)}</h3>\n<p class="told">{escape(choice.words)}</p>\n'
        + "\n".join(_block(inner, f"{name}-{k}-{b}") for b, inner in enumerate(choice.blocks))
        + "\n</div>"
        for k, choice in enumerate(block.choices)
    )
    plane = "" if block.plane is None else plane_svg(block.plane, block.chosen)
    first, last = (f'<span aria-hidden="true">{escape(end)}</span>' for end in block.ends)
    return (
        f'<div class="chooser">\n<div class="control" hidden>\n'
        f'<label for="{name}-range">{escape(block.label)}</label>\n'
        f'<input type="range" id="{name}-range" min="0" max="{len(block.choices) - 1}" step="1" '
        f'value="{block.chosen}" autocomplete="off" data-back="{escape(block.back)}" '
        f'aria-valuetext="{escape(block.choices[block.chosen].name)}" aria-describedby="{name}-now">\n'
        f'<div class="ends">{first}{last}</div>\n'
        f'<output id="{name}-now" for="{name}-range" aria-live="polite"></output>\n</div>\n'
        f"{plane}\n{choices}\n</div>"
    )


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
