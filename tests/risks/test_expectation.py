"""Estimators of the expected risk against enumeration, simulation and each other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.risks import RISKS, CellSums, ExpectedRisk, relaxation, samples_for
from pyro_fairvae.risks.expectation import Estimate, draw_cell_sums, expected_cell_sums
from pyro_fairvae.risks.risk_loss import RiskSettings
from tests.support.cells import some_rows, sums_of


def estimate(
    name: str, logits: Tensor, imputed: Tensor, samples: int = 100, estimator: str = "sampled"
) -> Estimate:
    risk = ExpectedRisk(RISKS[name], relaxation("step", 0.5), samples, memory=1.0, estimator=estimator)
    return risk(logits, imputed, torch.ones(len(logits)))


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
    rows = (torch.tensor(each, device=device).unsqueeze(0) for each in (logits, imputed))
    found = estimate(name, *rows, samples)
    predictions = torch.tensor(logits / 0.5).softmax(-1).numpy()
    mean, deviation = brute_force(predictions, imputed, name)
    # Samples that miss a cell are left out, so the effective number is smaller.
    sums = draw_cell_sums(torch.tensor(predictions)[None, :, None], torch.tensor(imputed)[None], samples)
    used = float(RISKS[name](sums).whole.sum())
    error = deviation / used**0.5
    assert abs(float(found.value) - mean) < 4 * error
    assert float(found.standard_error) == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_expected_form_is_the_limit_of_the_sampled_one(name: str) -> None:
    """With many rows the draws add little to a gap; with few they add what Jensen says, never less."""
    logits, imputed = some_rows(rows=20_000)
    sampled = estimate(name, logits, imputed, 40).value
    expected = estimate(name, logits, imputed, estimator="expected").value
    assert float(sampled) == pytest.approx(float(expected), abs=0.02)
    few_logits, few = some_rows(rows=40, seed=1)
    if name not in ("disparate_impact", "mutual_information", "chi2"):  # a maximum of |differences| is convex
        assert (
            estimate(name, few_logits, few, 4000).value
            > estimate(name, few_logits, few, estimator="expected").value - 1e-3
        )


def test_expected_sums_are_the_mean_of_drawn_ones() -> None:
    logits, imputed = some_rows(rows=30, members=2)
    predictions = logits.softmax(-1).unsqueeze(-2)
    drawn, exact = draw_cell_sums(predictions, imputed, 20_000), expected_cell_sums(predictions, imputed)
    torch.testing.assert_close(drawn.mass.mean(1), exact.mass[:, 0], atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.predicted.mean(1), exact.predicted[:, 0], atol=0.1, rtol=0)


def test_theorem_one_holds_empirically_and_its_number_is_as_derived() -> None:
    assert samples_for(0.01, 0.05) == 18_445
    assert samples_for(0.136, 0.05) == 100
    epsilon, delta = 0.1, 0.1
    samples = samples_for(epsilon, delta)
    logits, imputed = some_rows(rows=24)
    precise = estimate("deo", logits, imputed, 100_000).value
    runs = torch.stack([estimate("deo", logits, imputed, samples).value for _ in range(300)])
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
    predictions, imputed = torch.rand(2, 5, 1, 2), torch.full((2, 5, 2, 2), 0.25)
    monkeypatch.setattr("pyro_fairvae.risks.expectation.DRAWN_AT_ONCE", 30)
    sums = draw_cell_sums(predictions, imputed, samples=11)
    assert sums.mass.shape == (2, 11, 2, 2)
    assert torch.equal(sums.mass.sum((-1, -2)), torch.full((2, 11), 5.0))
    torch.testing.assert_close(
        sums.predicted.sum((-3, -2)), predictions.sum(1).expand(2, 11, 2), rtol=1e-5, atol=1e-5
    )


def test_rows_that_take_no_part_are_in_no_cell() -> None:
    imputed = torch.full((1, 6, 2, 2), 0.25)
    imputed[:, 3:] = 0
    assert torch.equal(
        draw_cell_sums(torch.rand(1, 6, 1, 2), imputed, 9).mass.sum((-1, -2)), torch.full((1, 9), 3.0)
    )


def test_an_empty_cell_neither_breaks_nor_shrinks_the_risk() -> None:
    """Three samples: one whole, one without women of class 1, one with no women at all."""
    mass = torch.tensor([[[4.0, 4.0], [2.0, 4.0]], [[4.0, 4.0], [0.0, 6.0]], [[0.0, 8.0], [0.0, 6.0]]])
    rate = torch.tensor([[0.9, 0.7], [0.3, 0.8]])  # P(Ŷ=y|y,a): gaps .2 and .5
    predicted = torch.zeros(3, 2, 2, 2)
    for c in range(2):
        predicted[:, c, :, c] = rate[c] * mass[:, c]
    rounded_off = ExpectedRisk(RISKS["deo"], relaxation("step", 0.5), estimator="smoothed", stiffness=1.0)
    average = rounded_off.average
    every = CellSums(mass.unsqueeze(0), predicted.unsqueeze(0))
    assert average(every).item() == pytest.approx(0.5)
    # The envelope pulls at the differences of the same samples: ρ(.2² + .5²) with ρ = 1 and a large λ.
    pull = rounded_off.of_sums(every, torch.tensor([10.0])).penalty
    assert pull.item() == pytest.approx(0.2**2 + 0.5**2)
    partial = CellSums(mass[None, 1:], predicted[None, 1:])
    assert average(partial).item() == pytest.approx(0.2)  # what can be compared, is
    for name in RISKS.keys() - {"tpr_printed"}:  # which compares classes, and those are there
        nothing = CellSums(mass[None, 2:], predicted[None, 2:].clone().requires_grad_())
        value = ExpectedRisk(RISKS[name], relaxation("step", 0.5)).average(nothing)
        assert value.item() == 0
        value.sum().backward()
        assert torch.isfinite(nothing.predicted.grad).all(), name


def test_memory_averages_sums_and_passes_the_whole_gradient() -> None:
    """F at sums of earlier batches; its derivative there, applied to the current sums."""
    torch.manual_seed(0)
    logits = torch.randn(1, 40, 2, dtype=torch.float64, requires_grad=True)
    imputed = torch.eye(4, dtype=torch.float64)[torch.arange(40) % 4].reshape(1, 40, 2, 2)  # known cells
    risk = ExpectedRisk(RISKS["deopp"], relaxation("step", 1.0), 1, memory=0.25, estimator="sampled")
    one = torch.ones(1, dtype=torch.float64)
    before = torch.randn(1, 40, 2, dtype=torch.float64)
    risk(before, imputed, one)
    value = risk(logits, imputed, one).value

    def rate(values: Tensor, group: int) -> Tensor:
        return values.softmax(-1)[0, 2 + group :: 4, 1].mean()

    gap = rate(before, 1) - rate(before, 0)
    assert value.item() == pytest.approx(abs(gap.item()))
    (mine,) = torch.autograd.grad(value.sum(), logits)
    (other,) = torch.autograd.grad(torch.sign(gap.detach()) * (rate(logits, 1) - rate(logits, 0)), logits)
    torch.testing.assert_close(mine, other)
    mixed = [0.75 * rate(before, g) + 0.25 * rate(logits, g) for g in (0, 1)]
    assert risk(before, imputed, one).value.item() == pytest.approx(abs(mixed[1] - mixed[0]).item())


def test_softened_step_is_the_papers_for_two_classes() -> None:
    logits = torch.tensor([[0.3, 1.2]])
    expected = torch.sigmoid((logits[:, 1] - logits[:, 0]) / 0.2)
    torch.testing.assert_close(relaxation("step", 0.2)(logits)[:, 0, 1], expected)


def test_straight_through_decides_and_has_the_gradient_of_the_step() -> None:
    logits = torch.randn(1, 9, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(1, 9, 1, 3, dtype=torch.float64)
    decided, softened = (relaxation(name, 0.3, (0.5,))(logits) for name in ("straight", "step"))
    assert torch.equal(decided.detach()[:, :, 0].argmax(-1), logits.argmax(-1))
    torch.testing.assert_close(decided.detach().sort(-1).values[..., -1], torch.ones(1, 9, 1).double())
    grads = [torch.autograd.grad((weights * each).sum(), logits)[0] for each in (decided, softened)]
    torch.testing.assert_close(*grads)


def test_thresholds_shift_the_step() -> None:
    """σ((logit p − logit τ)/T), the paper's with τ on the scale of probabilities."""
    logits = torch.randn(2, 5, 2, dtype=torch.float64)
    found = relaxation("step", 0.3, (0.5, 0.8))(logits)
    assert found.shape == (2, 5, 2, 2)
    margin = logits[..., 1] - logits[..., 0]
    torch.testing.assert_close(found[..., 0, 1], torch.sigmoid(margin / 0.3))
    torch.testing.assert_close(found[..., 1, 1], torch.sigmoid((margin - math.log(4)) / 0.3))


