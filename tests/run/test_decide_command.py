"""``fairvae decide``, run as a person runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import SYNTHETIC, run


@pytest.mark.parametrize("part", ["test", "validation"])
def test_decide_labels_a_part_of_a_run(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, "--epochs", "6", "--lr", "0.01", "--refine-decisions", "0", "--out", out) == 0
    assert run("decide", out, "--part", part, "--member", "1", "--risk-weight", "3", "--device", "cpu") == 0
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
        (["--risk-weight", "-1"], "risk_weight must be finite and not negative"),
        (["--draws", "0"], "draws must be at least 1"),
    ],
)
def test_decide_refuses_bad_input(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, "--out", out) == 0
    assert run("decide", out, "--device", "cpu", *arguments) == 2
    assert re.search(complaint, capsys.readouterr().err)
    assert not list(out.glob("decisions-*"))


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
