"""The commands that look at posteriors and priors, at sizes that take a moment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.data import Table
from pyro_fairvae.storage.model_folder import DRAWS
from tests.support.command_line import SYNTHETIC, run

CALIBRATED = [*SYNTHETIC, "--intervals", "calibrated"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs that differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in ("0", "1"):
        assert run(*CALIBRATED, "--seed", seed, "--out", folder / seed) == 0
    return [folder / "0", folder / "1"]


def test_inspect_prints_what_the_run_found(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run("inspect", runs[0], "--out", tmp_path, "--arviz", tmp_path / "posterior.nc") == 0
    printed = capsys.readouterr().out
    found = json.loads((runs[0] / "posterior.json").read_text())["a"]["1"]["unavailable"]
    line = next(line for line in printed.splitlines() if line.startswith("1 ") and "unavailable" in line)
    assert f"{found['mean']:.3f}" in line
    assert "0.400" in line  # the truth
    for name in ("channel-a.png", "channel-y.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    arviz = pytest.importorskip("arviz")
    data = arviz.from_netcdf(tmp_path / "posterior.nc")
    drawn = data.posterior["a[1]"].sel(says_a_1="unavailable")
    assert float(drawn.mean()) == pytest.approx(found["mean"], abs=1e-4)
    assert drawn.sizes["chain"] == 4
    assert float(data.prior["a[1]"].mean()) == pytest.approx(0.5, abs=0.02)


def test_inspect_one_member_and_several_runs(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", runs[0], "--member", "1", "--out", tmp_path) == 0
    of_member = json.loads((runs[0] / "posterior.json").read_text())["members"][1]["a"]["0"]["unavailable"]
    printed = capsys.readouterr().out
    assert "member 1 (λ = 0.5)" in printed
    assert run("inspect", runs[0], "--lambda", "0.5", "--out", tmp_path) == 0
    assert capsys.readouterr().out == printed
    line = next(line for line in printed.splitlines() if line.startswith("0 ") and "unavailable" in line)
    assert float(line.split()[5]) == pytest.approx(of_member["mean"], abs=0.02)
    assert run("inspect", *runs, "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "2 runs pooled" in printed
    means = [json.loads((r / "posterior.json").read_text())["a"]["0"]["unavailable"]["mean"] for r in runs]
    line = next(line for line in printed.splitlines() if line.startswith("0 ") and "unavailable" in line)
    assert float(line.split()[5]) == pytest.approx(np.mean(means), abs=0.001)


def test_inspect_refuses_what_it_cannot_show(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, complaint in (
        ([tmp_path], "it has no model.json"),
        ([*runs], "name a folder for their figures"),
        ([runs[0], "--member", "7"], "has members 0 to 1"),
        ([runs[0], "--lambda", "0.3"], "has λ = 0.3; its members have 0, 0.5."),
        ([runs[0], "--member", "0", "--source", "calibrated"], "a member's posterior is its guide's"),
        ([runs[0], "--lambda", "0.5", "--source", "calibrated"], "a member's posterior is its guide's"),
        ([runs[0], "--source", "guid"], "Did you mean 'guide'"),
    ):
        assert run("inspect", *arguments) == 2
        assert complaint in capsys.readouterr().err
    broken = tmp_path / "broken"
    shutil.copytree(runs[0], broken)
    (broken / DRAWS).write_bytes(b"no tensors")
    assert run("inspect", broken) == 2
    assert f"{DRAWS} is damaged" in capsys.readouterr().err


def test_priors_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prior = "{preset: informed, strength: 50, rows: {Female: {unavailable: 0.7}, Male: {unavailable: 0.2}}}"
    assert run("priors", "show", prior, "--figure", tmp_path / "prior.png") == 0
    printed = capsys.readouterr().out
    assert "Female  unavailable    35  0.700  [0.590, 0.801]" in printed
    assert "nobody can misstate" in printed
    assert (tmp_path / "prior.png").read_bytes().startswith(b"\x89PNG")
    assert run("priors", "show", "flat", "--values", "Yes,No,Maybe") == 0
    assert "people may misstate" in capsys.readouterr().out
    assert run("priors", "show", "flat", "--figure", tmp_path / "prior.xyz") == 2
    assert "its ending must be one of" in capsys.readouterr().err
    assert run("priors", "show", "{rows: {Femle: {own: 1}}}") == 2
    assert "Did you mean 'Female'" in capsys.readouterr().err


def test_a_study_of_priors_writes_tables_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["priors", "study", "--priors", "truthful", "mar", "--rows", "200,400", "--seeds", "2"]
    command += ["--epochs", "2", "--lambdas", "0,0.5", "--out", tmp_path, "--device", "cpu"]
    assert run(*command) == 0
    printed = capsys.readouterr().out
    assert "held truth" in printed
    rates = pd.read_csv(tmp_path / "rates.csv")
    withheld = rates[(rates.channel == "a") & (rates.says == "unavailable")]
    # Two rows of truthful and one of mar, two sizes, two seeds.
    assert len(withheld) == (2 + 1) * 2 * 2
    assert ((withheld.q05 <= withheld["mean"]) & (withheld["mean"] <= withheld.q95)).all()
    assert len(pd.read_csv(tmp_path / "metrics.csv")) == 2 * 2 * 2 * 2 * 2
    for figure in ("rates.png", "metrics.png"):
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
    parts = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")}
    assert run(*command) == 0
    assert capsys.readouterr().out == printed
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.json")} == parts
    assert run(*command, "--epochs", "3") == 2
    assert "made with other options" in capsys.readouterr().err


def test_recover_sets_the_papers_figures_beside_ours(
    adult: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["recover", "--groups", "gender", "--levels", "sparse", "--seeds", "2", "--rows", "600"]
    assert run(*command, "--epochs", "1", "--out", tmp_path, "--device", "cpu") == 0
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if "P(∅|Male)" in line)
    assert "0.40   0.43" in line  # the truth, and the paper's
    assert "0.0450" in printed  # the paper's mean error on Adult-gender at this level
    found = pd.read_csv(tmp_path / "recovery.csv")
    assert set(found.seed) == {0, 1}
    (tmp_path / "file").touch()
    assert run("recover", "--rows", "600", "--out", tmp_path / "file") == 2
    assert "cannot make the folder" in capsys.readouterr().err
    assert run("recover", "--levels", "spars", "--out", tmp_path) == 2
    assert "Did you mean 'sparse'" in capsys.readouterr().err


def test_two_attributes_train_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--group", "first+second", "--prior-a", "{first: {given: second}, second: mar}"]
    assert run(*CALIBRATED, *given, "--out", tmp_path / "run") == 0
    posterior = json.loads((tmp_path / "run" / "posterior.json").read_text())["a"]
    assert set(posterior) == {"first: 0, 0", "first: 0, 1", "first: 1, 0", "first: 1, 1", "second: every"}
    assert "first: 1, 0" in capsys.readouterr().out
    assert run("decide", tmp_path / "run", "--rule", "round", "--device", "cpu") == 0
