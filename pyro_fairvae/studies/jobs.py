"""Many independent jobs on many cores; each that is done is kept in a file, and never done again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pyro_fairvae.base.documents import read_document, write_sealed
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import make_folder, write_json, write_whole
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.base.reports import Report
from pyro_fairvae.schema.documents import JobRecord, VersionMark
from pyro_fairvae.studies.pools import BACKENDS, Attempt, Cluster, Job, Pool, Work, WorkersDiedError

Kept = TypeVar("Kept", VersionMark, JobRecord)


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a record or an error; ``kept`` if it had been done before."""

    job: Job
    record: dict[str, Any] | None
    error: str | None
    seconds: float
    kept: bool


@dataclass(frozen=True)
class Left:
    """How far the jobs are; ``seconds`` is an estimate of the time left, NaN until one has succeeded."""

    total: int
    done: int
    failed: int
    seconds: float

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} done"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.seconds > 0:
            parts.append(f"about {duration(self.seconds)} left")
        return ", ".join(parts)


def run_jobs(
    jobs: Sequence[Job],
    work: Work,
    out: Path,
    *,
    version: str,
    backend: str = "local",
    workers: int | None = None,
    cluster: Cluster | None = None,
    report: Report | None = None,
    progress: Callable[[Outcome, Left], None] | None = None,
) -> list[Outcome]:
    """Do every job that ``out`` has no record of, the longest first; an outcome for each of ``jobs``.

    A job is ``work(job.config)`` in a worker process with one thread. Its record is in
    ``out/jobs/<key>.json`` as soon as it arrives, so a run that was stopped goes on where it was. A job
    that fails does not stop the others; it is tried again the next time. ``cluster`` says where the cluster
    of the backend ``ray`` is, and whether jobs take GPUs. ``progress`` is called
    after each job that is done here, not for those kept from before; ``report`` is told of the rest in words,
    and of these jobs, too, where there is no ``progress``.
    """
    choose("backend", backend, BACKENDS)
    require(workers is None or workers >= 1, f"workers is {workers}; expected 1 or more.")
    say = report or (lambda words: None)
    with alone_in(out):
        files = JobFiles(out, version)
        unique: dict[str, Job] = {}
        for job in jobs:
            unique.setdefault(job.key, job)
        settled = {key: files.read(job) for key, job in unique.items() if files.has(job)}
        todo = sorted((job for key, job in unique.items() if key not in settled), key=lambda job: -job.cost)
        if settled:
            say(f"{len(settled)} of {len(unique)} done before")
        if todo:
            with (
                BACKENDS[backend](workers, cluster or Cluster()) as pool,
                closing(_settle(todo, work, pool, files, say)) as outcomes,
            ):
                for outcome in outcomes:
                    settled[outcome.job.key] = outcome
                    waiting = [job for job in todo if job.key not in settled]
                    left = _left(settled.values(), waiting, pool.workers)
                    if progress is not None:
                        progress(outcome, left)
                    else:
                        say(f"{left}: {_line(outcome)}")
    return [replace(settled[job.key], job=job) for job in jobs]


def kept_outcomes(jobs: Sequence[Job], out: Path, version: str) -> dict[str, Outcome]:
    """The outcomes, by key, of those jobs that ``out`` has records of; nothing is written."""
    if not (out / "jobs").is_dir():
        return {}
    files = JobFiles(out, version)
    return {job.key: files.read(job) for job in jobs if files.has(job)}


def numbers(content: Any) -> Any:
    """``null``, which JSON has in place of a number that is not finite, becomes NaN again."""
    if isinstance(content, dict):
        return {key: numbers(value) for key, value in content.items()}
    if isinstance(content, list):
        return [numbers(value) for value in content]
    return math.nan if content is None else content


