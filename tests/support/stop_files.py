"""Small files of stops and searches, in the publisher's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

APRIL, MAY = (f"2018-{month}-somewhere-stop-and-search.csv" for month in ("04", "05"))
HEADER = (
    "Type,Date,Part of a policing operation,Policing operation,Latitude,Longitude,Gender,Age range,"
    "Self-defined ethnicity,Officer-defined ethnicity,Legislation,Object of search,Outcome,"
    "Outcome linked to object of search,Removal of more than just outer clothing\n"
)
IN_WORDS = {
    "Asian": "Asian/Asian British - Indian",
    "Black": "Black/African/Caribbean/Black British - African",
    "Other": "Mixed/Multiple ethnic groups - White and Asian",
    "White": "White - Irish",
}
NOT_STATED = "Other ethnic group - Not stated"


def write_stops(folder: Path, rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Write two months of stops at random, and give them as one table, in the order of the files."""
    draw = np.random.default_rng(seed)
    officer = draw.choice(list(IN_WORDS), rows)
    stated = np.where(draw.random(rows) < 0.2 + 0.3 * (officer == "Black"), None, officer)
    month = np.sort(draw.integers(4, 6, rows))
    days, hours = draw.integers(2, 28, rows), draw.integers(0, 24, rows)
    table = pd.DataFrame(
        {
            "Type": draw.choice(["Person search", "Vehicle search"], rows),
            "Date": [
                f"2018-{m:02}-{d:02}T{h:02}:15:00+00:00" for m, d, h in zip(month, days, hours, strict=True)
            ],
            "Part of a policing operation": False,
            "Policing operation": np.nan,
            "Latitude": np.where(draw.random(rows) < 0.1, np.nan, 51 + draw.random(rows).round(4)),
            "Longitude": (officer == "White") * 0.5 + draw.random(rows).round(4),
            "Gender": draw.choice(["Male", "Female"], rows),
            "Age range": draw.choice(["18-24", "over 34", None], rows),
            "Self-defined ethnicity": [NOT_STATED if s is None else IN_WORDS[s] for s in stated],
            "Officer-defined ethnicity": officer,
            "Legislation": "Misuse of Drugs Act 1971 (section 23)",
            "Object of search": draw.choice(["Controlled drugs", "Firearms"], rows),
            "Outcome": draw.choice(["Arrest", "Community resolution", "A no further action disposal"], rows),
            "Outcome linked to object of search": np.nan,
            "Removal of more than just outer clothing": np.nan,
        }
    )
    assert ",".join(table) + "\n" == HEADER
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in ((4, APRIL), (5, MAY)):
        table[month == number].to_csv(folder / name, index=False)
    return table
