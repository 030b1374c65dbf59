"""What a command writes to the terminal: letters that it has, and nothing that it would obey."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from pyro_fairvae.base.messages import printable

# The library's own letters where the encoding of the terminal lacks them; others are escaped.
IN_ASCII = {
    "Ŷ": "Y^", "ŷ": "y^", "ỹ": "y~", "ã": "a~", "\u0302": "^", "∅": "none", "λ": "lambda", "α": "alpha",
    "β": "beta", "γ": "gamma", "ε": "epsilon", "κ": "kappa", "ν": "nu", "π": "pi", "χ": "chi", "ω": "omega",
    "Ω": "Omega", "θ": "theta", "σ": "sigma", "²": "^2", "±": "+/-", "×": "x", "·": "*", "−": "-",
    "–": "-", "…": "...", "≤": "<=", "≥": ">=", "≠": "!=", "∞": "inf", "∝": "~",
}  # fmt: skip


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    words = (IN_ASCII.get(letter) or _escaped(letter) for letter in lacking)
    return "".join(words), error.end


def _escaped(letter: str) -> str:
    return letter.encode("ascii", "backslashreplace").decode("ascii")


codecs.register_error("fairvae_in_ascii", _in_ascii)


class StdoutError(Exception):
    """Results cannot be written to stdout; ``closed`` if its reader has gone, such as head."""

    def __init__(self, reason: OSError | ValueError) -> None:
        self.closed = isinstance(reason, BrokenPipeError)
        super().__init__(getattr(reason, "strerror", None) or str(reason))


class ShownText:
    """A stream that shows control characters escaped, and letters that its encoding lacks in others.

    Results that cannot be written raise :class:`StdoutError`; progress that cannot be written is dropped.
    """

    def __init__(self, stream: TextIO, results: bool) -> None:
        self._stream, self._results = stream, results

    def write(self, text: str) -> int:
        # A progress bar returns to the start of its line; a name inside of a text must not.
        start = "\r" if text.startswith("\r") else ""
        end = "\r" if len(text) > 1 and text.endswith("\r") and not text.strip() else ""
        shown = start + printable(text[len(start) : len(text) - len(end)]) + end
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        shown = shown.encode(encoding, "fairvae_in_ascii").decode(encoding)
        self._tried(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        self._tried(self._stream.flush)

    def _tried(self, action: Any) -> None:
        try:
            action()
        except (OSError, ValueError) as reason:  # ValueError: closed
            if self._results:
                raise StdoutError(reason) from reason

    def end(self) -> None:
        """Leave nothing that the interpreter would try to write when it ends, and fail to."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # it may have no file
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def shown_on_terminal() -> Iterator[None]:
    """Inside the ``with`` block stdout and stderr are :class:`ShownText`; closed ones take everything."""
    _open_closed_files()
    given = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        shown = (
            ShownText(sys.stdout or nowhere, results=True),
            ShownText(sys.stderr or nowhere, results=False),
        )
        sys.stdout, sys.stderr = shown
        try:
            yield
        finally:
            sys.stdout, sys.stderr = given
            for stream in shown:
                stream.end()


def _open_closed_files() -> None:
    """Keep files that are opened later from taking the numbers of stdin, stdout and stderr."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
