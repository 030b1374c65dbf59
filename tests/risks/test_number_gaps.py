"""Risks of predicted numbers: against their twins, finite differences and other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.evaluation.number_frontier import standard_error
from pyro_fairvae.evaluation.number_metrics import (
    NUMBER_METRICS,
    Predictions,
    evaluate_numbers,
    kolmogorov_smirnov,
    wasserstein,
)
from pyro_fairvae.risks import NUMBER_RISKS, CellSums, RiskSettings, check_of_numbers
from pyro_fairvae.risks.expectation import ESTIMATORS, ExpectedRisk
from pyro_fairvae.risks.number_gaps import below_thresholds

BINS, GROUPS, ROWS = 3, 3, 400
SOFTENED = {"kolmogorov_smirnov", "wasserstein"}  # by thresholds: equal to their twins in the limit alone


def rows(seed: int = 0, groups: int = GROUPS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised predictions, bins and groups, which depend on each other."""
    draw = np.random.default_rng(seed)
    a, b = draw.integers(groups, size=ROWS), draw.integers(BINS, size=ROWS)
    return 0.4 * a + 0.5 * b - 0.8 + 0.6 * draw.normal(size=ROWS), b, a


def sums_of(name: str, predicted: torch.Tensor, mass: torch.Tensor) -> CellSums:
    """Sums over cells, of rows (rows, bins, groups) that belong to them in part."""
    features = NUMBER_RISKS[name].features(predicted)
    return CellSums(mass.sum(0), torch.einsum("rbg,rk->bgk", mass, features))


def certain(b: np.ndarray, a: np.ndarray) -> torch.Tensor:
    mass = torch.zeros(len(b), BINS, GROUPS, dtype=torch.float64)
    mass[torch.arange(len(b)), torch.from_numpy(b), torch.from_numpy(a)] = 1
    return mass


def test_every_risk_has_a_twin() -> None:
    assert set(NUMBER_RISKS) == set(NUMBER_METRICS)


@pytest.mark.parametrize("name", sorted(NUMBER_RISKS.keys() - SOFTENED))
@pytest.mark.parametrize("groups", [2, 3])
def test_risk_equals_its_twin(name: str, groups: int) -> None:
    predicted, b, a = rows(groups=groups)
    value = float(NUMBER_RISKS[name](sums_of(name, torch.from_numpy(predicted), certain(b, a))).value)
    twin = NUMBER_METRICS[name](Predictions(predicted, a, b, np.ones(ROWS)))
    assert value == pytest.approx(twin, rel=1e-9)
    assert value > 0.01


@pytest.mark.parametrize("name", sorted(NUMBER_RISKS))
def test_risk_of_uncertain_cells_equals_its_twin_on_weighed_rows(name: str) -> None:
    draw = np.random.default_rng(1)
    predicted, _, _ = rows()
    mass = draw.dirichlet(np.ones(BINS * GROUPS), size=ROWS).reshape(ROWS, BINS, GROUPS)
    mass[:, :, 0] *= np.exp(predicted)[:, None]
    mass /= mass.sum((1, 2), keepdims=True)
    b, a = (codes.ravel() for codes in np.meshgrid(np.arange(BINS), np.arange(GROUPS), indexing="ij"))
    weighed = Predictions(
        np.repeat(predicted, BINS * GROUPS), np.tile(a, ROWS), np.tile(b, ROWS), mass.ravel()
    )
    value = float(
        NUMBER_RISKS[name](sums_of(name, torch.from_numpy(predicted), torch.from_numpy(mass))).value
    )
    # Softened thresholds lie below the distance itself, by little.
    tolerance = 0.1 if name in SOFTENED else 1e-9
    assert value == pytest.approx(NUMBER_METRICS[name](weighed), rel=tolerance)


def test_softened_distances_come_near_those_of_scipy() -> None:
    predicted, b, a = rows(groups=2)
    one, other = predicted[a == 0], predicted[a == 1]
    found = {
        name: float(NUMBER_RISKS[name](sums_of(name, torch.from_numpy(predicted), certain(b, a))).value)
        for name in ("wasserstein", "kolmogorov_smirnov")
    }
    assert found["wasserstein"] == pytest.approx(stats.wasserstein_distance(one, other), rel=0.02)
    assert found["kolmogorov_smirnov"] == pytest.approx(stats.ks_2samp(one, other).statistic, rel=0.15)
    of = Predictions(predicted, a, b, np.ones(ROWS))
    assert wasserstein(of) == pytest.approx(stats.wasserstein_distance(one, other))
    assert kolmogorov_smirnov(of) == pytest.approx(stats.ks_2samp(one, other).statistic)


