"""Tests over repeated splits against SciPy, known answers, and simulations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.studies.resplits import OVERLAP, half_width, holm, paired_test, pairs_needed, power


def test_holm_by_hand() -> None:
    """Of 4 tests the smallest counts four times, the next thrice, and none falls below one before it."""
    corrected = holm([0.04, 0.01, np.nan, 0.03, 0.012])
    np.testing.assert_allclose(corrected, [0.06, 0.04, np.nan, 0.06, 0.04])
    np.testing.assert_allclose(holm([0.6, 0.9]), [1.0, 1.0])


def test_paired_test_by_hand() -> None:
    """Differences 1, 2, 3 have t = 2 / (1 / √3) = 2√3 with two degrees of freedom: p = 1 − t / √(2 + t²)."""
    ours = pd.Series({0: 5.0, 1: 5.0, 2: 5.0, 7: 1.0})
    theirs = pd.Series({2: 2.0, 1: 3.0, 0: 4.0, 8: 9.0})
    found = paired_test(ours, theirs, overlap=0)
    t = 2 * np.sqrt(3)
    assert found[:4] == pytest.approx((2.0, 1 - t / np.sqrt(2 + t**2), 3, 1.0))
    assert found.p == pytest.approx(stats.ttest_rel([5, 5, 5], [4, 3, 2]).pvalue)


def test_paired_test_of_the_same_of_constants_and_of_one() -> None:
    values = pd.Series({0: 0.1, 1: 0.3, 2: 0.2})
    assert paired_test(values, values)[:3] == (0.0, 1.0, 3)
    assert paired_test(values + 0.5, values).p == 0.0
    one = paired_test(values[:1] + 0.5, values)
    assert one.difference == pytest.approx(0.5)
    assert np.isnan(one.p)
    assert one.pairs == 1


def test_half_width_is_scipys() -> None:
    values = [0.1, 0.4, 0.2, 0.3]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert half_width([*values, np.nan], overlap=0) == pytest.approx((high - low) / 2)
    assert np.isnan(half_width([0.1]))


def test_equal_methods_are_told_apart_in_at_most_one_panel_of_twenty() -> None:
    """Holm's correction keeps the chance of any false word among four comparisons with ours at 5 %."""
    rng = np.random.default_rng(0)
    panels = 200
    wrong = 0
    for _ in range(panels):
        split, *volumes = rng.normal(size=(6, 5))
        ours, *others = (pd.Series(split + own) for own in volumes)
        wrong += bool((holm([paired_test(ours, other, overlap=0).p for other in others]) < 0.05).any())
    assert wrong / panels < 0.05 + 3 * np.sqrt(0.05 * 0.95 / panels)


def test_the_correction_adds_the_overlap_to_the_variance() -> None:
    """J = 4 and ρ = 1/4: the variance of the mean is twice the usual one."""
    ours, theirs = pd.Series([0.3, 0.5, 0.2, 0.6]), pd.Series([0.1, 0.2, 0.15, 0.2])
    found = paired_test(ours, theirs, overlap=0.25)
    t = stats.ttest_rel(ours, theirs).statistic / np.sqrt(2)
    assert found.p == pytest.approx(2 * stats.t.sf(t, 3))
    assert found.half_width == pytest.approx(np.sqrt(2) * half_width(ours - theirs, overlap=0))
    assert found.half_width / found.difference == pytest.approx(stats.t.ppf(0.975, 3) / t)
    assert pytest.approx(2 / 7) == OVERLAP


def test_the_corrected_test_holds_its_level_where_splits_share_what_the_correction_says() -> None:
    """Differences of equal methods whose covariance between splits is ρ of 1 + ρ, as the correction has."""
    rng, splits, sets = np.random.default_rng(0), 5, 2000
    share = OVERLAP / (1 + OVERLAP)
    common, own = rng.normal(size=(sets, 1)), rng.normal(size=(sets, splits))
    differences = np.sqrt(share) * common + np.sqrt(1 - share) * own
    zero = pd.Series(np.zeros(splits))
    rejected = [
        np.mean([paired_test(pd.Series(row), zero, overlap).p < 0.05 for row in differences])
        for overlap in (0.0, OVERLAP)
    ]
    assert rejected[0] > 0.1
    assert rejected[1] < 0.05 + 3 * np.sqrt(0.05 * 0.95 / sets)


@pytest.mark.parametrize("pairs", [3, 8])
def test_power_is_that_of_simulated_tests(pairs: int) -> None:
    rng, sets = np.random.default_rng(1), 1500
    drawn = 0.8 + rng.normal(size=(sets, pairs))
    zero = pd.Series(np.zeros(pairs))
    found = np.mean([paired_test(pd.Series(row), zero, overlap=0).p < 0.05 for row in drawn])
    expected = power(0.8, 1.0, pairs, overlap=0)
    assert found == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / sets))


def test_the_pairs_that_are_needed_are_the_fewest() -> None:
    needed = pairs_needed(0.01, 0.01, overlap=0)
    assert needed == 10  # as tables of the paired t-test have it
    assert power(0.01, 0.01, needed, overlap=0) >= 0.8 > power(0.01, 0.01, needed - 1, overlap=0)
    corrected = pairs_needed(0.01, 0.005)
    assert corrected is not None
    assert power(0.01, 0.005, corrected) >= 0.8 > power(0.01, 0.005, corrected - 1)
    assert pairs_needed(0.01, 0.01) is None  # ρ s² alone is too much, however many splits
    assert pairs_needed(0.01, 0.0) == 2
    assert (
        pairs_needed(0.01, 0.005, level=0.005) is None or pairs_needed(0.01, 0.005, level=0.005) > corrected
    )
    with pytest.raises(InputError, match="at least 2 pairs"):
        power(0.01, 0.01, 1)
