"""The program of an outcome that is a number: its sites, and rows drawn from it."""

from __future__ import annotations

import pytest
import torch
from pyro import poutine
from pyro_fairvae.guides import StatedOrNormal

from pyro_fairvae.inference.program import Program
from pyro_fairvae.schema.observed import Observed
from tests.support.numbers import number_table
from tests.support.small import small_settings


def made(members: int = 1, **options: object) -> tuple[Program, Observed]:
    table = number_table(200, levels=4).observed
    return Program(table, small_settings(risk="mean_gap", **options), list(range(members))), table


@pytest.mark.parametrize("prior", ["truthful", "mar"])
def test_sites_of_model_and_guide_are_those_of_their_docstrings(prior: str) -> None:
    program, table = made(prior_y=prior)
    batch = table.batch(torch.arange(6))
    guide = poutine.trace(program.guide).get_trace(batch)
    with poutine.trace() as traced, poutine.replay(trace=guide):
        program.model(batch)
    plates = ("members", "rows")
    of_channels = [
        "channel_a_0",
        "channel_a_1",
        *(f"channel_y_{r}" for r in range(len(program.model.channel_y.rows))),
    ]
    order = [name for name in traced.trace.stochastic_nodes if name not in plates]
    assert order == ["pi_a", *of_channels, "z", "a", "y"]
    assert [name for name in guide.stochastic_nodes if name not in plates] == [
        "pi_a", *of_channels, "z", "y", "a",
    ]  # fmt: skip
    assert (len(of_channels) == 3) == (prior == "mar")
    assert ("smoothness_y" in traced.trace.nodes) == (prior == "truthful")


def test_rows_drawn_from_the_model_state_their_level_or_nothing() -> None:
    """Prior simulation: y given a is Gaussian, and what is recorded of it is its own level or ∅."""
    program, table = made(members=2, prior_y="truthful")
    with torch.no_grad():
        program.model.outcome_loc.copy_(torch.tensor([[[-1.0, 2.0]], [[0.0, 0.5]]]))
        program.model.outcome_log_scale.copy_(torch.tensor([0.3, 0.8]).log().expand(2, 1, 2))
    nothing = table.batch(torch.arange(200).repeat(100))
    nothing = type(nothing)(
        nothing.x, torch.full_like(nothing.y_obs, 4), nothing.a_obs, outcome=nothing.outcome
    )
    trace = poutine.trace(poutine.uncondition(program.model)).get_trace(nothing)
    y, a, y_obs = (trace.nodes[site]["value"].detach().expand(2, 20_000) for site in ("y", "a", "y_obs"))
    for k, means in enumerate(((-1.0, 2.0), (0.0, 0.5))):
        for g, scale in enumerate((0.3, 0.8)):
            drawn = y[k][a[k] == g]
            assert float(drawn.mean()) == pytest.approx(means[g], abs=0.05)
            assert float(drawn.std()) == pytest.approx(scale, rel=0.05)
    own = torch.bucketize(y, program.model.edges, right=True)
    assert bool(((y_obs == own) | (y_obs == 4)).all())
    assert {*y_obs.unique().tolist()} == {0, 1, 2, 3, 4}


def test_a_stated_number_is_a_point_and_others_are_drawn() -> None:
    stated = torch.tensor([True, False]).expand(3, 2)
    loc, scale = torch.zeros(3, 2, requires_grad=True), torch.full((3, 2), 2.0, requires_grad=True)
    of = StatedOrNormal(stated, torch.tensor([7.0, 0.0]), loc, scale)
    drawn = of.rsample()
    assert drawn[:, 0].tolist() == [7.0] * 3
    (drawn.sum() + of.log_prob(drawn).sum()).backward()
    assert loc.grad is not None
    assert loc.grad[:, 0].tolist() == [0.0] * 3
    assert scale.grad is not None
    assert scale.grad[:, 0].tolist() == [0.0] * 3
    found = of.log_prob(torch.tensor([7.0, 1.0]))
    expected = torch.distributions.Normal(0.0, 2.0).log_prob(torch.tensor(1.0))
    torch.testing.assert_close(found, torch.stack([torch.tensor(0.0), expected]).expand(3, 2))
    assert of.expand((5, 3, 2)).rsample().shape == (5, 3, 2)
