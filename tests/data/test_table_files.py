"""Tables in files, against the lines that were written."""

from __future__ import annotations

import gzip
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.table_files import FORMATS, GAPS, read_table, read_words, take_columns

TABLE = pd.DataFrame(
    {"age": [31, 42, 53], "job": ["clerk, part-time", None, 'a "cook"'], "pay": [1.5, np.nan, -2.0]}
)


def written(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix.lower() == ".gz" else data)
    return path


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, check_column_type=False)


@pytest.mark.parametrize("ending", [*FORMATS, ".CSV", ".Tsv.GZ", ".v2.csv"])
def test_every_kind_of_file_gives_the_table(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table{ending}"
    if ending == ".parquet":
        TABLE.to_parquet(path)
    else:
        written(path, TABLE.to_csv(sep="\t" if "tsv" in ending.lower() else ",", index=False))
    same(read_table(path), TABLE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufeffa,b\n1,2\n", {"a": [1], "b": [2]}),
        ('\ufeff"a",b\n1,2\n', {"a": [1], "b": [2]}),
        ("a,b\r\n1,2\r\n", {"a": [1], "b": [2]}),
        ("a,b\n1,2", {"a": [1], "b": [2]}),
        ("a, b , c\n1, x,  y z\n", {"a": [1], "b": ["x"], "c": ["y z"]}),
        ('a, "b, c"\n1, "x, y"\n', {"a": [1], "b, c": ["x, y"]}),
        ('a,b\n1,"two\nlines"\n2,"a ""b"""\n', {"a": [1, 2], "b": ["two\nlines", 'a "b"']}),
        ("\n\na,b\n\n1,2\n\n", {"a": [1], "b": [2]}),
        ("a,b\n,x\n1,NA\n", {"a": [np.nan, 1], "b": ["x", np.nan]}),
        ("a\n1\n2\n", {"a": [1, 2]}),
        ("größe,名\n1,ß\n", {"größe": [1], "名": ["ß"]}),
    ],
)
def test_lines_as_people_write_them(tmp_path: Path, text: str, expected: dict[str, list[Any]]) -> None:
    same(read_table(written(tmp_path / "t.csv", text)), pd.DataFrame(expected))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_words_for_gaps_are_gaps_in_files_of_either_kind(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"t{ending}"
    table = pd.DataFrame({"n": [1, 99, 3], "w": ["x", "?", "prefer not to say"], "v": ["99", "y", "??"]})
    if ending == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    found = read_table(path, ["99", "?", "prefer not to say"])
    expected = {"n": [1, np.nan, 3], "w": ["x", np.nan, np.nan], "v": [np.nan, "y", "??"]}
    same(found, pd.DataFrame(expected))
    assert read_table(path)["n"].tolist() == [1, 99, 3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n1,2,3\n4\n", r"2 columns, but 2 lines .*: line 3 has 3, line 4 has 1\. Quote"),
        ("a,b\n" + "1\n" * 9, r"9 lines .*: line 2 has 1, line 3 has 1, line 4 has 1 and so on\."),
        ('a,b\n"1\n2",3\n4,5,6\n', "1 lines .*: line 4 has 3"),
        ("a,b\n1,2,\n", "line 2 has 3"),
        ("a;b\n1;2,5\n", "separated by semicolons"),
        ("a,b,a\n1,2,3\n", "several columns called 'a'"),
        ("a, a \n1,2\n", "several columns called 'a'"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "has no rows"),
        ("a,b\n\n\n", "has no rows"),
        ('a,b\n1,"never closed\n2,3\n', "cannot be read as a table: .*EOF inside string"),
        ("a,b\n1," + "x" * 200_000 + "\n", "line 2: field larger than field limit"),
        ("x" * 200_000 + ",b\n1,2\n", "line 1: field larger than field limit"),
        ("größe,b\n1,ü\n".encode("latin-1"), r"not text in UTF-8 \(byte 2: .*iconv -f latin1 -t utf8"),
        ("a,b\n1,2\n".encode("utf-16"), "not text in UTF-8"),
        (bytes(range(256)), "not text in UTF-8"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_faulty_lines_are_refused_and_named(
    tmp_path: Path, text: str | bytes, told: str, ending: str
) -> None:
    path = written(tmp_path / f"t{ending}", text)
    with pytest.raises(InputError, match=rf"(?s)t{ending}.*{told}"):
        read_table(path)


def test_words_for_a_gap_are_gaps_unless_they_are_values(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "a,b\n" + "".join(f"{word},{n}\n" for n, word in enumerate(GAPS)))
    assert read_table(path)["a"].isna().all()
    assert pd.read_csv(path)["a"].dropna().tolist() == ["NaT"]
    kept = read_table(path, values=["None", "NA"])["a"]
    assert kept.dropna().tolist() == ["NA", "None"]


def test_columns_may_be_read_as_they_are_written(tmp_path: Path) -> None:
    """Codes that look like numbers, numbers that lose digits, words that look like gaps."""
    words = {"code": ["0010", "1e5", "NA"], "pay": ["1234567.890", "", "None"]}
    path = written(tmp_path / "t.csv", pd.DataFrame({"x": [1, 2, 3], **words}).to_csv(index=False))
    assert read_words(path, ["pay", "code"]).to_dict("list") == {
        name: words[name] for name in ("pay", "code")
    }
    found = read_table(path, as_text=["code", "no such column"])
    assert found["code"].tolist()[:2] == ["0010", "1e5"]
    assert found["code"].isna().tolist() == [False, False, True]
    assert found["pay"].tolist()[0] == 1234567.89
    stored = pd.DataFrame({"id": [7, 8], "x": [0.1, 0.2]})
    stored.to_parquet(tmp_path / "t.parquet")
    same(read_words(tmp_path / "t.parquet", ["id"]), stored[["id"]])


def test_numbers_of_rows_are_left_out(tmp_path: Path) -> None:
    same(read_table(written(tmp_path / "t.csv", TABLE.to_csv())), TABLE)
    with pytest.raises(InputError, match="no name for column 2; name it, or leave it out"):
        read_table(written(tmp_path / "t.csv", "a,,b\n1,2,3\n"))


@pytest.mark.parametrize(("separator", "called"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_another_separator_is_named(tmp_path: Path, separator: str, called: str) -> None:
    text = f"age{separator}pay\n31{separator}1,5\n"
    with pytest.raises(
        InputError, match=f"t.csv has one column, .*separated by {called}. Save it with commas"
    ):
        read_table(written(tmp_path / "t.csv", text))


def test_other_encodings_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="iconv -f utf16"):
        read_table(written(tmp_path / "t.csv", "name\nß\n".encode("utf-16")))
    with pytest.raises(InputError, match="iconv -f latin1"):
        read_table(written(tmp_path / "t.csv", "name\nß\n".encode("latin1")))


def test_a_tab_separates_in_its_own_kind_of_file_only(tmp_path: Path) -> None:
    same(
        read_table(written(tmp_path / "t.tsv", "a\tb, c\n1\tx, y\n")),
        pd.DataFrame({"a": [1], "b, c": ["x, y"]}),
    )
    with pytest.raises(InputError, match=r"line 2 has 3\. Quote values that contain '\\t'"):
        read_table(written(tmp_path / "t.tsv", "a\tb\n1\t2\t3\n"))


def test_broken_packages_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(TABLE.to_csv().encode() * 50)
    for content in (b"a,b\n1,2\n", whole[: len(whole) // 2], whole[:20] + b"\xff\xff\xff" + whole[23:], b""):
        path = tmp_path / "t.csv.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"t\.csv\.gz"):
            read_table(path)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    TABLE.to_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for read in (read_table, partial(read_words, names=["age"])):
        with pytest.raises(InputError, match=r"pip install 'pyro_fairvae\[parquet\]', or give"):
            read(path)


def test_broken_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    TABLE.to_parquet(path)
    whole = path.read_bytes()
    for content in (b"", b"a,b\n1,2\n", whole[: len(whole) // 2], whole[:-4] + b"PAR2"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"t\.parquet is not a table in Parquet, or is broken"):
            read_table(path)
    TABLE.iloc[:0].to_parquet(path)
    with pytest.raises(InputError, match="has no rows"):
        read_table(path)


def test_parquet_may_hold_what_lines_cannot(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "when": pd.to_datetime(["2020-01-01", None]),
            "kind": pd.Categorical(["x", "?"]),
            "whole": pd.array([1, None], dtype="Int64"),
            "list": [[1], [2, 3]],
        }
    )
    table.to_parquet(tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", ["?"])
    assert found["when"].tolist()[0] == pd.Timestamp("2020-01-01")
    assert found.isna().to_numpy().tolist() == [[False] * 4, [True, True, True, False]]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("t.cvs", r"'\.cvs'; expected one of .*Did you mean '\.csv'"),
        ("t.parqet", r"Did you mean '\.parquet'"),
        ("t.csv.gzip", r"'\.gzip'"),
        ("t.json.gz", r"'\.json\.gz'"),
        ("t", "unknown kind of table of .*t ''"),
    ],
)
def test_an_unknown_ending_names_the_nearest(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_table(written(tmp_path / name, "a\n1\n"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nothing\.csv"):
        read_table(tmp_path / "nothing.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match=r"there is no file .*folder\.csv"):
        read_table(tmp_path / "folder.csv")


def test_columns_are_taken_in_order_or_the_nearest_is_named() -> None:
    table = TABLE.assign(**{"7": 1}).rename(columns={"7": 7})
    same(take_columns(table, ["pay", "age"], "label"), TABLE[["pay", "age"]])
    assert take_columns(table, ["7"], "label").columns.tolist() == [7]
    with pytest.raises(InputError, match=r"unknown column for the label 'jobs'; .*Did you mean 'job'"):
        take_columns(table, ["jobs"], "label")


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz"])
def test_codes_such_as_01_and_1_stay_apart_among_labels_and_groups(tmp_path: Path, ending: str) -> None:
    lines = ["label,group,other", "01,1,01", "1,2,1", "NA,0.5,1", "1,0,1", ",-03,1"]
    content = "\n".join(lines).replace(",", "," if ending == ".csv" else "\t")
    path = written(tmp_path / f"codes{ending}", content + "\n")
    table = read_table(path, names=["label", "group", "nothing"])
    assert table["label"].fillna("gap").tolist() == ["01", "1", "gap", "1", "gap"]
    assert table["group"].tolist() == ["1", "2", "0.5", "0", "-03"]
    assert table["other"].tolist() == [1, 1, 1, 1, 1]
    plain = read_table(path, names=["other"])
    assert plain["group"].tolist() == [1, 2, 0.5, 0, -3]
    assert read_table(written(tmp_path / "plain.csv", "label\n0\n10\n0.5\n"), names=["label"])[
        "label"
    ].tolist() == [0, 10, 0.5]


def test_parquet_that_contradicts_its_own_metadata_is_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    TABLE.to_parquet(path)
    stored = parquet.read_table(path)
    about = json.loads(stored.schema.metadata[b"pandas"])
    for wrong in (b"{", b"[" * 3000, json.dumps(about | {"index_columns": 3}).encode()):
        parquet.write_table(stored.replace_schema_metadata({b"pandas": wrong}), path)
        with pytest.raises(InputError, match=r"^.* is not a table in Parquet, or is broken: .*$"):
            read_table(path)
    # Text that is not in UTF-8, which would be found out where it is used.
    bytes_as_text = arrow.Array.from_buffers(arrow.string(), 1, arrow.array([b"\xff"]).buffers())
    parquet.write_table(arrow.table({"a": bytes_as_text}), path)
    with pytest.raises(InputError, match="is not a table in Parquet, or is broken"):
        read_table(path)
