"""Encoded rows as trees take them: numbers with their gaps, categories as codes."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from pyro_fairvae.schema.observed import IS_MISSING, Columns


def tree_inputs(x: Tensor | np.ndarray, columns: Columns) -> np.ndarray:
    """A column for each number and each category of ``x``, NaN where its value is missing or unknown."""
    x = x.cpu().numpy() if isinstance(x, Tensor) else x
    numbers = x[:, : columns.numbers].astype(np.float32)
    codes = []
    numbers_with = _numbers_with_gaps(columns)
    for name, block in _blocks(columns):
        coded = x[:, block]
        gaps_of = numbers_with.get(name)
        if gaps_of is None:
            codes.append(np.where(coded.any(1), coded.argmax(1), np.nan).astype(np.float32))
        else:
            numbers[coded[:, 1] == 1, gaps_of] = np.nan
    return np.column_stack([numbers, *codes]) if codes else numbers


def are_categories(columns: Columns) -> np.ndarray:
    """Which columns of :func:`tree_inputs` are codes of categories."""
    numbers_with = _numbers_with_gaps(columns)
    categories = sum(name not in numbers_with for name, _ in _blocks(columns))
    return np.repeat([False, True], [columns.numbers, categories])


def _blocks(columns: Columns) -> list[tuple[str, slice]]:
    """Name and place of each one-hot block."""
    starts = columns.numbers + np.cumsum([0, *columns.blocks])
    names = columns.names[columns.numbers :] or ("",) * len(columns.blocks)
    return [
        (name, slice(start, start + width))
        for name, start, width in zip(names, starts[:-1], columns.blocks, strict=True)
    ]


def _numbers_with_gaps(columns: Columns) -> dict[str, int]:
    """The number whose gaps a block of this name would mark."""
    return {IS_MISSING.format(name): j for j, name in enumerate(columns.names[: columns.numbers])}
