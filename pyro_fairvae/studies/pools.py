"""Pools that run jobs: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.messages import first_line

Work = Callable[[dict[str, Any]], dict[str, Any]]  # from a config to a record, both of JSON types

FRAMES = 3  # of a traceback, the last ones
WATCH = "end with the parent"


@dataclass(frozen=True)
class Job:
    """One job: its config, of JSON types, determines its results; ``name`` is shown in messages."""

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
                f"the config of job {self.name!r} is not JSON ({first_line(reason)}); "
                "it may hold text, finite numbers, booleans, None, lists and dicts of these."
            ) from reason
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Attempt(NamedTuple):
    """The result of a job in a worker: a record, or the error."""

    key: str
    record: dict[str, Any] | None
    error: str | None
    seconds: float


def attempt(work: Work, key: str, config: dict[str, Any]) -> Attempt:
    """Run a job in a worker process."""
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
    """``run(work, jobs, at_once)`` starts the jobs in order; it raises one of ``died`` if a worker dies."""

    workers: int
    died: tuple[type[Exception], ...]
    run: Callable[[Work, Sequence[Job], int], Generator[Attempt, None, None]]


@dataclass(frozen=True)
class Cluster:
    """Where a pool on a cluster is, and what its jobs need; a pool on this machine needs nothing of it."""

    address: str | None = None  # None: that of $RAY_ADDRESS, or a cluster of this machine alone
    device: str = "cpu"  # auto: a GPU if the cluster has some
    gpus: float = 1.0  # the share of a GPU that a job takes, if any


class WorkersDiedError(Exception):
    """Workers died with their jobs, of which the keys, with the reasons, are ``jobs``."""

    def __init__(self, jobs: Mapping[str, Exception]) -> None:
        super().__init__(next(iter(map(str, jobs.values())), ""))
        self.jobs = jobs


@contextmanager
def _local(workers: int | None, _: Cluster) -> Iterator[Pool]:
    with warnings.catch_warnings():
        # Loky replaces a worker whose memory has grown; Parallel drops the tasks left by an interrupt.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully|which were still)", UserWarning)
        yield Pool(workers or joblib.cpu_count(), (TerminatedWorkerError,), _as_they_come)


def _as_they_come(work: Work, jobs: Sequence[Job], at_once: int) -> Generator[Attempt, None, None]:
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(
            n_jobs=max(
                2, at_once
            ),  # with 1, joblib runs jobs in this process, which a crashing job would end
            pre_dispatch=at_once,
            batch_size=1,
            return_as="generator_unordered",
        )
    return parallel(joblib.delayed(_attempt_for)(os.getpid(), work, job.key, job.config) for job in jobs)


def _attempt_for(parent: int, work: Work, key: str, config: dict[str, Any]) -> Attempt:
    """:func:`attempt` in a worker that exits when its parent does, since only the parent uses the result."""
    if WATCH not in {thread.name for thread in threading.enumerate()}:
        threading.Thread(target=_end_with, args=(parent,), name=WATCH, daemon=True).start()
    return attempt(work, key, config)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


@contextmanager
def _ray(workers: int | None, cluster: Cluster) -> Iterator[Pool]:
    from pyro_fairvae.studies.ray_pool import ray_pool

    with ray_pool(workers, cluster) as pool:
        yield pool


BACKENDS: dict[str, Callable[[int | None, Cluster], AbstractContextManager[Pool]]] = {
    "local": _local,
    "ray": _ray,
}
