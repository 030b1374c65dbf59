"""A pool of jobs on a Ray cluster, of one or several nodes, with or without GPUs.

Each job is a task of one core, and of a GPU where the cluster has some. The driver, which started the grid,
submits them, takes their records and writes these; workers write nothing. The jobs of a node that is lost run
again on others. A record is taken once: of a task that was lost nothing is taken any more.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import joblib

from pyro_fairvae import __version__
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.studies.pools import Attempt, Cluster, Job, Pool, Work, WorkersDiedError, attempt

LOOK = 10.0  # seconds after which the cluster is looked at, if no job ends before
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@contextmanager
def ray_pool(workers: int | None, cluster: Cluster) -> Iterator[Pool]:
    """The pool of a cluster at an address, or of this machine where there is none."""
    try:
        import ray
    except ImportError as reason:
        raise InputError(
            f"the backend 'ray' needs Ray ({first_line(reason)}): pip install 'pyro_fairvae[ray]', or use "
            "'local'."
        ) from reason
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    started = not ray.is_initialized()
    if started and address:
        try:
            ray.init(address=address, **QUIET)
        except (ConnectionError, RuntimeError, ValueError) as reason:
            named = "" if cluster.address else "RAY_ADDRESS="
            raise InputError(
                f"no Ray cluster answers at {named}{address} ({first_line(reason)}); start it, check that "
                "its token is set here, or leave the address out.",
                "ray_address",
            ) from reason
    elif started:
        ray.init(
            address="local", num_cpus=max(2, workers or joblib.cpu_count()), include_dashboard=False, **QUIET
        )
    try:
        tasks = _Tasks(ray, gpus_of(ray, cluster))
        most = tasks.at_once()
        require(
            most >= max(1, workers or 0),
            f"Ray has {tasks.in_words()}, so that {most} jobs can run at a time, but {max(1, workers or 0)} "
            "are needed; use fewer workers, or the backend 'local'.",
            "workers",
        )
        yield Pool(workers or most, (WorkersDiedError,), tasks.run)
    finally:
        if started:
            ray.shutdown()


def gpus_of(ray: Any, cluster: Cluster) -> float:
    """The share of a GPU that each job takes."""
    some = ray.cluster_resources().get("GPU", 0) > 0
    require(
        some or cluster.device != "cuda",
        "device 'cuda' was requested, but no node of the Ray cluster has a GPU; use cpu or auto.",
        "device",
    )
    require(
        0 < cluster.gpus <= 1, f"gpus, the share of a GPU of each job, must be in (0, 1], got {cluster.gpus}."
    )
    return cluster.gpus if some and cluster.device != "cpu" else 0.0


@dataclass
class _Tasks:
    """Jobs as tasks of Ray."""

    ray: Any
    gpus: float

    def at_once(self) -> int:
        """How many jobs the cluster has cores, and GPUs, for."""
        has = self.ray.cluster_resources()
        cores = int(has.get("CPU", 0))
        return min(cores, int(has.get("GPU", 0) / self.gpus + 1e-9)) if self.gpus else cores

    def in_words(self) -> str:
        has = self.ray.cluster_resources()
        gpus = f" and {has.get('GPU', 0):g} GPUs" if self.gpus else ""
        return f"{has.get('CPU', 0):g} cores{gpus} on {self._nodes()} nodes"

    def _nodes(self) -> int:
        return sum(node["Alive"] for node in self.ray.nodes())

    def run(self, work: Work, jobs: Sequence[Job], at_once: int) -> Generator[Attempt, None, None]:
        """Attempts as they come. Once a worker has died no job is started, and it raises after the others."""
        errors = self.ray.exceptions
        # Ray's own retries would hide a job that kills its worker.
        task = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0)(attempt_here)
        waiting, under_way = deque(jobs), dict[Any, Job]()
        died: dict[str, Exception] = {}
        nodes = self._nodes()
        try:
            while waiting or under_way:
                while waiting and not died and len(under_way) < at_once:
                    job = waiting.popleft()
                    under_way[task.remote(__version__, work, job.key, job.config)] = job
                if not under_way:
                    break
                done, _ = self.ray.wait(list(under_way), timeout=LOOK)
                if not done:
                    self._check_there_is_room()
                for reference in done:
                    job = under_way.pop(reference)
                    try:
                        found: Attempt = self.ray.get(reference)
                    except errors.NodeDiedError:
                        waiting.appendleft(job)
                    except (errors.WorkerCrashedError, errors.OutOfMemoryError) as reason:
                        if self._lost_one_of(nodes):
                            waiting.appendleft(job)
                        else:
                            died[job.key] = reason
                    except errors.RayTaskError as reason:  # not from a job, which catches its own errors
                        raise InputError(
                            "a Ray worker could not start a job; every node needs version "
                            f"{__version__} of pyro_fairvae. {first_line(reason)}."
                        ) from reason
                    else:
                        yield found
                        continue
                    nodes = self._nodes()
        finally:
            for reference in under_way:
                self.ray.cancel(reference, force=True)
        if died:
            raise WorkersDiedError(died)

    def _lost_one_of(self, nodes: int) -> bool:
        """Whether the worker died with its node, which the cluster may learn a moment later."""
        for _ in range(4):
            if self._nodes() < nodes:
                return True
            time.sleep(0.5)
        return False

    def _check_there_is_room(self) -> None:
        """Raise if no node is left that could run a job."""
        require(
            self.at_once() > 0,
            f"the Ray cluster has lost nodes, and with {self.in_words()} no job can run; mend it, and start "
            "again: what is done stays done.",
        )


def attempt_here(version: str, work: Work, key: str, config: dict[str, Any]) -> Attempt:
    """:func:`attempt` on a node, which must have the driver's version of the package."""
    require(version == __version__, f"this node has version {__version__}, and the driver {version}")
    return attempt(work, key, config)
