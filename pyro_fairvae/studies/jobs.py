"""Many independent jobs on many cores; each that is done is kept in a file, and never done again."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from pyro_fairvae.checkpoint import make_folder, write_json, write_whole
from pyro_fairvae.errors import InputError, choose, require

Work = Callable[[dict[str, Any]], dict[str, Any]]  # from a config to a record, both of JSON types
Report = Callable[[str], None]  # told of progress in words

FRAMES = 3  # of a traceback, the last ones


@dataclass(frozen=True)
class Job:
    """One job: its config, of JSON types, decides its numbers; ``name`` is for people."""

    name: str
    config: dict[str, Any]
    cost: float = 1.0  # relative length, for the order and the time left

    @property
    def key(self) -> str:
        """The name of its file, equal for equal configs."""
        try:
            text = json.dumps(self.config, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as reason:
            raise InputError(
                f"the config of job {self.name!r} is not JSON ({reason}); "
                "it may hold text, finite numbers, booleans, None, lists and dicts of these."
            ) from reason
        return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    report: Report | None = None,
    progress: Callable[[Outcome, Left], None] | None = None,
) -> list[Outcome]:
    """Do every job that ``out`` has no record of, the longest first; an outcome for each of ``jobs``.

    A job is ``work(job.config)`` in a worker process with one thread. Its record is in
    ``out/jobs/<key>.json`` as soon as it arrives, so a run that was stopped goes on where it was. A job
    that fails does not stop the others; it is tried again the next time. ``progress`` is called
    after each job that is done here, not for those kept from before; ``report`` is told of the rest in words,
    and of these jobs, too, where there is no ``progress``.
    """
    choose("backend", backend, BACKENDS)
    require(workers is None or workers >= 1, f"workers is {workers}; expected 1 or more.")
    say = report or (lambda words: None)
    files = JobFiles(out, version)
    unique: dict[str, Job] = {}
    for job in jobs:
        unique.setdefault(job.key, job)
    settled = {key: files.read(job) for key, job in unique.items() if files.has(job)}
    todo = sorted((job for key, job in unique.items() if key not in settled), key=lambda job: -job.cost)
    if settled:
        say(f"{len(settled)} of {len(unique)} done before")
    if todo:
        with BACKENDS[backend](workers) as pool, closing(_settle(todo, work, pool, files, say)) as outcomes:
            for outcome in outcomes:
                settled[outcome.job.key] = outcome
                waiting = [job for job in todo if job.key not in settled]
                left = _left(settled.values(), waiting, pool.workers)
                if progress is not None:
                    progress(outcome, left)
                else:
                    say(f"{left}: {_line(outcome)}")
    return [replace(settled[job.key], job=job) for job in jobs]


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
            self._read(mark, version=str)
        else:
            write_json(mark, {"version": version})

    def has(self, job: Job) -> bool:
        return self._record(job).is_file()

    def read(self, job: Job, kept: bool = True) -> Outcome:
        """The outcome of a job that is done."""
        path = self._record(job)
        content = self._read(path, version=str, config=dict, seconds=float, record=dict)
        require(
            content["config"] == json.loads(json.dumps(job.config)),
            f"{path} has the config {content['config']}, but is named for {job.config}; "
            "delete it to have the job done again.",
        )
        return Outcome(job, numbers(content["record"]), None, content["seconds"], kept)

    def write(self, job: Job, attempt: Attempt) -> Outcome:
        """Keep what came of an attempt; its record is the one that a later run will read."""
        error = self.folder / f"{job.key}.error.txt"
        if attempt.error is not None:
            write_whole(error, f"{job.name}\n{attempt.error}\n")
            return Outcome(job, None, attempt.error, attempt.seconds, kept=False)
        error.unlink(missing_ok=True)
        content = {"version": self.version, "name": job.name, "config": job.config}
        write_json(self._record(job), content | {"seconds": attempt.seconds, "record": attempt.record})
        return self.read(job, kept=False)

    def _record(self, job: Job) -> Path:
        return self.folder / f"{job.key}.json"

    def _read(self, path: Path, **entries: type) -> dict[str, Any]:
        broken = f"{path} is broken: expected JSON with {', '.join(entries)}. Delete it and start again."
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            whole = all(isinstance(content[name], kind) for name, kind in entries.items())
        except (ValueError, KeyError, TypeError) as reason:
            raise InputError(broken) from reason
        require(whole, broken)
        require(
            content["version"] == self.version,
            f"{path} is of version {content['version']}, but this is version {self.version}, and its numbers "
            f"may differ. Choose another folder with --out, or delete {self.folder}.",
        )
        return content


class Attempt(NamedTuple):
    """What a worker hands back."""

    key: str
    record: dict[str, Any] | None
    error: str | None
    seconds: float


def attempt(work: Work, key: str, config: dict[str, Any]) -> Attempt:
    """Do a job, in a worker process."""
    torch.set_num_threads(1)
    record, error = None, None
    start = time.perf_counter()
    try:
        record = json.loads(json.dumps(work(config)))
        if not isinstance(record, dict):
            raise TypeError(f"the record of a job must be a dict, not {record!r}")
    except (Exception, SystemExit) as reason:
        frames = traceback.format_tb(reason.__traceback__, limit=-FRAMES)
        record, error = None, "".join([*traceback.format_exception_only(reason), *frames]).rstrip()
    return Attempt(key, record, error, time.perf_counter() - start)


@dataclass
class Pool:
    """``run(work, jobs, at_once)`` begins the jobs in their order; ``died`` it raises if a worker dies."""

    workers: int
    died: tuple[type[Exception], ...]
    run: Callable[[Work, Sequence[Job], int], Generator[Attempt, None, None]]


@contextmanager
def _local(workers: int | None) -> Iterator[Pool]:
    with warnings.catch_warnings():
        # Loky replaces a worker whose memory has grown, and Parallel drops what an interrupt leaves over.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully|which were still)", UserWarning)
        yield Pool(workers or joblib.cpu_count(), (TerminatedWorkerError,), _as_they_come)


def _as_they_come(work: Work, jobs: Sequence[Job], at_once: int) -> Generator[Attempt, None, None]:
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(
            n_jobs=max(2, at_once),  # with 1, joblib works in this process, which would die with a job
            pre_dispatch=at_once,
            batch_size=1,
            return_as="generator_unordered",
        )
    return parallel(joblib.delayed(attempt)(work, job.key, job.config) for job in jobs)


@contextmanager
def _ray(workers: int | None) -> Iterator[Pool]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as reason:
        raise InputError(
            f"the backend 'ray' needs Ray ({reason}): pip install 'pyro_fairvae[ray]', or use 'local'."
        ) from reason
    # Joblib hands over a context, of which Ray would warn that it has no use for it.
    logging.getLogger("ray.util.multiprocessing").setLevel(logging.ERROR)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    address = os.environ.get("RAY_ADDRESS")
    started = not ray.is_initialized()
    if started and address:
        try:
            ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError) as reason:
            raise InputError(
                f"no Ray cluster answers at RAY_ADDRESS={address} ({reason}); start it, "
                "see that its token is known here, or unset RAY_ADDRESS."
            ) from reason
    elif started:
        workers = workers or joblib.cpu_count()
        ray.init(address="local", num_cpus=max(2, workers), include_dashboard=False, **quiet)
    try:
        cores = int(ray.cluster_resources().get("CPU", 0))
        require(
            cores >= max(2, workers or 0),
            f"Ray has {cores} cores, but {max(2, workers or 0)} are needed; ask for fewer workers "
            "(no fewer than 2 cores will do), or use the backend 'local'.",
        )
        register_ray()
        yield Pool(workers or cores, (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError), _chunks)
    except ray.exceptions.RayTaskError as reason:  # not of the job, which catches its own
        raise InputError(
            f"a Ray worker could not begin a job; every node needs this version of pyro_fairvae. {reason}"
        ) from reason
    finally:
        if started:
            ray.shutdown()


def _chunks(work: Work, jobs: Sequence[Job], at_once: int) -> Generator[Attempt, None, None]:
    """Ray's backend hands back no generator, so a list for each ``at_once`` jobs."""
    with joblib.parallel_config(backend="ray", ray_remote_args={"num_cpus": 1}):
        parallel = joblib.Parallel(n_jobs=max(2, at_once), batch_size=1)
    with parallel:
        for first in range(0, len(jobs), at_once):
            chunk = jobs[first : first + at_once]
            yield from parallel(joblib.delayed(attempt)(work, job.key, job.config) for job in chunk)


BACKENDS: dict[str, Callable[[int | None], AbstractContextManager[Pool]]] = {"local": _local, "ray": _ray}


def _settle(
    jobs: Sequence[Job], work: Work, pool: Pool, files: JobFiles, say: Report
) -> Generator[Outcome, None, None]:
    """Outcomes as they come, whatever dies.

    When a worker dies, so does its pool, and nobody says which job it was. As jobs begin in their order,
    those under way are the first that wait. They are suspects, tried one at a time until one dies alone.
    If none does, together they were too much, and there are half as many workers from then on.
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
                suspects = list(waiting.values())[: pool.workers]
                say(f"a worker died; the {len(suspects)} jobs under way are tried again one at a time")
        else:
            suspects = suspects[1:]
            if alone and not suspects and pool.workers > 1:
                pool.workers //= 2
                say(
                    "each of them ran well alone, so together they probably lacked memory; "
                    f"at most {pool.workers} at a time from here on"
                )


def _death(reason: Exception) -> str:
    return (
        "its worker process died, even alone; too little memory is likely\n"
        "Free some (fewer workers, fewer other programs) or use a larger machine, and start again: "
        f"what is done stays done.\n{type(reason).__name__}: {reason}"
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
