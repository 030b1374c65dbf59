"""A short part of the torture, and that the harness finds what is wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.torture.cases import Case, try_all
from tests.torture.documents import Change
from tests.torture.forked import Ended, command, forked
from tests.torture.kills import at_each_change
from tests.torture.verdict import wrong_with


def ended(code: int | None, err: str, out: str = "") -> Ended:
    return Ended(code, out, err, 0.0)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (ended(0, "", "4 rows decided"), ""),
        (ended(2, "fairvae: there is no file x.\n"), ""),
        (ended(2, "fairvae: warning: few rows\nfairvae: there is no file x.\n"), ""),
        (ended(2, "usage: fairvae predict\nfairvae predict: error: unrecognized arguments: --x\n"), ""),
        (ended(2, "fairvae: YAML:\n  line 2\n"), "expected one line"),
        (ended(2, ""), "without a word"),
        (ended(1, "Traceback (most recent call last):\nKeyError: 'x'\n"), "a traceback"),
        (ended(0, "Traceback (most recent call last):\nKeyError: 'x'\n"), "a traceback"),
        (ended(1, "fairvae: no\n"), "exit code 1"),
        (ended(2, "fairvae: there is no \x1b[31m.\n"), "control characters"),
        (ended(None, ""), "no end"),
        (ended(-signal.SIGSEGV, ""), "exit code -11"),
    ],
)
def test_verdicts(how: Ended, words: str) -> None:
    found = wrong_with(how)
    assert (words in found) if words else not found


def test_an_action_ends_as_a_script_would(tmp_path: Path) -> None:
    def fail() -> int:
        print("λ on the way")
        raise ValueError(os.getcwd())

    def hang() -> int:
        signal.pause()
        return 0

    failed = forked(fail, tmp_path)
    assert (failed.code, failed.out) == (1, "λ on the way\n")
    assert str(tmp_path) in failed.err.splitlines()[-1]
    assert forked(lambda: os.kill(os.getpid(), signal.SIGKILL), tmp_path).code == -signal.SIGKILL
    assert forked(lambda: sys.exit("no"), tmp_path).err == "no\n"
    assert forked(hang, tmp_path, seconds=0.2).code is None
    assert command(["predict", "nowhere", "x.csv"], tmp_path).code == 2


def test_wrong_cases_are_counted_and_can_be_tried_again(tmp_path: Path) -> None:
    cases = [
        Case("good", lambda folder: ""),
        Case("bad", lambda folder: "it went wrong"),
        Case("worse", lambda _: 1 / 0),
    ]
    tally = try_all("made", cases, tmp_path, seed=3, size=3)
    assert (tally.tried, [wrong.case for wrong in tally.wrong]) == (3, ["made 1: bad", "made 2: worse"])
    assert "--made 3 --seed 3 --only 1" in tally.wrong[0].again
    assert "ZeroDivisionError" in tally.wrong[1].words
    assert json.dumps(tally.content())


def test_every_change_of_a_file_is_a_moment(tmp_path: Path) -> None:
    def change() -> int:
        seen: list[int] = []
        at_each_change(lambda: seen.append(len(list(tmp_path.iterdir()))))
        (tmp_path / "a").write_text("a")
        (tmp_path / "a").replace(tmp_path / "b")
        (tmp_path / "b").unlink()
        print(seen)
        return 0

    assert forked(change, tmp_path).out == "[1, 1, 1, 0]\n"


def test_a_change_of_a_document_leaves_the_document_as_it_was() -> None:
    document = {"a": [1, {"b": 2}], "c": 3}
    places = [("a", "x"), ("c", "x")]
    assert Change("replace", 0, "x").of(document)["a"] == places[0][1]
    assert Change("remove", 1, None).of(document) == {"a": [1, {"b": 2}]}
    assert document == {"a": [1, {"b": 2}], "c": 3}


def test_a_short_torture_finds_nothing(tmp_path: Path) -> None:
    """In a process of its own: this one has threads, and must not fork and train."""
    import subprocess

    sizes = {"frames": 3, "documents": 3, "cache": 4}
    flags = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", "--parts", ",".join(sizes), *flags, "--workers", "1",
        "--out", report],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {part["part"]: part["tried"] for part in json.loads(report.read_text())["parts"]}
    assert all(parts[name] >= size for name, size in sizes.items())
