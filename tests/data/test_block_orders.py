"""Every epoch has every row once, in an order that is made a window at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.data import block_orders
from pyro_fairvae.data.block_orders import BlockOrders

CPU = torch.device("cpu")
ROWS, BATCH = 1003, 32


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_orders, "BLOCK", 8)
    monkeypatch.setattr(block_orders, "WINDOW", 200)


def test_an_epoch_has_every_row_once() -> None:
    order = BlockOrders(ROWS, BATCH, 2).of_epoch(1, CPU)
    steps = list(order)
    assert len(order) == len(steps) == pytest.approx(ROWS / BATCH, abs=3)
    assert torch.cat(steps).sort().values.tolist() == list(range(ROWS))
    assert max(map(len, steps)) - min(map(len, steps)) <= 9
    first = torch.cat(steps[:6]).double()
    assert float(first.std()) > ROWS / 5  # from all over the table
    other = BlockOrders(ROWS, BATCH, 2).of_epoch(2, CPU)
    assert not torch.equal(other[0][:9], order[0][:9])


def test_steps_are_the_same_in_any_order_of_asking() -> None:
    orders = BlockOrders(ROWS, BATCH, 2)
    forward, backward = orders.of_epoch(3, CPU), orders.of_epoch(3, CPU)
    steps = list(forward)
    for place in reversed(range(len(steps))):
        assert torch.equal(backward[place], steps[place])
    assert all(torch.equal(one, two) for one, two in zip(backward[4:9], steps[4:9], strict=True))
    with pytest.raises(IndexError):
        forward[len(steps)]


def test_members_see_the_rows_outside_their_fold_alone() -> None:
    fold = np.random.default_rng(0).permutation(ROWS) % 4
    orders = BlockOrders(ROWS, BATCH, 5, fold.astype(np.uint8))
    steps = list(orders.of_epoch(1, CPU))
    seen = torch.cat(steps, dim=-1).numpy()
    assert seen.shape[0] == 5
    for member, rows in enumerate(seen):
        assert len(set(rows.tolist())) == len(rows)  # each at most once
        assert not (fold[rows] == member).any()
        assert len(rows) > 0.9 * 0.75 * ROWS
    assert len(np.unique(fold[seen[4]])) == 4  # the last one is trained on all folds
