"""What all commands share: flags from the options of a dataclass, and exit codes for errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pyro_fairvae.run.terminal import StdoutError, shown_on_terminal
from tqdm import tqdm

from pyro_fairvae.base.devices import chosen_of_several, device_of_rank, resolve_device
from pyro_fairvae.base.errors import DivergedError, InputError, require
from pyro_fairvae.base.formulas import escaping_formulas
from pyro_fairvae.base.messages import first_line, in_one_line, one_line
from pyro_fairvae.base.options import Option, option, options_of
from pyro_fairvae.base.ranks import SHARDINGS, TIMEOUT, are_several, current, joined
from pyro_fairvae.inference.training import skip_validation
from pyro_fairvae.studies.jobs import Left, Outcome

FOLDERS = ("out", "data_dir")  # options that name a folder
MOST_THREADS = 1024
LONGEST = 2000  # characters of a message
NOT_TEXT = re.compile("[\ud800-\udfff]")  # bytes of an argument that are not in the encoding
# In messages of numpy and torch about arrays that are too large.
TOO_LARGE = (
    "allocate memory",
    "out of memory",
    "unable to allocate",
    "size calculation overflowed",
    "array is too big",
    "maximum allowed dimension",
)


@dataclass(frozen=True)
class Machine:
    """The device and threads of a command. They do not change its results."""

    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    threads: int | None = option(None, "CPU threads (default: all cores)")

    def __post_init__(self) -> None:
        require(
            self.threads is None or 1 <= self.threads <= MOST_THREADS,
            f"threads must be at least 1, got {self.threads}; at most {MOST_THREADS}.",
        )

    def prepare(self, quiet: bool = False) -> torch.device:
        """Set the number of threads, turn off Pyro's validation, and return the device."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        skip_validation()
        return device_of(self.device, quiet)


@dataclass(frozen=True)
class DataFolder:
    """Where the files of a data set are."""

    data_dir: str | None = option(
        None, "folder with the data set's files (default: $FAIRVAE_DATA, the cache, or fetched)"
    )


