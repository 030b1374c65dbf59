"""A grid of ``fairvae reproduce`` whose jobs take milliseconds, in one process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from pyro_fairvae.baselines import METHODS, Method, register
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.studies import reproduction
from pyro_fairvae.studies.pools import BACKENDS, Attempt, Cluster, Job, Pool, Work, attempt
from tests.torture.forked import TERMINAL, Ended, Terminal, command

ARGUMENTS = (
    "--dataset", "synthetic", "--preset", "smoke", "--quiet", "--device", "cpu", "--rows", "100",
    "--epochs", "1",
    "--weights", "1", "--seeds", "3", "--methods", "shares", "--backend", "here",
)  # fmt: skip


@dataclass(frozen=True)
class Shares:
    """Everybody gets the shares of classes among stated labels, more even the larger the weight."""

    shares: torch.Tensor  # (members, classes)

    def predict_proba(self, x: torch.Tensor) -> torch.Tensor:
        return self.shares.unsqueeze(1).expand(-1, len(x), -1)

    def decide(self, x: torch.Tensor) -> torch.Tensor:
        return self.predict_proba(x).argmax(-1)


def _fit(task: Task, weights: Sequence[float]) -> Shares:
    stated = task.train.y_obs[task.train.y_obs < task.train.classes]
    counts = torch.bincount(stated, minlength=task.train.classes).float()
    flattened = torch.stack([counts + weight * counts.sum() for weight in weights])
    return Shares(flattened / flattened.sum(-1, keepdim=True))


@contextmanager
def _here(workers: int | None, _: Cluster) -> Iterator[Pool]:
    def run(work: Work, jobs: Sequence[Job], at_once: int) -> Generator[Attempt, None, None]:
        for job in jobs:
            yield attempt(work, job.key, job.config)

    yield Pool(1, (), run)


def prepare() -> None:
    """In the process of the command: the method, the backend, and no estimate of the time, which trains."""
    if "shares" not in METHODS:
        register(Method("shares", "shares of classes", _fit, weights=(0.0, 1.0)))
    BACKENDS["here"] = _here
    reproduction.seconds_of_cost = lambda *_: 1.0


def grid(
    out: Path,
    folder: Path,
    before: Callable[[], None] | None = None,
    more: Sequence[str] = (),
    terminal: Terminal = TERMINAL,
) -> Ended:
    """``fairvae reproduce`` into a folder."""

    def both() -> None:
        prepare()
        if before is not None:
            before()

    return command(("reproduce", *ARGUMENTS, "--out", out, *more), folder, both, terminal)
