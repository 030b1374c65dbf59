"""Where the gradient of the risk goes, and where it must not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pyro_fairvae.inference.objective import FairELBO, beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.risks import IMPUTERS, RISKS, Beliefs, RiskLoss, RiskSettings
from pyro_fairvae.risks.expectation import ESTIMATORS, relaxed_cell_sums
from tests.support.small import small_settings, three_groups

HEADS = ("group", "grouper", "labeller", "z_loc", "z_scale")


def touched_by_the_risk(decisions: bool = False, **options: object) -> set[str]:
    """Names of the guide's parameters that have a gradient of the risk, or of the decisions' error."""
    table = three_groups().to("cpu", torch.float64)
    settings = small_settings(**options)
    program = Program(table, settings, [0]).to(torch.device("cpu"), torch.float64)
    fair = FairELBO(table.rows, torch.ones(1, dtype=torch.float64), RiskLoss(settings.fairness))
    batch = table.batch(torch.arange(table.rows))
    encoding = fair.run(program.model, program.guide, batch).encoding
    held = beliefs(encoding, batch.a_obs != table.groups)
    risk = fair.risk(encoding.heads.class_logits, held, fair.lambdas).penalty
    if decisions:
        risk = fair.risk.decision_error(encoding.heads.class_logits, held)
    parameters = dict(program.guide.named_parameters())
    grads = torch.autograd.grad(risk.sum(), list(parameters.values()), allow_unused=True)
    return {
        name
        for name, grad in zip(parameters, grads, strict=True)
        if grad is not None and bool((grad != 0).any())
    }


@pytest.mark.parametrize("imputer", sorted(IMPUTERS))
@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_risk_reaches_the_class_head_and_never_the_group_head(imputer: str, estimator: str) -> None:
    if (imputer, estimator) == ("control_variate", "sampled"):
        pytest.skip("nothing can be drawn from the imputer 'control_variate', and the settings say so")
    touched = touched_by_the_risk(imputer=imputer, risk_estimator=estimator)
    assert {"encoder.classifier/weight", "encoder.trunk/1/weight"} <= touched
    assert not any(name.startswith((*(f"encoder.{head}/" for head in HEADS), "sites.")) for name in touched)


def test_vanilla_risk_reaches_the_group_head_too() -> None:
    touched = touched_by_the_risk(risk_gradient="vanilla", imputer="features")
    assert {"encoder.classifier/weight", "encoder.group/weight"} <= touched


def test_vanilla_gradient_points_where_enumeration_does() -> None:
    """Four rows, so that E F over groups and its gradient by the group logits can be enumerated.

    Straight-through Gumbel-softmax is biased, so its mean is compared in direction.
    """
    torch.manual_seed(0)
    rows = 4
    p = torch.tensor([0.1, 0.4, 0.7, 0.9], dtype=torch.float64)
    predictions = torch.stack([1 - p, p], dim=-1)[None, :, None]
    label = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64).expand(1, rows, 2)  # all of class 0
    logits = torch.randn(1, rows, 2, dtype=torch.float64, requires_grad=True)

    def risk_of(groups: Tensor) -> Tensor:
        weights = [(groups == g).double() for g in (0, 1)]
        if any(w.sum() == 0 for w in weights):
            return torch.zeros((), dtype=torch.float64)
        rates = [(w * p).sum() / w.sum() for w in weights]
        return (rates[1] - rates[0]).abs()

    q = logits.softmax(-1)[0]
    total = torch.zeros((), dtype=torch.float64)
    for code in range(2**rows):
        groups = torch.tensor([(code >> i) & 1 for i in range(rows)])
        total = total + q[torch.arange(rows), groups].prod() * risk_of(groups)
    (exact,) = torch.autograd.grad(total, logits)

    sums = relaxed_cell_sums(predictions, label, logits.log_softmax(-1), samples=60_000, temperature=0.7)
    gaps = RISKS["ddp"](sums)
    (found,) = torch.autograd.grad(gaps.value.mean(), logits)
    cosine = torch.nn.functional.cosine_similarity(found.flatten(), exact.flatten(), dim=0)
    assert cosine > 0.9


@pytest.mark.parametrize("thresholds", [(0.5,), (0.3, 0.6)])
def test_decision_error_is_that_of_drawn_labels_and_groups(thresholds: tuple[float, ...]) -> None:
    """Labels and groups drawn from the beliefs, decisions from the softened step at the group's τ."""
    torch.manual_seed(0)
    rows, draws = 5, 200_000
    logits = torch.randn(1, rows, 2, dtype=torch.float64)
    label, group = torch.randn(2, 1, rows, 2, dtype=torch.float64).log_softmax(-1)
    held = Beliefs(label, group, group.unsqueeze(-2), group, label, torch.zeros(rows, dtype=torch.bool))
    term = RiskLoss(RiskSettings(thresholds=thresholds, temperature=0.7))
    y, a = (torch.distributions.Categorical(logits=each[0]).sample((draws,)) for each in (label, group))
    tau = torch.tensor(thresholds, dtype=torch.float64).expand(2)[a]
    chance = torch.sigmoid((logits[0, :, 1] - logits[0, :, 0] - tau.logit()) / 0.7)
    wrong = (torch.rand(draws, rows, dtype=torch.float64) < chance).long() != y
    assert term.decision_error(logits, held).item() == pytest.approx(wrong.double().mean().item(), abs=0.003)


def test_decision_error_reaches_the_classifier_and_no_imputer() -> None:
    touched = touched_by_the_risk(decisions=True)
    assert "encoder.classifier/weight" in touched
    assert not any(name.startswith((*(f"encoder.{head}/" for head in HEADS), "sites.")) for name in touched)
