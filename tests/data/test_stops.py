"""Stops and searches: the publisher's files, and tables whose withholding is recorded."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Missingness, Table, hide, load, split, split_complete, synthetic
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.observed import Columns
from tests.support.stop_files import APRIL, HEADER, IN_WORDS, MAY, NOT_STATED, write_stops

OLD_CHINESE = "Chinese or other ethnic group - Chinese (O1)"
NOTHING, NOTHING_BEFORE = "A no further action disposal", "Nothing found - no further action"
# Eight stops of which six can be used: one has no officer-defined ethnicity, one no self-defined.
LINES = [
    ("Person", "2018-03-31T23:00", "False", "51.1,0.1", "Male,18-24", IN_WORDS["Asian"], "Asian", "Arrest"),
    ("Person", "2018-04-02T04:59", "False", "51.2,0.2", ",", NOT_STATED, "Black", "Caution"),
    ("Vehicle", "2018-04-01T12:00", "True", ",", "Male,18-24", IN_WORDS["Other"], "Other", NOTHING),
    (
        "Person",
        "2018-12-01T12:00",
        "",
        "51.4,0.1",
        "Male,18-24",
        "Not Stated (NS)",
        "White",
        "Suspect arrested",
    ),
    ("Person", "2018-12-01T23:30", "False", "51.4,0.4", "Male,18-24", "White - Irish", "Other", "False"),
    ("Person", "2018-12-01T12:00", "False", "51.4,0.1", "Male,18-24", "White - Irish", "", "Arrest"),
    ("Person", "2018-12-01T12:00", "False", "51.4,0.1", "Male,18-24", "", "White", "Arrest"),
    ("Person", "2018-12-01T12:00", "False", "51.5,0.1", "Male,18-24", OLD_CHINESE, "Mixed", NOTHING_BEFORE),
]
BY_HAND = HEADER + "".join(
    f"{kind} search,{time}:00+00:00,{part},,{place},{person},{stated},{officer},"
    f"Misuse of Drugs Act 1971 (section 23),Controlled drugs,{outcome},,\n"
    for kind, time, part, place, person, stated, officer, outcome in LINES
)


def stops(folder: Path | None, label: str | None = None) -> tuple[Table, Integers, pd.Series]:
    """The table, what people stated, and the officers' word."""
    table = load("stops", None, folder, label)
    assert isinstance(table, Table)
    assert table.stated is not None
    assert table.proxies is not None
    return table, table.stated, table.proxies["officer"]


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    (tmp_path / "stops").mkdir()
    (tmp_path / "stops" / APRIL).write_text(BY_HAND)
    return tmp_path


def test_every_column_is_as_computed_by_hand(by_hand: Path) -> None:
    table, stated, officer = stops(by_hand)
    assert table.groups == ("Asian", "Black", "Other", "White")
    assert stated.tolist() == [0, 4, 2, 4, 3, 2]
    assert table.a.tolist() == [0, 1, 2, 3, 2, 2]
    assert officer.tolist() == ["Asian", "Black", "Other", "White", "Other", "Other"]
    assert (table.classes, table.y.tolist()) == (("no arrest", "arrest"), [1, 0, 0, 1, 0, 0])
    action, _, _ = stops(by_hand, "action")
    assert (action.classes[1], action.y.tolist()) == ("further action", [1, 1, 0, 1, 0, 0])
    found = {name: column.tolist() for name, column in table.categories.items()}
    assert found == {  # legislation and object have one value
        "Type": [*["Person search"] * 2, "Vehicle search", *["Person search"] * 3],
        "Part of a policing operation": ["False", "False", "True", "missing", "False", "False"],
        "Gender": ["Male", "missing", *["Male"] * 4],
        "Age range": ["18-24", "missing", *["18-24"] * 4],
        # In summer local time is an hour ahead.
        "hour": ["00-02", "03-05", "12-14", "12-14", "21-23", "12-14"],
        "weekday": ["Sunday", "Monday", "Sunday", *["Saturday"] * 3],
        "month": ["2018-04"] * 3 + ["2018-12"] * 3,
        "place": found["place"],
    }
    assert table.numbers.shape == (6, 0)
    assert table.categories["place"].tolist()[2] == "missing"


