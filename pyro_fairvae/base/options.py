"""Settings as dataclasses with help texts, and the flat options derived from them.

A field made by :func:`option` carries its help. Nested dataclasses flatten into one namespace, from
which a command line or a file sets them by name.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyro_fairvae.base.errors import InputError, choose
from pyro_fairvae.base.messages import first_line

T = TypeVar("T")
LARGEST = 2**63 - 1  # whole number that other libraries take


def option(default: Any, help: str | Callable[[], str], words: tuple[str, ...] = ()) -> Any:
    """A dataclass field with a default and a help text, or a function that returns the text when needed.

    ``words`` may be given in place of numbers.
    """
    return dataclasses.field(default=default, metadata={"help": help, "words": words})


def nested(cls: type) -> Any:
    """A dataclass field that holds further options."""
    return dataclasses.field(default_factory=cls)


@dataclass(frozen=True)
class Option:
    """A flat option: ``kind`` is int, float or str; a list of them where ``is_list``."""

    name: str
    kind: type
    is_list: bool
    optional: bool
    default: Any
    help: str
    words: tuple[str, ...] = ()  # that may stand for a number

    def read(self, value: Any) -> Any:
        """``value`` as this option's type, or an :class:`InputError` that states what was expected."""
        if value is None and self.optional:
            return None
        if self.is_list:
            values = value.split(",") if isinstance(value, str) else value
            if self.kind is str and isinstance(value, str):
                values = [word.strip() for word in values if word.strip()]
            if not isinstance(values, (list, tuple)):
                values = [values]
            return tuple(self._read_one(item) for item in values)
        return self._read_one(value)

    def _read_one(self, value: Any) -> Any:
        if isinstance(value, str) and value.strip() in self.words:
            return value.strip()
        if self.kind is str and isinstance(value, Mapping):
            return _as_json(self.name, value)
        try:
            read = self.kind(value)
            exact = not isinstance(value, bool) and (self.kind is not int or float(value) == read)
        except (TypeError, ValueError, OverflowError):
            exact = False
        if not exact:
            what = {"int": "a whole number", "float": "a number", "str": "a word"}[self.kind.__name__]
            what = ", or ".join((what, *self.words))
            raise InputError(f"option {self.name} expects {what}, got {value!r}.")
        if self.kind is int and abs(read) > LARGEST:
            raise InputError(f"option {self.name} expects a whole number up to {LARGEST}, got {value!r}.")
        return read


def _as_json(name: str, value: Mapping[str, Any]) -> str:
    """A mapping as text that is valid YAML, too."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as reason:
        raise InputError(
            f"option {name} expects words and numbers in its mapping: {first_line(reason)}."
        ) from reason


def options_of(cls: type) -> dict[str, Option]:
    """All options of a dataclass, nested ones included, by name."""
    hints = typing.get_type_hints(cls)
    options: dict[str, Option] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            options |= options_of(typing.cast(type, hint))
            continue
        alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        optional = type(None) in alternatives
        (kind,) = (alternative for alternative in alternatives if alternative is not type(None))
        is_list = typing.get_origin(kind) is tuple
        item = typing.get_args(kind)[0] if is_list else kind
        options[field.name] = Option(
            field.name,
            float if item == float | str else item,
            is_list,
            optional,
            field.default,
            _in_words(field.metadata["help"]),
            field.metadata["words"],
        )
    return options


def _in_words(help: str | Callable[[], str]) -> str:
    return help if isinstance(help, str) else help()


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build an instance of ``cls`` from flat values; unknown names raise an error."""
    known = options_of(cls)
    for name in values:
        choose("option", name, known)
    return _build(cls, {name: known[name].read(value) for name, value in values.items()})


def changed(instance: T, values: Mapping[str, Any]) -> T:
    """A copy of ``instance`` with some options changed, by their flat names."""
    known = options_of(type(instance))
    for name in values:
        choose("option", name, known)
    return _changed(instance, {name: known[name].read(value) for name, value in values.items()})


def _changed(instance: T, values: Mapping[str, Any]) -> T:
    given: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, instance)):
        current = getattr(instance, field.name)
        if dataclasses.is_dataclass(current):
            given[field.name] = _changed(current, values)
        elif field.name in values:
            given[field.name] = values[field.name]
    return dataclasses.replace(typing.cast(Any, instance), **given)


def _build(cls: type[T], values: Mapping[str, Any]) -> T:
    hints = typing.get_type_hints(cls)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            given[field.name] = _build(typing.cast(type, hint), values)
        elif field.name in values:
            given[field.name] = values[field.name]
    return cls(**given)


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    """Nested options by their flat names, in types that JSON supports."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value)
        else:
            flat[name] = list(value) if isinstance(value, tuple) else value
    return flat
