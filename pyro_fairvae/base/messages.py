"""Text for people: names with control characters shown escaped, and messages of one line."""

from __future__ import annotations

import re

# What a terminal obeys instead of showing it, and what reorders or hides text; lines and tabs stay.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Text with control characters escaped, ``\\x1b`` for the one that begins commands to a terminal."""
    return CONTROL.sub(lambda found: _escaped(found.group()), text)


def in_one_line(text: str) -> str:
    """Printable text whose line breaks and tabs are escaped, too: a name inside of a line."""
    return re.sub("[\t\n]", lambda found: _escaped(found.group()), printable(text))


def one_line(reason: object) -> str:
    """The message of an error without line breaks, printable."""
    return printable(" ".join(str(reason).split()))


def first_line(reason: BaseException) -> str:
    """The first line of another library's message that tells something, without its full stop.

    A line that ends with a colon only announces the next one.
    """
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    told: list[str] = []
    for line in lines:
        told.append(line)
        if not line.endswith(":"):
            break
    return one_line(" ".join(told)).rstrip(".: ") or type(reason).__name__


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
