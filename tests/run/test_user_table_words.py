"""The commands for a person's own table where its words could be misread: codes, gaps, other spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.inference import checkpoint
from tests.support.command_line import FEW_STEPS, run
from tests.support.user_tables import made_table, tiny

TINY = ("--lambdas", "0,1", "--epochs", "2", "--device", "cpu", "--quiet", "--label", "hired", *FEW_STEPS)
CODES = np.array(["0010", "0020", "A040"])


def people(rows: int = 120) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": draw.normal(40, 9, size=rows).round(1),
            "code": draw.choice(CODES, size=rows),
            "faith": draw.choice(["None", "this", "that"], size=rows),
            "hired": draw.choice(["no", "yes"], size=rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which None is a value, and a model of it."""
    where = tmp_path_factory.mktemp("words")
    people().to_csv(where / "people.csv", index=False)
    asked = ("--group", "faith", "--values", "None", "--out", where / "model")
    assert run("fit", where / "people.csv", *TINY, *asked) == 0
    return where


def test_a_word_for_a_gap_can_be_a_value(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert FairSSVAEClassifier.load(folder / "model", "cpu").groups_ == ("None", "that", "this")
    assert run("audit", folder / "model", folder / "people.csv") == 0
    assert "120 state their group" in capsys.readouterr().out


def test_words_that_are_taken_for_gaps_are_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fit", folder / "people.csv", *TINY, "--group", "faith", "--out", tmp_path / "model") == 0
    count = (people()["faith"] == "None").sum()
    assert f"faith: not stated, 'None' in {count} rows (--values" in capsys.readouterr().err
    assert FairSSVAEClassifier.load(tmp_path / "model", "cpu").groups_ == ("that", "this")


def test_codes_stay_codes_in_a_file_that_has_only_numbers(folder: Path, tmp_path: Path) -> None:
    """A reader takes 0010 for 10 in a column without A040."""
    new = people().assign(code=CODES[np.arange(120) % 2])
    new.to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", folder / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv") == 0
    model = FairSSVAEClassifier.load(folder / "model", "cpu")
    found = pd.read_csv(tmp_path / "out.csv")["P(yes)"]
    np.testing.assert_allclose(found, model.predict_proba(new[["age", "code"]])[:, 1], rtol=1e-5)
    with pytest.warns(UserWarning, match="'code' were never seen"):
        unseen = model.predict_proba(new[["age", "code"]].assign(code="10"))[:, 1]
    assert np.abs(found - unseen).max() > 1e-4


def test_what_is_kept_is_kept_as_it_is_written(folder: Path, tmp_path: Path) -> None:
    kept = {"id": ["00123", "1e5", "NA"], "account": ["12345678.0", "", "1234567.891"]}
    lines = people(3).assign(**kept)
    lines.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out.csv"
    assert run("predict", folder / "model", tmp_path / "new.csv", "--keep", "account,id", "--out", out) == 0
    found = pd.read_csv(out, dtype=str, keep_default_na=False)
    assert found[["account", "id"]].to_dict("list") == {name: kept[name] for name in ("account", "id")}


def test_labels_in_other_words_than_the_decisions_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people().assign(hired=people()["hired"] + ".").to_csv(tmp_path / "new.csv", index=False)
    assert run("audit", folder / "model", tmp_path / "new.csv") != 0
    assert "no value in common: 'no.', 'yes.' and " in capsys.readouterr().err


def test_predictions_are_not_written_under_another_kinds_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", folder / "model", folder / "people.csv", "--out", folder / "out.tsv") != 0
    assert "written as CSV" in capsys.readouterr().err
    assert not (folder / "out.tsv").exists()


def test_an_audit_of_another_model_goes_with_that_model(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert run("fit", folder / "people.csv", *TINY, "--group", "faith", "--out", out) == 0
    assert run("report", out) == 0
    assert (out / "audit.json").exists()
    made = made_table(60)
    tiny().fit(made.X, made.y_obs, made.a_obs).save(out, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == [
        "draws.safetensors",
        "model.json",
        "trees.json",
        "weights.safetensors",
    ]


def test_a_checkpoint_of_another_fit_is_discarded_where_a_model_may_be(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    command = ("fit", folder / "people.csv", *TINY, "--group", "faith", "--out", out)
    save = checkpoint.save

    def save_and_stop(*given: Any) -> None:
        save(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert run(*command) == 130
    assert (out / "checkpoint.pt").exists()
    capsys.readouterr()
    others = (*command, "--epochs", "3")
    assert run(*others) != 0
    assert "delete it to start anew" in capsys.readouterr().err
    assert run(*others, "--overwrite") == 0
    assert "Discarding the checkpoint of another fit." in capsys.readouterr().err
    assert not (out / "checkpoint.pt").exists()
