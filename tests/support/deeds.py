"""Jobs for tests of those who do them."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from pyro_fairvae.studies.jobs import Outcome, run_jobs
from pyro_fairvae.studies.pools import Job


def deed(config: dict[str, Any]) -> dict[str, Any]:
    """Leave a trace of the call, then do as the config says."""
    folder = Path(config["folder"])
    (folder / f"{config['number']}.{uuid.uuid4().hex}.call").touch()
    time.sleep(config.get("seconds", 0))
    match config.get("act"):
        case "raise" if not (folder / "mended").exists():
            raise RuntimeError("not mended")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once" if calls(folder)[config["number"]] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "wait":
            while not (folder / "go").exists():
                time.sleep(0.02)
            (folder / f"{config['number']}.woke").touch()
    return {"number": config["number"]}


def calls(folder: Path) -> Counter[int]:
    """How often each number was worked on."""
    return Counter(int(path.name.split(".")[0]) for path in folder.glob("*.call"))


def make(folder: Path, *acts: str | None, **more: Any) -> list[Job]:
    """A job for each act, numbered from 0, the first the longest."""
    return [
        Job(f"job {n}", {"folder": str(folder), "number": n, "act": act} | more, cost=len(acts) - n)
        for n, act in enumerate(acts)
    ]


def run(jobs: list[Job], out: Path, **options: Any) -> list[Outcome]:
    defaults: dict[str, Any] = {"version": "1", "workers": 2}
    return run_jobs(jobs, deed, out, **(defaults | options))


def records(outcomes: list[Outcome]) -> list[int | None]:
    return [None if outcome.record is None else outcome.record["number"] for outcome in outcomes]


def names(out: Path) -> set[str]:
    return {path.name for path in (out / "jobs").iterdir()}


def until_killed(folder: str) -> None:
    """What a driver does until it is killed."""
    run(make(Path(folder), None, None, "wait", "wait"), Path(folder))
