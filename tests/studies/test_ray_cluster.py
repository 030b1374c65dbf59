"""Jobs on a Ray cluster of two nodes: one that is lost with its jobs, and one with a GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.studies.jobs import Outcome, run_jobs
from pyro_fairvae.studies.pools import Cluster, Job
from pyro_fairvae.studies.ray_pool import attempt_here, gpus_of
from tests.support import ROOT

pytest.importorskip("ray", reason="Ray is an extra: pip install 'pyro_fairvae[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")  # Ray's own
SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}


def look_around(config: dict[str, Any]) -> dict[str, Any]:
    """Say where the job runs, and wait until it may end."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    folder = Path(config["folder"])
    (folder / f"{config['number']}.{node}.{os.getpid()}.started").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return {"number": config["number"], "node": node, "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A node of two cores, and a node of two cores with what counts as a GPU."""
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # where workers find the jobs
        patch.delenv("RAY_ADDRESS", raising=False)
        head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False, "_system_config": SOON}
        nodes = Nodes(initialize_head=True, head_node_args=head)
        nodes.gpu_node = nodes.add_node(num_cpus=2, num_gpus=1)
        yield nodes
        nodes.shutdown()


def started(folder: Path) -> list[tuple[int, str, int]]:
    """Number, node and process of every start of a job."""
    words = [path.name.split(".") for path in folder.glob("*.started")]
    return [(int(number), node, int(process)) for number, node, process, _ in words]


def run(folder: Path, jobs: int, cluster: Any, **more: Any) -> list[Outcome]:
    given = [Job(f"job {n}", {"folder": str(folder), "number": n}) for n in range(jobs)]
    at = Cluster(cluster.address, **{name: more.pop(name) for name in ("device", "gpus") if name in more})
    return run_jobs(given, look_around, folder, version="1", backend="ray", cluster=at, **more)


def test_jobs_are_placed_on_gpus(tmp_path: Path, cluster: Any) -> None:
    (tmp_path / "go").touch()
    outcomes = run(tmp_path, 3, cluster, device="auto", gpus=0.5)
    records = [outcome.record or {} for outcome in outcomes]
    assert {record["node"] for record in records} == {cluster.gpu_node.node_id}
    assert {record["gpus"] for record in records} == {"0"}
    with pytest.raises(
        InputError, match=r"4 cores and 1 GPUs on 2 nodes, so that 1 jobs can run .* 2 are need"
    ):
        run(tmp_path / "more", 3, cluster, device="cuda", workers=2)


def test_jobs_of_a_lost_node_run_on_another(tmp_path: Path, cluster: Any) -> None:
    """Once each, but for those that the node took with it; every record is written once."""
    lost = cluster.gpu_node.node_id

    def kill() -> None:
        while len(started(tmp_path)) < 4:
            time.sleep(0.05)
        of_node = [process for _, node, process in started(tmp_path) if node == lost]
        cluster.remove_node(cluster.gpu_node, allow_graceful=False)
        for process in of_node:  # as they do when their machine is lost
            os.kill(process, signal.SIGKILL)
        (tmp_path / "go").touch()

    killer = Thread(target=kill)
    killer.start()
    written: list[str] = []
    outcomes = run(tmp_path, 6, cluster, workers=4, progress=lambda done, _: written.append(done.job.name))
    killer.join()
    assert [outcome.record and outcome.record["number"] for outcome in outcomes] == list(range(6))
    assert lost not in {outcome.record["node"] for outcome in outcomes if outcome.record}
    assert sorted(written) == [f"job {n}" for n in range(6)]
    counts = [sum(number == n for number, _, _ in started(tmp_path)) for n in range(6)]
    again = {number for number, node, _ in started(tmp_path) if node == lost}
    assert len(again) == 2
    assert counts == [1 + (n in again) for n in range(6)]
    assert len(list((tmp_path / "jobs").glob("*.json"))) == 7  # and the version


def test_gpus_that_are_not_there_and_shares_that_are_none() -> None:
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0})
    assert gpus_of(ray, Cluster(device="auto")) == 0
    with pytest.raises(InputError, match="no node of the Ray cluster has a GPU; use cpu or auto"):
        gpus_of(ray, Cluster(device="cuda"))
    with_one = SimpleNamespace(cluster_resources=lambda: {"CPU": 2.0, "GPU": 1.0})
    assert gpus_of(with_one, Cluster(device="cpu")) == 0
    assert gpus_of(with_one, Cluster(device="auto", gpus=0.25)) == 0.25
    with pytest.raises(InputError, match=r"must be in \(0, 1\], got 1.5"):
        gpus_of(with_one, Cluster(device="auto", gpus=1.5))


def test_a_node_with_another_version_is_refused() -> None:
    with pytest.raises(InputError, match=r"this node has version .*, and the driver 0\.0\.1"):
        attempt_here("0.0.1", look_around, "key", {})
