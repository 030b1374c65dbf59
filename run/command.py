"""What all commands do alike: options of a dataclass, and errors that are the caller's to mend."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pyro_fairvae.base.errors import DivergedError, InputError, require
from pyro_fairvae.base.options import Option, options_of
from pyro_fairvae.inference.training import resolve_device, skip_validation


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


def add_place(parser: argparse.ArgumentParser, out: str) -> None:
    """Where a study happens, which does not decide its numbers."""
    parser.add_argument(
        "--out", type=Path, default=Path(out), help=f"folder for what it produces (default: {out})"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's files, as in training")
    parser.add_argument("--threads", type=int, help="CPU threads; all cores unless given")


def prepare(arguments: argparse.Namespace) -> torch.device:
    """Set threads and speed as a study wants them; the device that was asked for."""
    if arguments.threads is not None:
        require(arguments.threads >= 1, f"threads must be at least 1, got {arguments.threads}.")
        torch.set_num_threads(arguments.threads)
    skip_validation()
    return resolve_device(arguments.device)


def report(words: str) -> None:
    """Progress in words, beside what the command prints."""
    print(words, file=sys.stderr, flush=True)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse and act: exit code 2 for bad input, 3 if training diverged, 130 interrupted, 141 unread."""
    arguments = parser.parse_args(argv)
    try:
        arguments.action(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads what is printed has had enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except InputError as error:
        print(f"fairvae: {error}", file=sys.stderr)
        return 2
    except DivergedError as error:
        print(f"fairvae: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(
            "\nfairvae: interrupted. The same command goes on; train needs --resume, and no --overwrite.",
            file=sys.stderr,
        )
        return 130
    return 0


def _metavar(option: Option) -> str:
    word = {"int": "N", "float": "X", "str": "NAME"}[option.kind.__name__]
    return f"{word},{word},…" if option.is_list else word


def _help(option: Option) -> str:
    if option.default is None:
        return option.help
    each = (
        [value if isinstance(value, str) else f"{value:g}" for value in option.default or ()]
        if option.is_list
        else []
    )
    default = ",".join(each) if option.is_list else option.default
    return f"{option.help} (default: {default})".replace("%", "%%")
