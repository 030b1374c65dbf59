"""Outcomes that are numbers: their unit, levels and bins."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.number_labels import code_outcome, numbers_of_label
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.schema.number_outcome import NumberOutcome


@pytest.mark.parametrize(
    "stated",
    [
        np.random.default_rng(0).normal(40, 12, 1000),
        np.random.default_rng(0).lognormal(size=300),
        np.concatenate([np.full(900, 40.0), np.arange(1, 81)]),  # heaped
        np.concatenate([np.zeros(950), np.linspace(0.01, 3, 50)]),
        np.arange(12.0),
        np.array([0.0, 0.0, 0.0, 1.0]),
    ],
)
def test_levels_and_bins_of_any_numbers(stated: np.ndarray) -> None:
    number = NumberOutcome.of(stated)
    codes = number.levels.code(stated)
    levels = len(number.levels.centres)
    assert 2 <= levels <= 16
    assert set(codes) == set(range(levels))  # none is empty
    np.testing.assert_allclose(number.levels.centres, [stated[codes == k].mean() for k in range(levels)])
    assert number.standardised(stated).mean() == pytest.approx(0, abs=1e-9)
    assert number.standardised(stated).std() == pytest.approx(1)
    np.testing.assert_allclose(number.restored(number.standardised(stated)), stated)
    assert (np.diff(number.bin_codes(np.sort(stated))) >= 0).all()
    assert (number.in_bins.sum(1) == 1).all()
    np.testing.assert_array_equal(number.in_bins.argmax(1)[codes], number.bin_codes(stated))


def test_bins_have_about_equally_many_people() -> None:
    stated = np.random.default_rng(0).normal(size=5000)
    counts = np.bincount(NumberOutcome.of(stated).bin_codes(stated))
    assert len(counts) == 5
    assert counts.min() > 600


def test_what_cannot_be_an_outcome_is_refused() -> None:
    levels = Levels((1.0,), (0.5, 2.0))
    with pytest.raises(InputError, match="a positive deviation"):
        NumberOutcome(0.0, 0.0, levels, (0, 1))
    for bins in ((0,), (1, 2), (0, 2)):
        with pytest.raises(InputError, match="neighbouring levels"):
            NumberOutcome(0.0, 1.0, levels, bins)


def test_numbers_with_gaps_are_coded() -> None:
    numbers = numbers_of_label([1, None, 2.5, np.nan, "3"][:4])
    np.testing.assert_array_equal(numbers, [1, np.nan, 2.5, np.nan])
    number = NumberOutcome(1.0, 2.0, Levels((2.0,), (1.0, 3.0)), (0, 1))
    codes, outcome = code_outcome(numbers, number)
    assert codes.tolist() == [0, 2, 1, 2]
    assert outcome.tolist() == [0.0, 0.0, 0.75, 0.0]
    assert np.isnan(numbers_of_label([None, None])).all()
    for wrong in ([True, "x"], ["1", "2"], [1 + 2j, 3.0]):
        with pytest.raises(InputError):
            numbers_of_label(wrong)
