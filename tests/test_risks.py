"""The fairness risks against enumeration, Fairlearn, scikit-learn and closed forms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

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
from torch import Tensor

from pyro_fairvae.errors import InputError
from pyro_fairvae.risks import RISKS, CellSums, RiskEstimator, register, relaxation, samples_for
from pyro_fairvae.risks.custom import CUSTOM
from pyro_fairvae.risks.estimator import draw_cell_sums, expected_cell_sums
from pyro_fairvae.risks.term import RiskSettings


def estimator(name: str, temperature: float = 0.5, **options: object) -> RiskEstimator:
    return RiskEstimator(RISKS[name], relaxation("step", temperature), **({"memory": 1.0} | options))  # type: ignore[arg-type]


def sums_of(predictions: np.ndarray, y: np.ndarray, a: np.ndarray, classes: int, groups: int) -> CellSums:
    mass, predicted = np.zeros((classes, groups)), np.zeros((classes, groups, classes))
    for row, label, group in zip(predictions, y, a, strict=True):
        mass[label, group] += 1
        predicted[label, group] += row
    return CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))


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
}


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


def brute_force(predictions: np.ndarray, imputed: np.ndarray, name: str) -> tuple[float, float]:
    """Mean and deviation of F over all assignments in which every cell that F needs has a row."""
    rows, classes, groups = imputed.shape
    total = weight = square = 0.0
    for cells in itertools.product(range(classes * groups), repeat=rows):
        y, a = np.divmod(np.array(cells), groups)
        probability = np.prod(imputed[np.arange(rows), y, a])
        gaps = RISKS[name](sums_of(predictions, y, a, classes, groups))
        if gaps.whole:
            weight += probability
            total += probability * float(gaps.value)
            square += probability * float(gaps.value) ** 2
    mean = total / weight
    return mean, (square / weight - mean**2) ** 0.5


@pytest.mark.parametrize("name", ["deo", "deopp", "ddp"])
def test_monte_carlo_agrees_with_enumeration_on_six_rows(name: str, device: str) -> None:
    generator = np.random.default_rng(3)
    imputed = generator.dirichlet(np.ones(4), size=6).reshape(6, 2, 2)
    logits = generator.normal(size=(6, 2))
    samples = 20_000
    found = estimator(name, samples=samples)(
        torch.tensor(logits, device=device).unsqueeze(0), torch.tensor(imputed, device=device).unsqueeze(0)
    )
    predictions = torch.tensor(logits / 0.5).softmax(-1).numpy()
    mean, deviation = brute_force(predictions, imputed, name)
    # Samples that miss a cell are left out, so the effective number is smaller.
    sums = draw_cell_sums(torch.tensor(predictions).unsqueeze(0), torch.tensor(imputed).unsqueeze(0), samples)
    used = float(RISKS[name](sums).whole.sum())
    error = deviation / used**0.5
    assert abs(float(found.value) - mean) < 4 * error
    assert float(found.standard_error) == pytest.approx(error, rel=0.1)


def some_rows(rows: int, members: int = 1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits, and an imputation of which half the rows are certain."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(members, rows, 2, generator=generator, dtype=torch.float64)
    imputed = torch.rand(members, rows, 4, generator=generator, dtype=torch.float64)
    certain = torch.eye(4, dtype=torch.float64)[torch.randint(4, (members, rows), generator=generator)]
    half = torch.rand(members, rows, 1, generator=generator) < 0.5
    imputed = torch.where(half, certain, imputed / imputed.sum(-1, keepdim=True))
    return logits, imputed.view(members, rows, 2, 2)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_expected_form_is_the_limit_of_the_sampled_one(name: str) -> None:
    """With many rows the draws add little to a gap; with few they add what Jensen says, never less."""
    logits, imputed = some_rows(rows=20_000)
    sampled = estimator(name, samples=40)(logits, imputed).value
    expected = estimator(name, estimator="expected")(logits, imputed).value
    assert float(sampled) == pytest.approx(float(expected), abs=0.02)
    few_logits, few = some_rows(rows=40, seed=1)
    if name not in ("disparate_impact", "mutual_information", "chi2"):  # a maximum of |differences| is convex
        assert (
            estimator(name, samples=4000)(few_logits, few).value
            > estimator(name, estimator="expected")(few_logits, few).value - 1e-3
        )


def test_expected_sums_are_the_mean_of_drawn_ones() -> None:
    logits, imputed = some_rows(rows=30, members=2)
    predictions = logits.softmax(-1)
    drawn, exact = draw_cell_sums(predictions, imputed, 20_000), expected_cell_sums(predictions, imputed)
    torch.testing.assert_close(drawn.mass.mean(1), exact.mass[:, 0], atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.predicted.mean(1), exact.predicted[:, 0], atol=0.1, rtol=0)


def test_theorem_one_holds_empirically_and_its_number_is_as_derived() -> None:
    assert samples_for(0.01, 0.05) == 18_445
    assert samples_for(0.136, 0.05) == 100
    epsilon, delta = 0.1, 0.1
    samples = samples_for(epsilon, delta)
    logits, imputed = some_rows(rows=24)
    precise = estimator("deo", samples=100_000)(logits, imputed).value
    runs = torch.stack([estimator("deo", samples=samples)(logits, imputed).value for _ in range(300)])
    assert ((runs - precise).abs() >= epsilon).double().mean() <= delta


@pytest.mark.parametrize("wrong", [(0.0, 0.1, 1.0), (0.1, 0.0, 1.0), (0.1, 1.0, 1.0), (0.1, 0.1, 0.0)])
def test_bad_arguments_of_the_theorem_are_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(InputError):
        samples_for(*wrong)


def test_the_group_mean_estimator_is_consistent() -> None:
    """The paper's last appendix: means of P_f over a cell tend to P(Ŷ = 1 | A, Y) at the root-n rate."""
    generator = np.random.default_rng(5)
    errors = []
    for rows in (400, 40_000):
        trials = []
        for _ in range(40):
            a, y = generator.integers(2, size=rows), generator.integers(2, size=rows)
            p = generator.beta(2.0 + a, 2.0 + y)  # E[p | a, y] = (2 + a) / (4 + a + y)
            sums = sums_of(np.stack([1 - p, p], 1), y, a, 2, 2)
            trials.append(float(RISKS["deopp"](sums).value) - abs(3 / 6 - 2 / 5))
        errors.append(np.sqrt(np.mean(np.square(trials))))
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.5)


