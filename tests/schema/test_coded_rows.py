"""Rows in a mapped file are the dense rows that they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.schema.coded_rows import UNKNOWN, CodedRows
from pyro_fairvae.schema.observed import Columns, Observed, in_pieces, stack_features

NUMBERS, BLOCKS, ROWS = 3, (2, 5, 4), 11


def made(scores: bool = False) -> tuple[CodedRows, torch.Tensor]:
    """Coded rows, of which one code is unknown, and the same rows written out one by one."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(ROWS, NUMBERS)).astype(np.float32)
    codes = np.stack([draw.integers(size, size=ROWS) for size in BLOCKS], axis=1).astype(np.uint8)
    codes[4, 1] = UNKNOWN
    dense = np.zeros((ROWS, NUMBERS + sum(BLOCKS)), dtype=np.float32)
    for row in range(ROWS):
        dense[row, :NUMBERS] = numbers[row]
        first = NUMBERS
        for size, code in zip(BLOCKS, codes[row], strict=True):
            if code != UNKNOWN:
                dense[row, first + code] = 1
            first += size
    stored = torch.from_numpy(np.concatenate([numbers.view(np.uint8), codes], axis=1))
    rows = CodedRows(stored, torch.arange(ROWS), numbers=NUMBERS, blocks=BLOCKS)
    if not scores:
        return rows, torch.from_numpy(dense)
    further = torch.randn(ROWS, 2)
    return rows.with_scores(further), torch.cat([torch.from_numpy(dense), further], dim=-1)


@pytest.mark.parametrize("scores", [False, True])
def test_rows_are_read_as_they_were(scores: bool) -> None:
    rows, dense = made(scores)
    assert rows.shape == dense.shape
    assert torch.equal(rows[:], dense)
    index = torch.tensor([[7, 0, 4], [4, 4, 10]])  # rows of each member
    assert torch.equal(rows[index], dense[index])
    some = rows.take(torch.tensor([9, 4, 2]))
    assert torch.equal(some[torch.tensor([2, 1])], dense[[2, 4]])
    assert torch.equal(torch.cat(list(in_pieces(rows))), dense)
    double = rows.to("cpu", torch.float64)[:]
    assert double.dtype == torch.float64
    assert torch.equal(double, dense.double())


def test_members_can_have_rows_of_their_own() -> None:
    rows, dense = made()
    parts = [rows.take(torch.arange(4)), rows.take(torch.arange(5, 9))]
    stacked = stack_features(parts)
    assert isinstance(stacked, CodedRows)
    assert torch.equal(stacked[..., 1:3], torch.stack([dense[1:3], dense[6:8]]))
    other = replace(rows, stored=rows.stored.clone())
    with pytest.raises(InputError, match="members must share one mapped file"):
        stack_features([rows, other])


def test_a_table_of_them_gives_the_same_batches_and_samples() -> None:
    rows, dense = made()
    y, a = torch.arange(ROWS) % 3, torch.arange(ROWS) % 2
    names = tuple(f"n{j}" for j in range(NUMBERS + len(BLOCKS)))
    stored, plain = (Observed(x, y, a, Columns(NUMBERS, BLOCKS, names), 2, 2) for x in (rows, dense))
    assert stored.on_disk
    assert not plain.on_disk
    index = torch.tensor([3, 1, 8])
    whole = zip(stored.chunks(), plain.chunks(), strict=True)
    for one, other in ((stored.batch(index), plain.batch(index)), *whole):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y_obs, other.y_obs)
    assert plain.sampled(4) is plain
    sample = stored.sampled(4)  # every third row
    assert torch.equal(sample.x, dense[::3])  # type: ignore[arg-type]
    assert torch.equal(sample.a_obs, a[::3])