def test_metrics_on_gaussians_have_their_closed_form() -> None:
    """Two groups N(0, 1) and N(1, 1) of equal size: η² = 1/5, W = 1, KS = 2 Φ(1/2) − 1."""
    quantiles = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    predicted, a = np.concatenate([quantiles, quantiles + 1]), np.repeat([0, 1], 4000)
    found = evaluate_numbers(predicted, predicted, a, np.zeros(8000, dtype=int))
    assert found["mean_gap"] == pytest.approx(1)
    assert found["correlation_ratio"] == pytest.approx(0.2, abs=1e-3)
    assert found["wasserstein"] == pytest.approx(1)
    assert found["kolmogorov_smirnov"] == pytest.approx(2 * stats.norm.cdf(0.5) - 1, abs=1e-3)
    assert found["rmse"] == 0


@pytest.mark.parametrize("name", sorted(NUMBER_RISKS))
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    predicted, b, a = rows()
    start = torch.from_numpy(predicted[:40]).requires_grad_()
    mass = certain(b[:40], a[:40])

    def value(at: torch.Tensor) -> torch.Tensor:
        return NUMBER_RISKS[name](sums_of(name, at, mass)).value

    assert torch.autograd.gradcheck(value, (start,), eps=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(value(start), start)
    assert bool((gradient != 0).any())


@pytest.mark.parametrize("name", sorted(NUMBER_RISKS))
def test_equal_distributions_have_no_risk(name: str) -> None:
    predicted = np.tile(np.linspace(-1, 1, 50), BINS * GROUPS)
    b, a = np.repeat(np.arange(BINS), 50 * GROUPS), np.tile(np.repeat(np.arange(GROUPS), 50), BINS)
    value = NUMBER_RISKS[name](sums_of(name, torch.from_numpy(predicted), certain(b, a))).value
    assert float(value) == pytest.approx(0, abs=1e-12)
    assert NUMBER_METRICS[name](Predictions(predicted, a, b, np.ones(len(a)))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_estimators_agree_where_cells_are_known(estimator: str) -> None:
    predicted, b, a = rows()
    risk = NUMBER_RISKS["mean_gap"]
    expected = ExpectedRisk(risk, lambda p: risk.features(p).unsqueeze(-2), samples=3, estimator=estimator)
    found = expected(
        torch.from_numpy(predicted)[None], certain(b, a)[None], torch.ones(1, dtype=torch.float64)
    )
    twin = NUMBER_METRICS["mean_gap"](Predictions(predicted, a, b, np.ones(ROWS)))
    assert float(found.value) == pytest.approx(twin)


def test_the_standard_error_is_that_of_means() -> None:
    """Of a difference of two means, the textbook's."""
    draw = np.random.default_rng(0)
    a = np.repeat([0, 1], [300, 700])
    predicted = draw.normal(size=1000) + a
    mass = np.zeros((1000, 1, 2))
    mass[np.arange(1000), 0, a] = 1
    expected = np.sqrt(predicted[a == 0].var() / 300 + predicted[a == 1].var() / 700)
    found = standard_error("mean_gap", predicted, mass, deviation=12.0, resamples=600)
    assert found == pytest.approx(12 * expected, rel=0.1)


def test_an_empty_group_is_left_out() -> None:
    predicted, b, a = rows(groups=2)  # the third group is empty
    value = NUMBER_RISKS["mean_gap"](sums_of("mean_gap", torch.from_numpy(predicted), certain(b, a)))
    assert float(value.value) == pytest.approx(abs(predicted[a == 1].mean() - predicted[a == 0].mean()))
    alone = Predictions(predicted, np.zeros(ROWS, dtype=int), b, np.ones(ROWS))
    assert all(np.isnan(metric(alone)) for metric in NUMBER_METRICS.values())


def test_thresholds_are_softened_steps() -> None:
    found = below_thresholds(torch.tensor([0.0]))[0]
    assert float(found[0]) < 1e-6
    assert float(found[-1]) > 1 - 1e-6
    assert float(found[len(found) // 2]) == 0.5


def test_risks_of_the_other_kind_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"'deo' needs classes.*choose one of mean_gap, mean_gap_given_y"):
        check_of_numbers(RiskSettings(risk="deo"))
    with pytest.raises(InputError, match=r"'mean_gap' is of predicted numbers.*choose one of deo, mean_odds"):
        RiskSettings(risk="mean_gap").check(2, 2)
    with pytest.raises(InputError, match="mean_gapp"):
        RiskSettings(risk="mean_gapp")
