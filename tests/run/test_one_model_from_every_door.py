"""What ``train`` and ``fit`` write is read by every other command, and nothing is trained again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.inference import training
from pyro_fairvae.storage.stored_model import load_model
from pyro_fairvae.studies.config import TrainConfig, read_options
from pyro_fairvae.studies.single_run import load_parts, load_run
from tests.support.command_line import FEW_STEPS, SYNTHETIC, run
from tests.support.user_tables import made_table

COLUMNS = ("--label", "hired", "--group", "sex")
TINY = ("--lambdas", "0,1", "--epochs", "2", "--quiet", "--device", "cpu", *FEW_STEPS)
ROWS = 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("doors") / "trained"
    assert run(*SYNTHETIC, "--epochs", "3", "--out", out) == 0
    return out


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doors")
    made = made_table(300)
    pd.concat([made.X, made.y_obs, made.a_obs], axis=1).to_csv(folder / "people.csv", index=False)
    assert run("fit", folder / "people.csv", *COLUMNS, *TINY, "--out", folder / "fitted") == 0
    return folder / "fitted"


@pytest.fixture(autouse=True)
def _nothing_is_trained(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    request.getfixturevalue("trained"), request.getfixturevalue("fitted")
    monkeypatch.setattr(training, "_Run", lambda *_, **__: pytest.fail("something was trained"))


@pytest.fixture(params=["trained", "fitted"])
def model(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.getfixturevalue(request.param)
    return folder


@pytest.fixture
def table(tmp_path: Path, model: Path) -> Path:
    """New rows with the columns that the model takes, and labels and groups by its words."""
    stored = load_model(model)
    draw = np.random.default_rng(0)
    made = made_table(ROWS, seed=5).X
    label, (group,) = stored.source["label"], stored.source["groups"]
    made[label] = stored.classes[draw.integers(2, size=ROWS)]
    made[group] = np.array(stored.attributes.group_names)[draw.integers(2, size=ROWS)]
    made.loc[draw.random(ROWS) < 0.3, group] = None
    path = tmp_path / "new.csv"
    made.to_csv(path, index=False)
    return path


def test_predict_decides_as_the_fit_does(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    assert run("predict", model, table, "--groups", "--device", "cpu", "--out", out) == 0
    stored = load_model(model)
    x = stored.encode(pd.read_csv(table))
    decided = stored.classes[stored.fit.decide(x)[stored.selected].numpy()]
    assert pd.read_csv(out)["decision"].tolist() == decided.tolist()


def test_predictions_of_test_rows_are_those_that_the_run_was_judged_by(trained: Path) -> None:
    """The same rows through the other door: as a table of a user's own."""
    config = build(TrainConfig, read_options(trained / "config.json"))
    raw, parts = config.data.table(config.seed), load_parts(config)
    classifier = FairSSVAEClassifier.load(trained, device="cpu")
    encoded = {row.tobytes() for row in classifier.encoder_.encode(raw.frame)}
    assert all(row.tobytes() in encoded for row in parts.test.x)
    results = json.loads((trained / "results.json").read_text())
    for k, member in enumerate(results["members"]):
        classifier.select(lambda_=classifier.fit_.lambdas[k])
        decided = classifier.fit_.decide(torch.from_numpy(parts.test.x))[k].numpy()
        assert np.mean(decided != parts.test.y) == pytest.approx(member["test"]["error"])


def test_audit_reads_either(model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    assert run("audit", model, table, "--device", "cpu", "--out", out) == 0
    assert {line["metric"] for line in json.loads(out.read_text())["metrics"]} == {"deo", "deopp", "ddp"}


def test_report_makes_a_page_of_either(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run("report", model, "--out", out) == 0
    page = out.read_text()
    for title in ("The frontier", "Who withholds", "Data", "Limits"):
        assert title in page


def test_inspect_shows_the_posterior_of_either(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("inspect", model, "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    assert ("truth" in shown) == (model.name == "trained")
    for name in load_model(model).attributes.group_names:
        assert name in shown
    assert (tmp_path / "channel-a.png").is_file()


def test_decide_labels_a_table_by_either(
    model: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "decisions.csv"
    assert run("decide", model, table, "--rule", "round", "--device", "cpu", "--out", out) == 0
    assert "labels differ from rounding" in capsys.readouterr().out
    stored = load_model(model)
    x = stored.encode(pd.read_csv(table))
    decided = stored.fit.decide(x)[stored.selected].tolist()
    assert pd.read_csv(out)["label"].tolist() == decided
    assert json.loads(out.with_suffix(".json").read_text())["part"] == "given"


def test_a_run_is_opened_as_it_was_left(trained: Path) -> None:
    stored, parts = load_run(trained, torch.device("cpu"))
    results = json.loads((trained / "results.json").read_text())
    assert stored.selected == results["selected"]
    assert stored.posterior == json.loads((trained / "posterior.json").read_text())
    errors = (stored.fit.decide(parts.test.features).numpy() != parts.test.y).mean(1)
    assert errors.tolist() == pytest.approx([member["test"]["error"] for member in results["members"]])


@pytest.mark.parametrize("command", ["predict", "audit", "decide", "report", "inspect"])
def test_a_folder_that_holds_no_model_is_refused_in_one_line(
    command: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [] if command in ("report", "inspect") else [table]
    assert run(command, tmp_path, *arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "it has no model.json" in error
