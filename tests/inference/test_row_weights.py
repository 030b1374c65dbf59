"""Weights of rows in the objective and in posteriors, against rows that are repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.ranks import Ranks
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.decisions.targets import judged
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.regression_objective import RegressionELBO
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit, held_out_scores
from pyro_fairvae.posterior.calibration import calibrate_scores
from pyro_fairvae.posterior.sampler import bin_tables
from pyro_fairvae.posterior.scored_rows import ScoredRows
from pyro_fairvae.posterior.second_stage import SecondStage
from pyro_fairvae.risks import RISKS, NumberRiskLoss, RiskLoss
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Observed
from tests.support.numbers import number_table
from tests.support.small import small_settings, three_groups

TIMES = torch.tensor([1, 3, 2, 1, 1, 4, 2, 1, 3, 1, 2, 2])
SOME, MEMBERS = len(TIMES), 2
ORIGIN = torch.arange(SOME).repeat_interleave(TIMES)
WEIGHT = TIMES.double() / TIMES.double().mean()


class SameNoise:
    """Draws that are the same for copies of a row."""

    rows = 0  # of a part; this one is of all

    def __init__(self, origin: Tensor) -> None:
        self.origin = origin

    def of_rows(self, ranks: Ranks, rows: int) -> SameNoise:
        assert ranks.count == 1
        return self

    def normal(self, shape: tuple[int, ...], like: Tensor, rows: int | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(MEMBERS, SOME, *shape[1:], generator=generator, dtype=like.dtype)
        return drawn[:, self.origin]

    def uniform(self, shape: tuple[int, ...], like: Tensor, rows: int | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        drawn = torch.rand(MEMBERS, *shape[:-1], SOME, generator=generator, dtype=like.dtype)
        return drawn[..., self.origin]


def of_kind(numbers: bool, **options: Any) -> tuple[Observed, Settings]:
    table = number_table(120, levels=5).observed if numbers else three_groups()
    changes = ({"risk": "mean_gap"} if numbers else {}) | {"sites": "map"} | options
    return table.to("cpu", torch.float64), small_settings(**changes)


def loss_of(
    table: Observed, settings: Settings, origin: Tensor, weight: Tensor | None
) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
    program = Program(table, settings, [0, 1]).to(torch.device("cpu"), torch.float64)
    lambdas = torch.tensor([0.0, 2.0], dtype=torch.float64)
    people = int(TIMES.sum())
    if table.number is None:
        fair = FairELBO(people, lambdas, RiskLoss(settings.fairness), settings.objective_weights)
    else:
        risk = NumberRiskLoss(settings.fairness, table.number, table.like)
        fair = RegressionELBO(people, lambdas, risk, settings.objective_weights)
    batch = replace(table.batch(origin), weight=weight)
    found = fair.evaluate(program.model, program.guide, batch, noise=SameNoise(origin))  # type: ignore[arg-type]
    parameters = [*program.model.parameters(), *program.guide.parameters()]
    gradients = torch.autograd.grad(found.loss, parameters, allow_unused=True)
    return found.loss.detach(), found.measured.parts, [part for part in gradients if part is not None]


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        (False, {}),
        (False, {"objective": "paper"}),
        (False, {"withholding_depends_on": ("label",)}),
        (False, {"risk_estimator": "expected", "imputer": "features"}),
        (False, {"risk_estimator": "sampled"}),
        (True, {}),
    ],
)
def test_the_objective_of_weighted_rows_is_that_of_repeated_ones(
    numbers: bool, options: dict[str, Any]
) -> None:
    table, settings = of_kind(numbers, **options)
    one = loss_of(table, settings, torch.arange(SOME), WEIGHT)
    other = loss_of(table, settings, ORIGIN, None)
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=1e-10)
    assert one[1].keys() == other[1].keys()
    for name, part in one[1].items():
        torch.testing.assert_close(part, other[1][name], rtol=0, atol=1e-10, msg=name)
    assert len(one[2]) == len(other[2])
    for mine, theirs in zip(one[2], other[2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


def test_held_out_scores_weigh_rows() -> None:
    table, settings = of_kind(False)
    some = table.take(torch.arange(SOME))
    program = Program(table, settings, [0, 1]).to(torch.device("cpu"), torch.float64)
    weighted = held_out_scores(program, replace(some, weight=WEIGHT))
    repeated = held_out_scores(program, table.take(ORIGIN))
    for name, value in weighted.items():
        torch.testing.assert_close(value, repeated[name])


@pytest.mark.parametrize("options", [{"risk": "deo", "labeller": "propagation"}])
def test_rows_that_cannot_be_weighed_are_refused(options: dict[str, Any]) -> None:
    table = three_groups()
    weighted = replace(table, weight=torch.linspace(0.5, 1.5, table.rows))
    with pytest.raises(InputError, match="leave sample_weight out"):
        fit(weighted, table, (0.0, 1.0), small_settings(epochs=1, **options))


def test_weights_of_a_table_are_positive_and_follow_its_rows() -> None:
    table = three_groups()
    with pytest.raises(InputError, match="positive number for each row"):
        replace(table, weight=torch.zeros(table.rows))
    weighted = replace(table, weight=torch.linspace(0.5, 1.5, table.rows))
    assert weighted.take(torch.arange(10)).weight is not None
    assert float(weighted.take(torch.arange(10)).weight.mean()) == pytest.approx(1)  # type: ignore[union-attr]
    assert sum(len(batch.weight) for batch in weighted.chunks()) == table.rows  # type: ignore[arg-type, misc]
    by_hand = float(weighted.weight.sum() ** 2 / weighted.weight.square().sum())  # type: ignore[union-attr]
    assert weighted.effective_rows == pytest.approx(by_hand)
    assert table.effective_rows == table.rows


def test_the_second_stage_of_weighted_rows_is_that_of_repeated_ones() -> None:
    draw = np.random.default_rng(0)
    scores = torch.from_numpy(draw.dirichlet([2, 2], SOME))[None]
    observed = torch.from_numpy(draw.integers(3, size=SOME))[None]
    v = torch.from_numpy(draw.normal(size=(1, SOME, 2)))
    of = channel("a", Attributes.single(("0", "1")), "truthful")
    weighted = SecondStage(of, ScoredRows.make(scores, observed, 3, v, weights=TIMES.double()[None]))
    again = ScoredRows.make(scores[:, ORIGIN], observed[:, ORIGIN], 3, v[:, ORIGIN])
    repeated = SecondStage(of, again)
    q = weighted.start() + 0.1
    torch.testing.assert_close(weighted.log_density(q), repeated.log_density(q))
    torch.testing.assert_close(weighted.information(q), repeated.information(q))


@pytest.mark.parametrize("prior", ["truthful", "paper"])
def test_posteriors_of_channels_are_as_wide_as_of_the_effective_number_of_rows(prior: str) -> None:
    """Half of the people withhold; rows of them are taken twice as often, and weigh half."""
    draw = np.random.default_rng(1)
    rows = 3000
    withheld = draw.random(rows) < 2 / 3
    group = draw.integers(2, size=rows)
    scores = np.where(group[:, None] == [0, 1], 0.9, 0.1)
    observed = np.where(withheld, 2, group)
    weights = np.where(withheld, 0.5, 1.0)
    given = torch.from_numpy(scores)[None], torch.from_numpy(observed)[None]
    of = channel("a", Attributes.single(("0", "1")), prior)
    found = calibrate_scores(of, *given, 200, 0, weights=torch.from_numpy(weights)[None])
    rates = found.draws.of(0, "unavailable")
    assert rates.mean() == pytest.approx(0.5, abs=0.06)
    if prior == "truthful":
        effective = weights.sum() ** 2 / np.square(weights).sum()
        assert effective < rows
        assert rates.std() == pytest.approx(np.sqrt(0.25 / (effective / 2)), rel=0.45)
    assert found.bins.counts.sum() == pytest.approx(weights.sum() ** 2 / np.square(weights).sum(), abs=20)


def test_bins_of_weighted_rows_are_those_of_repeated_ones() -> None:
    draw = np.random.default_rng(0)
    scores, observed = draw.dirichlet([1, 1], (1, 80)), draw.integers(3, size=(1, 80))
    times = draw.integers(1, 4, size=80)
    made = bin_tables(scores, observed, 3, times[None].astype(float))
    assert made.counts.sum((0, 1)).tolist() == np.bincount(observed[0], times, 3).astype(int).tolist()


def test_decisions_are_judged_by_weighed_rows() -> None:
    table = three_groups()
    some = replace(table.take(torch.arange(SOME)), weight=WEIGHT.float())
    draw = torch.Generator().manual_seed(0)
    joint = torch.rand(SOME, 9, generator=draw).softmax(-1).unflatten(-1, (3, 3)).double()
    scores = torch.rand(SOME, 3, generator=draw).softmax(-1).double()
    nu = torch.randn(3, 3, 3, generator=draw).double()
    masses = some.weighed(joint.flatten(-2)).unflatten(-1, (3, 3))
    weighted = judged(scores, joint, masses, masses.sum(-1), RISKS["deo"], nu)
    repeated = judged(*(part[ORIGIN] for part in (scores, joint, joint, joint.sum(-1))), RISKS["deo"], nu)
    for one, other in zip(weighted, repeated, strict=True):
        assert float(one) == pytest.approx(float(other), abs=1e-6)
