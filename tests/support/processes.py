"""Processes of a test that work as one, started without ``torchrun``."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from pyro_fairvae.base.ranks import joined
from tests.support import ROOT


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def environment(rank: int, count: int, port: int) -> dict[str, str]:
    """What ``torchrun`` tells a process."""
    told = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1,
    }  # fmt: skip
    return os.environ | {name: str(value) for name, value in told.items()}


def started(command: list[str], count: int, **more: Any) -> list[subprocess.Popen[str]]:
    """``count`` processes of ``python command``."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment(rank, count, port), text=True, **more
        )
        for rank in range(count)
    ]


def on_ranks(function: str, count: int, folder: Path, *arguments: str) -> list[Any]:
    """What ``function``, ``module:name`` of (ranks, *arguments), returns on each of ``count`` ranks."""
    command = ["-m", "tests.support.processes", function, str(folder), *arguments]
    processes = started(command, count, stderr=subprocess.PIPE)
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def main(function: str, folder: str, *arguments: str) -> None:
    module, _, name = function.partition(":")
    with joined() as ranks:
        found = getattr(importlib.import_module(module), name)(ranks, *arguments)
        torch.save(found, Path(folder) / f"{ranks.rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
