"""Jobs that are done stay done; what fails, dies or is stopped costs nothing but itself."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.studies.jobs import Left, Outcome, duration, run_jobs
from pyro_fairvae.studies.pools import Job
from tests.support import ROOT
from tests.support.deeds import calls, make, names, records, run


def test_keys_are_of_the_config_alone() -> None:
    one = Job("one", {"a": 1, "b": {"c": [1, 2.5, None], "d": "é"}})
    other = Job("other", {"b": {"d": "é", "c": (1, 2.5, None)}, "a": 1}, cost=7.0)
    assert one.key == other.key
    assert re.fullmatch("[0-9a-f]{16}", one.key)
    assert Job("one", {"a": 2, "b": one.config["b"]}).key != one.key


@pytest.mark.parametrize("value", [math.nan, {1, 2}, Path("x")])
def test_config_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="config of job 'odd' is not JSON"):
        _ = Job("odd", {"value": value}).key


def test_a_job_is_done_once(tmp_path: Path) -> None:
    jobs = make(tmp_path, None, None)
    twin = Job("twin", dict(reversed(jobs[0].config.items())))
    said: list[str] = []
    first = run([*jobs, twin, jobs[1]], tmp_path, report=said.append)
    assert records(first) == [0, 1, 0, 1]
    assert [outcome.job.name for outcome in first] == ["job 0", "job 1", "twin", "job 1"]
    assert not any(outcome.kept for outcome in first)
    assert len(said) == 2
    again = run([*jobs, twin], tmp_path, report=said.append)
    assert records(again) == [0, 1, 0]
    assert all(outcome.kept for outcome in again)
    assert [outcome.seconds for outcome in again[:2]] == [outcome.seconds for outcome in first[:2]]
    assert said[2:] == ["2 of 2 done before"]
    assert calls(tmp_path) == {0: 1, 1: 1}
    content = json.loads((tmp_path / "jobs" / f"{jobs[0].key}.json").read_text())
    assert content.keys() == {"sha256", "version", "name", "config", "seconds", "record"}
    assert content["config"] == jobs[0].config


def test_a_failure_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    jobs = make(tmp_path, "raise", None, None)
    said: list[str] = []
    outcomes = run(jobs, tmp_path, report=said.append)
    assert records(outcomes) == [None, 1, 2]
    error = outcomes[0].error
    assert error is not None
    assert error.startswith("RuntimeError: not mended")
    assert "in deed" in error
    text = tmp_path / "jobs" / f"{jobs[0].key}.error.txt"
    assert error in text.read_text()
    assert any(line.endswith("job 0 failed (RuntimeError: not mended)") for line in said)
    (tmp_path / "mended").touch()
    outcomes = run(jobs, tmp_path)
    assert records(outcomes) == [0, 1, 2]
    assert [outcome.kept for outcome in outcomes] == [False, True, True]
    assert not text.exists()
    assert calls(tmp_path) == {0: 2, 1: 1, 2: 1}


def give(config: dict[str, Any]) -> Any:
    return {"set": {"a": {1}}, "list": [1]}[config["give"]] if config["give"] != "exit" else sys.exit(3)


def test_what_is_no_record_is_a_failure(tmp_path: Path) -> None:
    jobs = [Job(what, {"give": what}) for what in ("set", "list", "exit")]
    errors = [outcome.error or "" for outcome in run_jobs(jobs, give, tmp_path, version="1", workers=2)]
    assert "not JSON serializable" in errors[0]
    assert "must be a dict, not [1]" in errors[1]
    assert errors[2].startswith("SystemExit: 3")


def test_an_interrupt_goes_up_and_what_is_done_stays(tmp_path: Path) -> None:
    jobs = make(tmp_path, None, "wait", "wait")

    def interrupt(outcome: Outcome, left: Left) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(jobs, tmp_path, progress=interrupt)
    (tmp_path / "go").touch()
    outcomes = run(jobs, tmp_path)
    assert records(outcomes) == [0, 1, 2]
    assert [outcome.kept for outcome in outcomes] == [True, False, False]
    assert calls(tmp_path)[0] == 1


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    code = f"from tests.support import deeds; deeds.until_killed({str(tmp_path)!r})"
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    jobs = make(tmp_path, None, None, "wait", "wait")
    try:
        deadline = time.monotonic() + 60
        while calls(tmp_path) != {0: 1, 1: 1, 2: 1, 3: 1} or len(names(tmp_path)) < 3:
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        driver.kill()
        driver.wait()
        time.sleep(3)
        (tmp_path / "go").touch()
        time.sleep(0.5)
        assert not list(tmp_path.glob("*.woke"))  # workers ended with their driver
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    outcomes = run(jobs, tmp_path)
    assert records(outcomes) == [0, 1, 2, 3]
    assert [outcome.kept for outcome in outcomes] == [True, True, False, False]
    assert calls(tmp_path) == {0: 1, 1: 1, 2: 2, 3: 2}


def test_another_version_is_refused(tmp_path: Path) -> None:
    jobs = make(tmp_path, None)
    run(jobs, tmp_path)
    with pytest.raises(
        InputError, match=r"is of version 1, but this is version 2.*another folder, or delete"
    ):
        run(jobs, tmp_path, version="2")
    (tmp_path / "jobs" / "version.json").unlink()
    with pytest.raises(InputError, match=rf"{jobs[0].key}\.json is of version 1"):
        run(jobs, tmp_path, version="2")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": "1", "config": {}, "seconds": 1.0}'])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    (job,) = make(tmp_path, None)
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / f"{job.key}.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"{re.escape(str(path))} is not .*damaged.* Delete it"):
        run([job], tmp_path)
    assert not calls(tmp_path)


def means_the_same(first: bytes, second: bytes) -> bool:
    """Other space, or other digits of a number beyond what a float holds."""
    try:
        return bool(json.loads(first) == json.loads(second))
    except ValueError:
        return False


def test_a_record_of_which_a_byte_was_altered_is_refused(tmp_path: Path) -> None:
    (job,) = make(tmp_path, None)
    run([job], tmp_path)
    path = tmp_path / "jobs" / f"{job.key}.json"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        altered = bytes([*content[:place], content[place] ^ 1, *content[place + 1 :]])
        if means_the_same(content, altered):
            continue
        path.write_bytes(altered)
        with pytest.raises(InputError, match=rf"{re.escape(str(path))} is .* Delete it and start again\."):
            run([job], tmp_path)
    assert calls(tmp_path) == {0: 1}


def test_a_file_of_another_config_is_refused(tmp_path: Path) -> None:
    one, other = make(tmp_path, None, None)
    run([one], tmp_path)
    (tmp_path / "jobs" / f"{one.key}.json").rename(tmp_path / "jobs" / f"{other.key}.json")
    with pytest.raises(InputError, match=r"has the config .*'number': 0.* but is named for .*'number': 1"):
        run([other], tmp_path)


def unfinite(config: dict[str, Any]) -> dict[str, Any]:
    return {"nan": math.nan, "deep": [{"inf": math.inf}, (1.5, math.nan)], "text": "é", "yes": True}


def test_nan_survives(tmp_path: Path) -> None:
    job = Job("odd", {"none": None})
    for kept in (False, True):
        (outcome,) = run_jobs([job], unfinite, tmp_path, version="1", workers=2)
        assert outcome.kept == kept
        nan = pytest.approx(math.nan, nan_ok=True)
        assert outcome.record == {"nan": nan, "deep": [{"inf": nan}, [1.5, nan]], "text": "é", "yes": True}


def test_the_longest_come_first(tmp_path: Path) -> None:
    order: list[str] = []
    jobs = make(tmp_path, *3 * [None], seconds=0.3)  # so long that none ends before the last was told of
    run(jobs[::-1], tmp_path, workers=1, progress=lambda outcome, _: order.append(outcome.job.name))
    assert order == ["job 0", "job 1", "job 2"]


def test_progress_and_time_left(tmp_path: Path) -> None:
    jobs = make(tmp_path, None, "raise", None, None, seconds=0.2)
    seen: list[tuple[Outcome, Left]] = []
    said: list[str] = []
    run(jobs, tmp_path, report=said.append, progress=lambda *both: seen.append(both))
    assert len(seen) == 4
    assert said == []  # whoever shows progress needs no words for it
    for number, (_, left) in enumerate(seen):
        so_far = [other for other, _ in seen[: number + 1]]
        good = [other for other in so_far if other.error is None]
        waiting = [job for job in jobs if job not in [other.job for other in so_far]]
        assert (left.total, left.done, left.failed) == (4, len(good), len(so_far) - len(good))
        if waiting and good:
            unit = sum(other.seconds for other in good) / sum(other.job.cost for other in good)
            share = sum(job.cost for job in waiting) / min(2, len(waiting))
            assert left.seconds == pytest.approx(unit * share)
    assert seen[-1][1].seconds == 0


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (Left(120, 12, 1, 1380.0), "12 of 120 done, 1 failed, about 23 min left"),
        (Left(120, 12, 0, 31.2), "12 of 120 done, about 31 s left"),
        (Left(120, 120, 0, 0.0), "120 of 120 done"),
        (Left(3, 0, 1, math.nan), "0 of 3 done, 1 failed"),
    ],
)
def test_words_of_what_is_left(left: Left, words: str) -> None:
    assert str(left) == words


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0.2, 89, 90, 5399, 5400)] == [
        "0 s",
        "89 s",
        "2 min",
        "90 min",
        "1.5 h",
    ]


def test_unknown_backend_and_no_workers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown backend 'locl'.*Did you mean 'local'"):
        run([], tmp_path, backend="locl")
    with pytest.raises(InputError, match="workers is 0"):
        run([], tmp_path, workers=0)