def duration(seconds: float) -> str:
    """A time in words, with the unit that people would choose."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


class JobFiles:
    """The records and errors in ``out/jobs``, which all come from one version of the package."""

    def __init__(self, out: Path, version: str) -> None:
        self.folder = out / "jobs"
        self.version = version
        make_folder(self.folder)
        mark = self.folder / "version.json"
        if mark.is_file():
            self._read(mark, VersionMark, "the mark of a folder of jobs")
        else:
            write_json(mark, {"version": version})

    def has(self, job: Job) -> bool:
        return self._record(job).is_file()

    def read(self, job: Job, kept: bool = True) -> Outcome:
        """The outcome of a job that is done."""
        path = self._record(job)
        content = self._read(path, JobRecord, "the record of a job")
        require(
            content.config == json.loads(json.dumps(job.config)),
            f"{path} has the config {content.config}, but is named for {job.config}; "
            "delete it to have the job done again.",
        )
        return Outcome(job, numbers(content.record), None, content.seconds, kept)

    def write(self, job: Job, attempt: Attempt) -> Outcome:
        """Keep what came of an attempt; its record is the one that a later run will read."""
        error = self.folder / f"{job.key}.error.txt"
        if attempt.error is not None:
            write_whole(error, f"{job.name}\n{attempt.error}\n")
            return Outcome(job, None, attempt.error, attempt.seconds, kept=False)
        error.unlink(missing_ok=True)
        content = {"version": self.version, "name": job.name, "config": job.config}
        write_sealed(self._record(job), content | {"seconds": attempt.seconds, "record": attempt.record})
        return self.read(job, kept=False)

    def _record(self, job: Job) -> Path:
        return self.folder / f"{job.key}.json"

    def _read(self, path: Path, schema: type[Kept], what: str) -> Kept:
        content = read_document(path, schema, what, "Delete it and start again.", sealed=schema is JobRecord)
        require(
            content.version == self.version,
            f"{path} is of version {content.version}, but this is version {self.version}, and its numbers "
            f"may differ. Choose another folder, or delete {self.folder}.",
            "out",
        )
        return content


def _settle(
    jobs: Sequence[Job], work: Work, pool: Pool, files: JobFiles, say: Report
) -> Generator[Outcome, None, None]:
    """Outcomes as they come, whatever dies.

    When a worker dies, so does its pool, and, but for Ray, nobody says which job it was. As jobs begin in
    their order, those under way are the first that wait. They are suspects, tried one at a time until one
    dies alone. If none does, together they were too much, and there are half as many workers from then on.
    """
    waiting = {job.key: job for job in jobs}
    suspects: list[Job] = []
    while waiting:
        alone = suspects[:1]
        chosen = alone or list(waiting.values())
        start = time.perf_counter()
        try:
            with closing(pool.run(work, chosen, min(pool.workers, len(chosen)))) as attempts:
                for done in attempts:
                    yield files.write(waiting.pop(done.key), done)
        except pool.died as reason:
            if alone:
                suspects = []
                key = alone[0].key
                done = Attempt(key, None, _death(reason), time.perf_counter() - start)
                yield files.write(waiting.pop(key), done)
            else:
                suspects = _suspects(reason, waiting, pool)
                say(f"a worker died; the {len(suspects)} jobs under way are tried again one at a time")
        else:
            suspects = suspects[1:]
            if alone and not suspects and pool.workers > 1:
                pool.workers //= 2
                say(
                    "each of them ran well alone, so together they probably lacked memory; "
                    f"at most {pool.workers} at a time from here on"
                )


def _suspects(reason: Exception, waiting: dict[str, Job], pool: Pool) -> list[Job]:
    """The jobs of which one may have ended its worker."""
    if isinstance(reason, WorkersDiedError):
        return [waiting[key] for key in reason.jobs]
    return list(waiting.values())[: pool.workers]


def _death(reason: Exception) -> str:
    return (
        "its worker process died, even alone; too little memory is likely\n"
        "Free some (fewer workers, fewer other programs) or use a larger machine, and start again: "
        f"what is done stays done.\n{type(reason).__name__}: {first_line(reason)}"
    )


def _left(settled: Collection[Outcome], waiting: Collection[Job], workers: int) -> Left:
    """Seconds left: those for a unit of cost so far × the cost that waits / workers."""
    good = [outcome for outcome in settled if outcome.error is None]
    spent = sum(outcome.seconds for outcome in good if not outcome.kept)
    cost = sum(outcome.job.cost for outcome in good if not outcome.kept)
    total = len(settled) + len(waiting)
    ahead = sum(job.cost for job in waiting) / max(1, min(workers, len(waiting)))
    seconds = spent / cost * ahead if cost > 0 else math.nan
    return Left(total, len(good), len(settled) - len(good), seconds)


def _line(outcome: Outcome) -> str:
    if outcome.error is None:
        return f"{outcome.job.name} ({duration(outcome.seconds)})"
    return f"{outcome.job.name} failed ({outcome.error.splitlines()[0]})"
