"""A full disk or a quota at every size, then space: nothing is lost, and the command ends as undisturbed."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.torture.cases import Case
from tests.torture.forked import command
from tests.torture.kills import CACHE, COMMANDS, Killed, begin, difference, undisturbed_of
from tests.torture.subjects import Subjects
from tests.torture.verdict import wrong_with

SMALLEST, ROOMY = 2_000, "64m"
# Commands that write one file, of which an older one is there.
WRITERS = {
    "predict": ("predict", "NETWORK", "PEOPLE", "--groups", "--out", "made.csv"),
    "audit": ("audit", "NETWORK", "PEOPLE", "--out", "made.json"),
    "report": ("report", "NETWORK", "--out", "made.html"),
    "decide": ("decide", "NETWORK", "PEOPLE", "--draws", "3", "--out", "made.csv"),
    "inspect": ("inspect", "NETWORK", "--out", "made"),
}
OLD = b"what was there before\n"


def disk_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    """Half of them on a small disk, which only root can mount, the others with a limit on sizes of files."""
    subjects.make("network", "people")
    draw = random.Random(seed)
    tried: list[Killed | str] = [*COMMANDS, CACHE, *WRITERS]
    cases = []
    for number in range(count):
        what = tried[number % len(tried)]
        mounted = number // len(tried) % 2 == 0 and os.geteuid() == 0
        most = _size(undisturbed_of(subjects, what) / "out") if isinstance(what, Killed) else 200_000
        size = int(SMALLEST * (1.2 * most / SMALLEST) ** draw.random())
        kind = "a disk" if mounted else "files"
        name = what.name if isinstance(what, Killed) else what
        cases.append(
            Case(
                f"{name} with {kind} of {size} bytes",
                lambda folder, *, w=what, m=mounted, s=size: _tried(subjects, w, m, s, folder),
            )
        )
    return cases


def _size(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _tried(subjects: Subjects, what: Killed | str, mounted: bool, size: int, folder: Path) -> str:
    place = folder / "disk"
    place.mkdir()
    with _disk(place, mounted) as resize:
        if isinstance(what, str):
            return _write(
                subjects, WRITERS[what], place, lambda: None if mounted else _limit(size), resize, size
            )
        begin(subjects, what, place)
        resize(str(size + (_size(place) if what.earlier else 0)))
        first = what.first(subjects)(place, None if mounted else lambda: _limit(size))
        if wrong := wrong_with(first):
            return wrong
        if what.loads:
            answer = command(("predict", "out", subjects.people, "--out", folder / "made.csv"), place)
            if answer.code != 0:
                return f"the old model is lost: {answer.err[-300:]}"
        if first.code == 0:
            return difference(undisturbed_of(subjects, what) / "out", place / "out")
        resize(ROOMY)
        again = (what.again or what.first)(subjects)(place, None)
        if again.code == 2 and what.again is not None:
            again = what.first(subjects)(place, None)
        if again.code != 0:
            return f"with space it does not go on: {wrong_with(again) or again.err[-300:]}"
        return difference(undisturbed_of(subjects, what) / "out", place / "out")


def _write(
    subjects: Subjects,
    words: tuple[str, ...],
    place: Path,
    limit: Callable[[], None],
    resize: Callable[[str], None],
    size: int,
) -> str:
    known = {"NETWORK": str(subjects.network), "PEOPLE": str(subjects.people)}
    out = place / words[-1]
    if out.suffix:
        out.write_bytes(OLD)
    resize(str(size))
    ended = command([known.get(word, word) for word in words], place, limit)
    if ended.code != 0 and out.suffix and out.read_bytes() != OLD:
        return f"{out.name} was there before, and is lost or changed: {ended.err[-200:]}"
    left = [path.name for path in place.rglob(".*")]
    return wrong_with(ended) or (f"files are left behind: {left}" if left else "")


@contextmanager
def _disk(place: Path, mounted: bool) -> Iterator[Callable[[str], None]]:
    """A small disk, and what changes its size; without the rights of root an ordinary folder."""
    if not mounted:
        yield lambda size: None
        return

    def mount(*options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", place], check=True)

    mount(f"size={ROOMY}")
    try:
        yield lambda size: mount("remount", f"size={size}")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
