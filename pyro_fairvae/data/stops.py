"""Stops and searches by the police (data.police.uk): who does not state their ethnicity, and who is arrested?

Here withholding is real. People state their ethnicity or do not, and the officer writes down what they see of
everybody. What is stated is ã; the officer's word is a yardstick, for tests alone, and not the truth.
"""

from __future__ import annotations

import io
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.data.dataset import Dataset
from pyro_fairvae.data.mapped_store import cache_home
from pyro_fairvae.data.tables import Table
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import Attributes

NAME = "stops"
PUBLISHER = "https://data.police.uk/data/"
FILE = re.compile(r"\d{4}-\d{2}-(?P<force>.+)-stop-and-search\.csv")
STATED, OFFICER, OUTCOME = "Self-defined ethnicity", "Officer-defined ethnicity", "Outcome"
PLACE = ("Latitude", "Longitude")
PUBLISHED = ("Type", "Part of a policing operation", "Gender", "Age range", "Legislation", "Object of search")
COLUMNS = (*PUBLISHED, "Date", *PLACE, STATED, OFFICER, OUTCOME)  # those that are used
GROUPS = Attributes.single(("Asian", "Black", "Other", "White"), "ethnicity")
# How the publisher's words for an ethnicity begin; the last one is that of files of before 2018.
BEGINNINGS = {
    "asian": "Asian", "black": "Black", "white": "White", "mixed": "Other", "other": "Other",
    "chinese or other": "Other",
}  # fmt: skip
CLASSES = {"arrest": ("no arrest", "arrest"), "action": ("no further action", "further action")}
WEEK = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MISSING = "missing"
TENTHS = 10  # of the stops, from south to north and from west to east, which make the cells of the map
# Times are in UTC. dateutil brings its own table of time zones, which not every system has.
LOCAL = "dateutil/Europe/London"


def read_stops(label: str, folder: str | Path | None = None) -> Table:
    """All stops in the publisher's files that have an outcome and both ethnicities, with ã as recorded.

    ``label`` is ``arrest``, or ``action`` for any further action. ``stated`` is the ethnicity that people
    state, ∅ where it is "not stated"; ``a`` is the group that the officer saw, which is also the proxy
    ``officer``. Features are categories, with a category of their own for gaps; a column with one value is
    left out. ``hour``, ``weekday`` and ``month`` are local time. ``place`` is a cell of the map: ``n3 e5``
    has the third tenth of the stops from the south and the fifth from the west. ``force`` is a feature where
    there are several. Neither outcome nor officer's word is a feature.
    """
    raw = raw_stops(folder).dropna(subset=[STATED, OFFICER, OUTCOME], ignore_index=True)
    raw = raw[_groups(raw[OFFICER]) < GROUPS.groups].reset_index(drop=True)
    require(len(raw) > 0, f"no stop in the files has an outcome, a {STATED} and an {OFFICER}.")
    officer = _groups(raw[OFFICER])
    time = pd.to_datetime(raw["Date"], utc=True, format="ISO8601").dt.tz_convert(LOCAL)
    start = time.dt.hour // 3 * 3
    features = {
        **{name: raw[name] for name in (*PUBLISHED, "force")},
        "hour": start.map("{:02.0f}".format, "ignore") + "-" + (start + 2).map("{:02.0f}".format, "ignore"),
        "weekday": time.dt.day_name(),
        "month": time.dt.strftime("%Y-%m"),
        "place": _cells(raw),
    }
    return Table(
        pd.DataFrame(index=raw.index),
        pd.DataFrame(
            {
                name: _category(column, WEEK if name == "weekday" else ())
                for name, column in features.items()
                if column.nunique(dropna=False) > 1
            }
        ),
        _classes(raw[OUTCOME], label),
        officer,
        CLASSES[label],
        GROUPS,
        stated=_groups(raw[STATED]),
        proxies=pd.DataFrame({"officer": pd.Categorical.from_codes(officer, list(GROUPS.group_names))}),
    )


def raw_stops(folder: str | Path | None = None) -> pd.DataFrame:
    """The used columns of all files as published, and ``force`` from their names; empty files are skipped."""
    tables, empty = [], []
    for where, force, content in _each_once(locate(folder)):
        table = _read_month(where, content)
        if len(table):
            tables.append(table.assign(force=force))
        else:
            empty.append(where)
    if empty:
        warnings.warn(f"files without any stop are skipped: {', '.join(empty)}.", stacklevel=2)
    require(len(tables) > 0, f"all files of stops are empty: {', '.join(empty)}; get them from {PUBLISHER}.")
    return pd.concat(tables, ignore_index=True)


def locate(folder: str | Path | None = None) -> Path:
    """The folder that holds files of stops: in itself, in subfolders of it, or in zip files.

    Looks in ``folder`` or ``$FAIRVAE_DATA`` (in a subfolder ``stops``, or in itself); then in the cache,
    unless ``folder`` was given.
    """
    given = folder or os.environ.get("FAIRVAE_DATA")
    places = [Path(given) / NAME, Path(given)] if given else []
    if not folder:
        places.append(cache_home() / NAME)
    for place in places:
        if any(True for _ in _files(place)):
            return place
    raise InputError(
        "no files of stops and searches were found."
        + "".join(f"\n  tried: {place}" for place in places)
        + f"\nThe publisher has them at {PUBLISHER}: choose forces, months and 'Include stop and search "
        "data'. Put the zip file, or what is in it (such as 2018-04-metropolitan-stop-and-search.csv), "
        f"into the subfolder {NAME} of a folder that you name with data_dir or in FAIRVAE_DATA.",
        "data_dir",
    )


