"""Critics beside training: whose gradients go where, going on after a kill, and the price of independence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.data import Splits
from pyro_fairvae.evaluation.dependence import mutual_information_of_numbers
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.svi import MeasuredSVI
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.risks import CellSums, DependenceRisk, RiskLoss, RiskSettings
from pyro_fairvae.risks.dependence import view_of_cells
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings


def stepped(
    table: Observed, steps: int, **options: Any
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters of model and guide, and of critics, after so many steps."""
    with pyro.get_param_store().scope():
        settings = small_settings(risk="mine", risk_from=0.0, risk_full=0.0, **options)
        program = Program(table, settings, [0, 1])
        risk = RiskLoss(settings.fairness)
        risk.give_critics([0, 1], table.classes, table.groups, None, table.like)
        optimizer = MembersAdamW(0.1, 0.1, 0.0, 5.0, sites=program.site_parameters)
        objective = FairELBO(table.rows, torch.full((2,), 5.0), risk, schedule=settings.schedule)
        svi = MeasuredSVI(program.model, program.guide, optimizer, objective)
        program.train()
        for _ in range(steps):
            torch.manual_seed(0)
            svi.step(table.batch(torch.arange(60)), 0.0)
        assert risk.critics is not None
        networks = risk.critics.networks
        assert all(parameter.grad is None for parameter in networks.parameters())
        return (
            {name: value.clone() for name, value in program.state().items()},
            {name: value.clone() for name, value in networks.state_dict().items()},
        )


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_steps_of_critics_and_of_the_classifier_leave_each_other_alone(splits: Splits) -> None:
    """How critics step shows in the classifier one step later, by the penalty alone."""
    table = splits.train
    slow, fast = stepped(table, 1, critic_rate=1e-6), stepped(table, 1, critic_rate=0.1)
    assert equal(slow[0], fast[0])
    assert not equal(slow[1], fast[1])
    slow, fast = stepped(table, 2, critic_rate=1e-6), stepped(table, 2, critic_rate=0.1)
    assert not equal(slow[0], fast[0])
    few, many = stepped(table, 1, critic_steps=1), stepped(table, 1, critic_steps=3)
    assert equal(few[0], many[0])
    assert not equal(few[1], many[1])


@pytest.mark.parametrize(("risk", "estimator"), [("mine", "smoothed"), ("infonce_given_label", "sampled")])
def test_going_on_from_a_checkpoint_equals_an_unbroken_run(
    splits: Splits, risk: str, estimator: str, tmp_path: Path
) -> None:
    settings = small_settings(epochs=4, risk=risk, risk_estimator=estimator)
    path, config = tmp_path / "checkpoint.pt", {"risk": risk}

    def keep(done: Progress) -> None:
        if done.epoch == 2:
            checkpoint.save(path, config, done.state())

    unbroken = fit(splits.train, splits.validation, (0.0, 2.0), settings, after_epoch=keep)
    state = checkpoint.load(path, config)
    resumed = fit(splits.train, splits.validation, (0.0, 2.0), settings, state=state)
    assert equal(unbroken.program.state(), resumed.program.state())
    assert unbroken.history == resumed.history


PLANTED = {"epochs": 9, "batch": 128, "hidden": 16, "lr": 0.015, "temperature": 0.5, "refine_decisions": 0}


def planted(rows: int, seed: int) -> tuple[Observed, np.ndarray, np.ndarray, torch.Tensor]:
    """P(y = 1|a) is .2 or .8: y = [s > ∓.8416] for a normal s. x is s and a; a fifth withholds its group."""
    generator = np.random.default_rng(seed)
    a = generator.integers(2, size=rows)
    score = generator.normal(size=rows)
    y = (score > np.where(a == 1, -0.8416, 0.8416)).astype(np.int64)
    x = np.stack([score, 2.0 * a - 1], 1)
    stated = np.where(generator.random(rows) < 0.2, 2, a)
    features = torch.from_numpy(x).float()
    return Observed(features, torch.from_numpy(y), torch.from_numpy(stated), Columns(2), 2, 2), y, a, features


