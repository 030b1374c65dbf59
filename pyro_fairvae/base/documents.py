"""JSON documents, read through a typed schema or refused in one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pyro_fairvae.base.errors import InputError

T = TypeVar("T")


def read_document(path: Path, schema: type[T], what: str, remedy: str = "") -> T:
    """The content of a JSON file as ``schema``, a type that msgspec knows.

    A file that is missing, damaged or of another kind raises :class:`InputError`, which says what the file
    should be (``what``) and what to do about it (``remedy``).
    """
    return check_document(read_json(path, what, remedy), schema, str(path), what, remedy)


def read_json(path: Path, what: str, remedy: str = "") -> Any:
    """The content of a JSON file, whatever it is."""
    try:
        # The standard library's reader gives numbers as written by its writer, NaN refused.
        return json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
    except OSError as reason:
        raise InputError(f"cannot read {path}, {what}: {reason.strerror}.{_then(remedy)}") from reason
    except (ValueError, RecursionError) as reason:
        raise InputError(
            f"{path} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def check_document(content: Any, schema: type[T], where: str, what: str, remedy: str = "") -> T:
    """``content``, as JSON gives it, as ``schema``; the error names the first field that does not fit."""
    try:
        return msgspec.convert(content, schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
        raise InputError(
            f"{where} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def one_line(reason: BaseException) -> str:
    """What an error says, without its line breaks and without characters that cannot be printed."""
    return " ".join(str(reason).encode("utf-8", "backslashreplace").decode().split())


def finite_or_nan(value: float | None) -> float:
    """A number as it was before JSON, which writes those that are not finite as null."""
    return math.nan if value is None else value


def _refuse(word: str) -> Any:
    raise ValueError(f"it holds {word}, which is no JSON")


def _then(remedy: str) -> str:
    return f" {remedy}" if remedy else ""
