"""JSON documents, validated by a typed schema, and YAML; invalid ones raise an error of one sentence."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import write_json
from pyro_fairvae.base.folders import read_current
from pyro_fairvae.base.messages import first_line, one_line

T = TypeVar("T")


def read_document(path: Path, schema: type[T], what: str, remedy: str = "", sealed: bool = False) -> T:
    """Read a JSON file as ``schema``, a type that msgspec supports; with ``sealed`` its digest must be in it.

    A file that is missing, damaged or of another kind raises :class:`InputError`, which states what the file
    should be (``what``) and what to do about it (``remedy``). A digest is compared wherever there is one.
    """
    content = read_json(path, what, remedy)
    if isinstance(content, dict) and (sealed or "sha256" in content):
        digest = content.pop("sha256", None)
        require(
            digest == digest_of(content),
            f"{path} is not {what}, is damaged, or is of an earlier version: its content does not match its "
            f"SHA-256.{_then(remedy)}",
        )
    return check_document(content, schema, str(path), what, remedy)


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with the SHA-256 of its content."""
    write_json(path, sealed_content(content))


def sealed_content(content: dict[str, Any]) -> dict[str, Any]:
    """Content for a JSON file together with its SHA-256."""
    content = as_read(content)
    return {"sha256": digest_of(content)} | content


def as_read(content: Any) -> Any:
    """JSON content as a reader gets it, with None for numbers that are not finite."""
    return json.loads(json.dumps(content), parse_constant=lambda _: None)


def digest_of(content: Any) -> str:
    """The SHA-256 of JSON content as it is read."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, what: str, remedy: str = "") -> Any:
    """Read a JSON file without validating its content."""
    try:
        # The standard library's parser returns numbers as its writer wrote them; NaN is rejected.
        return json.loads(read_text(path), parse_constant=_refuse)
    except OSError as reason:
        raise InputError(f"cannot read {path}, {what}: {reason.strerror}.{_then(remedy)}") from reason
    except (ValueError, RecursionError) as reason:
        raise InputError(
            f"{path} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def read_bytes(path: Path) -> bytes:
    """The content of a file; a device, which may have no end, raises OSError."""
    if path.is_char_device() or path.is_block_device():
        raise OSError(errno.EINVAL, "it is a device", str(path))
    return read_current(path)


def read_text(path: Path) -> str:
    """The content of a file in UTF-8."""
    return read_bytes(path).decode("utf-8")


def check_document(content: Any, schema: type[T], where: str, what: str, remedy: str = "") -> T:
    """Convert parsed JSON ``content`` to ``schema``; the error names the first field that does not fit."""
    try:
        return msgspec.convert(content, schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
        raise InputError(
            f"{where} is not {what}, or is damaged: {one_line(reason)}.{_then(remedy)}"
        ) from reason


def read_yaml(text: str, what: str, strings: bool = False) -> Any:
    """YAML without references, which could grow without bounds; with ``strings`` every scalar is a string."""
    loader = _PlainStrings if strings else _PlainYaml
    try:
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as reason:
        place = reason.problem_mark
        where = "" if place is None else f" in line {place.line + 1}, column {place.column + 1}"
        raise InputError(f"{what} is not valid YAML: {one_line(reason.problem)}{where}.") from reason
    except RecursionError as reason:
        raise InputError(f"{what} is nested too deeply; give fewer levels.") from reason
    # Besides its own errors the parser raises what Python's types raise, of which there are many.
    except Exception as reason:
        raise InputError(f"{what} is not valid YAML: {first_line(reason)}.") from reason


class _WithoutReferences:
    """Refuses anchors and aliases: nine lines of them can stand for a billion values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[attr-defined]
        if getattr(event, "anchor", None) is not None:
            raise yaml.composer.ComposerError(
                None, None, "references (& and *) are not supported", event.start_mark
            )
        return super().compose_node(parent, index)  # type: ignore[misc]


class _PlainYaml(_WithoutReferences, yaml.SafeLoader):
    pass


class _PlainStrings(_WithoutReferences, yaml.BaseLoader):
    pass


@contextmanager
def damage_in(where: Path, remedy: str) -> Iterator[None]:
    """Report errors in the ``with`` block as damage of files whose content has no schema."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as reason:
        raise InputError(
            f"a file in {where} is damaged: {type(reason).__name__}, {first_line(reason)}. {remedy}"
        ) from reason


def finite_or_nan(value: float | None) -> float:
    """A number read from JSON, where null stands for one that is not finite: None becomes NaN."""
    return math.nan if value is None else value


def _refuse(word: str) -> Any:
    raise ValueError(f"it contains {word}, which is not valid JSON")


def _then(remedy: str) -> str:
    return f" {remedy}" if remedy else ""
