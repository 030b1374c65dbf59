"""JSON documents, validated by a typed schema; invalid ones raise an error of one sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pyro_fairvae.base.errors import InputError

T = TypeVar("T")


def read_document(path: Path, schema: type[T], what: str, remedy: str = "") -> T:
    """Read a JSON file as ``schema``, a type that msgspec supports.

    A file that is missing, damaged or of another kind raises :class:`InputError`, which states what the file
    should be (``what``) and what to do about it (``remedy``).
    """
    return check_document(read_json(path, what, remedy), schema, str(path), what, remedy)


def read_json(path: Path, what: str, remedy: str = "") -> Any:
    """Read a JSON file without validating its content."""
    try:
        # The standard library's parser returns numbers as its writer wrote them; NaN is rejected.
        return json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
    except OSError as reason:
        raise InputError(f"cannot read {path}, {what}: {reason.strerror}.{_then(remedy)}") from reason
    except (ValueError, RecursionError) as reason:
        raise InputError(
            f"{path} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def check_document(content: Any, schema: type[T], where: str, what: str, remedy: str = "") -> T:
    """Convert parsed JSON ``content`` to ``schema``; the error names the first field that does not fit."""
    try:
        return msgspec.convert(content, schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
        raise InputError(
            f"{where} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def one_line(reason: BaseException) -> str:
    """The message of an error, without line breaks and without characters that cannot be printed."""
    return " ".join(str(reason).encode("utf-8", "backslashreplace").decode().split())


def finite_or_nan(value: float | None) -> float:
    """A number read from JSON, where null stands for one that is not finite: None becomes NaN."""
    return math.nan if value is None else value


def _refuse(word: str) -> Any:
    raise ValueError(f"it contains {word}, which is not valid JSON")


def _then(remedy: str) -> str:
    return f" {remedy}" if remedy else ""
