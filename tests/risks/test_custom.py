"""Risks that users bring."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.risks import RISKS, ExpectedRisk, register, relaxation
from pyro_fairvae.risks.custom import CUSTOM
from pyro_fairvae.risks.risk_loss import RiskSettings
from tests.support.cells import some_rows


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
    register("my_own", parity_gap, bound=1.0)
    logits, imputed = some_rows(rows=50, members=2)
    found, composed = (
        ExpectedRisk(risk, relaxation("step", 0.5), 4000, 1.0, "sampled")(logits, imputed, torch.ones(2))
        for risk in (CUSTOM["my_own"], RISKS["ddp"])
    )
    error = (found.standard_error.square() + composed.standard_error.square()).sqrt()
    assert bool(((found.value - composed.value).abs() < 4 * error).all())
    assert RiskSettings(risk="my_own").chosen().name == "my_own"
    with pytest.raises(InputError, match="function of draws"):
        RiskSettings(risk="my_own", risk_estimator="expected")


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
