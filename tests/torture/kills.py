"""kill −9 before and after each change of a file, and at random; then the same command again.

The command that goes on must end in the same files, byte for byte, as one that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pyro_fairvae import InputError
from pyro_fairvae.data import image_cache
from tests.support.pictures import NAMES, Counted
from tests.torture.cases import Case
from tests.torture.forked import Ended, command, forked, refuse
from tests.torture.grids import grid
from tests.torture.subjects import FIT, TRAIN, Subjects, copied, expect_success
from tests.torture.verdict import wrong_with

STEPS = (
    "replace",
    "rename",
    "unlink",
    "remove",
    "fsync",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "truncate",
)  # of os
KILLED = -signal.SIGKILL
TIMED = ("seconds", "modified")  # fields that differ between equal runs
# A page and figures that show times, and a checkpoint, whose pickle depends on which objects are the same.
NOT_COMPARED = ("report.html", "checkpoint.pt")
WHOLE = "already holds a model"

Run = Callable[[Path, Callable[[], None] | None], Ended]


@dataclass(frozen=True)
class Killed:
    """A command that is killed: into an empty folder, or one that holds the results of an earlier one."""

    name: str
    share: float  # of the kills
    first: Callable[[Subjects], Run]
    again: Callable[[Subjects], Run] | None = None  # unless it is the same
    earlier: Callable[[Subjects], Path] | None = None
    loads: bool = False  # whether the folder has to be a model's at any time


def _run(*arguments: object) -> Run:
    def run(folder: Path, before: Callable[[], None] | None = None) -> Ended:
        return command([*map(str, arguments)], folder, before)

    return run


def _cache(folder: Path, before: Callable[[], None] | None = None) -> Ended:
    def build() -> int:
        image_cache.IMAGES_AT_ONCE = 4
        if before is not None:
            before()
        try:
            image_cache.cached_images(Counted(), NAMES, 8, folder / "out")
        except InputError as reason:
            return refuse(reason)
        return 0

    return forked(build, folder)


COMMANDS = (
    Killed("train", 0.3, lambda s: _run("train", *TRAIN, "--out", "out"),
           lambda s: _run("train", *TRAIN, "--out", "out", "--resume")),
    Killed("train --overwrite", 0.15, lambda s: _run("train", *TRAIN, "--out", "out", "--overwrite",
    "--seed", "5"),
           lambda s: _run("train", *TRAIN, "--out", "out", "--resume", "--seed", "5"), lambda s: s.run),
    Killed("fit", 0.25, lambda s: _run("fit", s.few, *FIT, "--out", "out")),
    Killed("fit --overwrite", 0.2, lambda s: _run("fit", s.few, *FIT, "--out", "out", "--overwrite"),
           earlier=lambda s: s.network, loads=True),
    Killed("reproduce", 0.1, lambda s: lambda folder, before=None: grid(folder / "out", folder, before)),
)  # fmt: skip
CACHE = Killed("image cache", 0.0, lambda s: _cache)


def kill_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    return [
        case for killed in COMMANDS for case in _cases_of(subjects, killed, round(killed.share * count), seed)
    ]


def cache_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    return _cases_of(subjects, CACHE, count, seed)


def _cases_of(subjects: Subjects, killed: Killed, count: int, seed: int) -> list[Case]:
    """Half of the kills are aimed, the others are at random moments."""
    draw = random.Random(seed)
    undisturbed = undisturbed_of(subjects, killed)
    about = json.loads((undisturbed / "moments.json").read_text())
    aimed = draw.sample(range(about["moments"]), min(about["moments"], -(-count // 2)))
    moments: list[int | float] = [*sorted(aimed)]
    moments += [draw.random() * about["seconds"] for _ in range(count - len(aimed))]
    return [
        Case(
            f"{killed.name}, killed {_when(moment)}",
            lambda folder, *, m=moment: _tried(subjects, killed, m, undisturbed, folder),
        )
        for moment in moments
    ]


def _when(moment: int | float) -> str:
    return f"at change {moment}" if isinstance(moment, int) else f"after {moment:.2f} s"


def undisturbed_of(subjects: Subjects, killed: Killed) -> Path:
    """The folder of a command that nobody killed, and the number of moments at which it could be."""
    folder = subjects.folder / f"undisturbed {killed.name}"
    if folder.exists():
        return folder
    folder.mkdir()
    begin(subjects, killed, folder)
    count = folder / "count"

    def counting() -> None:
        seen = [0]

        def moment() -> None:
            seen[0] += 1
            count.write_text(str(seen[0]))

        at_each_change(moment)

    ended = killed.first(subjects)(folder, counting)
    expect_success(ended)
    (folder / "moments.json").write_text(
        json.dumps({"moments": int(count.read_text()), "seconds": ended.seconds})
    )
    return folder


def at_each_change(moment: Callable[[], None]) -> None:
    """Call ``moment`` before and after each call of the functions of ``os`` that change files."""

    def around(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*arguments: object, **named: object) -> object:
            moment()
            try:
                return change(*arguments, **named)
            finally:
                moment()

        return changed

    for name in STEPS:
        setattr(os, name, around(getattr(os, name)))


def kill_at(moment: int | float) -> None:
    """Have this process killed at a change by its number, or after so many seconds."""
    if isinstance(moment, float):
        timer = threading.Timer(moment, lambda: os.kill(os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
        return
    seen = [0]

    def count() -> None:
        if seen[0] == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        seen[0] += 1

    at_each_change(count)


def begin(subjects: Subjects, killed: Killed, folder: Path) -> None:
    if killed.earlier is not None:
        copied(killed.earlier(subjects), folder).rename(folder / "out")


def _tried(subjects: Subjects, killed: Killed, moment: int | float, undisturbed: Path, folder: Path) -> str:
    begin(subjects, killed, folder)
    ended = killed.first(subjects)(folder, lambda: kill_at(moment))
    if ended.code not in (KILLED, 0):
        return f"before it was killed: {wrong_with(ended) or ended.err[-300:]}"
    if killed.loads:
        answer = command(("predict", "out", subjects.people, "--out", "made.csv"), folder)
        if answer.code != 0:
            return f"after the kill the old model is lost, and no new one is there: {answer.err[-300:]}"
    resumed = ended
    if ended.code == KILLED:
        resumed = (killed.again or killed.first)(subjects)(folder, None)
        if resumed.code == 2 and killed.again is not None:  # killed before the earlier run was replaced
            resumed = killed.first(subjects)(folder, None)
        if resumed.code == 2 and WHOLE in resumed.err:  # killed after everything was decided
            return difference(undisturbed / "out", folder / "out")
    wrong = wrong_with(resumed)
    if wrong or resumed.code != 0:
        return f"it does not go on: {wrong or resumed.err[-300:]}"
    return difference(undisturbed / "out", folder / "out")


def difference(expected: Path, found: Path) -> str:
    """How two folders of results differ, but for fields that hold times."""
    left, right = _contents(expected), _contents(found)
    more, missing = sorted(right.keys() - left.keys()), sorted(left.keys() - right.keys())
    if more or missing:
        return f"other files: {more} more, {missing} missing"
    other = [name for name in left if left[name] != right[name]]
    return f"other content: {other}" if other else ""


def _contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {
        str(path.relative_to(folder)): b"" if path.name in NOT_COMPARED else _without_times(path)
        for path in files
    }


def _without_times(path: Path) -> bytes:
    if path.suffix == ".json":
        content = json.loads(path.read_bytes())
        if any(name in content for name in TIMED):
            content = {name: value for name, value in content.items() if name not in (*TIMED, "sha256")}
        return json.dumps(content).encode()
    if path.name == "results.csv":
        return pd.read_csv(path).drop(columns="seconds").to_csv().encode()
    return path.read_bytes()
