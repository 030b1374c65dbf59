"""Intervals of a largest difference and worst-case bounds, against closed forms, scipy and simulation."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import optimize, stats

from pyro_fairvae.auditing import intervals
from pyro_fairvae.auditing.bounds import worst_case
from pyro_fairvae.auditing.control_variates import left_out
from pyro_fairvae.auditing.intervals import largest_interval
from pyro_fairvae.auditing.projections import RateErrors

Z = stats.norm.ppf(0.95)


def against_0(sizes: list[float]) -> np.ndarray:
    """Differences of their own: of each class two groups, of which one has the rate 0."""
    return np.stack([np.array(sizes), np.zeros(len(sizes))], axis=1)


def covariance_of(deviations: np.ndarray) -> np.ndarray:
    """Of independent rates."""
    return np.diag(deviations.ravel() ** 2)


def missed(rates: np.ndarray, deviations: np.ndarray, tables: int) -> tuple[float, float]:
    """How often a 90 % interval lies above and below the largest difference of ``rates``."""
    truth, covariance = np.ptp(rates, axis=1).max(), covariance_of(deviations)
    noise = np.random.default_rng(0).standard_normal((tables, *rates.shape))
    found = np.array([largest_interval(rates + deviations * n, covariance, 0.9) for n in noise])
    return float((found[:, 0] > truth).mean()), float((found[:, 1] < truth).mean())


@pytest.mark.parametrize("level", [0.8, 0.9, 0.99])
def test_a_difference_far_from_0_has_its_normal_interval(level: float) -> None:
    deviation = 0.03
    half = stats.norm.ppf((1 + level) / 2) * deviation
    low, high = largest_interval(against_0([0.4]), covariance_of(against_0([deviation])), level)
    assert low == pytest.approx(0.4 - half, abs=0.12 * deviation)  # simulated
    assert high == pytest.approx(0.4 + half, abs=1e-4)


def test_a_difference_that_stands_out_is_not_widened_by_the_others() -> None:
    low, high = largest_interval(
        against_0([0.6, 0.02, 0.01]), covariance_of(against_0([0.02, 0.02, 0.02])), 0.9
    )
    assert (low, high) == pytest.approx((0.6 - Z * 0.02, 0.6 + Z * 0.02), abs=0.0025)


@pytest.mark.parametrize("estimate", [0.0, 1e-12, 1e-4, 0.01])
def test_an_estimate_near_0_from_few_rows_is_not_certain(estimate: float) -> None:
    low, high = largest_interval(against_0([estimate] * 2), covariance_of(against_0([0.1, 0.1])), 0.9)
    assert low == 0
    assert estimate + stats.norm.ppf(0.9) * 0.1 - 1e-4 < high < estimate + Z * 0.1


def test_the_interval_of_one_difference_holds_as_often_as_it_says() -> None:
    """Over all estimates of it, weighed by their density; near 0 and far from it, and neither too often."""
    estimates, step = np.linspace(-4.5, 7.5, 121, retstep=True)
    deviation = 0.05
    covariance = covariance_of(against_0([deviation]))
    found = [largest_interval(against_0([d * deviation]), covariance, 0.9) for d in estimates]
    low, high = np.array(found).T / deviation
    for truth in (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0):
        held = (low <= truth) & (truth <= high)
        assert (stats.norm.pdf(estimates, truth)[held] * step).sum() == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("groups", [2, 3])
def test_an_interval_holds_its_estimate_within_0_and_1(groups: int) -> None:
    generator = np.random.default_rng(1)
    for _ in range(25):
        root = generator.normal(size=(groups, groups)) * generator.choice([0.01, 0.1, 0.5])
        rates = generator.random((1, groups))
        low, high = largest_interval(rates, root @ root.T, 0.9)
        assert 0 <= low <= np.ptp(rates) <= high <= 1


def test_without_variance_there_is_no_width() -> None:
    assert largest_interval(against_0([0.2]), np.zeros((2, 2)), 0.9) == (0.2, 0.2)


def test_groups_and_classes_without_rates_are_left_out() -> None:
    rates = np.array([[0.3, np.nan, 0.6, 0.5], [np.nan, 0.9, np.nan, np.nan]])
    root = np.random.default_rng(3).normal(size=(8, 8)) * 0.02
    covariance = root @ root.T
    alone = largest_interval(rates[:1, [0, 2, 3]], covariance[np.ix_([0, 2, 3], [0, 2, 3])], 0.9)
    assert largest_interval(rates, covariance, 0.9) == alone


@pytest.mark.parametrize(
    "sizes",
    [
        against_0([0.0]),
        against_0([0.0, 0.0]),
        against_0([3.0, 3.0]),
        against_0([2.0, 0.0, 0.0, 0.0]),
        against_0([2.0] + 15 * [0.0]),
        np.zeros((1, 3)),
        np.array([[3.0, 0.0, 0.0]]),
        np.zeros((1, 20)),
        np.array([[4.0] * 3 + [0.0] * 17]),
        np.array([[4.0] * 10 + [0.0] * 10]),
    ],
    ids=["zero", "two zero", "two equal", "one of 4", "one of 16", "3 groups alike", "1 of 3 groups",
         "20 groups alike", "3 of 20 groups", "10 of 20 groups"],
)  # fmt: skip
def test_intervals_hold_where_differences_tie(sizes: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "SIMULATED", 500)
    deviation, tables = 0.04, 100
    known_0 = (sizes.shape[1] == 2) & (np.arange(sizes.shape[1]) == 1)
    above, below = missed(deviation * sizes, np.where(known_0, 0, np.full(sizes.shape, deviation)), tables)
    assert above + below < stats.binom.ppf(0.999, tables, 0.1) / tables


def test_a_difference_that_is_badly_known_does_not_make_the_interval_too_careful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two equally large ones, one is known so badly that no estimates could lie far below: all of the 10 %
    of errors are those of lying above."""
    monkeypatch.setattr(intervals, "SIMULATED", 500)
    tables = 300
    above, below = missed(against_0([0.06, 0.06]), against_0([0.08, 0.012]), tables)
    assert below == 0
    assert stats.binom.ppf(0.1, tables, 0.1) <= tables * above <= stats.binom.ppf(0.999, tables, 0.1)


