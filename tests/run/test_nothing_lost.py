"""Commands that are killed, that find the disk full, or that are told to write where they must not."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae import FairSSVAEClassifier
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.inference import checkpoint
from tests.support.command_line import FEW_STEPS, SYNTHETIC, run
from tests.support.user_tables import made_table

COLUMNS = ("--label", "hired", "--group", "sex")
TINY = (
    *(
        "--lambdas",
        "0,1",
        "--epochs",
        "2",
        "--device",
        "cpu",
        "--quiet",
        "--holdout",
        "0.4",
        "--trunk",
        "mlp",
    ),
    *FEW_STEPS,
)

DIE = """
import os, sys
from pyro_fairvae.run.__main__ import main
import pyro_fairvae.studies.user_fit as user_fit
if sys.argv[1] == "before the audit":
    user_fit.audit = lambda *_, **__: os.kill(os.getpid(), 9)
else:
    replace = os.replace
    def die_at(source, target):
        if str(target).endswith("weights.safetensors") and ".fairvae.decided" in str(source):
            os.kill(os.getpid(), 9)
        return replace(source, target)
    os.replace = die_at
main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    made = made_table(64)
    made.X.assign(hired=made.y_obs, sex=made.a_obs).to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


@pytest.fixture(scope="module")
def model(people: Path) -> Path:
    out = people.parent / "model"
    assert run("fit", people, *COLUMNS, *TINY, "--out", out) == 0
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def killed(when: str, *command: object) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", DIE, when, *map(str, command)], env=environment, check=False)
    assert done.returncode == -9


def test_a_fit_that_is_killed_before_its_audit_goes_on_from_its_last_epoch(
    people: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    command = ("fit", people, *COLUMNS, *TINY, "--out", out)
    killed("before the audit", *command)
    assert sorted(contents(out)) == [".fairvae.lock", "checkpoint.pt"]
    monkeypatch.setattr(checkpoint, "save", lambda *_: pytest.fail("an epoch was trained again"))
    assert run(*command) == 0
    assert contents(out) == contents(model)


def test_a_model_is_whole_where_its_writer_died_in_the_middle(
    people: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    shutil.copytree(model, out)
    other = ("fit", people, *COLUMNS, *TINY, "--seed", "1", "--out")
    killed("while files are moved", *other, out, "--overwrite")
    assert ".fairvae.decided" in os.listdir(out)
    X = made_table(64).X
    new = FairSSVAEClassifier.load(out, "cpu").decision_function(X)
    assert not np.array_equal(FairSSVAEClassifier.load(model, "cpu").decision_function(X), new)
    assert run("predict", out, people, "--out", tmp_path / "predictions.csv") == 0
    assert run(*other, out) == 2  # it is finished, and the next run puts its files into their places
    assert run(*other, tmp_path / "whole") == 0
    assert contents(out) == contents(tmp_path / "whole")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        yield


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_does_not_take_the_model_that_was_to_be_replaced(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    shutil.copytree(model, out)
    with pytest.raises(ValueError, match="No space left on device"):
        FairSSVAEClassifier.load(model, "cpu").save(out, overwrite=True)
    assert contents(out) == contents(model)


def test_a_run_stays_until_the_one_that_overwrites_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, "--out", out) == 0
    before = contents(out)
    sync, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 2:  # the checkpoints of two epochs
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert run(*SYNTHETIC, "--seed", "1", "--overwrite", "--out", out) == 2
    assert "No space left on device" in capsys.readouterr().err
    after = contents(out)
    assert {name for name in before if before[name] != after.get(name)} == {"checkpoint.pt"}
    assert after.keys() == before.keys()
    assert run(*SYNTHETIC, "--seed", "1", "--resume", "--out", out) == 0
    assert run(*SYNTHETIC, "--seed", "1", "--out", tmp_path / "other") == 0
    again, other = contents(out), contents(tmp_path / "other")
    for name in ("config.json", "results.json", "posterior.json", "history.csv", "weights.safetensors"):
        assert again[name] == other[name]


def test_two_runs_do_not_write_to_one_folder(
    people: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(model)
    commands = (
        ("fit", people, *COLUMNS, *TINY, "--overwrite"),
        (*SYNTHETIC, "--overwrite"),
        ("priors", "study", "--dataset", "synthetic", "--quiet"),
        ("recover", "--dataset", "synthetic", "--quiet"),
        ("reproduce", "--preset", "smoke", "--quiet"),
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    for command in commands:
        assert run(*command, "--out", model) == 2, command
        assert f"another run, process {holder.pid}, is writing to {model}" in capsys.readouterr().err
    holder.kill()
    holder.communicate()
    with alone_in(model):
        pass
    assert contents(model) == before


HOLD = """
import sys
from pathlib import Path
from pyro_fairvae.base.folders import alone_in
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("command", "out", "words"),
    [
        (("predict", "{model}", "{people}"), "{people}", "which is read"),
        (("predict", "{model}", "{people}"), "{model}/model.json", "which is read"),
        (("predict", "{model}", "{people}"), "{folder}/link.csv", "a symbolic link"),
        (("predict", "{model}", "{people}"), "/dev/null", "a device"),
        (("predict", "{model}", "{people}"), "{folder}/fifo", "a FIFO"),
        (("audit", "{model}", "{people}"), "{people}", "which is read"),
        (("audit", "{model}", "{people}"), "{model}/weights.safetensors", "which is read"),
        (("decide", "{model}", "{people}"), "{people}", "which is read"),
        (("decide", "{model}", "{people}"), "{model}/model.csv", "model.json, which is read"),
        (("decide", "{model}", "{people}"), "{folder}/out.json", "name a file that ends in .csv"),
        (("report", "{model}"), "{model}/audit.json", "which is read"),
        (("report", "{model}"), "{model}/draws.safetensors", "which is read"),
        (("inspect", "{model}", "--arviz"), "{model}/weights.safetensors", "which is read"),
        (("fit", "{folder}/audit.json", *COLUMNS), "{folder}", "which is read"),
    ],
)
def test_out_replaces_nothing_but_earlier_results(
    command: tuple[str, ...],
    out: str,
    words: str,
    people: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "link.csv").symlink_to(people)
    os.mkfifo(tmp_path / "fifo")
    shutil.copy(people, tmp_path / "audit.json")
    before = contents(model), people.read_bytes()
    named = {"model": model, "people": people, "folder": tmp_path}
    given = [word.format(**named) for word in command]
    flag = [] if command[-1] == "--arviz" else ["--out"]
    assert run(*given, *flag, out.format(**named)) == 2
    found = capsys.readouterr().err
    assert words in found
    assert found.count("\n") == 1
    assert (contents(model), people.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.json", "fifo", "link.csv"]


def test_an_earlier_result_is_replaced_and_keeps_its_permissions(model: Path, people: Path) -> None:
    out = people.parent / "predictions.csv"
    out.write_text("before")
    out.chmod(0o600)
    assert run("predict", model, people, "--out", out) == 0
    assert len(pd.read_csv(out)) == 64
    assert out.stat().st_mode & 0o777 == 0o600
