"""Parquet files and folders are read in pieces, and refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.table_files import read_table, read_words


def table(rows: int, first: int = 0) -> pd.DataFrame:
    number = np.arange(first, first + rows)
    words = pd.Series(np.where(number % 3, "some", "?"), dtype=object).mask(number % 5 == 0)
    return pd.DataFrame({"n": number.astype(float), "word": words, "code": number % 4})


def folder(where: Path) -> pd.DataFrame:
    where.mkdir()
    parts = [table(50), table(7, 50), table(30, 57)]
    for name, part in zip("cab", parts, strict=True):  # files are read in the order of their names
        part.to_parquet(where / f"{name}.parquet", row_group_size=20)
    (where / "_SUCCESS").write_text("")
    return pd.concat([parts[1], parts[2], parts[0]], ignore_index=True)


def test_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    whole = folder(tmp_path / "parts")
    rows = ParquetRows.open(tmp_path / "parts", ["?"])
    assert (rows.rows, rows.names) == (87, ("n", "word", "code"))
    pieces = list(rows.frames(16))
    assert max(len(frame) for _, frame in pieces) <= 16
    assert [first for first, _ in pieces] == np.cumsum([0, *(len(of) for _, of in pieces)])[:-1].tolist()
    found = pd.concat([frame for _, frame in pieces], ignore_index=True)
    expected = whole.assign(word=whole["word"].mask(whole["word"] == "?"))
    pd.testing.assert_frame_equal(found.astype(object), expected.astype(object), check_dtype=False)
    mask = np.random.default_rng(0).random(87) < 0.2
    chosen = rows.only(["code", "word"]).chosen(mask)
    assert chosen["code"].tolist() == whole["code"][mask].tolist()
    assert len(rows.chosen(np.zeros(87, dtype=bool))) == 0


def test_a_folder_is_read_as_a_table_too(tmp_path: Path) -> None:
    whole = folder(tmp_path / "parts")
    assert read_table(tmp_path / "parts")["n"].tolist() == whole["n"].tolist()
    assert read_words(tmp_path / "parts", ["code"])["code"].tolist() == whole["code"].tolist()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (table(5).drop(columns="word"), r"two\.parquet has no column 'word', which .*one\.parquet has"),
        (table(5).assign(more=1), r"two\.parquet has a column 'more', which .*one\.parquet has not"),
        (
            table(5).assign(n="x"),
            r"column 'n' of .*two\.parquet holds .*, but that of .*one\.parquet holds double",
        ),
    ],
)
def test_differing_schemas_are_refused_with_file_and_column(
    other: pd.DataFrame, words: str, tmp_path: Path
) -> None:
    table(5).to_parquet(tmp_path / "one.parquet")
    other.to_parquet(tmp_path / "two.parquet")
    with pytest.raises(InputError, match=words):
        ParquetRows.open(tmp_path)


def test_whole_numbers_beside_others_and_columns_of_gaps_are_one_schema(tmp_path: Path) -> None:
    table(5).to_parquet(tmp_path / "one.parquet")
    table(5).assign(n=3, word=None).to_parquet(tmp_path / "two.parquet")
    assert ParquetRows.open(tmp_path).rows == 10


def test_folders_without_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder without Parquet files, and empty"):
        ParquetRows.open(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"without Parquet files \(it has notes\.txt\)"):
        ParquetRows.open(tmp_path)
    (tmp_path / "year=2020").mkdir()
    with pytest.raises(InputError, match="has folders in it, such as year=2020"):
        ParquetRows.open(tmp_path)
    with pytest.raises(InputError, match="there is no file"):
        ParquetRows.open(tmp_path / "none.parquet")


def test_broken_and_empty_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    table(0).to_parquet(path)
    with pytest.raises(InputError, match="has no rows"):
        ParquetRows.open(path)
    table(500).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match="is not a table in Parquet, or is broken"):
        ParquetRows.open(path)