def test_cells_of_the_map_are_tenths_of_the_stops(tmp_path: Path) -> None:
    published = write_stops(tmp_path, rows=400)
    place = load("stops", folder=tmp_path).categories["place"].astype(object).to_numpy()
    known = published["Latitude"].notna()
    assert (place[~known] == "missing").all()
    placed = published[known]
    north, east = (pd.qcut(placed[name], 10, labels=False) + 1 for name in ("Latitude", "Longitude"))
    assert list(place[known]) == [f"n{n} e{e}" for n, e in zip(north, east, strict=True)]


def test_months_are_in_the_order_of_time_and_days_in_that_of_the_week(tmp_path: Path) -> None:
    write_stops(tmp_path)
    table = load("stops", folder=tmp_path)
    assert list(table.categories["month"].cat.categories) == ["2018-04", "2018-05"]
    assert list(table.categories["weekday"].cat.categories)[::6] == ["Monday", "Sunday"]
    assert list(table.categories["Age range"].cat.categories) == ["18-24", "over 34", "missing"]
    assert "force" not in table.categories


def _same(one: Table, other: Table) -> bool:
    return (
        one.categories.equals(other.categories)
        and np.array_equal(one.y, other.y)
        and np.array_equal(one.a, other.a)
        and np.array_equal(np.asarray(one.stated), np.asarray(other.stated))
    )


def test_files_may_lie_in_folders_and_in_zip_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stops(tmp_path / "flat")
    flat = load("stops", folder=tmp_path / "flat")
    monthly, zipped, twice = tmp_path / "monthly", tmp_path / "zipped" / "stops", tmp_path / "twice"
    for folder in (zipped, twice):
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "download.zip", "w") as archive:
            for name in (APRIL, MAY):
                archive.write(tmp_path / "flat" / name, f"{name[:7]}/{name}")
            archive.writestr("2018-04/2018-04-somewhere-street.csv", "Crime ID\n")
    for name in (APRIL, MAY):
        (monthly / name[:7]).mkdir(parents=True)
        (monthly / name[:7] / name).write_bytes((tmp_path / "flat" / name).read_bytes())
    (twice / MAY).write_bytes((tmp_path / "flat" / MAY).read_bytes())
    for folder in (monthly, tmp_path / "zipped", zipped):
        assert _same(load("stops", folder=folder), flat)
    assert load("stops", folder=twice).rows == flat.rows  # a file that is there twice is read once
    monkeypatch.setenv("FAIRVAE_DATA", str(tmp_path / "zipped"))
    assert _same(load("stops"), flat)
    monkeypatch.delenv("FAIRVAE_DATA")
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "zipped"))
    assert _same(load("stops"), flat)


def test_several_forces_are_told_apart(tmp_path: Path) -> None:
    published = write_stops(tmp_path)
    (tmp_path / "2018-05-some-where-else-stop-and-search.csv").write_bytes((tmp_path / MAY).read_bytes())
    force = load("stops", folder=tmp_path).categories["force"].value_counts()
    may = published["Date"].str.startswith("2018-05").sum()
    assert force.to_dict() == {"somewhere": len(published), "some-where-else": may}


def test_empty_files_are_skipped_with_a_message(by_hand: Path) -> None:
    (by_hand / "stops" / MAY).write_text("")
    (by_hand / "stops" / "2018-06-somewhere-stop-and-search.csv").write_text(HEADER)
    with pytest.warns(UserWarning, match=r"skipped: .*2018-05-.*, .*2018-06-"):
        assert load("stops", folder=by_hand).rows == 6
    (by_hand / "stops" / APRIL).write_text(HEADER)
    with pytest.warns(UserWarning, match="skipped"), pytest.raises(InputError, match=r"all files .* empty"):
        load("stops", folder=by_hand)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (BY_HAND.replace("Gender,", "Sex,").replace("Outcome,", "Result,"), "lacks .* 'Gender', 'Outcome'"),
        (BY_HAND.replace("2018-04-02T04:59:00+00:00", "yesterday"), "publisher's format: .*yesterday"),
        (BY_HAND.replace("51.2", "north"), "publisher's format: .*north"),
        (BY_HAND.replace("White - Irish", "Irish"), "has the value 'Irish', which belongs to no group"),
        ("a,b\n1,2,3,4\n1,2,3,4,5,6\n", "is not a CSV file"),
        (HEADER + BY_HAND.splitlines()[6] + "\n", "no stop in the files has an outcome"),
    ],
)
def test_other_files_are_refused(by_hand: Path, content: str, words: str) -> None:
    (by_hand / "stops" / APRIL).write_text(content)
    with pytest.raises(InputError, match=words):
        load("stops", folder=by_hand)


