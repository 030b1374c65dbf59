"""Age as a number of Adult: its levels, and withholding along its curve."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import Missingness, split
from pyro_fairvae.data.adult import DATASET
from pyro_fairvae.data.adult_age import age_attributes, withheld_at_age
from pyro_fairvae.data.missingness import LEVELS, hide
from pyro_fairvae.data.tables import Table
from pyro_fairvae.studies.config import DataConfig, suiting


def ages(rows: int = 30_000, most: int = 16) -> Table:
    """A table as the reader of Adult makes it, of drawn ages."""
    draw = np.random.default_rng(0)
    age = np.clip(draw.gamma(6, 6.5, size=rows).round(), 17, 90)
    attributes = age_attributes(most)
    assert attributes.levels is not None
    return Table(
        pd.DataFrame({"hours": draw.normal(size=rows)}), pd.DataFrame(index=range(rows)),
        draw.integers(2, size=rows), attributes.levels.code(age), ("<=50K", ">50K"), attributes, number=age,
    )  # fmt: skip


@pytest.mark.parametrize("level", list(LEVELS))
def test_the_old_withhold_more_and_smoothly(level: str) -> None:
    old, young = LEVELS[level]
    rates = withheld_at_age(level, np.arange(17.0, 91.0))
    assert bool((np.diff(rates) > 0).all())
    assert np.diff(rates).max() < (old - young) / 25
    assert rates[0] == pytest.approx(young, abs=0.03 * (old - young))
    assert rates[-1] == pytest.approx(old, abs=0.01 * (old - young))
    middle = withheld_at_age(level, np.array([45.0]))
    assert middle[0] == pytest.approx((old + young) / 2)


def test_values_are_hidden_by_age_and_not_by_level() -> None:
    config = DataConfig("adult", group="age", group_levels=4, level="medium")
    table = ages(most=4)
    parts = split(table, config.missingness(), 0)
    assert parts.train.group_attributes.levels == config.attributes.levels
    hidden = hide(parts.test, config.missingness(), 1).a_obs.numpy() == 4
    assert parts.test.number is not None
    for low, high in ((17, 25), (30, 35), (50, 55), (60, 90)):
        inside = (parts.test.number >= low) & (parts.test.number < high)
        rate = withheld_at_age("medium", parts.test.number[inside]).mean()
        error = np.sqrt(rate * (1 - rate) / inside.sum())
        assert abs(hidden[inside].mean() - rate) < 4 * error
    assert parts.truth is not None
    np.testing.assert_allclose(parts.truth.sum(1), 1)
    assert bool((np.diff(parts.truth[:, -1]) > 0).all())
    assert split(table, Missingness(channel=config.attributes.levels and tuple(
        tuple(row) for row in parts.truth.tolist())), 0).truth is None  # fmt: skip


def test_levels_are_other_levels_of_the_same_numbers() -> None:
    table, finer = ages(most=6), age_attributes(20)
    again = table.with_levels(finer)
    assert finer.levels is not None
    assert again.number is table.number
    np.testing.assert_array_equal(again.a, finer.levels.code(table.number))
    some = again.take(100, 3)
    np.testing.assert_array_equal(some.a, finer.levels.code(some.number))
    assert len(DATASET.attributes("age").group_names) <= 16


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"group": "gender", "group_levels": 8}, "is not; leave it out, or choose the group age"),
        ({"group": "age", "group_levels": 2}, "from 3 to 64, got 2"),
        ({"group": "age", "misstated": 0.1}, "misstated cannot be given for 'age', a number"),
        ({"group": "age", "alpha": 0.1, "truth": "flat"}, "alpha and truth cannot be given"),
    ],
)
def test_what_a_number_does_not_have_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        DataConfig("adult", **given)  # type: ignore[arg-type]


def test_options_that_suit_a_number() -> None:
    number = {"dataset": "adult", "group": "age"}
    assert suiting({"dataset": "adult", "group": "gender"}) == {}
    assert suiting(number)["risk"] == "mutual_information_given_label"
    assert suiting(number)["targets"][0] == 0.1
    assert suiting(number | {"risk": "deo"})["targets"][0] == 0.2
    weighed = suiting(number | {"lambdas": (0.0, 1.0)})
    assert weighed["risk_estimator"] == "expected"
    assert "targets" not in weighed
    assert "risk" not in suiting(number | {"risk": "deo", "targets": (0.1,)})