def add_options(
    parser: argparse._ActionsContainer,
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


def add_processes(parser: argparse._ActionsContainer) -> None:
    """Add the flags of a command that several processes may run together, started by ``torchrun``."""
    parser.add_argument(
        "--shard", default=SHARDINGS[0], choices=SHARDINGS,
        help="what processes started by torchrun divide: members, which need no communication, or the rows "
        "of each batch (default: %(default)s, members if each process has one)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, metavar="SECONDS",
        help="after which a process that does not answer the others counts as lost; longer than what the "
        "first computes alone, such as boosted trees (default: %(default)g)",
    )  # fmt: skip


@contextmanager
def _with_others(arguments: argparse.Namespace) -> Iterator[None]:
    """Inside the ``with`` block the processes that ``torchrun`` started work as one."""
    if not are_several():
        yield
        return
    if not hasattr(arguments, "shard"):
        if os.environ["RANK"] != "0":
            raise SystemExit(2)  # the first process says why
        raise InputError("only train and fit run in several processes; start this command without torchrun.")
    with joined(arguments.shard, arguments.timeout):
        yield


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add --data-dir, the folder with a data set's files."""
    declared = options_of(DataFolder)["data_dir"]
    parser.add_argument("--data-dir", type=Path, metavar=_metavar(declared), help=_help(declared))


def add_place(parser: argparse.ArgumentParser, out: str) -> None:
    """Add --out and the other flags that do not change the results of a study."""
    parser.add_argument(
        "--out", type=Path, default=Path(out), metavar="DIR",
        help=f"folder for the results (default: {out})",
    )  # fmt: skip
    add_escape_formulas(parser)
    add_quiet(parser, "no progress in words")
    add_machine(parser)
    add_data_dir(parser)


def add_quiet(parser: argparse._ActionsContainer, help: str = "no progress bar") -> None:
    """Add --quiet, with which a command prints no progress."""
    parser.add_argument("--quiet", action="store_true", help=help)


def add_escape_formulas(parser: argparse._ActionsContainer) -> None:
    """Add --escape-formulas, which :func:`run_command` reads."""
    parser.add_argument(
        "--escape-formulas",
        action="store_true",
        help="put ' before text in CSV files that begins with = + - @, a tab or a carriage return, which "
        "spreadsheets run as a formula (default: text is written as it is)",
    )


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
    return Machine(arguments.device, arguments.threads).prepare(getattr(arguments, "quiet", False))


def device_of(name: str, quiet: bool = False) -> torch.device:
    """The device by name; where there are several and the name leaves it open, which one it is is printed."""
    ranks = current()
    if ranks.count > 1:
        return device_of_rank(name, ranks)
    device = resolve_device(name)
    chosen = chosen_of_several(name, device)
    if chosen is not None and not quiet:
        report(f"{chosen} --device {device.type}:N takes another.")
    return device


def progress_of(arguments: argparse.Namespace) -> Callable[[str], None]:
    """:func:`report`, or nothing with --quiet."""
    return (lambda words: None) if arguments.quiet else report


def report(words: str) -> None:
    """Print a progress message to stderr; stdout is for results."""
    print(in_one_line(words), file=sys.stderr, flush=True)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> int:
    """Parse and run; whatever goes wrong is one line on stderr.

    Exit code 1: a fault of the program, 2: bad input, or no means, 3: training diverged, 4: ``monitor`` found
    a change, 130: interrupted, 141: stdout closed by its reader. With $FAIRVAE_TRACEBACK a fault is printed
    with its traceback.
    """
    arguments = argparse.Namespace()
    with shown_on_terminal():
        try:
            return _run(parser, argv, arguments)
        except StdoutError as error:
            if error.closed:
                return 141
            return _failed(f"cannot write to stdout: {error}.")
        except InputError as error:
            return _failed(in_flags(error, arguments))
        except DivergedError as error:
            return _failed(str(error), 3)
        except KeyboardInterrupt:
            print(file=sys.stderr)  # leaves the line with ^C
            again = "Run the same command again to continue; train needs --resume, and no --overwrite."
            return _failed(f"interrupted. {again}", 130)
        except OSError as error:
            return _failed(_of_system(error))
        except RecursionError:
            return _failed("what was given is nested too deeply; give it with fewer levels.")
        except Exception as error:
            if _lacks_memory(error):
                return _failed(
                    f"there is not enough memory: {first_line(error)}. Give fewer rows, or smaller sizes."
                )
            if os.environ.get("FAIRVAE_TRACEBACK"):
                traceback.print_exc()
            return _failed(
                f"a fault of the program: {type(error).__name__}, {first_line(error)}. Please report it, "
                "with what is printed if FAIRVAE_TRACEBACK=1 is set.",
                1,
            )


def _run(parser: argparse.ArgumentParser, argv: Sequence[str] | None, arguments: argparse.Namespace) -> int:
    """Parse into ``arguments``, run, and return the exit code of the command, if it has one of its own."""
    try:
        parser.parse_args(argv, arguments)
    except SystemExit:  # after --help, too
        sys.stdout.flush()
        raise
    for name, value in vars(arguments).items():
        for word in value if isinstance(value, list) else [value]:
            require(
                not isinstance(word, str) or not NOT_TEXT.search(word),
                f"{flag_of(name)} {word!r} is not text in the encoding of this system.",
            )
    with _with_others(arguments), escaping_formulas(getattr(arguments, "escape_formulas", False)):
        code = arguments.action(arguments)
    sys.stdout.flush()
    return code or 0


def _failed(message: str, code: int = 2) -> int:
    words = one_line(message)
    half = LONGEST // 2
    shown = words if len(words) <= LONGEST else f"{words[:half]} … {words[-half:]}"
    print(f"fairvae: {shown}", file=sys.stderr)
    return code


def _of_system(error: OSError) -> str:
    """What the operating system refuses, and where."""
    where = "" if error.filename is None else f" {error.filename}"
    return f"cannot use{where}: {error.strerror or first_line(error)}."


def _lacks_memory(error: Exception) -> bool:
    """Whether sizes are beyond memory, or beyond what numbers of a size can be."""
    words = str(error).lower()
    return isinstance(error, MemoryError) or any(reason in words for reason in TOO_LARGE)


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


@contextmanager
def progress_of_jobs(
    quiet: bool,
) -> Iterator[tuple[Callable[[str], None], Callable[[Outcome, Left], None]]]:
    """A bar of jobs: what writes a message above it, and what shows a job that has ended."""
    with tqdm(unit="job", disable=quiet, file=sys.stderr) as bar:

        def report(words: str) -> None:
            bar.write(words, file=sys.stderr)

        def show(outcome: Outcome, left: Left) -> None:
            bar.total, bar.n = left.total, left.done + left.failed
            bar.set_postfix_str(f"{left}: {outcome.job.name}")

        yield report, show
