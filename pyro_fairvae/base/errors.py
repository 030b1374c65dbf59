"""Errors whose messages state what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """An input cannot be used; the message states what was given, what was expected, and what to do.

    A ``ValueError``, so that callers can catch it without importing this package. ``parameters`` are the
    names of the parameters that can fix it, which a command shows as its flags.

    Examples
    --------
    >>> from pyro_fairvae import InputError, Missingness
    >>> try:
    ...     Missingness(unavailable=(1.2, 0.4))
    ... except InputError as error:
    ...     print(error)
    rate unavailable must be within [0, 1], got 1.2.
    """

    def __init__(self, message: str, *parameters: str) -> None:
        super().__init__(message)
        self.parameters = parameters


class DivergedError(ArithmeticError):
    """Training produced numbers that are not finite; the message states where, and which options to lower."""


def choose(what: str, given: Any, table: Iterable[str]) -> str:
    """Return ``given`` if it is a name in ``table``, else raise with the nearest name."""
    names = sorted(table)
    if given in names:
        return str(given)
    nearest = difflib.get_close_matches(str(given), names, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise InputError(f"unknown {what} {given!r}; expected one of {', '.join(names)}.{hint}")


def require(condition: bool, message: str, *parameters: str) -> None:
    """Raise :class:`InputError` with ``message`` and ``parameters`` unless ``condition`` holds."""
    if not condition:
        raise InputError(message, *parameters)
