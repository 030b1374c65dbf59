"""The risk beside anybody's ELBO, by hand, and in the semi-supervised VAE of the gallery."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO
from torch import Tensor, nn

from pyro_fairvae import InputError, RiskELBO, RiskSettings

EXAMPLE = Path(__file__).parents[2] / "docs" / "gallery" / "plot_own_program.py"
ROWS = 40
QUIET = TraceEnum_ELBO(max_plate_nesting=1, strict_enumeration_warning=False)  # nothing is enumerated


class Judged:
    """A classifier with one network of imputations, and what it is told of forty rows."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.classifier, self.imputer = nn.Linear(3, 2).double(), nn.Linear(3, 4).double()
        self.x = torch.randn(ROWS, 3, dtype=torch.float64)
        self.y = torch.randint(2, (ROWS,))

    def model(self, x: Tensor, y: Tensor) -> None:
        pyro.module("classifier", self.classifier)
        pyro.module("imputer", self.imputer)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Categorical(logits=self.classifier(x)), obs=y)

    def guide(self, x: Tensor, y: Tensor) -> None:
        pass

    def judge(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.classifier(x), self.imputer(x).softmax(-1).unflatten(-1, (2, 2))

    def loss(self, weight: float, elbo: Any = None, **risk: Any) -> RiskELBO:
        settings = RiskSettings(risk="ddp", risk_estimator="expected", memory=1, temperature=0.5, **risk)
        return RiskELBO(elbo or QUIET, self.judge, weight, ROWS, settings)


@pytest.mark.parametrize("elbo", [Trace_ELBO(), QUIET])
def test_the_loss_is_the_elbo_and_the_gap_of_expected_rates(elbo: Any) -> None:
    judged = Judged()
    fair = judged.loss(0.7, elbo)
    found = fair.loss(judged.model, judged.guide, judged.x, judged.y)
    logits = judged.classifier(judged.x).detach()
    log_likelihood = logits.log_softmax(-1)[torch.arange(ROWS), judged.y].numpy()
    of_group = judged.imputer(judged.x).softmax(-1).unflatten(-1, (2, 2)).sum(-2).detach().numpy()
    decided = (logits / 0.5).softmax(-1).numpy()
    rates = (of_group.T @ decided) / of_group.sum(0)[:, None]
    gap = np.abs(rates[0] - rates[1]).max()
    assert fair.gap.item() == pytest.approx(gap)
    assert found == pytest.approx(-log_likelihood.mean() + 0.7 * gap)


def test_the_risk_has_no_gradient_into_imputations() -> None:
    judged = Judged()
    fair = judged.loss(1.0)
    fair.loss_and_grads(judged.model, judged.guide, judged.x, judged.y)
    assert all(parameter.grad is None for parameter in judged.imputer.parameters())
    assert judged.classifier.weight.grad is not None


def test_members_have_weights_of_their_own() -> None:
    """Each as if it were alone."""
    judged = Judged()
    logits, imputed = judged.judge(judged.x, judged.y)
    two = RiskELBO(
        Trace_ELBO(), lambda x, y: (logits.expand(2, -1, -1), imputed.expand(2, -1, -1, -1)),
        torch.tensor([0.0, 2.0]), ROWS, RiskSettings(risk="ddp", memory=1),
    )  # fmt: skip
    one = RiskELBO(Trace_ELBO(), judged.judge, 2.0, ROWS, RiskSettings(risk="ddp", memory=1))
    arguments = (judged.model, judged.guide, judged.x, judged.y)
    assert two.loss(*arguments) == pytest.approx(one.loss(*arguments))
    torch.testing.assert_close(two.gap, one.gap.expand(2))


def test_the_loss_as_a_number_leaves_the_memory_as_it_is() -> None:
    judged = Judged()
    fair = RiskELBO(Trace_ELBO(), judged.judge, 1.0, ROWS)
    arguments = (judged.model, judged.guide, judged.x, judged.y)
    fair.loss(*arguments)
    assert fair.risk.estimator.state() == {}
    svi = SVI(judged.model, judged.guide, pyro.optim.Adam({"lr": 0.1}), fair)
    with pyro.get_param_store().scope():
        svi.step(judged.x, judged.y)
    assert fair.risk.estimator.state()


def test_what_cannot_be_used_is_refused() -> None:
    judged = Judged()
    with pytest.raises(InputError, match="rows must be at least 1, got 0"):
        RiskELBO(Trace_ELBO(), judged.judge, 1.0, 0)
    with pytest.raises(InputError, match="takes risks with stopped gradients"):
        RiskELBO(Trace_ELBO(), judged.judge, 1.0, ROWS, RiskSettings(risk="mine"))
    wrong = RiskELBO(Trace_ELBO(), lambda x, y: (judged.classifier(x), judged.x), 1.0, ROWS)
    with pytest.raises(InputError, match=r"judge must return .* it returned \(40, 2\) and \(40, 3\)"):
        wrong.loss(judged.model, judged.guide, judged.x, judged.y)


def test_the_vae_of_the_gallery_becomes_fair_and_learns_who_withholds() -> None:
    """On fewer rows; who withholds is .3 and .7."""
    matplotlib.use("agg")
    source = re.sub(r"ROWS, STEPS = .*", "ROWS, STEPS = 3000, 200", EXAMPLE.read_text())
    with pyro.get_param_store().scope():
        names: dict[str, Any] = {}
        exec(compile(source, str(EXAMPLE), "exec"), names)
    found = names["found"]
    assert found["P(∅|0)"].between(0.2, 0.4).all()
    assert found["P(∅|1)"].between(0.6, 0.8).all()
    free, fair = found["deo"]
    assert fair < free / 3
    assert found["error"].max() < 0.3
