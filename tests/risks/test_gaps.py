"""The fairness risks against Fairlearn, scikit-learn and their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fairlearn.metrics import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equalized_odds_difference,
    false_positive_rate_difference,
    selection_rate_difference,
)
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score

from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.risks import DEPENDENCE, RISKS, CellSums
from tests.support.cells import sums_of


def mean_of_odds(y: np.ndarray, decided: np.ndarray, sensitive_features: np.ndarray) -> float:
    given = {"sensitive_features": sensitive_features}
    return (
        equal_opportunity_difference(y, decided, **given)
        + false_positive_rate_difference(y, decided, **given)
    ) / 2


def all_pairs(y: np.ndarray, decided: np.ndarray, sensitive_features: np.ndarray) -> float:
    rates = [
        (decided[(y == c) & (sensitive_features == g)] == c).mean()
        for c in np.unique(y)
        for g in np.unique(sensitive_features)
    ]
    return max(rates) - min(rates)


def pairs_of_rates(y: np.ndarray, decided: np.ndarray, sensitive_features: np.ndarray) -> float:
    rates = [decided[sensitive_features == g].mean() for g in np.unique(sensitive_features)]
    return float(np.mean([abs(p - q) for p, q in itertools.combinations(rates, 2)]))


def contingency(decided: np.ndarray, a: np.ndarray) -> np.ndarray:
    table = np.zeros((decided.max() + 1, a.max() + 1))
    np.add.at(table, (decided, a), 1)
    return table


# Each risk on decisions 0 or 1 beside a computation that owes nothing to cell sums.
INDEPENDENT = {
    "deo": equalized_odds_difference,
    "tpr": equalized_odds_difference,
    "mean_odds": mean_of_odds,
    "deopp": equal_opportunity_difference,
    "predictive_equality": false_positive_rate_difference,
    "tpr_printed": all_pairs,
    "ddp": demographic_parity_difference,
    "ddp_overall": lambda y, d, sensitive_features: selection_rate_difference(
        y, d, sensitive_features=sensitive_features, method="to_overall"
    ),
    "mean_difference": pairs_of_rates,
    "disparate_impact": lambda y, d, sensitive_features: (
        1 / demographic_parity_ratio(y, d, sensitive_features=sensitive_features) - 1
    ),
    "chi2": lambda y, d, sensitive_features: (
        chi2_contingency(contingency(d, sensitive_features), correction=False).statistic / len(y)
    ),
    "mutual_information": lambda y, d, sensitive_features: mutual_info_score(d, sensitive_features),
    "chi2_given_label": lambda y, d, sensitive_features: (
        sum(
            chi2_contingency(contingency(d[y == c], sensitive_features[y == c]), correction=False).statistic
            for c in np.unique(y)
        )
        / len(y)
    ),
    # By the chain rule.
    "mutual_information_given_label": lambda y, d, sensitive_features: (
        mutual_info_score(2 * d + y, sensitive_features) - mutual_info_score(y, sensitive_features)
    ),
    "hgr": lambda y, d, sensitive_features: (
        (chi2_contingency(contingency(d, sensitive_features), correction=False).statistic / len(y)) ** 0.5
    ),  # with two decisions
}
for _name in ("mine", "infonce"):  # their supremum over all critics
    INDEPENDENT[_name] = INDEPENDENT["mutual_information"]
    INDEPENDENT[f"{_name}_given_label"] = lambda y, d, sensitive_features: sum(
        (y == c).mean() * mutual_info_score(d[y == c], sensitive_features[y == c]) for c in np.unique(y)
    )
INDEPENDENT["hgr_given_label"] = lambda y, d, sensitive_features: max(
    INDEPENDENT["hgr"](y[y == c], d[y == c], sensitive_features[y == c]) for c in np.unique(y)
)


@pytest.mark.parametrize("name", sorted(RISKS))
@pytest.mark.parametrize("groups", [2, 3])
def test_risk_of_decisions_equals_an_independent_computation(name: str, groups: int) -> None:
    generator = np.random.default_rng(1)
    y, a, decided = (generator.integers(n, size=200) for n in (2, groups, 2))
    gaps = RISKS[name](sums_of(np.eye(2)[decided], y, a, 2, groups))
    assert gaps.whole
    assert gaps.some
    assert float(gaps.value) == pytest.approx(INDEPENDENT[name](y, decided, sensitive_features=a))


@pytest.mark.parametrize("classes", [None, (0, 2), (1,)])
@pytest.mark.parametrize("name", ["deo", "ddp", "mean_odds", "tpr_printed", "ddp_overall"])
def test_risk_of_three_classes_equals_its_definition(name: str, classes: tuple[int, ...] | None) -> None:
    generator = np.random.default_rng(2)
    y, a = generator.integers(3, size=90), generator.integers(3, size=90)
    p = generator.dirichlet(np.ones(3), size=90)
    chosen = range(3) if classes is None else classes
    if name.startswith("ddp"):
        rates = np.array([[p[a == g, c].mean() for g in range(3)] for c in chosen])
    else:
        rates = np.array([[p[(a == g) & (y == c), c].mean() for g in range(3)] for c in chosen])
    spreads = rates.max(1) - rates.min(1)
    expected = {
        "deo": spreads.max(),
        "ddp": spreads.max(),
        "mean_odds": spreads.mean(),
        "tpr_printed": rates.max() - rates.min(),
        "ddp_overall": max(np.abs(rates[j] - p[:, c].mean()).max() for j, c in enumerate(chosen)),
    }[name]
    found = RISKS[name].over(classes)(sums_of(p, y, a, 3, 3)).value
    assert float(found) == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name, risk in RISKS.items() if risk.bound is not None])
def test_bounded_risks_stay_within_their_bound(name: str) -> None:
    """Random and extreme decisions; the bound is reached by a classifier that tells the group."""
    generator = np.random.default_rng(3)
    bound = RISKS[name].bound(2, 2)  # type: ignore[misc]
    worst = 0.0
    for trial in range(200):
        y, a = generator.integers(2, size=60), generator.integers(2, size=60)
        decided = generator.integers(2, size=60)
        if trial < 2:  # a rare group, and one of two equal ones, that the classifier tells
            y = np.arange(60) % 2
            decided = a = (np.arange(60) < (2, 30)[trial]).astype(int)
        gaps = RISKS[name](sums_of(np.eye(2)[decided], y, a, 2, 2))
        assert 0 <= float(gaps.value) <= bound + 1e-9
        worst = max(worst, float(gaps.value))
    assert worst > 0.95 * bound
    assert RISKS["disparate_impact"].bound is None


@pytest.mark.parametrize("name", sorted(RISKS))
@pytest.mark.parametrize(("classes", "groups"), [(2, 2), (3, 4)])
@pytest.mark.parametrize("empty", [False, True])
def test_metric_of_the_same_name_is_the_risk_of_decisions(
    name: str, classes: int, groups: int, empty: bool
) -> None:
    """The metrics share no code with the risks; weights count rows as more than one."""
    generator = np.random.default_rng(4)
    y, decided, a = (generator.integers(n, size=300) for n in (classes, classes, groups))
    if empty and name not in ("deopp", "disparate_impact"):  # which have nothing left to compare
        a[y == classes - 1] = 0
    weight = generator.integers(1, 4, size=300)
    repeated = (np.repeat(values, weight, axis=0) for values in (np.eye(classes)[decided], y, a))
    expected = float(RISKS[name](sums_of(*repeated, classes, groups)).value)
    assert evaluate(y, decided, a, classes, weight)[name] == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(RISKS))
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("classes", [None, (0, 1, 2)])
@pytest.mark.parametrize("empty", [False, True])
def test_a_risk_is_the_norm_of_its_differences(
    name: str, groups: int, classes: tuple[int, ...] | None, empty: bool
) -> None:
    generator = np.random.default_rng(6)
    y, a = generator.integers(3, size=200), generator.integers(groups, size=200)
    if empty:
        a[y == 2] = 0
    sums = sums_of(generator.dirichlet(np.ones(3), size=200), y, a, 3, groups)
    risk = RISKS[name] if name in DEPENDENCE else RISKS[name].over(classes)  # which has all classes anyway
    assert float(risk.differences(sums).abs().amax(-1).mean(-1)) == pytest.approx(float(risk(sums).value))


def test_cells_say_how_far_each_rate_is_from_that_of_all() -> None:
    y, a = np.array([1, 1, 1, 1, 0, 0]), np.array([0, 0, 1, 1, 0, 1])
    p = np.array([0.2, 0.4, 0.6, 1.0, 0.5, 0.5])
    sums = sums_of(np.stack([1 - p, p], 1), y, a, 2, 2)
    torch.testing.assert_close(RISKS["deopp"].cells(sums), torch.tensor([[-0.25, 0.25]], dtype=torch.float64))


def impact_at(rates: list[float], mass: float = 50.0) -> tuple[float, torch.Tensor]:
    """Disparate impact of groups with these rates of the last class, and its gradient in the rates."""
    r = torch.tensor(rates, dtype=torch.float64, requires_grad=True)
    predicted = torch.stack([1 - r, r], dim=-1).expand(2, -1, -1) * mass
    sums = CellSums(torch.full((2, len(rates)), mass, dtype=torch.float64), predicted)
    value = RISKS["disparate_impact"](sums).value
    (gradient,) = torch.autograd.grad(value, r)
    return float(value.detach()), gradient


@pytest.mark.parametrize("groups", [2, 3])
def test_disparate_impact_is_its_definition_on_all_rates_of_a_grid(groups: int) -> None:
    for rates in itertools.product([0.0, 0.1, 0.25, 0.5, 0.9, 1.0], repeat=groups):
        value, gradient = impact_at(list(rates))
        assert value >= 0
        assert bool(gradient.isfinite().all())
        if max(rates) == min(rates):  # nobody is decided for, too
            assert value == 0
        elif min(rates) > 0:
            assert value == pytest.approx(max(rates) / min(rates) - 1)
        else:
            assert value == pytest.approx(1e6)


@pytest.mark.parametrize("rates", [[0.5, 0.4], [0.5, 0.1], [0.3, 0.2, 0.9], [0.5, 0.0]])
def test_deciding_for_fewer_people_does_not_lower_the_disparate_impact(rates: list[float]) -> None:
    """Nor does a step along the gradient, whose share in the direction of all rates is 0."""
    first, _ = impact_at(rates)
    for scale in (1.0, 1e-2, 1e-4, 1e-6, 1e-9):
        value, gradient = impact_at([scale * rate for rate in rates])
        assert value == pytest.approx(first, rel=1e-6)
        assert bool(gradient.isfinite().all())
        along = float(gradient @ torch.tensor(rates, dtype=torch.float64))
        assert abs(along) <= 1e-6 * float(gradient.norm())
        lowest = rates.index(min(rates))
        assert float(gradient[lowest]) < 0  # it asks for more of those who get least


def test_disparate_impact_of_decisions_agrees_with_its_twin() -> None:
    """All decisions about six rows of two groups, deciding for nobody and for one group alone among them."""
    y, a = np.array([0, 1, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1])
    for decided in map(np.array, itertools.product([0, 1], repeat=6)):
        risk = float(RISKS["disparate_impact"](sums_of(np.eye(2)[decided], y, a, 2, 2)).value)
        metric = evaluate(y, decided, a, 2)["disparate_impact"]
        assert risk == pytest.approx(min(metric, 1e6))
        assert (risk == 0) == (metric == 0)
