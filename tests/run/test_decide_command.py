"""``fairvae decide``, run as a person runs it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.studies.deciding import DecideConfig
from tests.support.command_line import SYNTHETIC, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which tests write nothing."""
    out = tmp_path_factory.mktemp("decide") / "run"
    assert run(*SYNTHETIC, "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def as_trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose decisions are not refined."""
    out = tmp_path_factory.mktemp("decide") / "as_trained"
    options = ("--epochs", "6", "--lr", "0.01", "--refine-decisions", "0", "--imputation", "own")
    assert run(*SYNTHETIC, *options, "--out", out) == 0
    return out


@pytest.mark.parametrize("part", ["test", "validation"])
def test_decide_labels_a_part_of_a_run(
    part: str, as_trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = as_trained
    assert (
        run("decide", out, "--part", part, "--member", "1", "--decision-lambda", "3", "--device", "cpu") == 0
    )
    assert "labels differ from rounding" in capsys.readouterr().out
    results = json.loads((out / f"decisions-{part}.json").read_text())
    assert results["objective"]["decided"] <= results["objective"]["rounded"]
    rounded = json.loads((out / "results.json").read_text())["members"][1][
        "test" if part == "test" else "val"
    ]
    for beside in ("deo_floor", "standard_error"):
        rounded.pop(beside, None)
    assert results["metrics"]["rounded"] == pytest.approx(rounded)
    labels = np.genfromtxt(out / f"decisions-{part}.csv", delimiter=",", names=True)
    assert len(labels) == (80 if part == "test" else 40)
    assert (labels["label"] != (labels["p1"] > 0.5)).sum() == results["changed"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--part", "train"], "unknown part 'train'"),
        (["--rule", "descend"], "Did you mean 'descent'"),
        (["--member", "2"], "the model has members 0 to 1"),
        (["--lambda", "0.3"], r"no member of the model has λ = 0\.3; its members have 0, 0\.5\."),
        (["--decision-lambda", "-1"], "decision_lambda must be finite and not negative"),
        (["--draws", "0"], "draws must be at least 1"),
    ],
)
def test_decide_refuses_bad_input(
    arguments: list[str], complaint: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("decide", finished, "--device", "cpu", *arguments) == 2
    assert re.search(complaint, capsys.readouterr().err)
    assert not list(finished.glob("decisions-*"))


def test_decide_takes_a_member_by_its_lambda(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    written = []
    for choice in (("--member", "1"), ("--lambda", "0.5"), ("--lambda", "0.50", "--seed", "0")):
        assert run("decide", out, *choice, "--device", "cpu") == 0
        written.append([(out / f"decisions-test.{ending}").read_text() for ending in ("csv", "json")])
    assert written[0] == written[1] == written[2]
    results = json.loads(written[0][1])
    assert (results["member"], results["lambda"]) == (1, 0.5)
    with pytest.raises(SystemExit, match="2"):
        run("decide", out, "--member", "1", "--lambda", "0.5")
    assert "not allowed with argument" in capsys.readouterr().err
    with pytest.raises(InputError, match="give member or lambda_, not both"):
        DecideConfig(member=1, lambda_=0.5)


def test_decide_refuses_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("decide", tmp_path) == 2
    assert "not the folder of a finished run" in capsys.readouterr().err


def test_decisions_start_from_the_thresholds_of_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, "--thresholds", "0.2,0.8", "--out", out) == 0
    assert run("decide", out, "--rule", "round", "--member", "1", "--device", "cpu") == 0
    decided = json.loads((out / "decisions-test.json").read_text())["metrics"]["rounded"]
    trained = json.loads((out / "results.json").read_text())["members"][1]["test"]
    assert decided["error"] == pytest.approx(trained["error"])
