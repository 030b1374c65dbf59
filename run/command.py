"""What all commands do alike: options of a dataclass, and errors that are the caller's to mend."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from pyro_fairvae.errors import InputError
from pyro_fairvae.options import Option, options_of


def add_options(parser: argparse.ArgumentParser, cls: type, leave_out: Sequence[str] = ()) -> None:
    """An argument for each option of ``cls``; those not given stay out of the namespace."""
    for option in options_of(cls).values():
        if option.name in leave_out:
            continue
        flag = f"--{option.name.replace('_', '-')}"
        parser.add_argument(
            flag, dest=option.name, default=argparse.SUPPRESS, metavar=_metavar(option), help=_help(option)
        )


def given_options(arguments: argparse.Namespace, cls: type) -> dict[str, Any]:
    """The options of ``cls`` that were given on the command line."""
    return {name: value for name, value in vars(arguments).items() if name in options_of(cls)}


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse and act: exit code 2 with one message for bad input, 130 when interrupted."""
    arguments = parser.parse_args(argv)
    try:
        arguments.action(arguments)
    except InputError as error:
        print(f"fairvae: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nfairvae: interrupted. The same command goes on; train needs --resume, and no --overwrite.",
            file=sys.stderr,
        )
        return 130
    return 0


def _metavar(option: Option) -> str:
    word = {"int": "N", "float": "X", "str": "NAME"}[option.kind.__name__]
    return f"{word},{word},…" if option.many else word


def _help(option: Option) -> str:
    if option.default is None:
        return option.help
    each = (
        [value if isinstance(value, str) else f"{value:g}" for value in option.default or ()]
        if option.many
        else []
    )
    default = ",".join(each) if option.many else option.default
    return f"{option.help} (default: {default})".replace("%", "%%")
