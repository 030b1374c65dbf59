"""Actions in forked processes, which may die, hang or fill the memory without harm to the harness."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pyro_fairvae.run.__main__ import main

SECONDS = 60.0  # of a processor for one action
WAIT = 5  # at most so many times that by the clock, on a machine that has other work
MEMORY = 12 << 30  # bytes of addresses; a process with PyTorch reserves some


@dataclass(frozen=True)
class Ended:
    """How an action ended: ``code`` is its exit code, −N if signal N did, and None if it took too long."""

    code: int | None
    out: str
    err: str
    seconds: float


@dataclass(frozen=True)
class Terminal:
    """What a command's standard output is: its encoding, and a file in place of what is kept of it."""

    encoding: str = "utf-8"
    path: Path | None = None
    closed: bool = False


TERMINAL = Terminal()


def command(
    arguments: Sequence[str | Path],
    folder: Path,
    before: Callable[[], None] | None = None,
    terminal: Terminal = TERMINAL,
    seconds: float = SECONDS,
) -> Ended:
    """``fairvae ARGUMENTS`` with ``folder`` as its current folder; ``before`` is called in its process."""

    def action() -> int:
        if before is not None:
            before()
        return main([str(argument) for argument in arguments])

    return forked(action, folder, terminal, seconds)


def forked(
    action: Callable[[], int | None], folder: Path, terminal: Terminal = TERMINAL, seconds: float = SECONDS
) -> Ended:
    """Run an action in a forked process, as the interpreter runs a script; its descendants end with it."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        alive, held = os.pipe()
        child = os.fork()
        if not child:
            os.close(alive)
            _become(action, folder, terminal, out, err, seconds)
        os.close(held)
        in_time = bool(select.select([alive], [], [], WAIT * seconds)[0])
        if not in_time:
            os.killpg(child, signal.SIGKILL)
        os.close(alive)
        _, status = os.waitpid(child, 0)
        _end_group(child)
        code = os.waitstatus_to_exitcode(status) if in_time else None
        return Ended(code, _text(out), _text(err), time.monotonic() - start)


def start(action: Callable[[], int | None], folder: Path) -> int:
    """Start an action in a forked process without waiting for it; what it prints is lost."""
    child = os.fork()
    if not child:
        with open(os.devnull, "w+b") as nothing:
            _become(action, folder, TERMINAL, nothing, nothing, WAIT * SECONDS)
    return child


def end(child: int) -> int:
    """Wait for a process of :func:`start`; its exit code."""
    _, status = os.waitpid(child, 0)
    _end_group(child)
    return os.waitstatus_to_exitcode(status)


def _become(
    action: Callable[[], int | None],
    folder: Path,
    terminal: Terminal,
    out: IO[bytes],
    err: IO[bytes],
    seconds: float,
) -> None:
    """In the child: run the action, and leave as the interpreter does. Never returns."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno() if terminal.path is None else os.open(terminal.path, os.O_WRONLY), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", encoding=terminal.encoding, closefd=False)
        sys.stderr = os.fdopen(
            2, "w", 1, encoding=terminal.encoding, errors="backslashreplace", closefd=False
        )
        if terminal.closed:
            reader, writer = os.pipe()
            os.dup2(writer, 1)
            os.close(reader)
        code = _exit_code(action)
        try:
            sys.stdout.flush()
        except OSError:
            traceback.print_exc()
            code = 120  # as the interpreter does
        sys.stderr.flush()
    finally:
        os._exit(code)


def _exit_code(action: Callable[[], int | None]) -> int:
    try:
        return action() or 0
    except SystemExit as reason:
        if isinstance(reason.code, str):
            print(reason.code, file=sys.stderr)
        return reason.code if isinstance(reason.code, int) else int(reason.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def _end_group(leader: int) -> None:
    """End what a process has started and left behind, such as the workers of a pool."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "backslashreplace")


def refuse(reason: Exception) -> int:
    """What a command does when the library refuses its input."""
    print(f"fairvae: {reason}", file=sys.stderr)
    return 2


def import_what_comes_late() -> None:
    """Import, once for all children, what the library imports when it is first used, which takes seconds."""
    import fairlearn.metrics  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
