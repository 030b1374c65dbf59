"""Channels whose rows are crossed with columns, or with the label."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.distributions import Dirichlet

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.channels.channel import Channel, Crossed
from pyro_fairvae.channels.priors import channel, columns_given, sketched_channel
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings

SEX = Attributes.single(("f", "m"), "sex")
BOTH = Attributes(("sex", "old"), (("f", "m"), ("no", "yes")))
MONTH, LABEL = Crossed("month", ("May", "June", "July"), start=1), Crossed("label", ("no", "yes"))


def drawn(made: Channel, members: int = 2) -> tuple[list[torch.Tensor], torch.Tensor]:
    rows = [Dirichlet(made.concentration(r).double()).sample((members,)) for r in range(len(made.rows))]
    return rows, made.matrix(rows)


def test_rows_masses_and_labels() -> None:
    prior = "{given: [label], rows: {f: {yes: {unavailable: 3, own: 1}}}}"
    made = channel("a", SEX, prior, [LABEL])
    assert [(row.label, row.prior, row.cells) for row in made.rows] == [
        ("f, label = no", (1.0, 1.0), (0,)),
        ("f, label = yes", (1.0, 3.0), (1,)),
        ("m, label = no", (1.0, 1.0), (0,)),
        ("m, label = yes", (1.0, 1.0), (1,)),
    ]
    assert made.truthful
    assert not channel("a", SEX, "{preset: paper, given: [label]}", [LABEL]).truthful
    assert columns_given(BOTH, "{sex: {given: [old, label]}, old: {given: [month, label]}}") == (
        "label",
        "month",
    )


def test_the_likelihood_is_that_of_the_cell() -> None:
    """Two attributes, one crossed with a column, the other with the label; against a loop, tilted or not."""
    torch.manual_seed(0)
    made = channel(
        "a", BOTH, "{sex: {preset: flat, given: [old, month]}, old: {given: label}}", [MONTH, LABEL]
    )
    draws, matrix = drawn(made)
    by_label = {row.label: draw for row, draw in zip(made.rows, draws, strict=True)}
    month = torch.tensor([2, 0, 1, 1])
    x = torch.cat([torch.randn(4, 1), torch.eye(3)[month], torch.randn(4, 2)], dim=-1).double()
    observed = torch.tensor([0, 4, 8, 5])
    cell = made.cell(x)
    assert cell.tolist() == [[[2 * m, 2 * m + 1] for m in month.tolist()]]
    for tilt in (None, torch.randn(2, 4, 2, 4).double(), torch.randn(2, 4, 2, 2, 1).double()):
        found = made.log_likelihood(matrix, observed, tilt, cell).exp()
        if tilt is not None:
            whole = made.tilted(matrix, tilt, cell)
            torch.testing.assert_close(whole.sum(-1), torch.ones(2, 4, 2, 4).double())
            torch.testing.assert_close(whole[:, torch.arange(4), ..., observed].movedim(0, 1), found)
        for k, i, y, (g, o) in itertools.product(
            range(2), range(4), range(2), itertools.product(range(2), range(2))
        ):
            rows = (
                by_label[f"sex: {'fm'[g]}, {('no', 'yes')[o]}, month = {MONTH.values[month[i]]}"][k],
                by_label[f"old: {('no', 'yes')[o]}, label = {LABEL.values[y]}"][k],
            )
            said = divmod(int(observed[i]), 3)
            expected = 1.0
            for j, row in enumerate(rows):
                full = row if j == 0 else torch.zeros(3).double().index_copy(0, torch.tensor([o, 2]), row)
                t = 0.0
                if tilt is not None:
                    t = tilt[k, i, y, j, 0] if tilt.dim() == 5 else tilt[k, i, j, 2 * g + o]
                raised = full * torch.tensor([0.0, 0.0, float(t)]).double().exp()
                expected = expected * (raised / raised.sum())[said[j]]
            torch.testing.assert_close(found[k, i, y, 2 * g + o], torch.as_tensor(expected))


@pytest.mark.parametrize("preset", ["truthful", "paper"])
@pytest.mark.parametrize("columns", [[MONTH], [LABEL], [MONTH, LABEL]])
def test_equal_rows_in_all_cells_are_the_plain_channel(columns: list[Crossed], preset: str) -> None:
    names = [column.name for column in columns]
    made = channel("a", SEX, {"preset": preset, "given": names}, columns)
    plain = channel("a", SEX, preset)
    draws, matrix = drawn(plain)
    same = [draws[row.groups[0]] for row in made.rows]
    x = torch.cat([torch.randn(5, 1), torch.eye(3)[[2, 0, 1, 1, 0]]], dim=-1).double()
    observed, tilt = torch.tensor([0, 1, 2, 2, 1]), torch.randn(2, 5, 1, 1).double()
    for t in (None, tilt):
        expected = plain.log_likelihood(matrix, observed, t)
        found = made.log_likelihood(made.matrix(same), observed, t, made.cell(x))
        if made.by_label:
            expected = expected.unsqueeze(-2).expand_as(found)
        torch.testing.assert_close(found, expected)


def test_before_a_table_is_known_the_named_values_are_shown() -> None:
    made = sketched_channel(SEX, "{given: [month], rows: {f: {May: {unavailable: 3, own: 1}}}}")
    assert [row.label for row in made.rows][:2] == ["f, month = May", "f, month = any other value"]
    made = sketched_channel(SEX, "{preset: flat, given: [label]}")
    assert [row.label for row in made.rows] == ["f, label = any value", "m, label = any value"]
    assert sketched_channel(SEX, "truthful") == channel("a", SEX, "truthful")


def table() -> Observed:
    codes = torch.tensor([0, 1, 2])
    names = ("age", "month", "day", "age is missing")
    columns = Columns(1, (3, 7, 2), names, (MONTH.values, tuple(map(str, range(7))), ("no", "yes")))
    proxy = {"u": torch.zeros(3, 1), "u_columns": Columns(1, (), ("surname",))}
    return Observed(torch.zeros(3, columns.width), codes, codes, columns, 2, 2, SEX, ("no", "yes"), **proxy)


@pytest.mark.parametrize(
    ("given", "names", "complaint"),
    [
        ("[mouth]", (), "unknown name in given of prior_a 'mouth'.*Did you mean 'month'"),
        ("[age is missing]", (), "unknown name in given"),
        ("[age]", (), "'age', which is a number.*withholding_depends_on"),
        ("[surname]", (), "'surname' is a proxy"),
        ("[month, label]", ("age", "month"), "'month' cannot be both given"),
        ("[month, day]", (), "month, day with 21 values together, but at most 12"),
        ("[month], rows: {f: {Mai: {own: 1, unavailable: 1}}}", (), "Did you mean 'May'"),
    ],
)
def test_columns_that_cannot_be_crossed(given: str, names: tuple[str, ...], complaint: str) -> None:
    settings = small_settings(prior_a=f"{{given: {given}}}", withholding_depends_on=names)
    with pytest.raises(InputError, match=complaint):
        channel_of_groups(table(), settings)


def test_labels_have_no_columns_and_images_the_label_alone() -> None:
    with pytest.raises(InputError, match="unknown attribute for label to depend on 'month'"):
        channel("y", table().label_attributes, "{given: [month]}")
    codes = torch.tensor([0, 1, 2])
    images = Observed(torch.randn(3, 64), codes, codes, Pixels(1, 8), 2, 2)
    with pytest.raises(InputError, match="images, which have no named columns"):
        channel_of_groups(images, small_settings(prior_a="{given: [month]}"))
    made = channel_of_groups(images, small_settings(prior_a="{given: [label]}"))
    assert made.cell(images.x).tolist() == [[[0, 1]] * 3]


def test_an_outcome_must_be_possible_in_every_cell() -> None:
    prior = "{given: [label], rows: {every: {yes: {f: 1, unavailable: 1}}}}"
    made = channel_of_groups(table(), small_settings(prior_a=prior))
    made.check(torch.tensor([0, 2]))
    with pytest.raises(InputError, match=r"states 'm'.*for some value of its columns"):
        made.check(torch.tensor([0, 1]))
