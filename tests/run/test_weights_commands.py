"""fairvae fit and audit with weights of rows and clusters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyro_fairvae.run.__main__ import main

from pyro_fairvae.auditing import audit, audit_numbers
from pyro_fairvae.estimator.fair_decisions import FairDecisions


def people(rows: int = 400) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    sex = draw.choice(["f", "m"], rows)
    x = draw.normal(size=rows) + (sex == "m")
    hired = np.where(draw.random(rows) < 1 / (1 + np.exp(-x)), "yes", "no")
    return pd.DataFrame(
        {
            "x": x, "z": draw.normal(size=rows), "hired": hired,
            "sex": np.where(draw.random(rows) < 0.3, None, sex), "pay": x + draw.normal(size=rows),
            "w": draw.gamma(3, size=rows).round(3), "home": np.arange(rows) // 4,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("weights")
    people().to_csv(place / "people.csv", index=False)
    words = ("--label", "hired", "--group", "sex", "--drop", "home,pay", "--estimator", "boosting")
    flags = ("--targets", "0.1", "--quiet", "--weights", "w")
    assert command("fit", place / "people.csv", *words, *flags, "--out", place / "model") == 0
    return place


def command(*words: object) -> int:
    return main([str(word) for word in words])


def test_the_column_of_weights_is_no_feature_and_weighs_fit_and_audit(folder: Path) -> None:
    model = FairDecisions.load(folder / "model")
    assert model.source_["weights"] == "w"
    assert list(model.feature_names_in_) == ["x", "z"]
    table = pd.read_csv(folder / "people.csv")
    kept = json.loads((folder / "model" / "audit.json").read_text())
    assert kept["design"]["effective_rows"] < kept["rows"]["rows"] == 80
    again = FairDecisions(targets=(0.1,), random_state=0)
    plain = again.fit(table[["x", "z"]], table["hired"], sensitive_features=table["sex"])
    assert plain.frontier_["error"][0] != model.frontier_["error"][0]


def test_an_audit_by_the_command_is_that_of_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "audit.json"
    flags = ("--weights", "w", "--clusters", "home", "--out", out)
    assert command("audit", folder / "model", folder / "people.csv", *flags) == 0
    shown, content = capsys.readouterr().out, json.loads(out.read_text())
    assert "sampled in 100 clusters" in shown
    table, model = pd.read_csv(folder / "people.csv"), FairDecisions.load(folder / "model")
    features = table[["x", "z"]]
    here = audit(
        table["hired"], model.predict(features), table["sex"], X=features, model=model,
        sample_weight=table["w"], clusters=table["home"],
    )  # fmt: skip
    assert content["metrics"] == here.to_dict()["metrics"]
    assert command("report", folder / "model", "--audit", out, "--out", folder / "page.html") == 0
    assert "sampled in 100 clusters" in (folder / "page.html").read_text()


def test_audits_of_numbers_take_them_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--label", "pay", "--group", "sex", "--drop", "home,hired", "--task", "regression")
    flags = ("--lambdas", "0", "--epochs", "1", "--quiet", "--device", "cpu", "--weights", "w")
    small = ("--set", "channel_steps=2", "--set", "decoder_hidden=8")
    assert command("fit", folder / "people.csv", *words, *flags, *small, "--out", folder / "pay") == 0
    capsys.readouterr()
    design = ("--weights", "w", "--clusters", "home", "--decisions", "x")
    assert command("audit", folder / "pay", folder / "people.csv", *design) == 0
    table = pd.read_csv(folder / "people.csv")
    here = audit_numbers(
        table["pay"], table["x"], table["sex"], sample_weight=table["w"], clusters=table["home"]
    )
    assert str(here) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--weights", "weight"), "unknown column for the weights 'weight'"),
        (("--weights", "sex"), "'sex' is the label, a group, dropped"),
        (("--weights", "z", "--out", "new"), "the column 'z' of weights has"),
    ],
)
def test_unusable_weights_are_refused_before_fitting(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], says: str
) -> None:
    words = ("--label", "hired", "--group", "sex", "--quiet", "--out", folder / "none")
    assert command("fit", folder / "people.csv", *words, *flags[:2]) != 0
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (folder / "none" / "model.json").exists()