def test_chunks_draw_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions, imputed = torch.rand(2, 5, 2), torch.full((2, 5, 2, 2), 0.25)
    monkeypatch.setattr("pyro_fairvae.risks.estimator.CHUNK", 30)
    sums = draw_cell_sums(predictions, imputed, samples=11)
    assert sums.mass.shape == (2, 11, 2, 2)
    assert torch.equal(sums.mass.sum((-1, -2)), torch.full((2, 11), 5.0))
    torch.testing.assert_close(
        sums.predicted.sum((-3, -2)), predictions.sum(1, keepdim=True).expand(2, 11, 2), rtol=1e-5, atol=1e-5
    )


def test_rows_that_take_no_part_are_in_no_cell() -> None:
    imputed = torch.full((1, 6, 2, 2), 0.25)
    imputed[:, 3:] = 0
    assert torch.equal(
        draw_cell_sums(torch.rand(1, 6, 2), imputed, 9).mass.sum((-1, -2)), torch.full((1, 9), 3.0)
    )


def test_an_empty_cell_neither_breaks_nor_shrinks_the_risk() -> None:
    """Three samples: one whole, one without women of class 1, one with no women at all."""
    mass = torch.tensor([[[4.0, 4.0], [2.0, 4.0]], [[4.0, 4.0], [0.0, 6.0]], [[0.0, 8.0], [0.0, 6.0]]])
    rate = torch.tensor([[0.9, 0.7], [0.3, 0.8]])  # P(Ŷ=y|y,a): gaps .2 and .5
    predicted = torch.zeros(3, 2, 2, 2)
    for c in range(2):
        predicted[:, c, :, c] = rate[c] * mass[:, c]
    risk = estimator("deo")
    every = CellSums(mass.unsqueeze(0), predicted.unsqueeze(0))
    assert risk.average(every).value.item() == pytest.approx(0.5)
    partial = CellSums(mass[None, 1:], predicted[None, 1:])
    assert risk.average(partial).value.item() == pytest.approx(0.2)  # what can be compared, is
    for name in RISKS.keys() - {"tpr_printed"}:  # which compares classes, and those are there
        nothing = CellSums(mass[None, 2:], predicted[None, 2:].clone().requires_grad_())
        value = estimator(name).average(nothing).value
        assert value.item() == 0
        value.sum().backward()
        assert torch.isfinite(nothing.predicted.grad).all(), name


