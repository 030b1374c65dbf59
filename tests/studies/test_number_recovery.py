"""Tables of recovered curves, from estimates whose errors are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.data import split
from pyro_fairvae.report import draw_recovered
from pyro_fairvae.studies.config import DataConfig
from pyro_fairvae.studies.number_recovery import are_numbers, curves, error_lines, level_lines, with_people
from tests.data.test_adult_age import ages


def found() -> pd.DataFrame:
    """Two seeds of three levels; the second seed is .02 off everywhere, its bands hold two of three."""
    lines = []
    for seed, error in enumerate((0.0, 0.02)):
        for place, (truth, people) in enumerate(((0.4, 0.5), (0.5, 0.3), (0.7, 0.2))):
            half = 0.05 if place else 0.01
            mean = truth + error
            lines.append(
                {
                    "group": "age", "level": "sparse", "seed": seed, "channel": "a",
                    "given": f"level {place}", "says": "unavailable", "truth": truth, "mean": mean,
                    "q05": mean - half,
                    "q95": mean + half, "guide": truth + 0.1, "place": place, "centre": 20.0 + place,
                    "people": people,
                }
            )  # fmt: skip
    return pd.DataFrame(lines)


def test_errors_are_weighed_by_people_and_by_range() -> None:
    (titles, line) = error_lines(found())
    by_name = dict(zip(titles, line, strict=True))
    assert by_name["MAE by people"] == "0.0100"
    assert by_name["worst seed"] == "0.0200"
    assert by_name["guide's, by people"] == "0.1000"
    assert by_name["90 % bands that held the truth"] == "5 of 6 (83 %)"
    uneven = found()
    uneven.loc[5, "mean"] += 0.1  # of a fifth of the people
    assert error_lines(uneven)[1][2] == f"{(0.02 + 0.2 * 0.1) / 2:.4f}"
    assert error_lines(uneven)[1][4] == f"{(0.02 + 0.1 / 3) / 2:.4f}"
    first = level_lines(found())[1]
    assert first[:6] == ["age", "sparse", "level 0", "50.0", "0.400", "0.410"]
    assert first[9] == "1/2"


def test_lines_are_joined_with_people_of_the_test_part() -> None:
    data = DataConfig("adult", group="age", group_levels=4)
    parts = split(ages(2000, most=4), data.missingness(), 0)
    levels = data.attributes.levels
    assert levels is not None
    lines = with_people([{"channel": "a", "given": name} for name in levels.names], parts, data)
    assert sum(line["people"] for line in lines) == pytest.approx(1)
    assert [line["place"] for line in lines] == list(range(len(levels.names)))
    other = DataConfig("adult", group="gender")
    assert with_people([{"channel": "a", "given": "Male"}], parts, other) == [
        {"channel": "a", "given": "Male"}
    ]
    assert are_numbers("adult", pd.DataFrame({"group": ["age", "gender"]})).tolist() == [True, False]


def test_the_figure_shows_every_seed(tmp_path: Path) -> None:
    draw_recovered(tmp_path / "curves.svg", list(curves(found())))
    words = (tmp_path / "curves.svg").read_text()
    assert len(list(curves(found()))) == 1
    assert words.count("<path") > 10
    assert np.isfinite(found()["mean"]).all()
