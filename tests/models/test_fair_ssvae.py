"""The pieces of model and guide against other ways to compute them."""

from __future__ import annotations

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro_fairvae.models import MixedColumns, NormalColumns

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.inference.program import Program
from pyro_fairvae.nn.encoder import Encoder
from pyro_fairvae.nn.members import Members
from pyro_fairvae.nn.tabular import ColumnDecoder, NumberPieces, mlp_trunk, piece_edges
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Columns
from tests.support.small import small_settings, three_groups


def test_mixed_columns_equal_pyros_own_distributions() -> None:
    columns = Columns(2, (3, 2))
    parameters, log_scale = torch.randn(4, 5, 7), torch.randn(2)
    numbers = torch.randn(5, 2)
    first, second = torch.randint(3, (5,)), torch.randint(2, (5,))
    x = torch.cat([numbers, torch.eye(3)[first], torch.eye(2)[second]], dim=-1)
    expected = (
        dist.Normal(parameters[..., :2], log_scale.exp()).log_prob(numbers).sum(-1)
        + dist.Categorical(logits=parameters[..., 2:5]).log_prob(first)
        + dist.Categorical(logits=parameters[..., 5:]).log_prob(second)
    )
    torch.testing.assert_close(MixedColumns(parameters, log_scale, columns).log_prob(x), expected)
    all_normal = NormalColumns(parameters, torch.zeros(7), columns).log_prob(x)
    torch.testing.assert_close(all_normal, dist.Normal(parameters, 1.0).log_prob(x).sum(-1))


def test_mixed_columns_draw_rows_of_their_kind() -> None:
    columns = Columns(1, (3,))
    parameters = torch.tensor([5.0, 0.0, 1.0, 2.0]).expand(4000, 4)
    drawn = MixedColumns(parameters, torch.zeros(1), columns).sample()
    assert torch.equal(drawn[:, 1:].sum(-1), torch.ones(4000))
    assert drawn[:, 0].mean().item() == pytest.approx(5, abs=0.1)
    torch.testing.assert_close(
        drawn[:, 1:].mean(0), torch.tensor([0.0, 1.0, 2.0]).softmax(-1), atol=0.03, rtol=0
    )


def test_members_apply_each_copy_to_its_slice() -> None:
    def build(_: int) -> Encoder:
        return Encoder(mlp_trunk(4, 6, 3), 6, 2, 3, 2)

    members = Members(build, [0, 1, 0])
    x = torch.randn(3, 5, 4)
    together = members(x, in_dims=(0,))
    for k, seed in enumerate([0, 1, 0]):
        torch.manual_seed(seed)
        for mine, other in zip(together, build(k)(x[k]), strict=True):
            torch.testing.assert_close(mine[k], other)


def test_decoder_keeps_enumeration_dimensions() -> None:
    members = Members(lambda _: ColumnDecoder(2, 3, 2, 4, 5), [0, 1])
    z = torch.randn(2, 6, 2)
    a, y = torch.arange(2).view(2, 1, 1, 1), torch.arange(3).view(3, 1, 1)
    out = members(z, a.expand(2, 1, 2, 1), y.expand(3, 2, 1), in_dims=(-3, -2, -2), out_dims=-3)
    assert out.shape == (2, 3, 2, 6, 5)
    one = members(z, torch.full((2, 6), 1), torch.full((2, 6), 2), in_dims=(-3, -2, -2), out_dims=-3)
    torch.testing.assert_close(out[1, 2], one)


@pytest.mark.parametrize("prior", ["truthful", "flat", "paper", "mar"])
def test_channel_likelihood_equals_indexing(prior: str) -> None:
    made = channel("a", Attributes.single(("0", "1", "2")), prior)
    rows = [torch.distributions.Dirichlet(made.concentration(r)).sample((2,)) for r in range(len(made.rows))]
    matrix = made.matrix(rows)
    assert matrix.shape == (2, 3, 4)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(2, 3))
    for observed in (torch.tensor([0, 3, 1]), torch.tensor([[0, 3, 1], [2, 2, 3]])):
        found = made.log_likelihood(matrix, observed)
        for k in range(2):
            for i in range(3):
                o = observed[i] if observed.dim() == 1 else observed[k, i]
                torch.testing.assert_close(found[k, i], matrix[k, :, o].log())


def test_sites_of_model_and_guide_come_in_the_order_of_their_docstrings() -> None:
    table = three_groups()
    program = Program(table, small_settings(), [0])
    batch = table.batch(torch.arange(5))
    guide = poutine.trace(program.guide).get_trace(batch)
    with poutine.trace() as traced, poutine.replay(trace=guide):
        program.model(batch)
    order = [name for name in traced.trace.stochastic_nodes if name not in ("members", "rows")]
    assert order == [
        "pi", *(f"channel_a_{g}" for g in range(3)), *(f"channel_y_{c}" for c in range(3)), "z", "y", "a",
    ]  # fmt: skip
    assert [n for n in guide.stochastic_nodes if n not in ("members", "rows")] == order
    assert traced.trace.nodes["x"]["is_observed"]


def test_model_alone_generates_rows_of_the_right_kind() -> None:
    """Prior simulation: the model is a program of its own, with the rates of its channels in its rows."""
    table = three_groups()
    program = Program(table, small_settings(), [0, 1])
    model = poutine.uncondition(program.model)
    trace = poutine.trace(model).get_trace(table.batch(torch.arange(50)))
    x = trace.nodes["x"]["value"]
    assert x.shape == (2, 50, table.columns.width)
    assert torch.equal(x[..., table.columns.numbers :].sum(-1), torch.ones(2, 50))
    a, a_obs = trace.nodes["a"]["value"], trace.nodes["a_obs"]["value"]
    assert bool(((a_obs == a) | (a_obs == 3)).all())


def test_numbers_in_pieces_are_as_interpolated_by_numpy() -> None:
    generator = np.random.default_rng(0)
    rows = np.stack([generator.normal(size=50), np.where(np.arange(50) < 45, 0.0, np.arange(50))], axis=1)
    x = torch.from_numpy(np.concatenate([rows, np.ones((50, 3))], axis=1))
    edges = piece_edges(x[:, :2], pieces=4)
    encoded = NumberPieces(edges)(x)
    assert torch.equal(encoded[:, :5], x)
    for column in range(2):
        found = encoded[:, 5 + 4 * column : 9 + 4 * column].sum(-1).numpy()
        np.testing.assert_allclose(found, np.interp(rows[:, column], edges[column].numpy(), np.arange(5)))
    assert torch.equal(edges[1, [0, -1]], torch.tensor([0.0, 49.0], dtype=torch.float64))
    constant = NumberPieces(piece_edges(torch.ones(4, 1), pieces=3))(torch.ones(4, 1))
    assert constant.isfinite().all()