def test_a_planted_dependence_is_removed_at_the_price_of_the_closed_form() -> None:
    """Of decisions whose rates differ by d at least (.6 − d) / 2 are wrong, for P(y=1|a) is .2 and .8."""
    train, *_ = planted(1500, 0)
    held_out, *_ = planted(400, 1)
    _, y, a, x = planted(4000, 2)
    settings = small_settings(**PLANTED, risk="mine")
    fitted = fit(train, held_out, (0.0, 30.0), settings)
    free, fair = (evaluate(y, decided, a, 2) for decided in fitted.decide(x).numpy())
    assert free["error"] < 0.02
    assert free["mutual_information"] == pytest.approx(0.193, abs=0.02)  # log 2 − H(.2)
    assert fair["mutual_information"] < 0.01
    assert fair["ddp"] < 0.12
    assert fair["error"] == pytest.approx((0.6 - fair["ddp"]) / 2, abs=0.02)


def test_decisions_are_settled_to_a_bound_on_dependence(splits: Splits) -> None:
    """Without critics: the mutual information of decisions, which they bound, is in closed form."""
    train, *_ = planted(2000, 0)
    held_out, *_ = planted(400, 1)
    _, y, a, x = planted(4000, 2)
    fold = torch.arange(train.rows) % 2
    settings = small_settings(epochs=6, batch=128, hidden=16, risk="mine", lr=0.02)
    fitted = fit_to_targets(train, held_out, (0.1, 0.02), fold, settings)
    found = [evaluate(y, decided, a, 2) for decided in fitted.decide(x).numpy()]
    assert found[0]["mine"] > 0.17
    assert found[1]["mine"] == pytest.approx(0.1, abs=0.03)
    assert found[2]["mine"] == pytest.approx(0.02, abs=0.03)
    assert found[0]["error"] < found[1]["error"] < found[2]["error"] < 0.34


def test_without_a_hidden_layer_the_risk_is_the_closed_form(splits: Splits) -> None:
    table = splits.train
    risk = RiskLoss(build(RiskSettings, {"risk": "mine", "critic_hidden": 0}))
    risk.give_critics([0], table.classes, table.groups, None, table.like)
    assert risk.critics is None
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 50, 2, generator=generator)
    imputed = torch.rand(1, 50, 2, 2, generator=generator)
    imputed = imputed / imputed.sum((-2, -1), keepdim=True)
    plain = RiskLoss(RiskSettings(risk="mutual_information")).estimator
    found = risk.estimator(logits, imputed, torch.full((1,), 3.0))
    torch.testing.assert_close(found.value, plain(logits, imputed, torch.ones(1)).value)
    torch.testing.assert_close(found.penalty, 3 * found.value)  # λ as it is, with no smoothing at 0


def test_levels_of_a_number_enter_as_the_numbers_that_they_stand_for() -> None:
    """The dependence of decisions on the number itself is removed, by an estimate that knows no levels."""
    generator = np.random.default_rng(0)
    age, score = generator.uniform(20, 60, size=1500), generator.normal(size=1500)
    levels = Levels.of(age, 6)
    y = (score + (age - 40) / 15 > 0).astype(np.int64)
    x = torch.from_numpy(np.stack([score, (age - 40) / 12], 1)).float()
    groups = len(levels.names)
    stated = np.where(generator.random(1500) < 0.2, groups, levels.code(age))
    table = Observed(
        x, torch.from_numpy(y), torch.from_numpy(stated), Columns(2), 2, groups,
        Attributes.of_number(levels, "age"),
    )  # fmt: skip
    settings = small_settings(**PLANTED, risk="mine")
    risk = RiskLoss(settings.fairness)
    risk.give_critics([0], 2, groups, levels.centres, table.like)
    assert isinstance(risk.estimator.risk, DependenceRisk)
    sums = CellSums(torch.ones(1, 1, 2, groups), torch.ones(1, 1, 2, groups, 2))
    told = view_of_cells(sums, False, risk.estimator.risk.centres).categories[0, :, 0]
    centres = np.array(levels.centres)
    np.testing.assert_allclose(told, (centres - centres.mean()) / centres.std(), rtol=1e-5)
    fitted = fit(table, table, (0.0, 100.0), settings)
    free, fair = (
        mutual_information_of_numbers(decided, age, discrete=(True, False))
        for decided in fitted.decide(x).numpy()
    )
    assert free > 0.1
    assert fair < free / 3


def test_risk_classes_are_refused() -> None:
    with pytest.raises(InputError, match="'mine' is about decisions of all classes"):
        small_settings(risk="mine", risk_classes=(1,))
