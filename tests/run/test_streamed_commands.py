"""fairvae fit, predict and audit on Parquet that is read in pieces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.table_writing import _Parquet
from tests.support.command_line import FEW_STEPS, run
from tests.support.parquet import people

TINY = ("--lambdas", "0,1", "--epochs", "1", "--device", "cpu", "--quiet", *FEW_STEPS)
FIT = ("--label", "hired", "--group", "sex", "--drop", "age", "--trunk", "mlp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two files, the same rows as text, and a model of them."""
    where = tmp_path_factory.mktemp("streamed")
    (where / "parts").mkdir()
    table = people(300)
    table.iloc[:170].to_parquet(where / "parts" / "1.parquet")
    table.iloc[170:].to_parquet(where / "parts" / "2.parquet")
    table.to_csv(where / "people.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRVAE_CACHE", str(where / "cache"))
        streaming = ("--streaming", "always", "--out", where / "model")
        assert run("fit", where / "parts", *FIT, *TINY, *streaming) == 0
    return where


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParquetRows.pieces, "__defaults__", (64,))
    monkeypatch.setattr(ParquetRows.stored, "__defaults__", (64,))


@pytest.mark.usefixtures("in_pieces")
def test_pieces_are_predicted_as_the_whole_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for data, out in (("people.csv", "1.csv"), ("parts", "2.csv"), ("parts", "3.parquet")):
        keep = ("--keep", "age,town", "--groups", "--out", tmp_path / out)
        assert run("predict", folder / "model", folder / data, *keep) == 0
        said.append(capsys.readouterr().out.partition("; they are in")[0])
    assert said[0] == said[1] == said[2]
    assert said[0].startswith("300 rows decided by the member at")
    text, pieces = (pd.read_csv(tmp_path / name) for name in ("1.csv", "2.csv"))
    pd.testing.assert_frame_equal(text, pieces, rtol=1e-5)
    whole = pd.read_parquet(tmp_path / "3.parquet")
    assert whole.columns.tolist() == text.columns.tolist()
    assert whole["decision"].tolist() == text["decision"].tolist()
    np.testing.assert_allclose(whole["P(yes)"], text["P(yes)"], rtol=1e-5)
    assert whole["town"].isna().sum() == people(300)["town"].isna().sum()


@pytest.mark.usefixtures("in_pieces")
def test_a_failure_in_the_middle_leaves_no_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, calls = _Parquet.write, []

    def failing(self: _Parquet, *tables: pd.DataFrame) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        write(self, *tables)

    monkeypatch.setattr(_Parquet, "write", failing)
    assert run("predict", folder / "model", folder / "parts", "--out", tmp_path / "out.parquet") == 2
    error = capsys.readouterr().err
    assert "No space left on device. Free some space, or choose another folder." in error
    assert list(tmp_path.iterdir()) == []


def test_an_audit_of_many_rows_is_of_a_sample_that_is_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "audit.json"
    command = ("audit", folder / "model", folder / "parts", "--out", out)
    assert run(*command) == 0
    assert json.loads(out.read_text())["rows"]["rows"] == 300
    assert run(*command, "--most-rows", "200") == 0
    assert "these are 200 rows drawn at random of 300 in parts." in capsys.readouterr().out
    document = json.loads(out.read_text())
    assert document["rows"]["rows"] == 200
    assert document["notes"][0] == "these are 200 rows drawn at random of 300 in parts."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("people.csv", "--streaming", "always"), "rows are streamed from Parquet alone"),
        (("parts", "--streaming", "always", "--proxy", "town"), "proxies need all rows in memory"),
        (("parts", "--streaming", "always", "--label", "hirred"), "hired"),
        (("cache", "--streaming", "always"), "has folders in it"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: tuple[str, ...],
    words: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, *others = arguments
    assert run("fit", folder / data, *FIT, *others, *TINY, "--out", tmp_path / "model") == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_columns_to_keep_are_checked_before_the_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("predict", folder / "model", folder / "parts")
    assert run(*command, "--keep", "agge", "--out", tmp_path / "out.csv") == 2
    assert "'age'" in capsys.readouterr().err
    assert run(*command, "--out", tmp_path / "out.tsv") == 2
    assert "predictions are written as CSV or Parquet" in capsys.readouterr().err