def test_memory_averages_sums_and_passes_the_whole_gradient() -> None:
    """F at remembered sums; its derivative there, applied to the current sums."""
    torch.manual_seed(0)
    logits = torch.randn(1, 40, 2, dtype=torch.float64, requires_grad=True)
    imputed = torch.eye(4, dtype=torch.float64)[torch.arange(40) % 4].reshape(1, 40, 2, 2)  # known cells
    risk = estimator("deopp", temperature=1.0, samples=1, memory=0.25)
    before = torch.randn(1, 40, 2, dtype=torch.float64)
    risk(before, imputed)
    value = risk(logits, imputed).value

    def rate(values: Tensor, group: int) -> Tensor:
        return values.softmax(-1)[0, 2 + group :: 4, 1].mean()

    mixed = [0.75 * rate(before, g) + 0.25 * rate(logits, g) for g in (0, 1)]
    gap = mixed[1] - mixed[0]
    assert value.item() == pytest.approx(abs(gap.item()))
    (mine,) = torch.autograd.grad(value.sum(), logits)
    (other,) = torch.autograd.grad(torch.sign(gap.detach()) * (rate(logits, 1) - rate(logits, 0)), logits)
    torch.testing.assert_close(mine, other)


def test_softened_step_is_the_papers_for_two_classes() -> None:
    logits = torch.tensor([[0.3, 1.2]])
    expected = torch.sigmoid((logits[:, 1] - logits[:, 0]) / 0.2)
    torch.testing.assert_close(relaxation("step", 0.2)(logits)[:, 1], expected)


def test_kernel_density_rate_is_the_mass_above_one_half() -> None:
    """The area above 1/2 of a Gaussian kernel density of the scores, integrated on a grid."""
    p = torch.linspace(0.05, 0.95, 13, dtype=torch.float64)
    logits = torch.stack([(1 - p).log(), p.log()], dim=-1)
    bandwidth = 0.1
    grid = torch.linspace(0.5, 3.0, 200_001, dtype=torch.float64)
    density = torch.exp(-0.5 * ((grid - p.unsqueeze(-1)) / bandwidth) ** 2).mean(0)
    density = density / (bandwidth * math.sqrt(2 * math.pi))
    found = relaxation("kde", bandwidth)(logits)[:, 1].mean()
    assert found.item() == pytest.approx(torch.trapezoid(density, grid).item(), abs=1e-6)
    three = relaxation("kde", bandwidth)(torch.randn(5, 3))
    torch.testing.assert_close(three.sum(-1), torch.ones(5))


@pytest.fixture
def _forget_custom_risks() -> Iterator[None]:
    yield
    CUSTOM.clear()


def parity_gap(p: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """|mean P_f(1) of group 1 − that of group 0|, on draws."""
    rates = [(p[..., 1] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return (rates[1] - rates[0]).abs()


@pytest.mark.usefixtures("_forget_custom_risks")
def test_a_users_own_risk_plugs_in() -> None:
    mine = RiskEstimator(register("mine", parity_gap, bound=1.0), relaxation("step", 0.5), samples=4000)
    logits, imputed = some_rows(rows=50, members=2)
    found, composed = mine(logits, imputed), estimator("ddp", samples=4000)(logits, imputed)
    error = (found.standard_error.square() + composed.standard_error.square()).sqrt()
    assert bool(((found.value - composed.value).abs() < 4 * error).all())
    assert RiskSettings(risk="mine").chosen().name == "mine"
    with pytest.raises(InputError, match="function of draws"):
        RiskSettings(risk="mine", estimator="expected")


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda p, y, a: parity_gap(p, y, a).mean(), "must return a tensor of shape"),
        (lambda p, y, a: 0.5, "must return a tensor of shape .* but returned float"),
        (lambda p, y, a: parity_gap(p, y, a) * torch.nan, "not finite"),
        (lambda p, y, a: parity_gap(p.detach(), y, a), "no gradient"),
        (lambda p, y, a: 0 * parity_gap(p, y, a), "zero or not finite"),
    ],
)
@pytest.mark.usefixtures("_forget_custom_risks")
def test_a_users_bad_risk_is_refused_at_registration(function: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        register("bad", function)  # type: ignore[arg-type]
    assert "bad" not in CUSTOM


def test_a_users_risk_cannot_take_the_name_of_another() -> None:
    with pytest.raises(InputError, match="exists already"):
        register("deo", parity_gap)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"samples": 0}, "at least 1 Monte Carlo sample"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"memory": 0.0}, "memory"),
        ({"memory": 1.5}, "memory"),
        ({"gumbel_temperature": 0.0}, "gumbel_temperature"),
        ({"risk": "doe"}, "Did you mean 'deo'"),
        ({"estimator": "exact"}, "unknown estimator"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RiskSettings(**wrong)  # type: ignore[arg-type]


def test_classes_outside_the_data_are_refused() -> None:
    with pytest.raises(InputError, match=r"asked for classes \[0, 5\], but the data have the classes 0 to 1"):
        RiskSettings(risk_classes=(0, 5)).check_classes(2)
