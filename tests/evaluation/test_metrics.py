"""Metrics against counting by hand, and expected metrics against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from fairlearn.metrics import equalized_odds_difference

from pyro_fairvae.evaluation.metrics import (
    METRICS,
    evaluate,
    evaluate_expected,
    fair_floor,
    imputation_scores,
)


def draw(rows: int, classes: int = 2, groups: int = 2) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    return tuple(generator.integers(n, size=rows) for n in (classes, classes, groups))


def test_metrics_equal_counting() -> None:
    y, decided, a = draw(300)
    found = evaluate(y, decided, a, classes=2)
    tpr = [decided[(y == 1) & (a == g)].mean() for g in range(2)]
    fpr = [decided[(y == 0) & (a == g)].mean() for g in range(2)]
    rate = [decided[a == g].mean() for g in range(2)]
    assert found["error"] == pytest.approx((y != decided).mean())
    assert found["deopp"] == pytest.approx(abs(tpr[0] - tpr[1]))
    assert found["deo"] == pytest.approx(max(abs(tpr[0] - tpr[1]), abs(fpr[0] - fpr[1])))
    assert found["deo"] == pytest.approx(equalized_odds_difference(y, decided, sensitive_features=a))
    assert found["ddp"] == pytest.approx(abs(rate[0] - rate[1]))


def test_three_classes_take_the_worst() -> None:
    y, decided, a = draw(900, classes=3, groups=3)
    recall = [[(decided[(y == c) & (a == g)] == c).mean() for g in range(3)] for c in range(3)]
    assert evaluate(y, decided, a, classes=3)["deo"] == pytest.approx(max(max(r) - min(r) for r in recall))


def test_a_group_without_rows_in_a_cell_is_left_out_of_its_comparison() -> None:
    y, a = np.array([0, 0, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1])  # nobody of group 0 in class 1
    found = evaluate(y, y, a, classes=2)
    assert found["deo"] == 0  # a perfect classifier; the comparison in class 0 remains
    assert np.isnan(found["deopp"])
    three = np.array([0, 0, 0, 1, 1, 2])
    decided = np.array([0, 0, 1, 1, 0, 0])
    assert evaluate(y, decided, three, classes=2)["deo"] == pytest.approx(1 / 3)  # groups 0 and 2 in class 0


def test_fair_floor_is_the_mean_deo_of_fair_decisions() -> None:
    """Decisions drawn row by row at one rate for each class, judged by the metric itself."""
    generator = np.random.default_rng(2)
    y, a = (generator.random(800) < 0.3).astype(int), (generator.random(800) < 0.7).astype(int)
    decided = np.where(generator.random(800) < 0.8, y, 1 - y)
    right = np.array([(decided[y == c] == c).mean() for c in range(2)])
    simulated = []
    for _ in range(100):
        fair = np.where(generator.random(800) < right[y], y, 1 - y)
        simulated.append(evaluate(y, fair, a, 2)["deo"])
    error = np.std(simulated) / 100**0.5
    assert fair_floor(y, decided, a, 2, draws=20_000) == pytest.approx(np.mean(simulated), abs=4 * error)


def test_without_stated_labels_the_error_is_expected() -> None:
    imputed = np.full((4, 2, 2), [[0.1, 0.1], [0.4, 0.4]])
    found = evaluate_expected(np.full(4, 2), np.array([1, 1, 1, 0]), imputed, 2)
    assert found["error"] == pytest.approx((3 * 0.2 + 0.8) / 4)


def test_expected_metrics_of_known_cells_are_the_metrics() -> None:
    y, decided, a = draw(300)
    imputed = np.zeros((300, 2, 2))
    imputed[np.arange(300), y, a] = 1
    assert evaluate_expected(y, decided, imputed, 2) == pytest.approx(evaluate(y, decided, a, 2))


def test_expected_metrics_are_those_of_a_large_draw() -> None:
    """Cells drawn from their probabilities many times over have the expected masses."""
    generator = np.random.default_rng(1)
    imputed = generator.dirichlet(np.ones(4), size=50).reshape(50, 2, 2)
    decided = generator.integers(2, size=50)
    cells = np.array([generator.choice(4, p=row.ravel(), size=4000) for row in imputed]).ravel()
    drawn = evaluate(cells // 2, np.repeat(decided, 4000), cells % 2, 2)
    y_obs = np.where(generator.random(50) < 0.5, 2, generator.integers(2, size=50))
    found = evaluate_expected(y_obs, decided, imputed, 2)
    for name in ("deo", "deopp", "ddp"):
        assert found[name] == pytest.approx(drawn[name], abs=0.01)
    stated = y_obs < 2
    assert found["error"] == pytest.approx((y_obs != decided)[stated].mean())


def test_without_rows_or_groups_nothing_is_measured() -> None:
    y, decided, a = draw(10)
    nothing = evaluate(y, decided, a, 2, np.zeros(10))
    assert set(nothing) == set(METRICS) == set(evaluate(y, decided, a, 2))
    assert all(np.isnan(value) for value in nothing.values())
    alone = evaluate(y, decided, np.zeros(10, dtype=int), 2)
    assert all(np.isnan(alone[name]) for name in ("deo", "ddp", "chi2", "mutual_information"))


def test_scores_of_imputations_as_counted_by_hand() -> None:
    probability = np.array([[0.9, 0.1], [0.95, 0.05], [0.3, 0.7], [0.25, 0.75]])
    found = imputation_scores(probability, np.array([0, 1, 1, 1]))
    assert found["accuracy"] == 0.75
    assert found["log_score"] == pytest.approx(np.log([0.9, 0.05, 0.7, 0.75]).mean())
    # Bins [.9, 1): said .925, right one half of the time; [.7, .8): said .725, always right.
    assert found["calibration"] == pytest.approx((2 * 0.425 + 2 * 0.275) / 4)