def polytope(classes: int, groups: int, seed: int) -> tuple[RateErrors, np.ndarray, np.ndarray]:
    """Correlated rates of all groups in all classes, and all pairs of them that are compared, as matrix."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(classes * groups, classes * (groups - 1)))
    blocks = [slice(c * groups, (c + 1) * groups) for c in range(classes)]
    every = np.eye(classes * groups)
    pairs = [every[a] - every[b] for block in blocks for a, b in permutations(range(*block.indices(99)), 2)]
    return RateErrors(generator.normal(size=classes * groups), root, blocks), np.array(pairs), root


@pytest.mark.parametrize(("classes", "groups"), [(1, 2), (2, 3), (3, 4), (1, 9)])
def test_projections_are_those_of_a_quadratic_program_over_pairs(classes: int, groups: int) -> None:
    errors, pairs, _ = polytope(classes, groups, seed=groups)
    n = 2 * np.random.default_rng(2).normal(size=(10, errors.root.shape[1]))
    faces = pairs @ errors.root
    for c in (0.0, 0.1, 1.0, 3.0):
        points = errors.points(n, np.zeros((10, classes * groups)), c)
        for step in range(100):
            errors.refine(points, np.flatnonzero(points.unknown), c, step)
        found = n - points.multipliers @ errors.root
        for point, projected, low, high in zip(n, found, points.low, points.high, strict=True):
            # The dual: the multipliers λ ≥ 0 of min ½|Fᵀλ|² − λ(Fn − b), as a problem of least squares.
            gram = faces @ faces.T + 1e-10 * np.eye(len(faces))
            root = np.linalg.cholesky(gram)
            outside = faces @ point - (c - pairs @ errors.rates)
            multipliers, _ = optimize.nnls(root.T, np.linalg.solve(root, outside))
            away = faces.T @ multipliers
            assert projected == pytest.approx(point - away, abs=3e-3)
            assert low == pytest.approx(np.square(away).sum(), rel=1e-4, abs=1e-6)
            assert high == pytest.approx(low, rel=1e-6, abs=1e-9)


def test_bounds_of_distances_hold_after_each_step() -> None:
    errors, _, _ = polytope(2, 6, seed=0)
    n = 2 * np.random.default_rng(1).normal(size=(50, errors.root.shape[1]))
    points = errors.points(n, np.zeros((50, 12)), 1.0)
    bounds = []
    for step in range(200):
        errors.refine(points, np.arange(50), 1.0, step)
        bounds.append((points.low.copy(), points.high.copy()))
    assert not points.unknown.any()
    for low, high in bounds:
        assert (low <= points.high + 1e-9).all()
        assert (high >= points.low - 1e-9).all()


def test_a_point_inside_stays() -> None:
    errors, pairs, _ = polytope(2, 3, seed=1)
    point, distance = errors.nearest(float((pairs @ errors.rates).max()) + 0.1, np.zeros((1, 6)))
    assert (np.abs(point).max(), distance) == (0, 0)


def test_the_nearest_rates_without_a_difference_are_those_of_least_squares() -> None:
    """χ² of equal rates, from the covariance of differences to the first group."""
    errors, _, root = polytope(1, 5, seed=2)
    contrasts = np.eye(5)[1:] - np.eye(5)[0]
    differences = contrasts @ errors.rates
    statistic = differences @ np.linalg.solve(contrasts @ root @ root.T @ contrasts.T, differences)
    point, distance = errors.nearest(0.0, np.zeros((1, 5)))
    assert (np.square(point).sum(), distance) == pytest.approx((statistic, statistic))


def test_many_differences_are_tested_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pairs or rates are decomposed only changes which errors are simulated."""
    rates = np.random.default_rng(4).uniform(0.3, 0.7, size=(2, 5))
    root = np.random.default_rng(5).normal(size=(10, 10)) * 0.02
    pairs = largest_interval(rates, root @ root.T, 0.9)
    monkeypatch.setattr(intervals, "FEW", 0)
    assert largest_interval(rates, root @ root.T, 0.9) == pytest.approx(pairs, abs=0.01)
    assert largest_interval(rates, root @ root.T, 0.9)[1] == pairs[1]


