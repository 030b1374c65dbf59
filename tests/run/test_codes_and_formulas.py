"""Codes such as 01 through the commands, and formulas in what predict keeps."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import FEW_STEPS, run
from tests.support.user_tables import made_table

RUN = "=cmd|' /C calc'!A0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which a label is 01 or 1, a group 007 or 7 and a name a formula, and a model of it."""
    path = tmp_path_factory.mktemp("codes")
    made = made_table(150)
    table = made.X.assign(
        **{
            "=id": RUN,
            "hired": np.where(made.y == "yes", "01", "1"),
            "sex": np.where(made.a == "f", "007", "7"),
        }
    )
    table.to_csv(path / "people.csv", index=False)
    table[made.y == "no"].to_csv(path / "ones.csv", index=False)
    arguments = ["--label", "hired", "--group", "sex", "--drop", "=id", "--epochs", "1", "--lambdas", "0,1"]
    few = [*FEW_STEPS, "--trunk", "mlp", "--holdout", "0.5", "--quiet"]
    assert run("fit", path / "people.csv", *arguments, *few, "--out", path / "model") == 0
    return path


def test_codes_stay_apart_in_a_fit_and_in_all_that_follows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((folder / "model" / "model.json").read_text())
    assert document["classes"]["values"] == ["01", "1"]
    assert sorted(document["attributes"]["values"][0]) == ["007", "7"]
    # A table in which 1 is the only label is read as numbers, which are the label 1, not 01.
    decided = ("--decisions", "hired", "--out", folder / "audit.json")
    assert run("audit", folder / "model", folder / "people.csv", *decided) == 0
    rates = {line["rate"]: line for line in json.loads((folder / "audit.json").read_text())["rates"]}
    assert rates["P(Ŷ = 01 | Y = 01)"]["estimate"] == 1
    assert run("audit", folder / "model", folder / "ones.csv") == 0
    assert (
        run("decide", folder / "model", folder / "people.csv", "--draws", "2", "--out", folder / "d.csv") == 0
    )
    with (folder / "d.csv").open() as file:
        assert {line["class"] for line in csv.DictReader(file)} <= {"01", "1"}
    capsys.readouterr()


@pytest.mark.parametrize("flags", [[], ["--escape-formulas"]])
def test_formulas_in_a_kept_column(folder: Path, flags: list[str]) -> None:
    out = folder / "kept.csv"
    assert run("predict", folder / "model", folder / "people.csv", "--keep", "=id", "--out", out, *flags) == 0
    with out.open() as file:
        lines = list(csv.DictReader(file))
    before = "'" if flags else ""
    assert {line[f"{before}=id"] for line in lines} == {before + RUN}
    assert {line["decision"] for line in lines} <= {"01", "1"}
