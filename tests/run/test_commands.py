"""The commands, run as a person runs them."""

from __future__ import annotations

import json
import os
import re
import resource
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pyro_fairvae.run.train import Everything

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build, options_of
from pyro_fairvae.risks import RISKS
from pyro_fairvae.studies.config import TrainConfig, read_options
from tests.support import ROOT
from tests.support.command_line import SYNTHETIC, TINY, run


def demo_command() -> list[str]:
    """What ``make demo`` runs after installing, without its ``fairvae``."""
    makefile = ROOT / "Makefile"
    line = next(line for line in makefile.read_text().splitlines() if "fairvae train" in line)
    words = line.split("fairvae ")[1].split()
    assert words[-2:] == ["--out", "runs/demo"]
    return words[:-2]


def test_the_demos_command_with_tiny_sizes(
    adult: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(*demo_command(), *TINY, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "λ" in printed
    assert "deopp %" in printed
    assert "Male" in printed
    assert "truth" in printed
    assert str(out) in printed
    results = json.loads((out / "results.json").read_text())
    assert [member["lambda"] for member in results["members"]] == [0.0, 0.5]
    for member in results["members"]:
        for part in ("val", "test"):
            beside = {"deo_floor"} if part == "test" else {"standard_error"}
            assert set(member[part]) == {"error", "positive_rate"} | set(RISKS) | beside
            assert all(value is None or value >= 0 for value in member[part].values())
            assert all(member[part][name] <= 1 for name in ("error", "deo", "deopp", "ddp"))
    posterior = json.loads((out / "posterior.json").read_text())
    for channel, values in (("a", ("Female", "Male")), ("y", ("<=50K", ">50K"))):
        for value in values:
            found = posterior[channel][value]["unavailable"]
            assert 0 < found["q05"] < found["mean"] < found["q95"] < 1
    config = json.loads((out / "config.json").read_text())
    assert config["seed"] == 0
    assert config["environment"]["torch"] == torch.__version__
    assert config["environment"]["device"] == "cpu"
    history = np.genfromtxt(out / "history.csv", delimiter=",", names=True)
    assert len(history) == 2 * 2
    assert {"risk", "x", "groups", "labels", "log_group", "kl_channels"} <= set(history.dtype.names)
    assert {f"cell_y{y}_a{a}" for y in (0, 1) for a in (0, 1)} <= set(history.dtype.names)
    for figure in ("frontier.png", "posterior.png", "training.png"):
        assert (out / figure).read_bytes().startswith(b"\x89PNG")
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_resume_after_a_kill_equals_an_unbroken_run(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = [*SYNTHETIC, "--epochs", "4"]
    assert run(*arguments, "--out", whole) == 0
    script = (
        "import os, sys\n"
        "from pyro_fairvae.inference import checkpoint\n"
        "from pyro_fairvae.run.__main__ import main\n"
        "save = checkpoint.save\n"
        "def save_and_die(path, config, state):\n"
        "    save(path, config, state)\n"
        "    if state['epoch'] == 2:\n"
        "        os.kill(os.getpid(), 9)\n"
        "checkpoint.save = save_and_die\n"
        "main(sys.argv[1:])\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--out", str(broken)], env=environment, check=False
    )
    assert killed.returncode == -9
    assert not (broken / "results.json").exists()
    assert run(*arguments, "--out", broken, "--resume") == 0
    for name in ("history.csv", "results.json", "posterior.json"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that tests copy."""
    out = tmp_path_factory.mktemp("commands") / "run"
    assert run(*SYNTHETIC, "--out", out) == 0
    return out


def test_a_finished_run_resumes_to_itself_and_is_not_overwritten_by_chance(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    before = (out / "results.json").read_bytes()
    assert run(*SYNTHETIC, "--out", out) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert run(*SYNTHETIC, "--out", out, "--resume") == 0
    assert (out / "results.json").read_bytes() == before
    assert run(*SYNTHETIC, "--seed", "1", "--out", out, "--overwrite") == 0
    assert (out / "results.json").read_bytes() != before


def test_a_run_killed_in_its_first_epoch_resumes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert run(*SYNTHETIC, "--out", tmp_path, "--resume") == 0


def test_a_run_repeats_from_its_own_config(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(*SYNTHETIC, "--risk", "ddp", "--out", first) == 0
    config = first / "config.json"
    assert run("train", "--config", config, "--device", "cpu", "--quiet", "--out", second) == 0
    assert (first / "results.json").read_bytes() == (second / "results.json").read_bytes()


def test_options_from_yaml_are_overridden_by_flags(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("dataset: synthetic\nepochs: 7\nlambdas: [0, 1]\nelbo_weight: 0.1\ndevice: cpu\n")
    everything = build(Everything, read_options(path) | {"epochs": "3", "out": "somewhere"})
    config = everything.config
    assert (everything.place.device, everything.place.out) == ("cpu", "somewhere")
    assert (config.data.dataset, config.settings.epochs, config.lambdas) == ("synthetic", 3, (0.0, 1.0))
    assert config.settings.objective_weights.elbo_weight == 0.1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dataset", "adlt"], "unknown data set 'adlt'.*Did you mean 'adult'"),
        (["--dataset", "adult", "--group", "sex"], "unknown group of adult 'sex'.*gender, gender.race, race"),
        (["--risk", "deoo"], "unknown risk 'deoo'.*Did you mean"),
        (["--lambdas", "0,-1"], "finite and not negative, got -1"),
        (["--lambdas", "0,nan"], "finite and not negative, got nan"),
        (["--lambdas", "0,inf"], "finite and not negative, got inf"),
        (["--lambdas", "0;1"], "expects a number"),
        (["--alpha", "1.5"], r"alpha must be within \[0, 1\], got 1.5"),
        (["--beta", "-0.1"], r"beta must be within \[0, 1\], got -0.1"),
        (["--beta", "nan"], r"beta must be within \[0, 1\], got nan"),
        (["--misstated", "0.7"], "sum to more than 1"),
        (["--epochs", "0"], "epochs must be at least 1"),
        (["--epochs", "2.5"], "expects a whole number"),
        (["--samples", "0"], "at least 1 Monte Carlo sample"),
        (["--temperature", "0"], "temperature of the risk must be positive"),
        (["--rows", "4000000"], "4000000 rows were requested"),
        (["--prior-a", "truthfull"], "Did you mean 'truthful'"),
        (["--seed", "-1"], r"seed must be within \[0, 2\^63\), got -1"),
        (["--seed", "100000000000000000000"], "seed expects a whole number up to"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--lr", "inf"], "lr must be positive and finite"),
        (["--device", "meta"], "device 'meta' is not supported"),
        (["--resume", "--overwrite"], "give one of them"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--config", "no-such-file.yaml"], "cannot read no-such-file.yaml, a config file"),
        (["--data-dir", "no-such-folder", "--dataset", "adult"], "does not hold adult.data"),
    ],
)
def test_bad_input_is_one_message_and_leaves_nothing(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, *arguments, "--out", out) == 2
    error = capsys.readouterr().err
    assert error.startswith("fairvae: ")
    assert "Traceback" not in error
    assert re.search(complaint, error)
    assert not out.exists()


def test_training_that_diverges_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*SYNTHETIC, "--lr", "1e30", "--out", tmp_path / "run") == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"fairvae: training diverged: in epoch 1 .* Lower lr, sites_lr, clip", line)
    assert not (tmp_path / "run" / "results.json").exists()


def test_an_infinite_whole_number_in_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="expects a whole number"):
        build(TrainConfig, {"epochs": float("inf")})


def test_no_out_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SYNTHETIC) == 2
    assert "no output folder was given; give out. See --out." in capsys.readouterr().err


def test_bad_input_is_one_message_with_the_bar_on_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = [word for word in SYNTHETIC if word != "--quiet"]
    assert run(*arguments, "--rows", "4000000", "--out", tmp_path / "run") == 2
    assert capsys.readouterr().err.startswith("fairvae: 4000000 rows")


@pytest.mark.parametrize("imputer", ["outcome", "stated", "control_variate"])
def test_nothing_stated_at_all_still_ends_well(tmp_path: Path, imputer: str) -> None:
    out = tmp_path / "run"
    nothing = ("--label-missing", "1", "--alpha", "1", "--beta", "1", "--imputer", imputer)
    assert run(*SYNTHETIC, *nothing, "--out", out) == 0
    if imputer == "stated":  # no row to measure on
        assert json.loads((out / "results.json").read_text())["members"][0]["val"]["error"] is None
        return
    assert json.loads((out / "results.json").read_text())["members"][0]["val"]["error"] <= 1


def test_files_of_someone_else_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("mine")
    assert run(*SYNTHETIC, "--out", tmp_path) == 2
    assert "already holds a run (config.json)" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_text() == "mine"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SYNTHETIC, "--device", "cuda", "--out", tmp_path / "run") == 2
    assert "0 CUDA devices" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_wrong_flag_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("train", "--epoch-count", "3")
    assert stop.value.code == 2


def test_an_altered_file_is_refused(
    adult: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("adult.data", "adult.test"):
        (tmp_path / name).write_text("39, State-gov\n")
    arguments = ["train", *TINY, "--data-dir", tmp_path, "--out", tmp_path / "run"]
    assert run(*arguments) == 2
    assert "broken or altered" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_out_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(*SYNTHETIC, "--out", tmp_path / "file" / "run") == 2
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_read_only_out_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel's own read-only folder, which refuses root, too."""
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    assert run(*SYNTHETIC, "--out", "/proc/self") == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_full_disk_stops_with_one_message_and_no_half_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system refuses a file above 2 KiB: config.json fits, the checkpoint does not."""
    out = tmp_path / "run"
    _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, hard))
    try:
        code = run(*SYNTHETIC, "--out", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot write" in line
    assert [path.name for path in out.iterdir()] == ["config.json"]


def test_a_checkpoint_of_another_config_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(finished, tmp_path / "run")
    assert run(*SYNTHETIC, "--lr", "0.01", "--out", out, "--resume") == 2
    assert "another config: lr was 0.001, now 0.01" in capsys.readouterr().err
    (out / "checkpoint.pt").write_bytes(b"not a checkpoint")
    assert run(*SYNTHETIC, "--out", out, "--resume") == 2
    assert "not a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["__main__.py", "train", "--help"], ["train.py", "--help"]])
def test_each_way_to_start_explains_itself(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(ROOT / "run" / arguments[0]), run_name="__main__")
    printed = capsys.readouterr().out
    for name in options_of(Everything):
        assert f"--{name.replace('_', '-')}" in printed


def test_unknown_options_of_a_file_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"unknown option 'epoch'.*Did you mean 'epochs'"):
        build(TrainConfig, {"epoch": 3})


def test_a_risk_over_chosen_classes_is_what_members_are_chosen_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(*SYNTHETIC, "--risk", "deo", "--risk-classes", "1", "--out", out) == 0
    assert "validation risk %" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    assert results["metric"] == "risk"
    for member in results["members"]:
        assert member["test"]["risk"] == pytest.approx(member["test"]["deopp"])


def test_a_reader_that_has_had_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As head, which closes the pipe before everything is printed; nothing fails at the end either."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run("priors", "show", "flat") == 141
    assert capsys.readouterr().err == ""
