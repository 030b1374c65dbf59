"""fairvae fit, predict, audit and report on a person's own table, as a person gives them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.auditing import audit
from pyro_fairvae.estimator import network_estimator as estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.storage.model_folder import DOCUMENT, DRAWS, TENSORS, TREES
from pyro_fairvae.studies import user_fit
from tests.support.command_line import FEW_STEPS, run
from tests.support.user_tables import tiny

TINY = ("--lambdas", "0,1", "--epochs", "2", "--device", "cpu", "--quiet", *FEW_STEPS)
COLUMNS = ("--label", "hired", "--group", "sex", "--missing", "?", "--drop", "id,note")


def people(rows: int = 240, seed: int = 0) -> pd.DataFrame:
    """A table with gaps everywhere, of mixed types, with commas and quotes in its words."""
    draw = np.random.default_rng(seed)
    group, label = draw.integers(2, size=(2, rows))
    table = pd.DataFrame(
        {
            "id": np.arange(rows) + 1000,
            "age": draw.normal(40 + 8 * group, 10).round(1),
            "years": draw.poisson(2 + 4 * label),
            "town": np.where(draw.random(rows) < 0.2 + 0.6 * group, "Paris, France", 'Oslo "by the sea"'),
            "citizen": draw.random(rows) < 0.5,
            "note": [f"nobody knows, {i}" for i in range(rows)],
            "sex": np.where(group, "m", "f"),
            "hired": np.where(label, "yes", "no"),
        }
    )
    table["citizen"] = table["citizen"].astype(object)
    for name, share in (("age", 0.1), ("town", 0.1), ("citizen", 0.1), ("sex", 0.2), ("hired", 0.2)):
        table[name] = table[name].mask(draw.random(rows) < share)
    table["sex"] = table["sex"].mask(draw.random(rows) < 0.2, "?")
    return table


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    people().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(csv: Path) -> Path:
    out = csv.parent / "model"
    assert run("fit", csv, *COLUMNS, *TINY, "--out", out) == 0
    return out


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr, which is a message."""
    error = capsys.readouterr().err
    assert error.startswith("fairvae: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return error


def test_from_table_to_page(csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "model"
    assert run("fit", csv, *COLUMNS, *TINY, "--out", out) == 0
    printed, said = capsys.readouterr()
    for words in ("λ", "deo %", "withheld by", "kept out of fitting", "fairvae report"):
        assert words in printed
    assert said == ""
    assert {path.name for path in out.iterdir()} == {DOCUMENT, TENSORS, DRAWS, TREES, "audit.json"}
    found = FairSSVAEClassifier.load(out, "cpu")
    assert list(found.feature_names_in_) == ["age", "years", "town", "citizen"]
    assert (found.groups_, found.classes_.tolist()) == (("f", "m"), ["no", "yes"])
    assert found.summary_["rows"] == 192
    assert json.loads((out / "audit.json").read_text())["rows"]["rows"] == 48

    new, predictions = tmp_path / "new.csv", tmp_path / "predictions.csv"
    table = people(60, seed=1).drop(columns=["sex", "hired", "note"])
    table.assign(town=table["town"].fillna("Ghent")).to_csv(new, index=False)
    assert run("predict", out, new, "--groups", "--keep", "id,age", "--out", predictions) == 0
    assert "60 rows decided by the member at λ = " in capsys.readouterr().out
    decided = pd.read_csv(predictions)
    expected = ["id", "age", "decision", "P(no)", "P(yes)", "P(sex = f)", "P(sex = m)"]
    assert list(decided) == expected
    assert decided["id"].tolist() == table["id"].tolist()
    given = pd.read_csv(new)[list(found.feature_names_in_)]
    assert decided["decision"].tolist() == found.predict(given).tolist()
    np.testing.assert_allclose(decided[["P(no)", "P(yes)"]], found.predict_proba(given), rtol=1e-5)
    np.testing.assert_allclose(
        decided[["P(sex = f)", "P(sex = m)"]], found.predict_groups_proba(given), rtol=1e-5
    )

    assert run("audit", out, csv, "--out", tmp_path / "audit.json") == 0
    assert "240 rows: " in capsys.readouterr().out
    assert run("report", out, "--audit", tmp_path / "audit.json") == 0
    assert "<!DOCTYPE html>" in (out / "report.html").read_text()


def test_fit_takes_any_option_by_name(csv: Path, tmp_path: Path) -> None:
    """With refine_decisions=0 the likeliest class is decided on, whatever λ."""
    given = {"refine_decisions": 0, "latent": 3, "prior_a": "mar"}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    assert run("fit", csv, *COLUMNS, *TINY, *words, "--out", tmp_path / "model") == 0
    found = FairSSVAEClassifier.load(tmp_path / "model", "cpu").select(lambda_=1)
    assert given.items() <= found.options.items()
    assert found.fit_.settings.latent == 3
    X = pd.read_csv(csv)[list(found.feature_names_in_)]
    np.testing.assert_array_equal(found.predict(X), found.classes_[found.predict_proba(X).argmax(1)])


def test_the_audit_command_is_the_audit(model: Path, csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit.json"
    chosen = ("--lambda", "1", "--depends-on", "group and label", "--confidence", "0.8")
    assert run("audit", model, csv, *chosen, "--out", out) == 0
    table = pd.read_csv(csv, na_values=["?"])
    found = FairSSVAEClassifier.load(model, "cpu").select(lambda_=1)
    X = table[list(found.feature_names_in_)]
    expected = audit(
        table["hired"], found.predict(X), table["sex"], X=X, model=found, depends_on="group and label",
        confidence=0.8,
    )  # fmt: skip
    told = json.loads(out.read_text())
    assert told["rows"] == expected.rows
    assert [line["estimate"] for line in told["metrics"]] == pytest.approx(list(expected.metrics["estimate"]))
    assert (told["confidence"], told["depends_on"]) == (0.8, "group and label")


def test_decisions_of_another_classifier_are_audited(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a classifier that is always right no rate can differ."""
    table = people(seed=3).dropna(subset="hired").assign(theirs=lambda t: t["hired"])
    path, out = tmp_path / "theirs.csv", tmp_path / "audit.json"
    table.rename(columns={"hired": "outcome"}).to_csv(path, index=False)
    assert run("audit", model, path, "--decisions", "theirs", "--label", "outcome", "--out", out) == 0
    metrics = {line["metric"]: line for line in json.loads(out.read_text())["metrics"]}
    assert metrics["deo"]["estimate"] == pytest.approx(0, abs=1e-9)
    assert "90 %" in capsys.readouterr().out


def test_members_are_chosen_by_weight_and_by_disparity(
    model: Path, csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "predictions.csv"
    for weight in ("0", "1"):
        assert run("predict", model, csv, "--lambda", weight, "--out", out) == 0
        assert f"λ = {weight}" in capsys.readouterr().out
    frontier = FairSSVAEClassifier.load(model, "cpu").frontier_
    limit = frontier["disparity"].min()
    assert run("predict", model, csv, "--max-disparity", limit, "--out", out) == 0
    assert f"λ = {frontier['lambda'][frontier['disparity'].idxmin()]:g}" in capsys.readouterr().out
    assert run("predict", model, csv, "--lambda", "3", "--out", out) == 2
    assert "no member has λ = 3.0; there are [0.0, 1.0]" in one_line(capsys)
    with pytest.raises(SystemExit):
        run("predict", model, csv, "--lambda", "0", "--max-disparity", "1")


def test_parquet_and_compressed_tables_are_the_same_table(csv: Path, tmp_path: Path, model: Path) -> None:
    table = pd.read_csv(csv)
    table.to_parquet(tmp_path / "people.parquet")
    table.to_csv(tmp_path / "people.tsv.gz", sep="\t", index=False)
    expected = FairSSVAEClassifier.load(model, "cpu")
    for name in ("people.parquet", "people.tsv.gz"):
        out = tmp_path / f"model of {name}"
        assert run("fit", tmp_path / name, *COLUMNS, *TINY, "--out", out) == 0
        found = FairSSVAEClassifier.load(out, "cpu")
        X = table[list(expected.feature_names_in_)]
        np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
        assert run("audit", out, tmp_path / name) == 0


def test_columns_named_by_numbers_and_classes_like_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(80, 3)))
    table[3], table[4] = draw.integers(2, size=(2, 80)).astype(float)
    table.loc[:9, [3, 4]] = np.nan
    path, out = tmp_path / "t.parquet", tmp_path / "predictions.csv"
    table.to_parquet(path)
    assert run("fit", path, "--label", "4", "--group", "3", *TINY, "--out", tmp_path / "model") == 0
    assert run("predict", tmp_path / "model", path, "--groups", "--keep", "4", "--out", out) == 0
    found = pd.read_csv(out, dtype=str)
    assert list(found) == ["4", "decision", "P(0)", "P(1)", "P(3 = 0)", "P(3 = 1)"]
    assert set(found["decision"]) <= {"0", "1"}
    assert run("audit", tmp_path / "model", path) == 0
    assert "80 rows: 70 state" in capsys.readouterr().out


def test_a_fit_that_was_stopped_goes_on(
    csv: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, save = ("fit", csv, *COLUMNS, *TINY, "--out", tmp_path), checkpoint.save

    def save_and_stop(path: Path, config: dict[str, Any], state: dict[str, Any]) -> None:
        save(path, config, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save_and_stop)
        assert run(*command) == 130
    assert "Run the same command again to continue" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert run(*command, "--seed", "1") == 2
    assert "checkpoint of another config" in one_line(capsys)
    saved: list[int] = []
    monkeypatch.setattr(checkpoint, "save", lambda *given: (saved.append(given[2]["epoch"]), save(*given)))
    assert run(*command) == 0
    assert saved == [2]
    assert {path.name for path in tmp_path.iterdir()} == {DOCUMENT, TENSORS, DRAWS, TREES, "audit.json"}
    for name in (TENSORS, "audit.json", DOCUMENT):
        assert (tmp_path / name).read_bytes() == (model / name).read_bytes()


def test_a_model_is_replaced_only_when_told(
    csv: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "model"
    shutil.copytree(model, out)
    with monkeypatch.context() as patch:
        patch.setattr(estimator, "fit", lambda *_, **__: pytest.fail("training began"))
        assert run("fit", csv, *COLUMNS, *TINY, "--out", out) == 2
    error = one_line(capsys)
    assert "already holds a model; pass overwrite=True to replace it, or choose another folder." in error
    assert "See --overwrite, --out." in error
    nothing_held_out = ("--holdout", "0", "--overwrite")
    assert run("fit", csv, *COLUMNS, *TINY, *nothing_held_out, "--out", out) == 0
    assert "there is no audit" in capsys.readouterr().err
    assert FairSSVAEClassifier.load(out, "cpu").summary_["rows"] == 240
    assert not (out / "audit.json").exists()  # that of the model that was replaced
    assert run("report", out) == 0
    assert "No rows were audited" in (out / "report.html").read_text()


@pytest.mark.parametrize("column", ["sex", "hired"])
def test_a_value_that_only_held_out_rows_have_does_not_cost_the_fit(
    column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audited = np.arange(240) < 48
    monkeypatch.setattr(user_fit, "random_share", lambda *_: audited)
    table = people()
    table.loc[:5, column] = "another"
    path, out = tmp_path / "people.csv", tmp_path / "model"
    table.to_csv(path, index=False)
    assert run("fit", path, *COLUMNS, *TINY, "--out", out) == 0
    printed, said = capsys.readouterr()
    assert f"The model is in {out}" in printed
    FairSSVAEClassifier.load(out, "cpu")
    if column == "sex":
        assert "could not be audited: 'sex' of sensitive_features has groups that the model does not" in said
        assert not (out / "audit.json").exists()
    else:
        assert "P(Ŷ = another | Y = another)" in printed
    assert run("report", out) == 0


def test_warnings_are_messages(csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "people.csv"
    pd.read_csv(csv).assign(empty=np.nan, same=1).to_csv(path, index=False)
    strict = ("--max-disparity", "0")
    assert run("fit", path, *COLUMNS, *TINY, *strict, "--out", tmp_path / "model") == 0
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("fairvae: warning: columns that say nothing are left out: 'empty': all its")
    assert all(line.startswith("fairvae: warning: no member has a disparity of at most 0") for line in others)
    # A column that told nothing need not be there afterwards.
    assert run("predict", tmp_path / "model", csv, "--out", tmp_path / "predictions.csv") == 0


RAGGED = "x,sex,hired\n1,f,yes\n2,m,no,9\n3,f\n"
LETTERS = "x,sex,hired\n" + "".join(f"{i},{'fm'[i % 2]},{['no', 'yes'][i % 3 > 0]}\n" for i in range(40))


@pytest.mark.parametrize(
    ("content", "arguments", "complaint"),
    [
        (None, ["--label", "hird"], "unknown column for the label 'hird'.*Did you mean 'hired'"),
        (None, ["--group", "sxe"], "unknown column for the group 'sxe'.*Did you mean 'sex'"),
        (None, ["--group", "sex,sex"], "several columns called 'sex'"),
        (None, ["--group", ","], "has no column"),
        (None, ["--drop", "idd"], "unknown column for the columns to drop 'idd'.*Did you mean 'id'"),
        (None, ["--group", "hired"], "'hired' cannot be both the label and a group"),
        (None, ["--drop", "hired"], "'hired' is the label or a group.*leave it out of drop. See --drop"),
        (None, ["--drop", "sex"], "'sex' is the label or a group"),
        (None, ["--drop", "id,note,age,years,town,citizen"], "no columns left to use as features"),
        (None, ["--label", "age"], "Unknown label type: y has"),
        (None, ["--label", "id", "--drop", "note"], "numbers and identifiers are not classes"),
        (None, ["--group", "sex,note", "--drop", "id"], "numbers and identifiers are not groups"),
        (None, ["--missing", "f,m,?"], "nobody states 'sex'"),
        (None, ["--missing", "?,m"], "'sex' of sensitive_features has one value, 'f'"),
        (None, ["--holdout", "1"], r"holdout must be within \[0, 1\), got 1.0\. See --holdout\."),
        (None, ["--holdout", "-0.1"], "holdout must be within"),
        (None, ["--holdout", "nan"], "holdout must be within"),
        (None, ["--holdout", "0.99"], "n_samples=2 is too small|labels are missing|has one"),
        (None, ["--lambdas", "0;1"], "--lambdas expects numbers separated by commas, got '0;1'"),
        (None, ["--lambdas", "0,-1"], "finite and not negative, got -1"),
        (None, ["--lambdas", ""], "no λ was given"),
        (None, ["--max-disparity", "2"], r"max_disparity must be within \[0, 1\], got 2"),
        (None, ["--risk", "deop"], "unknown risk 'deop'.*Did you mean 'deo"),
        (None, ["--epochs", "0"], "epochs must be at least 1, got 0"),
        (None, ["--set", "latnt=3"], "unknown option 'latnt'.*Did you mean 'latent'"),
        (None, ["--set", "latent=few"], "option latent expects a whole number, got 'few'"),
        (None, ["--set", "refine_decisions=-1"], "refine_decisions must be finite and not negative, got -1"),
        (None, ["--set", "risk=ddp"], "risk given in options, but is a parameter of the estimator"),
        (None, ["--set", "latent"], "--set expects NAME=VALUE, got 'latent'"),
        (None, ["--set", "latent=2", "--set", "latent=3"], "--set gives latent more than once"),
        (None, ["--set", "prior_a={preset"], "--set prior_a: '{preset' is not valid"),
        (None, ["--seed", "-1"], "seed must be within .* got -1. See --seed"),
        (None, ["--threads", "0"], "threads must be at least 1"),
        (None, ["--device", "abacus"], "unknown device 'abacus'"),
        (RAGGED, ["--drop", ""], "has 3 columns, but 2 lines have another number of values: line 3 has 4"),
        (LETTERS.replace("x,sex", "sex,sex"), ["--drop", ""], "several columns called 'sex'"),
        ("x,sex,hired\n", ["--drop", ""], "has no rows"),
        ("", ["--drop", ""], "is empty"),
        (LETTERS.replace("\n7,", "\ninf,"), ["--drop", ""], "column 'x' contains infinity in 1 rows"),
        (LETTERS.replace("yes", "no"), ["--drop", ""], "y has one class, no"),
        (LETTERS.replace("yes", "").replace("no", ""), ["--drop", ""], "labels are missing"),
        ("\n".join(LETTERS.split("\n")[:4]), ["--drop", "", "--holdout", "0"], "n_samples=3 is too small"),
    ],
)
def test_a_wrong_fit_is_one_line_and_leaves_nothing(
    content: str | None,
    arguments: list[str],
    complaint: str,
    csv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        csv = tmp_path / "table.csv"
        csv.write_text(content)
    monkeypatch.setattr(estimator, "fit", lambda *_, **__: pytest.fail("training began"))
    out = tmp_path / "model"
    assert run("fit", csv, *COLUMNS, *TINY, *arguments, "--out", out) == 2
    assert re.search(complaint, one_line(capsys))
    assert not out.exists()


def test_files_that_are_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contents = {"t.xlsx": b"", "t.parquet": b"PAR1?", "t.csv.gz": b"no gzip", "u.csv": b"x,sex\n\xff\xfe,f\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    told = {
        "t.xlsx": "unknown kind of table",
        "t.parquet": "not a table in Parquet",
        "t.csv.gz": "cannot read",
        "u.csv": "UTF-8",
        "no.csv": "there is no file",
    }
    for name, words in told.items():
        assert run("fit", tmp_path / name, *COLUMNS, *TINY, "--out", tmp_path / "model") == 2
        assert words in one_line(capsys)


def test_an_out_that_cannot_be_a_folder(
    csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(estimator, "fit", lambda *_, **__: pytest.fail("training began"))
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "model"):
        assert run("fit", csv, *COLUMNS, *TINY, "--out", out) == 2
        assert "cannot make the folder" in one_line(capsys)


@pytest.mark.parametrize(
    ("command", "drop", "arguments", "complaint"),
    [
        ("predict", ["town"], [], "lacks columns that the model was fitted with: 'town'"),
        ("predict", [], ["--keep", "idd"], "unknown column for the columns to keep 'idd'.*Did you mean 'id'"),
        ("predict", [], ["--max-disparity", "-1"], "no member has a disparity of at most -1"),
        ("predict", [], ["--out", "no-such-folder/p.csv"], "cannot write no-such-folder/p.csv"),
        ("predict", [], ["--out", "/proc/self/p.csv"], "cannot write /proc/self/p.csv"),
        ("predict", [], ["--out", "/tmp"], "cannot write /tmp: it is a folder"),
        ("audit", ["hired"], [], "unknown column for the label 'hired'"),
        ("audit", ["sex"], [], "unknown column for the group 'sex'"),
        ("audit", ["town"], [], "lacks columns that the model was fitted with: 'town'"),
        ("audit", [], ["--decisions", "their"], "unknown column for the decisions 'their'"),
        ("audit", [], ["--decisions", "hired"], "y_pred has gaps; every row needs a decision"),
        ("audit", [], ["--group", "sex,town"], "has 2 columns, but the model knows 1: sex"),
        ("audit", [], ["--group", "town"], "groups that the model does not know"),
        ("audit", [], ["--confidence", "1.5"], r"confidence must be within \[0.5, 1\), got 1.5"),
        ("audit", [], ["--out", "no-such-folder/a.json"], "cannot write no-such-folder/a.json"),
        ("audit", [], ["--device", "abacus"], "unknown device"),
    ],
)
def test_a_wrong_use_of_a_model_is_one_line_and_leaves_nothing(
    command: str,
    drop: list[str],
    arguments: list[str],
    complaint: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    people().drop(columns=drop).to_csv(tmp_path / "new.csv", index=False)
    monkeypatch.chdir(tmp_path)
    if "--out" in arguments:
        monkeypatch.setattr(FairSSVAEClassifier, "predict", lambda *_: pytest.fail("the work began"))
    assert run(command, model, "new.csv", *arguments) == 2
    assert re.search(complaint, one_line(capsys))
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_kept_columns_do_not_hide_predictions(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "new.csv", tmp_path / "predictions.csv"
    people().assign(decision="theirs").to_csv(path, index=False)
    assert run("predict", model, path, "--keep", "decision", "--out", out) == 2
    assert "'decision' cannot be kept" in one_line(capsys)


def test_folders_that_are_no_model_or_a_damaged_one(
    model: Path, csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((model / DOCUMENT).read_text())
    # What follows the document is written as it stands there, in a copy of the model.
    damages: dict[str, tuple[str, str | bytes | None, str]] = {
        "no document": (DOCUMENT, None, f"is not the folder of a model: it has no {DOCUMENT}"),
        "no tensors": (TENSORS, None, f"is not the folder of a model: it has no {TENSORS}"),
        "half a document": (
            DOCUMENT,
            (model / DOCUMENT).read_text()[:900],
            "is not the description of a model",
        ),
        "another document": (DOCUMENT, "[1, 2]", "does not describe a model of pyro_fairvae"),
        "half the tensors": (
            TENSORS,
            (model / TENSORS).read_bytes()[:900],
            "is damaged, or of another model",
        ),
        "a later version": (DOCUMENT, json.dumps(document | {"version": 99}), "has version 99 of the format"),
    }
    broken: dict[str, Any] = {
        "columns": {},
        "fit": {},
        "parameters": {"no": 1},
        "classes": None,
        "frontier": 3,
        "attributes": {"names": ["sex"], "values": [["f", "m", "d"]]},
    }
    for key, value in broken.items():
        damages[f"{key} broken"] = (DOCUMENT, json.dumps(document | {key: value}), "damaged")
        without = json.dumps({name: each for name, each in document.items() if name != key})
        damages[f"{key} lacking"] = (DOCUMENT, without, "damaged")
    for what, (name, content, complaint) in damages.items():
        folder = tmp_path / what
        shutil.copytree(model, folder)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        for command in (["predict", folder, csv, "--out", tmp_path / "p.csv"], ["report", folder]):
            assert run(*command) == 2, what
            assert complaint in one_line(capsys), what
    for folder in (tmp_path / "nothing", csv):
        assert run("audit", folder, csv) == 2
        assert "is not the folder of a model" in one_line(capsys)


def test_reports_that_cannot_be_made(
    model: Path, csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads((model / "audit.json").read_text())
    digest = whole.pop("sha256")
    wrong = [json.dumps(whole | {"confidence": 0.5, "sha256": digest}),
             "no JSON", "[]", "{}", '{"metrics": "deo"}', json.dumps(whole | {"metrics": "deo"}),
             json.dumps(whole | {"metrics": [{"metric": "deo"}]}), json.dumps(whole | {"rows": {}}),
             json.dumps(whole | {"rates": []}), json.dumps(whole | {"confidence": "high"}),
             json.dumps(whole | {"groups": [{"group": "f"}]}), json.dumps(whole | {"notes": 3})]  # fmt: skip
    path = tmp_path / "audit.json"
    for content in wrong:
        path.write_text(content)
        assert run("report", model, "--audit", path, "--out", tmp_path / "page.html") == 2, content
        assert f"{path} is not an audit, as fairvae audit writes it" in one_line(capsys)
    assert run("report", model, "--audit", tmp_path / "none.json") == 2
    assert "none.json, an audit, as fairvae audit writes it: No such file" in one_line(capsys)
    for out in (tmp_path / "no" / "page.html", tmp_path, Path("/proc/self/page.html")):
        assert run("report", model, "--out", out) == 2
        assert f"cannot write {out}" in one_line(capsys)
    assert not (tmp_path / "page.html").exists()


def test_a_model_that_was_fitted_in_python(
    csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_csv(csv, na_values=["?"])
    X = table[["age", "years", "town"]]
    tiny(lambdas=(0.0,)).fit(X, table["hired"]).save(tmp_path / "groupless")
    tiny().fit(X, table["hired"], table["sex"]).save(tmp_path / "grouped")
    tiny().fit(X[["age", "years"]].to_numpy(), table["hired"], table["sex"]).save(tmp_path / "nameless")
    named = ("--label", "hired", "--group", "sex")
    clean = tmp_path / "clean.csv"
    table.to_csv(clean, index=False)
    for name in ("groupless", "grouped"):
        assert run("audit", tmp_path / name, clean) == 2
        assert "was fitted in Python: name --label and --group" in one_line(capsys)
        assert run("audit", tmp_path / name, clean, *named) == 0
        assert run("report", tmp_path / name) == 0
        capsys.readouterr()
    assert run("predict", tmp_path / "groupless", clean, "--groups", "--out", tmp_path / "p.csv") == 2
    assert "fitted without groups; leave out --groups" in one_line(capsys)
    assert run("predict", tmp_path / "nameless", clean, "--out", tmp_path / "p.csv") == 2
    assert "fitted on an array without column names" in one_line(capsys)