@pytest.mark.parametrize("estimator", ["sampled", "expected"])
def test_thresholds_by_group_count_in_their_own_group_alone(estimator: str) -> None:
    logits, _ = some_rows(rows=200)
    generator = np.random.default_rng(0)
    y, a = generator.integers(2, size=200), generator.integers(2, size=200)
    known = torch.eye(4, dtype=torch.float64)[torch.from_numpy(2 * y + a)].view(1, 200, 2, 2)
    risk = ExpectedRisk(RISKS["deo"], relaxation("step", 0.1, (0.3, 0.6)), 3, estimator=estimator)
    found = risk(logits, known, torch.ones(1)).value
    margin = (logits[0, :, 1] - logits[0, :, 0]).numpy()
    tau = np.array([0.3, 0.6])[a]
    p = 1 / (1 + np.exp(-(margin - np.log(tau / (1 - tau))) / 0.1))
    rates = [[p[(y == c) & (a == g)].mean() for g in (0, 1)] for c in (0, 1)]
    assert float(found) == pytest.approx(max(abs(first - second) for first, second in rates))


def test_kernel_density_rate_is_the_mass_above_one_half() -> None:
    """The area above 1/2 of a Gaussian kernel density of the scores, integrated on a grid."""
    p = torch.linspace(0.05, 0.95, 13, dtype=torch.float64)
    logits = torch.stack([(1 - p).log(), p.log()], dim=-1)
    bandwidth = 0.1
    grid = torch.linspace(0.5, 3.0, 200_001, dtype=torch.float64)
    density = torch.exp(-0.5 * ((grid - p.unsqueeze(-1)) / bandwidth) ** 2).mean(0)
    density = density / (bandwidth * math.sqrt(2 * math.pi))
    found = relaxation("kde", bandwidth)(logits)[:, 0, 1].mean()
    assert found.item() == pytest.approx(torch.trapezoid(density, grid).item(), abs=1e-6)
    three = relaxation("kde", bandwidth)(torch.randn(5, 3)).squeeze(1)
    torch.testing.assert_close(three.sum(-1), torch.ones(5))


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
        ({"thresholds": (0.5, 1.0)}, "thresholds must be probabilities"),
        ({"thresholds": ()}, "thresholds must be probabilities"),
        ({"stiffness": 0.0}, "stiffness"),
        ({"imputer": "control_variate", "risk_estimator": "sampled"}, "nothing can be drawn"),
        ({"labeller": "fields"}, "unknown labeller"),
        ({"risk_gradient": "vanilla"}, "use it with imputer 'features'"),
        ({"neighbours": 0}, "neighbours must be at least 1"),
        ({"propagation_every": 0}, "propagation_every must be at least 1"),
        ({"risk_estimator": "exact"}, "unknown risk estimator"),
    ],
)
def test_bad_settings_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RiskSettings(**wrong)  # type: ignore[arg-type]


def test_classes_outside_the_data_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"given risk_classes \[0, 5\], but the data have the classes 0 to 1"
    ):
        RiskSettings(risk_classes=(0, 5)).check(2, 2)


def test_thresholds_that_do_not_fit_the_data_are_refused() -> None:
    with pytest.raises(InputError, match="one for each of 3 groups"):
        RiskSettings(thresholds=(0.4, 0.5)).check(2, 3)
    with pytest.raises(InputError, match="need two classes, but there are 3"):
        RiskSettings(thresholds=(0.4,)).check(3, 2)
