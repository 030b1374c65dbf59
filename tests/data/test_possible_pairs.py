"""The pairs (y, a) that rows leave possible, against loops over all of them."""

from __future__ import annotations

import pytest
import torch

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.possible_pairs import PairsOfRows
from tests.support.small import three_groups

MISSTATED = "{rows: {0: {own: 3, unavailable: 2}, every: {own: 3, other: 1, unavailable: 2}}}"


@pytest.mark.parametrize("prior", ["truthful", MISSTATED])
@pytest.mark.parametrize("at_once", [1, 64])
def test_pairs_of_batches(prior: str, at_once: int) -> None:
    """In the order of the rows, each batch counted from its own first row, and of the ELBO's rows alone."""
    table = three_groups()
    of_a, of_y = channel("a", table.group_attributes, prior), channel("y", table.label_attributes, "truthful")
    pairs = PairsOfRows(table, of_a, of_y, at_once)
    assert pairs.some_impossible
    order = torch.randperm(table.rows, generator=torch.Generator().manual_seed(0)).tensor_split(4)
    found = list(pairs.of(order, lambda rows: rows - 3))
    assert len(found) == 4
    for index, of_batch in zip(order, found, strict=True):
        expected = [
            (row, y, a)
            for row, i in enumerate(index[:-3].tolist())
            for y in range(table.classes)
            for a in range(table.groups)
            if of_y.possible[y, table.y_obs[i]] and of_a.possible[a, table.a_obs[i]]
        ]
        triples = zip(of_batch.rows.tolist(), of_batch.labels.tolist(), of_batch.groups.tolist(), strict=True)
        assert list(triples) == expected


def test_where_anybody_may_say_anything_all_are_possible() -> None:
    table = three_groups()
    of_a, of_y = (channel(name, of, "flat") for name, of in
                  (("a", table.group_attributes), ("y", table.label_attributes)))  # fmt: skip
    assert not PairsOfRows(table, of_a, of_y).some_impossible
