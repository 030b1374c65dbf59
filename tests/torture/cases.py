"""Cases: what is tried, how its inputs are drawn, and what came of it, as text and JSON."""

from __future__ import annotations

import multiprocessing
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

import hypothesis
from hypothesis import strategies as st

Drawn = TypeVar("Drawn")
PART_TITLE = "{:10} {:>6} tried {:>6} right {:>5} wrong {:>7.0f} s   {}"


@dataclass(frozen=True)
class Case:
    """One thing to try, in a folder of its own: ``attempt`` returns what is wrong, or nothing."""

    name: str
    attempt: Callable[[Path], str]


@dataclass(frozen=True)
class Wrong:
    """A case that went wrong, and the command that tries it again."""

    case: str
    words: str
    again: str


@dataclass
class Tally:
    """What came of a part; ``notes`` are figures of it, by name."""

    part: str
    tried: int = 0
    seconds: float = 0.0
    wrong: list[Wrong] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        notes = ", ".join(f"{name} {value:,.6g}" for name, value in self.notes.items())
        line = PART_TITLE.format(
            self.part, self.tried, self.tried - len(self.wrong), len(self.wrong), self.seconds, notes
        )
        return "\n".join(
            [line, *(f"  {wrong.case}\n    {wrong.words}\n    {wrong.again}" for wrong in self.wrong)]
        )

    def content(self) -> dict[str, object]:
        return {**asdict(self), "right": self.tried - len(self.wrong)}


def drawn(strategy: st.SearchStrategy[Drawn], count: int, seed: int, purpose: str) -> list[Drawn]:
    """So many examples of a strategy, always the same for a seed and a purpose."""
    found: list[Drawn] = []

    def collect(example: Drawn) -> None:
        found.append(example)

    # Of each run the last example alone: the first is the smallest, and many would vary a few.
    settings = hypothesis.settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for number in range(count):
        draw = settings(hypothesis.given(strategy)(collect))
        hypothesis.seed(zlib.crc32(f"{seed} {purpose} {number}".encode()))(draw)()
        del found[number:-1]
    return found


def try_all(
    part: str,
    cases: Sequence[Case],
    scratch: Path,
    seed: int,
    size: int,
    workers: int = 2,
    only: Iterable[int] | None = None,
) -> Tally:
    """Try the cases, several at a time; ``only`` some of them by their numbers."""
    chosen = list(range(len(cases)) if only is None else only)
    tally, start = Tally(part, len(chosen)), time.monotonic()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(workers, len(chosen)) or 1, context, _take, (cases, scratch / part)) as pool:
        for number, words in zip(chosen, pool.map(_attempt, chosen), strict=True):
            if words:
                again = (
                    f"python -m tests.torture --parts {part} --{part} {size} --seed {seed} --only {number}"
                )
                tally.wrong.append(Wrong(f"{part} {number}: {cases[number].name}", words, again))
    tally.seconds = time.monotonic() - start
    return tally


_taken: tuple[Sequence[Case], Path]  # by a worker


def _take(cases: Sequence[Case], scratch: Path) -> None:
    global _taken
    _taken = cases, scratch


def _attempt(number: int) -> str:
    cases, scratch = _taken
    folder = scratch / str(number)
    folder.mkdir(parents=True)
    try:
        return cases[number].attempt(folder)
    except Exception:
        return f"the harness failed: {traceback.format_exc(limit=-3)}"
    finally:
        rmtree(folder, ignore_errors=True)
