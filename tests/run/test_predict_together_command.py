"""``fairvae predict --rule``, as a person gives it: all rows of a file are decided together."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.loading import load_estimator
from tests.support.command_line import FEW_STEPS, SYNTHETIC, run
from tests.support.user_tables import made_table

COLUMNS = ("--label", "hired", "--group", "sex")
TINY = ("--lambdas", "0,1", "--epochs", "2", "--quiet", "--device", "cpu", *FEW_STEPS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    made = made_table(300)
    pd.concat([made.X, made.y_obs, made.a_obs], axis=1).to_csv(folder / "people.csv", index=False)
    assert run("fit", folder / "people.csv", *COLUMNS, *TINY, "--out", folder / "model") == 0
    return folder / "model"


@pytest.fixture(scope="module")
def new(model: Path) -> Path:
    """New rows with a column of groups, which has gaps, and one of its own."""
    made = made_table(60, seed=5)
    table = made.X.assign(id=range(60), sex=made.a_obs, gender=made.a_obs)
    table.to_csv(model.parent / "new.csv", index=False)
    table.drop(columns=["sex", "gender"]).to_csv(model.parent / "plain.csv", index=False)
    return model.parent / "new.csv"


def test_the_file_has_the_decisions_of_decide_together(
    model: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, out = tmp_path / "alone.csv", tmp_path / "together.csv"
    flags = ("--lambda", "1", "--keep", "id", "--groups", "--device", "cpu")
    assert run("predict", model, new, *flags, "--out", alone) == 0
    capsys.readouterr()
    rule = ("--rule", "descent", "--decision-lambda", "0.7", "--starts", "2", "--draws", "30", "--seed", "4")
    assert run("predict", model, new, *flags, *rule, "--out", out) == 0
    printed, progress = capsys.readouterr()
    before, after = pd.read_csv(alone), pd.read_csv(out)
    assert list(after) == list(before)
    unchanged = before.columns.drop("decision")
    pd.testing.assert_frame_equal(after[unchanged], before[unchanged])

    expected = FairSSVAEClassifier.load(model, "cpu").select(lambda_=1.0)
    table = pd.read_csv(new)
    found = expected.decide_together(
        table[list(expected.feature_names_in_)], table["sex"], decision_lambda=0.7, starts=2, draws=30, seed=4
    )
    assert after["decision"].tolist() == found.decisions.tolist()
    assert before["decision"].tolist() == found.alone.tolist()
    assert f"λ = 0.7 of deo: {found.changed} of 60 decisions differ" in printed
    for when in ("before", "after"):
        line = found.summary.loc[when]
        assert f"{line['objective']:.5f}" in printed
        assert f"{100 * line['risk']:.2f}" in printed
    assert re.search(r"descent 2 of 2, from thresholds: 0\.\d+", progress)


def test_groups_are_used_where_the_table_has_them(model: Path, new: Path, tmp_path: Path) -> None:
    loaded = load_estimator(model, "cpu")
    table = pd.read_csv(new)
    features = table[list(loaded.feature_names_in_)]
    for path, flag, groups in (
        (new, (), table["sex"]),
        (new, ("--group", "gender"), table["gender"]),
        (new.parent / "plain.csv", (), None),
    ):
        out = tmp_path / "p.csv"
        options = ("--rule", "thresholds", "--decision-lambda", "0.5", *flag)
        assert run("predict", model, path, *options, "--device", "cpu", "--out", out) == 0
        found = loaded.decide_together(features, groups, rule="thresholds", decision_lambda=0.5)
        assert pd.read_csv(out)["decision"].tolist() == found.decisions.tolist()
    rates = [
        loaded.decide_together(features, groups, rule="rounding").rates for groups in (table["sex"], None)
    ]
    assert not np.allclose(*rates)


def test_a_run_of_train_decides_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*SYNTHETIC, "--out", tmp_path / "run") == 0
    made_table(50, seed=5).X.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    options = ("--lambda", "0.5", "--rule", "thresholds+descent", "--device", "cpu")
    assert run("predict", tmp_path / "run", tmp_path / "new.csv", *options, "--out", out) == 0
    assert "rule thresholds+descent, λ = 0.5 of deo" in capsys.readouterr().out
    assert len(pd.read_csv(out)) == 50


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rule", "descnt"], "unknown rule 'descnt'.* Did you mean 'descent'"),
        (["--seed", "1"], "--seed given without --rule; give --rule descent"),
        (["--group", "sex"], "--group given without --rule"),
        (["--rule", "descent", "--decision-lambda", "-2"], "decision_lambda must be finite and not negative"),
        (["--rule", "descent", "--group", "sexx"], "unknown column for the group 'sexx'.*Did you mean 'sex'"),
        (["--rule", "descent", "--group", "id"], "groups that the model does not know"),
        (["--rule", "descent", "--draws", "0"], "draws must be at least 1"),
        (["--rule", "descent", "--out", "no-such-folder/p.csv"], "cannot write no-such-folder/p.csv"),
    ],
)
def test_predict_refuses_what_it_cannot_use_and_writes_nothing(
    arguments: list[str],
    complaint: str,
    model: Path,
    new: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("predict", model, new, *arguments) == 2
    assert re.search(complaint, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
