"""Messages of progress."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]  # called with one message of progress


def silent(message: str) -> None:
    """A :data:`Report` that shows nothing."""
