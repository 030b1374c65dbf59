"""Workers: their threads, their deaths, and Ray's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import joblib
import pytest
import threadpoolctl
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.studies.jobs import Left, Outcome, run_jobs
from pyro_fairvae.studies.pools import Job
from tests.support import ROOT
from tests.support.deeds import calls, make, names, records, run


def test_a_job_that_kills_its_worker_is_found(tmp_path: Path) -> None:
    jobs = make(tmp_path, None, "die", None, None, None)
    said: list[str] = []
    outcomes = run(jobs, tmp_path, report=said.append)
    assert records(outcomes) == [0, None, 2, 3, 4]
    assert "memory" in (outcomes[1].error or "")
    assert "fewer workers" in (outcomes[1].error or "")
    assert calls(tmp_path)[1] == 2  # among others, then alone
    assert any(line.startswith("a worker died") for line in said)
    kept = {f"{job.key}.json" for job in jobs if job is not jobs[1]}
    assert names(tmp_path) == kept | {"version.json", f"{jobs[1].key}.error.txt"}


def test_a_death_that_does_not_come_again_loses_nothing(tmp_path: Path) -> None:
    jobs = make(tmp_path, "die once", None, None)
    said: list[str] = []
    outcomes = run(jobs, tmp_path, report=said.append)
    assert records(outcomes) == [0, 1, 2]
    assert any("at most 1 at a time" in line for line in said)
    assert names(tmp_path) == {f"{job.key}.json" for job in jobs} | {"version.json"}


def test_one_worker_is_a_process_of_its_own(tmp_path: Path) -> None:
    assert records(run(make(tmp_path, "die", None), tmp_path, workers=1)) == [None, 1]


def threads(config: dict[str, Any]) -> dict[str, Any]:
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    return {"torch": torch.get_num_threads(), "pools": pools, "omp": os.environ["OMP_NUM_THREADS"]}


def test_a_worker_has_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    (outcome,) = run_jobs([Job("threads", {})], threads, tmp_path, version="1", workers=2)
    record = outcome.record
    assert record is not None
    assert record["torch"] == 1
    assert record["omp"] == "1"
    assert set(record["pools"]) == {1}


def test_workers_are_the_cores_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    jobs = [Job(str(n), {"folder": str(tmp_path), "number": n}) for n in range(5)]
    seen: list[tuple[Outcome, Left]] = []
    run(jobs, tmp_path, workers=None, progress=lambda *both: seen.append(both))
    outcome, left = seen[0]
    assert left.seconds == pytest.approx(outcome.seconds * 4 / 3)


def test_ray_that_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'pyro_fairvae\[ray\]'"):
        run(make(tmp_path, None), tmp_path, backend="ray")


@pytest.mark.filterwarnings("ignore:subprocess .* still running:ResourceWarning")  # Ray's own, on its way out
def test_ray_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'pyro_fairvae[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # where its workers find the jobs
    jobs = make(tmp_path, None, "raise", "die", None, None)
    outcomes = run(jobs, tmp_path, backend="ray")
    assert not ray.is_initialized()
    assert records(outcomes) == [0, None, None, 3, 4]
    assert "RuntimeError: not mended" in (outcomes[1].error or "")
    assert "memory" in (outcomes[2].error or "")
    assert calls(tmp_path)[2] == 2
    assert [outcome.kept for outcome in run(jobs[3:], tmp_path)] == [True, True]
