"""What is right: a valid result, or one line that says what is wrong with the input."""

from __future__ import annotations

import signal
import unicodedata
from collections.abc import Callable

from tests.torture.forked import Ended

WARNING, REFUSAL = "fairvae: warning: ", "fairvae: "
DIVERGED, CLOSED = 3, 141  # exit codes that the commands document
KEPT = "\n\t\r"  # control characters that printed text may have
SHOWN = 600  # characters of what went wrong


def wrong_with(ended: Ended, check: Callable[[], str] | None = None, closed: bool = False) -> str:
    """What is wrong with how a command ended, or nothing; ``check`` looks at what a success left behind."""
    if ended.code in (None, -signal.SIGXCPU):
        return f"no end after {ended.seconds:.0f} s; {_last(ended.err)}"
    if "Traceback" in ended.err or "Traceback" in ended.out:
        return f"a traceback, exit code {ended.code}: {_last(ended.err or ended.out)}"
    for stream in (ended.out, ended.err):
        raw = sorted({letter for letter in stream if _is_control(letter)})
        if raw:
            return f"control characters are printed as they are: {raw}: {_line_with(stream, raw[0])!r}"
    if ended.code == 0:
        return check() if check is not None else ""
    if closed and ended.code == CLOSED:
        return ""
    if ended.code not in (2, DIVERGED):
        return f"exit code {ended.code}: {_last(ended.err)}"
    return _wrong_words(ended)


def _wrong_words(ended: Ended) -> str:
    """What is wrong with the words of a refusal: the usage of argparse, or one line, the last of stderr."""
    lines = [line for line in ended.err.replace("\r", "\n").splitlines() if line.strip()]
    if not lines:
        return f"exit code {ended.code} without a word"
    if lines[0].startswith("usage: ") and ": error: " in ended.err:
        return ""
    says = [line for line in lines if line.startswith(REFUSAL) and not line.startswith(WARNING)]
    if len(says) != 1 or not lines[-1].startswith(REFUSAL):
        return (
            f"exit code {ended.code}, expected one line that begins with {REFUSAL!r}: {ended.err[-SHOWN:]!r}"
        )
    if len(says[0]) > 20 * SHOWN:
        return f"a line of {len(says[0])} characters: {says[0][:SHOWN]!r}"
    return ""


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" and letter not in KEPT


def _line_with(stream: str, letter: str) -> str:
    return next(line for line in stream.split("\n") if letter in line)[:SHOWN]


def _last(text: str) -> str:
    """The last lines of a traceback, which say what was raised and where."""
    lines = [line.strip() for line in text.strip().splitlines()]
    places = [line for line in lines if line.startswith("File ") and "pyro_fairvae" in line]
    return " | ".join([*places[-1:], *lines[-1:]])[:SHOWN]
