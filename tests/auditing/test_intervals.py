"""Intervals of a largest difference and worst-case bounds, against closed forms, scipy and simulation."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import optimize, stats

from pyro_fairvae.auditing import intervals
from pyro_fairvae.auditing.bounds import worst_case
from pyro_fairvae.auditing.control_variates import _left_out
from pyro_fairvae.auditing.intervals import largest_interval, project_onto_faces

Z = stats.norm.ppf(0.95)


def both_ways(differences: int) -> np.ndarray:
    """Differences of their own, and their opposites."""
    return np.concatenate([np.eye(differences), -np.eye(differences)])


def pairs(groups: int) -> np.ndarray:
    """All differences between groups, (pairs, groups)."""
    return np.array([np.eye(groups)[a] - np.eye(groups)[b] for a, b in product(range(groups), repeat=2)])


def missed(matrix: np.ndarray, rates: np.ndarray, deviation: np.ndarray, tables: int) -> tuple[float, float]:
    """How often a 90 % interval lies above and below the largest of ``matrix @ rates``."""
    truth, covariance = (matrix @ rates).max(), matrix @ np.diag(deviation**2) @ matrix.T
    noise = np.random.default_rng(0).standard_normal((tables, len(rates)))
    found = np.array([largest_interval(matrix @ (rates + deviation * n), covariance, 0.9) for n in noise])
    return float((found[:, 0] > truth).mean()), float((found[:, 1] < truth).mean())


@pytest.mark.parametrize("level", [0.8, 0.9, 0.99])
def test_a_difference_far_from_0_has_its_normal_interval(level: float) -> None:
    deviation = 0.03
    covariance = deviation**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    half = stats.norm.ppf((1 + level) / 2) * deviation
    low, high = largest_interval(np.array([-0.4, 0.4]), covariance, level)
    assert low == pytest.approx(0.4 - half, abs=0.12 * deviation)  # simulated
    assert high == pytest.approx(0.4 + half, abs=1e-4)


def test_a_difference_that_stands_out_is_not_widened_by_the_others() -> None:
    low, high = largest_interval(
        both_ways(3) @ np.array([0.6, 0.02, 0.01]), both_ways(3) @ both_ways(3).T * 4e-4, 0.9
    )
    assert (low, high) == pytest.approx((0.6 - Z * 0.02, 0.6 + Z * 0.02), abs=0.0025)


@pytest.mark.parametrize("estimate", [0.0, 1e-12, 1e-4, 0.01])
def test_an_estimate_near_0_from_few_rows_is_not_certain(estimate: float) -> None:
    covariance = 0.1**2 * both_ways(2) @ both_ways(2).T
    low, high = largest_interval(both_ways(2) @ np.full(2, estimate), covariance, 0.9)
    assert low == 0
    assert estimate + stats.norm.ppf(0.9) * 0.1 - 1e-4 < high < estimate + Z * 0.1


def test_the_interval_of_one_difference_holds_as_often_as_it_says() -> None:
    """Over all estimates of it, weighed by their density; near 0 and far from it, and neither too often."""
    estimates, step = np.linspace(-4.5, 7.5, 121, retstep=True)
    deviation = 0.05
    covariance = deviation**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    found = [largest_interval(np.array([d, -d]) * deviation, covariance, 0.9) for d in estimates]
    low, high = np.array(found).T / deviation
    for truth in (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0):
        held = (low <= truth) & (truth <= high)
        assert (stats.norm.pdf(estimates, truth)[held] * step).sum() == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("groups", [2, 3])
def test_an_interval_holds_its_estimate_within_0_and_1(groups: int) -> None:
    generator = np.random.default_rng(1)
    matrix = pairs(groups)
    for _ in range(25):
        root = generator.normal(size=(groups, groups)) * generator.choice([0.01, 0.1, 0.5])
        differences = matrix @ generator.random(groups)
        low, high = largest_interval(differences, matrix @ root @ root.T @ matrix.T, 0.9)
        assert 0 <= low <= differences.max() <= high <= 1


def test_without_variance_there_is_no_width() -> None:
    assert largest_interval(np.array([0.2, -0.2]), np.zeros((2, 2)), 0.9) == (0.2, 0.2)


@pytest.mark.parametrize(
    ("matrix", "rates"),
    [
        (both_ways(1), [0.0]),
        (both_ways(2), [0.0, 0.0]),
        (both_ways(2), [3.0, 3.0]),
        (both_ways(4), [2.0, 0.0, 0.0, 0.0]),
        (both_ways(16), [2.0] + 15 * [0.0]),
        (pairs(3), [0.0, 0.0, 0.0]),
        (pairs(3), [3.0, 0.0, 0.0]),
    ],
    ids=["zero", "two zero", "two equal", "one of 4", "one of 16", "3 groups alike", "1 of 3 groups"],
)
def test_intervals_hold_where_differences_tie(
    matrix: np.ndarray, rates: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "SIMULATED", 500)
    deviation, tables = np.full(len(rates), 0.04), 100
    above, below = missed(matrix, deviation * rates, deviation, tables)
    assert above + below < stats.binom.ppf(0.999, tables, 0.1) / tables


def test_a_difference_that_is_badly_known_does_not_make_the_interval_too_careful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two equally large ones, one is known so badly that no estimates could lie far below: all of the 10 %
    of errors are those of lying above."""
    monkeypatch.setattr(intervals, "SIMULATED", 500)
    tables = 300
    above, below = missed(both_ways(2), np.array([0.06, 0.06]), np.array([0.08, 0.012]), tables)
    assert below == 0
    assert stats.binom.ppf(0.1, tables, 0.1) <= tables * above <= stats.binom.ppf(0.999, tables, 0.1)


def test_projections_are_those_of_a_quadratic_program() -> None:
    generator = np.random.default_rng(2)
    for dimensions, faces in ((2, 3), (3, 6), (4, 8)):
        normals = generator.normal(size=(faces, dimensions))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        bounds = generator.uniform(0, 1, size=faces)
        points = 2 * generator.normal(size=(10, dimensions))
        found = project_onto_faces(points, normals, bounds)
        for point, nearest in zip(points, found, strict=True):
            # The dual: the multipliers λ ≥ 0 of min ½|Nᵀλ|² − λ(Nx − b), as a problem of least squares.
            gram = normals @ normals.T + 1e-12 * np.eye(faces)
            root = np.linalg.cholesky(gram)
            multipliers, _ = optimize.nnls(root.T, np.linalg.solve(root, normals @ point - bounds))
            assert nearest == pytest.approx(point - normals.T @ multipliers, abs=1e-4)


def test_a_point_inside_stays() -> None:
    points = np.array([[0.1, -0.2], [0.0, 0.3]])
    assert project_onto_faces(points, np.eye(2), np.ones(2)) == pytest.approx(points)


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
    variance = rate * (1 - rate) / rows + [_left_out(int(h), rows) for h in hits]
    for truth in np.linspace(0.05, 0.95, 19):
        held = np.abs(rate - truth) <= Z * np.sqrt(variance)
        assert stats.binom.pmf(hits, rows, truth)[held].sum() > 0.74
