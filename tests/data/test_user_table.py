"""Which rows of a user's own table are held out, and the digest by which it is known again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.data.user_table import CodedTable
from pyro_fairvae.schema.attributes import Attributes


def own_table(rows: int = 503, seed: int = 0) -> CodedTable:
    """Rows of which the cells (y, a) have from a handful to a hundred."""
    draw = np.random.default_rng(seed)
    table = pd.DataFrame({"x": draw.normal(size=rows), "w": np.array(["a", "b"])[np.arange(rows) % 2]})
    y_obs = draw.choice(3, p=[0.5, 0.1, 0.4], size=rows)
    a_obs = draw.choice(4, p=[0.6, 0.05, 0.05, 0.3], size=rows)
    encoder = TableEncoder.learn(table)
    groups = Attributes.single(("f", "m", "x"))
    return CodedTable(encoder.encode(table), y_obs, a_obs, encoder, np.array(["no", "yes"]), groups)


@pytest.mark.parametrize("share", [0.15, 0.3, 0.5, 0.9])
def test_parts_are_alike_in_what_they_state(share: float) -> None:
    table = own_table()
    for seed in range(5):
        train, held_out = table.parts(share, seed)
        assert sorted([*train, *held_out]) == list(range(503))
        assert len(held_out) == round(share * 503)
        for y in range(3):
            for a in range(4):
                cell = np.flatnonzero((table.y_obs == y) & (table.a_obs == a))
                assert abs(np.isin(cell, held_out).sum() - len(cell) * len(held_out) / 503) < 1


def test_every_row_is_held_out_as_often_as_any_other() -> None:
    table = own_table(40)
    times = np.zeros(40)
    for seed in range(2000):
        times[table.parts(0.25, seed)[1]] += 1
    assert np.abs(times / 2000 - 0.25).max() < 4.5 * (0.25 * 0.75 / 2000) ** 0.5


def test_a_seed_fixes_the_parts_and_another_changes_them() -> None:
    table = own_table()
    first, again, other = (table.parts(0.2, seed)[1] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)


def test_small_tables_keep_two_rows_on_either_side() -> None:
    for rows in (4, 5, 8):
        for share in (0.01, 0.5, 0.99):
            assert min(map(len, own_table(rows).parts(share, 0))) >= 2


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_shares_outside_of_zero_to_one_are_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="validation_fraction must be within"):
        own_table(20).parts(wrong, 0)


def test_a_digest_is_that_of_every_value() -> None:
    first = own_table(30).digest()
    assert own_table(30).digest() == first
    changed = {first}
    for field, step in (("x", 1e-6), ("y_obs", 1), ("a_obs", 1)):
        for row in range(30):
            table = own_table(30)
            values = getattr(table, field)
            values[(row, 0) if field == "x" else row] += step
            changed.add(table.digest())
    assert len(changed) == 1 + 3 * 30
