"""Commands in two processes, started by torchrun, beside the same commands in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.command_line import FEW_STEPS, SYNTHETIC, run
from tests.support.user_tables import made_table

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "pyro_fairvae.run"]
LINES = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def torchrun(*arguments: str | Path) -> str:
    """What two processes print."""
    done = subprocess.run(
        [*TORCHRUN, *map(str, arguments)], env=os.environ | LINES, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_close(found: Any, expected: Any, path: str = "") -> None:
    """JSON whose numbers are the same but for the last digits of single precision."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name, value in expected.items():
            assert_close(found[name], value, f"{path}/{name}")
    elif isinstance(expected, list):
        for k, value in enumerate(expected):
            assert_close(found[k], value, f"{path}/{k}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-3), path
    else:
        assert found == expected, path


def test_train_divides_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SYNTHETIC, "--trunk", "mlp"]
    assert run(*options, "--out", tmp_path / "one") == 0
    expected = capsys.readouterr().out
    printed = torchrun(*options, "--shard", "members", "--out", tmp_path / "two")
    assert printed.replace("two", "one").splitlines()[1] == expected.splitlines()[1]
    assert printed.count("Everything is in") == 1
    one, two = ({path.name for path in (tmp_path / of).iterdir()} for of in ("one", "two"))
    assert one == two
    for name in ("results.json", "posterior.json"):
        assert_close(*(json.loads((tmp_path / of / name).read_text()) for of in ("two", "one")))


def test_fit_divides_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = made_table(240)
    path = tmp_path / "people.csv"
    made.X.assign(hired=made.y_obs, sex=made.a_obs).to_csv(path, index=False)
    options = [
        "fit", path, "--label", "hired", "--group", "sex", "--lambdas", "0,1", "--epochs", "2", "--quiet",
        "--device", "cpu", *FEW_STEPS,
    ]  # fmt: skip
    assert run(*options, "--out", tmp_path / "one") == 0
    capsys.readouterr()
    printed = torchrun(*options, "--shard", "rows", "--out", tmp_path / "two")
    assert printed.count("The model is in") == 1
    documents = [json.loads((tmp_path / of / "audit.json").read_text()) for of in ("two", "one")]
    for document in documents:
        del document["sha256"]
    assert_close(*documents)
