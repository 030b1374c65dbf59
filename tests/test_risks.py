"""The fairness risk against enumeration, Fairlearn and finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from torch import Tensor

from pyro_fairvae.errors import InputError
from pyro_fairvae.objective import FairELBO, log_imputed
from pyro_fairvae.program import Program, Settings
from pyro_fairvae.risks import GAPS, IMPUTERS, CellSums, MonteCarloRisk, impute, soften
from pyro_fairvae.risks.estimator import draw_cell_sums
from tests.conftest import SMALL, three_groups

FAIRLEARN = {
    "deo": equalized_odds_difference,
    "deopp": equal_opportunity_difference,
    "ddp": demographic_parity_difference,
}


def sums_of(predictions: np.ndarray, y: np.ndarray, a: np.ndarray, classes: int, groups: int) -> CellSums:
    mass, predicted = np.zeros((classes, groups)), np.zeros((classes, groups, classes))
    for row, label, group in zip(predictions, y, a, strict=True):
        mass[label, group] += 1
        predicted[label, group] += row
    return CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))


@pytest.mark.parametrize("name", sorted(GAPS))
@pytest.mark.parametrize("groups", [2, 3])
def test_gap_of_decisions_equals_fairlearn(name: str, groups: int) -> None:
    generator = np.random.default_rng(1)
    y, a, decided = (generator.integers(n, size=200) for n in (2, groups, 2))
    gap, whole, some = GAPS[name](sums_of(np.eye(2)[decided], y, a, 2, groups))
    assert whole
    assert some
    assert float(gap) == pytest.approx(FAIRLEARN[name](y, decided, sensitive_features=a))


@pytest.mark.parametrize("name", sorted(GAPS))
def test_gap_of_three_classes_equals_its_definition(name: str) -> None:
    generator = np.random.default_rng(2)
    y, a = generator.integers(3, size=90), generator.integers(3, size=90)
    p = generator.dirichlet(np.ones(3), size=90)
    if name == "ddp":
        rates = [[p[a == g, c].mean() for g in range(3)] for c in range(3)]
    else:
        classes = range(3) if name == "deo" else [2]
        rates = [[p[(a == g) & (y == c), c].mean() for g in range(3)] for c in classes]
    expected = max(max(row) - min(row) for row in rates)
    assert float(GAPS[name](sums_of(p, y, a, 3, 3))[0]) == pytest.approx(expected)


def brute_force(predictions: np.ndarray, imputed: np.ndarray, name: str) -> tuple[float, float]:
    """Mean and deviation of F over all assignments in which every cell that F needs has a row."""
    rows, classes, groups = imputed.shape
    total = weight = square = 0.0
    for cells in itertools.product(range(classes * groups), repeat=rows):
        y, a = np.divmod(np.array(cells), groups)
        probability = np.prod(imputed[np.arange(rows), y, a])
        gap, whole, _ = GAPS[name](sums_of(predictions, y, a, classes, groups))
        if whole:
            weight += probability
            total += probability * float(gap)
            square += probability * float(gap) ** 2
    mean = total / weight
    return mean, (square / weight - mean**2) ** 0.5


@pytest.mark.parametrize("name", sorted(GAPS))
def test_monte_carlo_agrees_with_enumeration_on_six_rows(name: str, device: str) -> None:
    generator = np.random.default_rng(3)
    imputed = generator.dirichlet(np.ones(4), size=6).reshape(6, 2, 2)
    logits = generator.normal(size=(6, 2))
    samples = 20_000
    risk = MonteCarloRisk(GAPS[name], samples=samples, temperature=0.5, memory=1.0)
    estimate = risk(
        torch.tensor(logits, device=device).unsqueeze(0), torch.tensor(imputed, device=device).unsqueeze(0)
    )
    predictions = torch.tensor(logits / 0.5).softmax(-1).numpy()
    mean, deviation = brute_force(predictions, imputed, name)
    # Samples that miss a cell are left out, so the effective number is smaller.
    sums = draw_cell_sums(torch.tensor(predictions).unsqueeze(0), torch.tensor(imputed).unsqueeze(0), samples)
    used = float(GAPS[name](sums)[1].sum())
    assert abs(float(estimate) - mean) < 4 * deviation / used**0.5


def test_chunks_draw_every_sample_once(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions, imputed = torch.rand(2, 5, 2), torch.full((2, 5, 2, 2), 0.25)
    monkeypatch.setattr("pyro_fairvae.risks.estimator.CHUNK", 30)
    sums = draw_cell_sums(predictions, imputed, samples=11)
    assert sums.mass.shape == (2, 11, 2, 2)
    assert torch.equal(sums.mass.sum((-1, -2)), torch.full((2, 11), 5.0))
    torch.testing.assert_close(
        sums.predicted.sum((-3, -2)), predictions.sum(1, keepdim=True).expand(2, 11, 2), rtol=1e-5, atol=1e-5
    )


def test_an_empty_cell_neither_breaks_nor_shrinks_the_risk() -> None:
    """Three samples: one whole, one without women of class 1, one with no women at all."""
    mass = torch.tensor([[[4.0, 4.0], [2.0, 4.0]], [[4.0, 4.0], [0.0, 6.0]], [[0.0, 8.0], [0.0, 6.0]]])
    rate = torch.tensor([[0.9, 0.7], [0.3, 0.8]])  # P(Ŷ=y|y,a): gaps .2 and .5
    predicted = torch.zeros(3, 2, 2, 2)
    for c in range(2):
        predicted[:, c, :, c] = rate[c] * mass[:, c]
    risk = MonteCarloRisk(GAPS["deo"], memory=1.0)
    every = CellSums(mass.unsqueeze(0), predicted.unsqueeze(0))
    assert risk.average(every).item() == pytest.approx(0.5)
    partial = CellSums(mass[None, 1:], predicted[None, 1:])
    assert risk.average(partial).item() == pytest.approx(0.2)  # what can be compared, is
    nothing = CellSums(mass[None, 2:], predicted[None, 2:].requires_grad_())
    value = risk.average(nothing)
    assert value.item() == 0
    value.sum().backward()
    assert torch.isfinite(nothing.predicted.grad).all()


def test_memory_averages_sums_and_passes_the_whole_gradient() -> None:
    """F at remembered sums; its derivative there, applied to the current sums."""
    torch.manual_seed(0)
    logits = torch.randn(1, 40, 2, dtype=torch.float64, requires_grad=True)
    imputed = torch.eye(4, dtype=torch.float64)[torch.arange(40) % 4].reshape(1, 40, 2, 2)  # known cells
    risk = MonteCarloRisk(GAPS["deopp"], samples=1, temperature=1.0, memory=0.25)
    before = torch.randn(1, 40, 2, dtype=torch.float64)
    risk(before, imputed)
    value = risk(logits, imputed)

    def rate(values: Tensor, group: int) -> Tensor:
        return values.softmax(-1)[0, 2 + group :: 4, 1].mean()

    mixed = [0.75 * rate(before, g) + 0.25 * rate(logits, g) for g in (0, 1)]
    gap = mixed[1] - mixed[0]
    assert value.item() == pytest.approx(abs(gap.item()))
    (mine,) = torch.autograd.grad(value.sum(), logits)
    (other,) = torch.autograd.grad(torch.sign(gap.detach()) * (rate(logits, 1) - rate(logits, 0)), logits)
    torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("imputer", sorted(IMPUTERS))
def test_risk_reaches_the_class_head_and_never_the_group_head(imputer: str) -> None:
    table = three_groups().to("cpu", torch.float64)
    settings = Settings(**SMALL, imputer=imputer)  # type: ignore[arg-type]
    program = Program(table, settings, [0]).to(torch.device("cpu"), torch.float64)
    fair = FairELBO(
        table.rows, torch.ones(1, dtype=torch.float64), settings.monte_carlo_risk(), imputer=imputer
    )
    batch = table.batch(torch.arange(table.rows))
    fair.differentiable_loss(program.model, program.guide, batch)
    encoding = fair._traces[1].nodes["_RETURN"]["value"]
    risk = fair.risk(encoding.heads.class_logits, impute(log_imputed(encoding, imputer)))
    encoder = program.guide.encoder
    parameters = dict(program.guide.named_parameters())
    grads = dict(
        zip(
            parameters,
            torch.autograd.grad(risk.sum(), list(parameters.values()), allow_unused=True),
            strict=True,
        )
    )
    assert getattr(encoder, "group/weight").requires_grad
    touched = {name for name, grad in grads.items() if grad is not None and bool((grad != 0).any())}
    assert {"encoder.classifier/weight", "encoder.trunk/0/weight"} <= touched
    heads = ("group", "grouper", "labeller", "z_loc", "z_scale")
    assert not any(name.startswith((*(f"encoder.{head}/" for head in heads), "sites.")) for name in touched)


def test_imputation_clamps_what_was_stated() -> None:
    label = torch.tensor([[[0.0, -torch.inf], [-0.7, -0.7]]])  # stated 0; unstated
    group = torch.tensor([[[-1.0, -0.5], [-torch.inf, 0.0]]])  # unstated; stated 1
    imputed = impute(IMPUTERS["features"](label, group, torch.zeros(1, 2, 2, 2)))
    assert torch.equal(imputed[0, 0].sum(-1), torch.tensor([1.0, 0.0]))
    assert torch.equal(imputed[0, 1].sum(0), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(imputed.sum((-1, -2)), torch.ones(1, 2))


def test_softened_step_is_the_papers_for_two_classes() -> None:
    logits = torch.tensor([[0.3, 1.2]])
    expected = torch.sigmoid((logits[:, 1] - logits[:, 0]) / 0.2)
    torch.testing.assert_close(soften(logits, 0.2)[:, 1], expected)


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"temperature": 0.0}, {"memory": 0.0}, {"memory": 1.5}])
def test_bad_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong)).replace("samples", "sample")):
        MonteCarloRisk(GAPS["deo"], **wrong)  # type: ignore[arg-type]
