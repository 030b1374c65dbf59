"""CSV files whose text a spreadsheet would run."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from pyro_fairvae.base.files import write_csv, write_frame
from pyro_fairvae.base.formulas import escaping_formulas

RUN = ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"]
SAFE = ["", "a=b", "'=1", "-5", "+5", "-1e-3", " =1", "Ŷ"]


@pytest.mark.parametrize("on", [True, False])
def test_formulas_are_escaped_where_this_is_asked_for_and_nothing_else_is_changed(
    on: bool, tmp_path: Path
) -> None:
    rows = [{"=id": text, "n": -1.5, "m": None} for text in [*RUN, *SAFE]]
    with escaping_formulas(on):
        write_csv(tmp_path / "rows.csv", rows)
        write_frame(tmp_path / "frame.csv", pd.DataFrame(rows))
    before = "'" if on else ""
    for name in ("rows.csv", "frame.csv"):
        with (tmp_path / name).open(newline="") as file:
            header, *lines = csv.reader(file)
        assert header == [f"{before}=id", "n", "m"]
        assert [line[0] for line in lines] == [before + text for text in RUN] + SAFE
        assert all(line[1:] == ["-1.5", ""] for line in lines)
