"""Processes that work as one, and end as one: killed, terminated, failing, or never started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyro_fairvae.base import ranks
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.ranks import ALONE, joined
from tests.support import ROOT
from tests.support.processes import environment, free_port

# Each rank adds up ones, until it does what it is told; the first says what it found.
PROGRAM = """
import os, signal, sys, time
import torch
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.ranks import joined

what, who, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
ones = torch.ones(3)
try:
    with joined("rows", timeout) as ranks:
        print("joined", ranks.rank, flush=True)
        for step in range(5):
            act = what if ranks.rank == who and step == 2 else "add up"
            if act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if act == "terminate":
                os.kill(os.getpid(), signal.SIGTERM)
            if act == "stop":
                time.sleep(60)
            require(act != "fail", "this file is not there.")
            ranks.add_up([ones])
        print("sum", ones[0].item(), flush=True)
except InputError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def started(*arguments: str) -> list[subprocess.Popen[str]]:
    """Two ranks of the program."""
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, env=environment(rank, 2, port), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip


def ended(*arguments: str) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each rank."""
    processes = started(*arguments, "60")
    words = [process.communicate(timeout=120) for process in processes]
    # PyTorch has lines of its own when the rank that keeps the store is gone; torchrun keeps it itself.
    own = [(out, "".join(re.findall(r"(?m)^rank .*\n", errors))) for out, errors in words]
    return [(process.returncode, *of) for process, of in zip(processes, own, strict=True)]


def test_all_get_the_sum_and_the_first_prints_it() -> None:
    first, second = ended("nothing", "0")
    assert first == (0, "joined 0\nsum 32.0\n", "")
    assert second == (0, "", "")


@pytest.mark.parametrize(
    ("act", "who", "line"),
    [
        ("kill", 1, "rank 1 of 2 ended without a word (killed, out of memory, or its machine is lost)"),
        ("kill", 0, "rank 0 of 2 ended without a word"),
        ("fail", 1, "rank 1 of 2: this file is not there."),
        ("terminate", 1, "rank 1 of 2 was ended by SIGTERM, and all others with it."),
    ],
)
def test_one_that_ends_ends_all_with_one_line(act: str, who: int, line: str) -> None:
    start = time.monotonic()
    found = ended(act, str(who))
    assert time.monotonic() - start < 60
    code, _, errors = found[1 - who]
    assert code == 2
    assert errors.startswith(line)
    assert errors.count("\n") == 1
    code, _, errors = found[who]
    assert code == (-signal.SIGKILL if act == "kill" else 2)
    as_told = "rank 1 of 2 was ended by SIGTERM, as torchrun does" if act == "terminate" else ""
    assert errors.startswith(as_told)
    assert bool(errors) == bool(as_told)


def test_one_that_does_not_answer_in_time_is_lost() -> None:
    first, second = started("stop", "1", "4")
    try:
        errors = first.communicate(timeout=60)[1]
        assert first.returncode == 2
        assert errors.startswith("rank 1 of 2 did not answer in time (stopped, or its machine is lost;")
    finally:
        second.kill()
        second.communicate()


def test_ranks_that_are_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(0, 2, free_port()).items():
        monkeypatch.setenv(name, value)
    alone = pytest.raises(InputError, match=r"rank 0 of 2 cannot meet the others .*: start all of them")
    with alone, joined(timeout=1):
        pass
    assert ranks.current() is ALONE


def test_a_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined("rows") as found:
        assert found is ALONE
    assert found.from_first(lambda: 3) == found.everywhere(lambda: 3) == found.gather(3)[0] == 3
    with pytest.raises(InputError, match=r"unknown sharding 'row'.*Did you mean 'rows'"), joined("row"):
        pass


def test_a_command_of_one_process_says_so() -> None:
    told = os.environ | {"RANK": "0", "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "pyro_fairvae.run", "predict", "model", "x.csv", "--out", "y.csv"]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fairvae: only train and fit run in several processes")
    assert not Path("y.csv").exists()
