"""Every command on models whose sensitive feature is a number."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae import FairDecisions
from pyro_fairvae.data import DATASETS, Dataset, Table
from pyro_fairvae.data.adult_age import age_attributes, withheld_at_age
from pyro_fairvae.data.dataset import Number
from tests.support.browser import Reader
from tests.support.command_line import run
from tests.support.number_tables import aged

SMALL = ("--set", "latent=2", "--set", "decoder_hidden=8", "--set", "pieces=3", "--set", "channel_steps=2")
COLUMNS = ("--label", "hired", "--group", "age", "--group-levels", "6")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = aged(900)
    path = tmp_path_factory.mktemp("numbers") / "people.csv"
    label = pd.Series(table.y, name="hired").mask(np.random.default_rng(0).random(900) < 0.1)
    stated = table.stated.astype("Int64").astype(object).where(table.stated.notna(), "secret")
    pd.concat([table.X, label, stated], axis=1).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def folder(people: Path) -> Path:
    out = people.parent / "model"
    given = ("--estimator", "boosting", "--targets", ".02,.005", "--missing", "secret", "--quiet")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run("fit", people, *COLUMNS, *given, "--out", out) == 0
    (people.parent / "printed.txt").write_text(printed.getvalue())
    return out


@pytest.fixture(scope="module")
def network(people: Path) -> Path:
    out = people.parent / "network"
    given = ("--targets", ".02", "--missing", "secret", "--trunk", "mlp", "--epochs", "2", *SMALL, "--quiet")
    assert run("fit", people, *COLUMNS, *given, "--out", out) == 0
    return out


def test_fit_prints_the_curve(folder: Path) -> None:
    printed = (folder.parent / "printed.txt").read_text()
    model = FairDecisions.load(folder)
    assert model.withholding_curve_ is not None
    for _, line in model.withholding_curve_.iterrows():
        (row,) = (text for text in printed.splitlines() if text.startswith(line["level"]) and "0." in text
                  and len(text.split()) == len(line["level"].split()) + 4)  # fmt: skip
        assert row.split()[-3:] == [f"{line[name]:.3f}" for name in ("withheld", "low", "high")]
    assert "misstatement is left out for numbers" in printed
    assert "mutual information given label nats" in printed
    assert model.attributes_.names == ("age",)


def test_predict_audit_inspect_and_report(
    people: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = FairDecisions.load(folder)
    out = tmp_path / "decisions.csv"
    assert run("predict", folder, people, "--groups", "--max-disparity", ".01", "--out", out) == 0
    written = pd.read_csv(out)
    assert [name for name in written if name.startswith("P(age")] == [f"P(age = {g})" for g in model.groups_]
    np.testing.assert_allclose(written.filter(like="P(age").sum(axis=1), 1, atol=1e-4)
    assert run("audit", folder, people, "--out", tmp_path / "audit.json") == 0
    audited = json.loads((tmp_path / "audit.json").read_text())
    assert len(audited["groups"]) == 4
    assert 0 < audited["rows"]["withheld"] < 900
    capsys.readouterr()
    assert run("inspect", folder, "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "P(∅ | age), who withholds along it" in printed
    assert printed.count("unavailable") == len(model.groups_) + 2
    assert (tmp_path / "channel-a.png").stat().st_size > 5000
    assert run("report", folder, "--out", tmp_path / "page.html") == 0
    page = (tmp_path / "page.html").read_text()
    words = " ".join(" ".join(text) for text in Reader(page).texts)
    assert "Who withholds along age" in words
    assert "the most dependence of decisions on the group that is allowed" in words
    assert model.withholding_curve_ is not None
    for value in model.withholding_curve_["withheld"]:
        assert f"{value:.3f}" in words


def test_decide_labels_rows_by_a_network(people: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    assert run("decide", network, people, "--out", out, "--draws", "5", "--decision-lambda", "1") == 0
    results = json.loads(out.with_suffix(".json").read_text())
    assert results["objective"]["decided"] <= results["objective"]["rounded"]
    assert len(pd.read_csv(out)) == 900


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("--group", "town"), "is text where a number was expected: 'north', 'south'"),
        (("--group", "age,town"), "has 2 columns, but a number that is cut into levels is a single one"),
        (("--group-levels", "1"), "from 3 to 64, got 1"),
        (("--set", "prior_a=flat"), "of a number nobody can misstate"),
        (("--proxy-proba", "young=skill,old=tenure"), "put a prediction of the number among the columns"),
    ],
)
def test_bad_input_is_told_in_words(
    people: Path, tmp_path: Path, change: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--missing", "secret", "--quiet", "--out", tmp_path / "model")
    assert run("fit", people, *COLUMNS, *given, *change) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.fixture
def _number_of_its_own() -> Iterator[None]:
    """A data set like Adult with age, drawn."""

    def read(label: str, group: str, side: int, folder: object) -> Table:
        table, attributes = aged(700), age_attributes(6)
        assert attributes.levels is not None
        return Table(
            table.X[["tenure", "skill"]], table.X[["town"]].astype("category"),
            (table.y == "yes").astype(np.int64), attributes.levels.code(table.age), ("no", "yes"),
            attributes, number=table.age,
        )  # fmt: skip

    DATASETS["aged"] = Dataset(
        "aged", ("hired",), ("age",), read, lambda group: age_attributes(6), lambda label: ("no", "yes"),
        numbers={"age": Number(age_attributes, withheld_at_age)},
    )  # fmt: skip
    yield
    del DATASETS["aged"]


@pytest.mark.usefixtures("_number_of_its_own")
def test_train_and_inspect_show_the_truth_beside_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--epochs", "2", "--hidden", "8", "--layers", "1", "--batch", "128",
             "--latent", "2", "--channel-steps", "2", "--decision-steps", "5",
             "--intervals", "given_h", "--quiet")  # fmt: skip
    given = ("--dataset", "aged", "--group-levels", "5", "--targets", ".05,.01")
    out = tmp_path / "run"
    assert run("train", *given, *small, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "target  error %  mutual information given label nats" in printed
    posterior = json.loads((out / "posterior.json").read_text())
    truth = [row["unavailable"]["truth"] for row in posterior["a"].values()]
    assert len(truth) == 5
    assert truth == sorted(truth)
    assert 0.4 < truth[0] < truth[-1] < 0.8  # sparse
    assert (out / "posterior.png").stat().st_size > 5000
    assert run("inspect", out) == 0
    shown = capsys.readouterr().out
    assert all(f"{rate:.3f}" in shown for rate in truth)
    assert run("train", *given[:2], "--lambdas", "0,1", *small, "--out", tmp_path / "weighed") == 0
    config = json.loads((tmp_path / "weighed" / "config.json").read_text())
    assert (config["risk"], config["risk_estimator"]) == ("mutual_information_given_label", "expected")


@pytest.mark.usefixtures("_number_of_its_own")
def test_recover_prints_and_draws_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--dataset", "aged", "--group", "age", "--group-levels", "4", "--levels", "medium")
    assert run("recover", *given, "--seeds", "2", "--epochs", "1", "--quiet", "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "MAE by people" in printed
    assert len([line for line in printed.splitlines() if line.startswith("age    medium ")]) == 4 + 1
    assert (tmp_path / "curves.png").is_file()
    kept = pd.read_csv(tmp_path / "recovery.csv")
    rows = kept[(kept.channel == "a") & (kept.says == "unavailable")]
    assert rows.groupby("seed").people.sum().tolist() == pytest.approx([1, 1])
