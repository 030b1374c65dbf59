"""Tables whose rows are codes, as those that are read from a file."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pyro_fairvae.schema.coded_rows import UNKNOWN, CodedRows
from pyro_fairvae.schema.observed import Columns, Observed


def stored(table: Observed) -> Observed:
    """The same table with rows as codes."""
    columns, x = table.columns, table.x
    assert isinstance(columns, Columns)
    assert isinstance(x, Tensor)
    numbers, *blocks = x.split([columns.numbers, *columns.blocks], dim=-1)
    codes = [torch.where(block.any(-1), block.argmax(-1), UNKNOWN).to(torch.uint8) for block in blocks]
    parts = [numbers.contiguous().view(torch.uint8), *(code.unsqueeze(-1) for code in codes)]
    rows = CodedRows(
        torch.cat(parts, dim=-1), torch.arange(len(x)), numbers=columns.numbers, blocks=columns.blocks
    )
    assert torch.equal(rows[:], x)
    return replace(table, x=rows)