def test_versions_of_a_month_and_broken_zip_files_are_refused(by_hand: Path) -> None:
    with zipfile.ZipFile(by_hand / "stops" / "newer.zip", "w") as archive:
        archive.writestr(APRIL, BY_HAND.replace("Caution", "Arrest"))
    with pytest.raises(InputError, match=r"are different versions of the same month .* keep one"):
        load("stops", folder=by_hand)
    (by_hand / "stops" / "newer.zip").write_bytes(b"PK not a zip file")
    with pytest.raises(InputError, match=r"cannot read the zip file .*newer\.zip"):
        load("stops", folder=by_hand)


def test_absent_files_are_said_to_be_at_the_publishers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)tried: .*https://data\.police\.uk/data/.*subfolder stops"):
        load("stops", folder=tmp_path)


def test_what_is_recorded_is_what_training_sees(tmp_path: Path) -> None:
    write_stops(tmp_path, rows=400)
    table, stated, _ = stops(tmp_path)
    parts = split(table, Missingness(label_unavailable=(0.0, 0.0)), seed=3, proxies=["officer"])
    whole = split_complete(table, seed=3)
    # Rows carry their own number in the place of the label, which shows where each went.
    numbered = replace(table, y=np.arange(400))
    order = {name: part.y for name, part in split_complete(numbered, seed=3).items()}
    for name, part in (("train", parts.train), ("validation", parts.validation)):
        assert part.a_obs.tolist() == stated[order[name]].tolist()
        assert part.y_obs.tolist() == table.y[order[name]].tolist()
        assert part.u is not None
        assert part.u_columns == Columns(0, (4,), ("officer",), (("Asian", "Black", "Other", "White"),))
        assert np.array_equal(part.u.numpy(), np.eye(4)[table.a[order[name]]])
        assert np.array_equal(part.x.numpy(), whole[name].x)  # a proxy is no feature
    assert parts.test.a.tolist() == table.a[order["test"]].tolist()
    assert parts.yardstick is not None
    counted = pd.crosstab(table.a[order["train"]], stated[order["train"]], normalize="index")
    assert parts.yardstick[:, list(counted)] == pytest.approx(counted.to_numpy())
    assert split(table, Missingness(), seed=3).train.u is None
    hidden = hide(whole["train"], Missingness(label_unavailable=(1.0, 0.0)), seed=0)
    assert hidden.y_obs.tolist() == [2 if y == 0 else 1 for y in table.y[order["train"]]]


def test_rows_that_are_drawn_keep_what_was_recorded(tmp_path: Path) -> None:
    write_stops(tmp_path)
    table, stated, officer = stops(tmp_path)
    some, rows = table.take(50, seed=1), table.drawn(50, seed=1)
    assert some.a.tolist() == table.a[rows].tolist()
    assert some.stated is not None
    assert some.stated.tolist() == stated[rows].tolist()
    assert some.proxies is not None
    assert some.proxies["officer"].tolist() == officer.iloc[rows].tolist()


def test_proxies_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    write_stops(tmp_path)
    with pytest.raises(InputError, match=r"unknown proxy 'offcer'.*Did you mean 'officer'"):
        split(load("stops", folder=tmp_path), Missingness(), 0, ["offcer"])
    with pytest.raises(InputError, match="this table has none"):
        split(synthetic(rows=100), Missingness(), 0, ["officer"])


def test_the_metropolitan_polices_stops_are_as_published() -> None:
    """Counts of April 2018 to February 2019, and P(∅ | officer-defined group), found with pandas alone."""
    try:
        table, stated, _ = stops(None)
    except InputError as reason:
        pytest.skip(f"the publisher's files are not to be had here: {reason}")
    early = (table.categories["month"].astype(str) <= "2019-02").to_numpy()
    if not early.any() or "force" in table.categories or min(table.categories["month"]) != "2018-04":
        pytest.skip("the files here are of other forces or months")
    withheld, officer = stated[early] == 4, table.a[early]
    assert early.sum() == 149_285
    assert withheld.mean() == pytest.approx(0.163, abs=5e-4)
    assert table.y[early].mean() == pytest.approx(0.152, abs=5e-4)
    by_officer = [withheld[officer == group].mean() for group in range(4)]
    assert by_officer == pytest.approx([0.146, 0.200, 0.313, 0.111], abs=6e-4)
