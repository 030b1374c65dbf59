"""What all commands share: flags from the options of a dataclass, and exit codes for errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.errors import DivergedError, InputError, require
from pyro_fairvae.base.options import Option, option, options_of
from pyro_fairvae.inference.training import skip_validation

FOLDERS = ("out", "data_dir")  # options that name a folder


@dataclass(frozen=True)
class Machine:
    """The device and threads of a command. They do not change its results."""

    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = option(None, "CPU threads (default: all cores)")

    def __post_init__(self) -> None:
        require(self.threads is None or self.threads >= 1, f"threads must be at least 1, got {self.threads}.")

    def prepare(self) -> torch.device:
        """Set the number of threads, turn off Pyro's validation, and return the device."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        skip_validation()
        return resolve_device(self.device)


@dataclass(frozen=True)
class DataFolder:
    """Where the files of a data set are."""

    data_dir: str | None = option(
        None, "folder with the data set's files (default: $FAIRVAE_DATA, the cache, or fetched)"
    )


def add_options(
    parser: argparse.ArgumentParser,
    cls: type,
    leave_out: Sequence[str] = (),
    exclusive: Sequence[str] = (),
) -> None:
    """Add a flag for each option of ``cls``; options that were not given are ``None`` in the namespace.

    At most one of the options named in ``exclusive`` may be given.
    """
    group = parser.add_mutually_exclusive_group() if exclusive else parser
    for name, declared in options_of(cls).items():
        if name not in leave_out:
            container = group if name in exclusive else parser
            container.add_argument(flag_of(name), dest=name, metavar=_metavar(declared), help=_help(declared))


def given_options(arguments: argparse.Namespace, cls: type) -> dict[str, Any]:
    """The options of ``cls`` that were given on the command line."""
    names = options_of(cls)
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def flag_of(name: str) -> str:
    """The flag of an option or a parameter: --lambda for ``lambda_``."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add --device and --threads, which :func:`prepare` reads."""
    add_device(parser)
    parser.add_argument("--threads", type=int, metavar="N", help=_help(options_of(Machine)["threads"]))


def add_device(parser: argparse.ArgumentParser, default: str = "auto") -> None:
    """Add --device alone, for a command whose workers have one thread each."""
    declared = replace(options_of(Machine)["device"], default=default)
    parser.add_argument("--device", default=default, metavar="NAME", help=_help(declared))


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add --data-dir, the folder with a data set's files."""
    declared = options_of(DataFolder)["data_dir"]
    parser.add_argument("--data-dir", type=Path, metavar=_metavar(declared), help=_help(declared))


def add_place(parser: argparse.ArgumentParser, out: str) -> None:
    """Add --out, --quiet, --device, --threads and --data-dir, which do not change the results of a study."""
    parser.add_argument(
        "--out", type=Path, default=Path(out), metavar="DIR",
        help=f"folder for the results (default: {out})",
    )  # fmt: skip
    add_quiet(parser, "no progress in words")
    add_machine(parser)
    add_data_dir(parser)


def add_quiet(parser: argparse._ActionsContainer, help: str = "no progress bar") -> None:
    """Add --quiet, with which a command prints no progress."""
    parser.add_argument("--quiet", action="store_true", help=help)


def add_suggest(parser: argparse._ActionsContainer) -> None:
    """Add --suggest, with which a command compares columns that withholding could depend on."""
    parser.add_argument(
        "--suggest",
        action="store_true",
        help="order columns by how much of the withholding they explain that the model does not, for "
        "--withholding-depends-on (by χ² less its degrees of freedom)",
    )


def prepare(arguments: argparse.Namespace) -> torch.device:
    """Apply the flags of :func:`add_machine` and return the device."""
    return Machine(arguments.device, arguments.threads).prepare()


def progress_of(arguments: argparse.Namespace) -> Callable[[str], None]:
    """:func:`report`, or nothing with --quiet."""
    return (lambda words: None) if arguments.quiet else report


def report(words: str) -> None:
    """Print a progress message to stderr; stdout is for results."""
    print(words, file=sys.stderr, flush=True)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse and run; exit code 2: bad input, 3: training diverged, 130: interrupted, 141: stdout closed."""
    arguments = parser.parse_args(argv)
    try:
        arguments.action(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # stdout closed by the reader, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except InputError as error:
        print(f"fairvae: {in_flags(error, arguments)}", file=sys.stderr)
        return 2
    except DivergedError as error:
        print(f"fairvae: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(
            "\nfairvae: interrupted. Run the same command again to continue; train needs --resume, and no "
            "--overwrite.",
            file=sys.stderr,
        )
        return 130
    return 0


def in_flags(error: InputError, arguments: argparse.Namespace) -> str:
    """The message of an error, followed by the command's flags for the parameters that it names."""
    flags = [flag_of(name) for name in error.parameters if hasattr(arguments, name)]
    return f"{error} See {', '.join(flags)}." if flags else str(error)


def _metavar(option: Option) -> str:
    word = (
        "DIR" if option.name in FOLDERS else {"int": "N", "float": "X", "str": "NAME"}[option.kind.__name__]
    )
    return f"{word},{word},…" if option.is_list else word


def _help(option: Option) -> str:
    if option.default in (None, ()):
        return option.help
    default = option.default
    if option.is_list:
        default = ",".join(value if isinstance(value, str) else f"{value:g}" for value in option.default)
    return f"{option.help} (default: {default})".replace("%", "%%")
