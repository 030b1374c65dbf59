"""A table that stays on disk is the table in memory, whatever goes wrong while it is encoded."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import streamed_table
from pyro_fairvae.data.coded_columns import code_groups, code_labels
from pyro_fairvae.data.number_groups import code_sensitive
from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.splits import random_share
from pyro_fairvae.data.streamed_table import StreamedTable
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.data.user_table import CodedTable
from tests.support.parquet import FEATURES, write_people

ROWS = 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streamed_table, "BLOCK_ROWS", 100)
    for method in (ParquetRows.pieces, ParquetRows.frames):
        monkeypatch.setattr(method, "__defaults__", (64,))
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "cache"))


def streamed(path: Path, groups: tuple[str, ...] = ("sex",), **options: Any) -> StreamedTable:
    source = ParquetRows.open(path)
    audited = random_share(source.rows, 0.2, 0)
    return StreamedTable.learn(source, "hired", groups, FEATURES, audited, **options)


def in_memory(table: pd.DataFrame, groups: tuple[str, ...] = ("sex",)) -> CodedTable:
    kept = table[~random_share(len(table), 0.2, 0)].reset_index(drop=True)
    features = kept[list(FEATURES)]
    encoder = TableEncoder.learn(features)
    y, classes = code_labels(kept["hired"])
    coded = code_groups(kept[list(groups)])
    return CodedTable(encoder.encode(features), y, coded.outcomes, encoder, classes, coded.attributes)


@pytest.mark.parametrize("groups", [("sex",), ("sex", "town")])
def test_it_is_the_table_in_memory(groups: tuple[str, ...], tmp_path: Path) -> None:
    table = write_people(tmp_path / "people.parquet", ROWS)
    found, expected = streamed(tmp_path / "people.parquet", groups), in_memory(table, groups)
    assert found.encoder.columns == expected.encoder.columns
    assert found.encoder.categories == expected.encoder.categories
    for one, other in zip(found.encoder.numbers, expected.encoder.numbers, strict=True):
        assert (one.mean, one.deviation) == pytest.approx((other.mean, other.deviation), rel=1e-12)
        assert one.median == other.median
    assert found.attributes == expected.attributes
    assert found.classes.tolist() == expected.classes.tolist()
    for one, other in zip(found.parts(0.15, 3), expected.parts(0.15, 3), strict=True):
        assert one.tolist() == other.tolist()
        stored, plain = found.observed(one), expected.observed(other)
        assert stored.on_disk
        torch.testing.assert_close(stored.x[:], plain.x, rtol=1e-6, atol=1e-6)
        assert torch.equal(stored.y_obs, plain.y_obs)
        assert torch.equal(stored.a_obs, plain.a_obs)
    features = table[~random_share(len(table), 0.2, 0)][list(FEATURES)]
    assert found.summary(7) == expected.summary(features) | {
        "training_rows": 7, "held_out_rows": found.rows - 7
    }  # fmt: skip


def test_a_number_is_cut_into_the_same_levels(tmp_path: Path) -> None:
    table = write_people(tmp_path / "people.parquet", ROWS)
    found = streamed(tmp_path / "people.parquet", ("age",), levels=6)
    kept = table[~random_share(len(table), 0.2, 0)]
    expected = code_sensitive(kept[["age"]], levels=6)
    assert found.attributes == expected.attributes
    assert found.a_obs.tolist() == expected.outcomes.tolist()


def test_rows_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_people(tmp_path / "people.parquet", ROWS)
    first = streamed(tmp_path / "people.parquet")
    digest, x = first.digest(), first.observed(np.arange(first.rows)).x[:]
    monkeypatch.setattr(StreamedTable, "_bytes_of", None)
    again = streamed(tmp_path / "people.parquet")
    assert again.digest() == digest
    assert torch.equal(again.observed(np.arange(again.rows)).x[:], x)
    again.discard()
    assert not list((tmp_path / "cache" / "tables").glob("*.u8"))
    assert torch.equal(again.observed(np.arange(again.rows)).x[:], x)  # as long as it is mapped


def test_an_interrupted_encoding_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_people(tmp_path / "people.parquet", ROWS)
    record, encode, calls, encoded = streamed_table.record, StreamedTable._bytes_of, [], []

    def interrupted(*arguments: Any) -> None:
        record(*arguments)
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    def counted(self: StreamedTable, frame: pd.DataFrame) -> np.ndarray:
        encoded.append(len(frame))
        return encode(self, frame)

    monkeypatch.setattr(streamed_table, "record", interrupted)
    with pytest.raises(KeyboardInterrupt):
        streamed(tmp_path / "people.parquet").digest()
    (part,) = (tmp_path / "cache" / "tables").glob("*.part")
    assert not list((tmp_path / "cache" / "tables").glob("*.u8"))
    monkeypatch.setattr(StreamedTable, "_bytes_of", counted)
    resumed = streamed(tmp_path / "people.parquet")
    digest = resumed.digest()
    assert not part.exists()
    assert 180 <= sum(encoded) < 300  # of 480 rows in blocks of 100, those after the third block
    resumed.discard()
    whole = streamed(tmp_path / "people.parquet")
    assert whole.digest() == digest


@pytest.mark.parametrize("damage", ["cut short", "flipped"])
def test_a_damaged_file_is_made_anew(damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_people(tmp_path / "people.parquet", ROWS)
    digest = streamed(tmp_path / "people.parquet").digest()
    (path,) = (tmp_path / "cache" / "tables").glob("*.u8")
    content = path.read_bytes()
    path.write_bytes(content[:-9] if damage == "cut short" else bytes([content[0] ^ 1]) + content[1:])
    assert streamed(tmp_path / "people.parquet").digest() == digest
    assert path.read_bytes() == content
    assert "is broken or altered; encoding the blocks of rows again" in capfd.readouterr().err


def test_another_version_or_another_file_is_another_mapped_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_people(tmp_path / "people.parquet", ROWS)
    streamed(tmp_path / "people.parquet").digest()
    monkeypatch.setattr(streamed_table, "CODED_FORMAT", 99)
    streamed(tmp_path / "people.parquet").digest()
    write_people(tmp_path / "people.parquet", ROWS, seed=1)
    streamed(tmp_path / "people.parquet").digest()
    assert len(list((tmp_path / "cache" / "tables").glob("*.u8"))) == 3


def test_a_full_disk_is_told_before_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_people(tmp_path / "people.parquet", ROWS)
    table = streamed(tmp_path / "people.parquet")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=7000))
    monkeypatch.setattr(StreamedTable, "_bytes_of", None)
    with pytest.raises(InputError, match=r"5 blocks of rows to encode need 0\.0 MB in .*FAIRVAE_CACHE"):
        table.digest()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=30_000))
    with pytest.raises(InputError, match="480 rows, their scores and imputations need 0"):
        table.digest()


def test_labels_that_are_numbers_are_refused_before_all_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_table, "MOST_VALUES", 50)
    write_people(tmp_path / "people.parquet", ROWS)
    source = ParquetRows.open(tmp_path / "people.parquet")
    with pytest.raises(InputError, match="'x0' has more than 50 values; numbers and identifiers"):
        StreamedTable.learn(source, "x0", ["sex"], FEATURES[1:2], np.zeros(ROWS, dtype=bool))