def allocations(people: int, groups: int) -> list[np.ndarray]:
    """All ways to share people out among groups."""
    bars = combinations(range(people + groups - 1), groups - 1)
    return [np.diff([-1, *each, people + groups - 1]) - 1 for each in bars]


def enumerate_bounds(hits: np.ndarray, misses: np.ndarray, withheld: tuple[int, int]) -> tuple[float, float]:
    found = []
    for more_hits in allocations(withheld[0], len(hits)):
        for more_misses in allocations(withheld[1], len(hits)):
            h, m = hits + more_hits, misses + more_misses
            rates = (h / np.maximum(h + m, 1))[h + m > 0]
            if len(rates) > 1:
                found.append(rates.max() - rates.min())
    return min(found), max(found)


@pytest.mark.parametrize("groups", [2, 3])
def test_bounds_are_those_of_all_allocations(groups: int) -> None:
    """The upper bound exactly; the lower holds, and two groups that cannot change places meet it."""
    generator = np.random.default_rng(groups)
    for _ in range(25):
        hits, misses = generator.integers(1, 9, size=(2, groups))
        withheld = tuple(generator.integers(4, size=2))
        low, high = worst_case(hits, misses, withheld)
        least, largest = enumerate_bounds(hits, misses, withheld)
        assert high == pytest.approx(largest)
        assert low <= least + 1e-12
        if groups == 2 and low > 0:
            assert low == pytest.approx(least)


def test_bounds_of_a_group_that_nobody_states() -> None:
    hits, misses = np.array([6, 0]), np.array([2, 0])
    assert worst_case(hits, misses, (2, 3)) == pytest.approx((0, enumerate_bounds(hits, misses, (2, 3))[1]))
    assert np.isnan(worst_case(hits, misses, (0, 0))).all()  # nor withholds: nothing to compare


def test_without_withheld_rows_bounds_are_the_difference() -> None:
    assert worst_case(np.array([3, 1, 4]), np.array([1, 3, 4]), (0, 0)) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 10, 30, 100])
def test_rates_of_few_rows_have_intervals_that_hold(rows: int) -> None:
    """Summed over the binomial distribution. A normal interval would hold in no case for one row."""
    hits = np.arange(rows + 1)
    rate = hits / rows
    variance = rate * (1 - rate) / rows + [left_out(int(h), rows) for h in hits]
    for truth in np.linspace(0.05, 0.95, 19):
        held = np.abs(rate - truth) <= Z * np.sqrt(variance)
        assert stats.binom.pmf(hits, rows, truth)[held].sum() > 0.74
