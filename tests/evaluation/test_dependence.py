"""Twins of the risks of dependence: optimal transformations, integrals and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.evaluation.dependence import (
    maximal_correlation,
    maximal_correlation_given_label,
    mutual_information_of_numbers,
)
from pyro_fairvae.evaluation.metrics import decisions, mutual_information_given_label


def drawn(rows: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, decisions of three classes and four groups that depend on each other."""
    generator = np.random.default_rng(0)
    y, a = generator.integers(3, size=rows), generator.integers(4, size=rows)
    decided = (y + (generator.random(rows) < 0.2 + 0.15 * a) * generator.integers(3, size=rows)) % 3
    return y, decided, a


def test_maximal_correlation_is_the_largest_one_of_any_two_functions() -> None:
    y, decided, a = drawn()

    def minus_correlation(values: np.ndarray) -> float:
        return -abs(float(np.corrcoef(values[:3][decided], values[3:][a])[0, 1]))

    starts = np.random.default_rng(1).normal(size=(5, 7))
    best = -min(minimize(minus_correlation, start).fun for start in starts)
    assert maximal_correlation(decisions(y, decided, a, 3)) == pytest.approx(best, abs=1e-4)


def test_given_a_label_each_label_has_its_own_table() -> None:
    """Decisions that are the label tell of a group that goes with it, but no more than the label does."""
    generator = np.random.default_rng(2)
    y = generator.integers(2, size=1000)
    a = np.where(generator.random(1000) < 0.8, y, 1 - y)
    of = decisions(y, y, a, 2)
    assert maximal_correlation(of) > 0.5
    assert mutual_information_given_label(of) == pytest.approx(0, abs=1e-12)
    assert maximal_correlation_given_label(of) == pytest.approx(0, abs=1e-6)


def test_one_group_alone_has_no_dependence() -> None:
    y, decided, a = drawn()
    of = decisions(y, decided, np.zeros_like(a), 3)
    assert np.isnan(maximal_correlation(of))
    assert np.isnan(maximal_correlation_given_label(of))
    assert np.isnan(mutual_information_given_label(of))


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_neighbours_estimate_the_closed_form_of_normal_numbers(rho: float) -> None:
    a, noise = np.random.default_rng(3).normal(size=(2, 4000))
    found = mutual_information_of_numbers(rho * a + np.sqrt(1 - rho**2) * noise, a)
    assert found == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.04)


def test_neighbours_estimate_an_integral_for_classes_beside_numbers() -> None:
    generator = np.random.default_rng(4)
    a = generator.integers(2, size=4000)
    numbers = 1.5 * a + generator.normal(size=4000)

    def density(x: float) -> float:
        mixed = (norm.pdf(x) + norm.pdf(x - 1.5)) / 2
        return float(-mixed * np.log(mixed))

    exact = quad(density, -8, 9)[0] - norm.entropy()
    for discrete, pair in (((False, True), (numbers, a)), ((True, False), (a, numbers))):
        found = mutual_information_of_numbers(*pair, discrete=discrete)
        assert found == pytest.approx(float(exact), abs=0.03)


def test_a_label_that_explains_all_leaves_nothing() -> None:
    generator = np.random.default_rng(5)
    label = generator.integers(2, size=4000)
    first, second = 3 * label + generator.normal(size=(2, 4000))
    assert mutual_information_of_numbers(first, second) > 0.3
    assert mutual_information_of_numbers(first, second, label) < 0.03


def test_numbers_that_do_not_vary_tell_nothing_and_too_few_rows_are_not_judged() -> None:
    a = np.arange(100.0)
    assert mutual_information_of_numbers(np.zeros(100), a) == 0
    assert np.isnan(mutual_information_of_numbers(a[:10], a[:10]))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"decided": [1.0, 2.0], "sensitive": [1.0]}, "one value a row"),
        ({"decided": [1, 0], "sensitive": [1, 0], "discrete": (True, True)}, "use mutual_information"),
        ({"decided": [1.0, 0.0], "sensitive": [1.0, 0.0], "label": [1]}, "label has the shape"),
    ],
)
def test_bad_input_is_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        mutual_information_of_numbers(**given)