def _files(folder: Path) -> Iterator[tuple[str, str, Path, str | None]]:
    """Name and place of each file of stops, the file or zip that holds it, and its name in the latter."""
    for pattern in ("*.csv", "*/*.csv"):
        for path in sorted(folder.glob(pattern)):
            if FILE.fullmatch(path.name):
                yield path.name, str(path), path, None
    for path in sorted(folder.glob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                inside = sorted(archive.namelist())
        except (OSError, zipfile.BadZipFile) as reason:
            raise InputError(
                f"cannot read the zip file {path}: {first_line(reason)}. Fetch it again."
            ) from reason
        for member in inside:
            if FILE.fullmatch(Path(member).name):
                yield Path(member).name, f"{path}/{member}", path, member


def _each_once(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Place, force and content of each file; one that is there several times must have one content."""
    seen: dict[str, tuple[str, bytes]] = {}
    for name, where, path, member in _files(folder):
        try:
            if member is None:
                content = path.read_bytes()
            else:
                with zipfile.ZipFile(path) as archive:
                    content = archive.read(member)
        except (OSError, zipfile.BadZipFile) as reason:
            raise InputError(f"cannot read {where}: {first_line(reason)}. Fetch it again.") from reason
        first, before = seen.setdefault(name, (where, content))
        require(
            before == content,
            f"{first} and {where} are different versions of the same month of a force; keep one of them.",
        )
        if first == where:
            found = FILE.fullmatch(name)
            assert found is not None
            yield where, found["force"], content


def _read_month(where: str, content: bytes) -> pd.DataFrame:
    """The used columns of a file, of which dates and places are checked; no rows if it is empty."""
    if not content.strip():
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        table = pd.read_csv(io.BytesIO(content), dtype=str, encoding="utf-8-sig")
    except ValueError as reason:
        raise InputError(
            f"{where} is not a CSV file: {first_line(reason)}. Fetch it again from {PUBLISHER}"
        ) from reason
    lacking = [name for name in COLUMNS if name not in table]
    require(
        not lacking,
        f"{where} is not in the publisher's format: it lacks the columns {', '.join(map(repr, lacking))}. "
        f"Fetch it again from {PUBLISHER}",
    )
    try:
        pd.to_datetime(table["Date"], utc=True, format="ISO8601")
        return table[list(COLUMNS)].astype(dict.fromkeys(PLACE, float))
    except ValueError as reason:
        raise InputError(
            f"{where} is not in the publisher's format: {first_line(reason)}. Expected dates such as "
            f"2018-04-01T09:30:00+00:00, and numbers in {' and '.join(PLACE)}."
        ) from reason


def _groups(column: pd.Series) -> Integers:
    """Codes of groups; the code of ∅ where the ethnicity is not stated."""

    def code(words: str) -> int:
        if "not stated" in words.lower():
            return GROUPS.groups
        for beginning, group in BEGINNINGS.items():
            if words.lower().startswith(beginning):
                return GROUPS.group_names.index(group)
        raise InputError(
            f"the column {column.name!r} has the value {words!r}, which belongs to no group; expected one "
            f"that begins with {', '.join(map(repr, BEGINNINGS))}, or that says 'not stated'."
        )

    codes = {words: code(words) for words in column.unique()}
    return column.map(codes).to_numpy(dtype=np.int64)


def _classes(outcome: pd.Series, label: str) -> Integers:
    """1 where the outcome is an arrest, or any action; the words for both changed over the years."""
    words = outcome.str.lower()
    if label == "arrest":
        return words.str.contains("arrest").to_numpy(dtype=np.int64)
    return (~(words.str.contains("no further action") | words.eq("false"))).to_numpy(dtype=np.int64)


def _cells(raw: pd.DataFrame) -> pd.Series:
    """The cell of the map of each stop, by tenths of the stops along each coordinate."""
    known = raw[list(PLACE)].notna().all(axis=1)
    names = pd.Series(index=raw.index, dtype=object)
    if known.any():
        north, east = (_tenths(raw.loc[known, name].to_numpy()) for name in PLACE)
        names[known] = [f"n{n} e{e}" for n, e in zip(north, east, strict=True)]
    return names


def _tenths(values: np.ndarray) -> Integers:
    """The number of each value's tenth, 1 to 10; bounds that coincide count once."""
    bounds = np.unique(np.quantile(values, np.arange(1, TENTHS) / TENTHS))
    return 1 + np.searchsorted(bounds, values)


def _category(column: pd.Series, order: Sequence[str] = ()) -> pd.Categorical:
    """Values in the given order or sorted, which puts months in the order of time; gaps are the last one."""
    values = order or sorted(column.dropna().unique())
    gap = [MISSING] if column.isna().any() else []
    return pd.Categorical(column.astype(object).fillna(MISSING), categories=[*values, *gap])


DATASET = Dataset(
    NAME,
    tuple(CLASSES),
    GROUPS.names,
    lambda label, group, side, folder: read_stops(label, folder),
    lambda group: GROUPS,
    lambda label: CLASSES[label],
    recorded=True,
    proxies=("officer",),
)
