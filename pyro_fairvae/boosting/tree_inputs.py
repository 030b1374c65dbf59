"""Encoded rows as trees take them: numbers with their gaps, categories as codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch import Tensor

from pyro_fairvae.schema.observed import IS_MISSING, Columns


def tree_inputs(x: Tensor | np.ndarray, columns: Columns) -> np.ndarray:
    """A column for each number and each category of ``x``, NaN where its value is missing or unknown."""
    x = x.cpu().numpy() if isinstance(x, Tensor) else x
    numbers = x[:, : columns.numbers].astype(np.float32)
    codes = []
    for name, block in _blocks(columns):
        coded = x[:, block]
        gaps_of = _number_with_gaps(name, columns)
        if gaps_of is None:
            codes.append(np.where(coded.any(1), coded.argmax(1), np.nan).astype(np.float32))
        else:
            numbers[coded[:, 1] == 1, gaps_of] = np.nan
    return np.column_stack([numbers, *codes]) if codes else numbers


def named_inputs(x: Tensor | np.ndarray, columns: Columns) -> pd.DataFrame:
    """The columns of :func:`tree_inputs` by name, with codes of categories as words."""
    gaps = {name for name, _ in _blocks(columns) if _number_with_gaps(name, columns) is not None}
    names = [name for name in columns.names if name not in gaps]
    table = pd.DataFrame(tree_inputs(x, columns), columns=names)
    for name in np.array(names)[are_categories(columns)]:
        table[name] = table[name].map(str, na_action="ignore")
    return table


def are_categories(columns: Columns) -> np.ndarray:
    """Which columns of :func:`tree_inputs` are codes of categories."""
    categories = sum(_number_with_gaps(name, columns) is None for name, _ in _blocks(columns))
    return np.repeat([False, True], [columns.numbers, categories])


def _blocks(columns: Columns) -> list[tuple[str, slice]]:
    """Name and place of each one-hot block."""
    starts = columns.numbers + np.cumsum([0, *columns.blocks])
    names = columns.names[columns.numbers :] or ("",) * len(columns.blocks)
    return [
        (name, slice(start, start + width))
        for name, start, width in zip(names, starts[:-1], columns.blocks, strict=True)
    ]


def _number_with_gaps(block: str, columns: Columns) -> int | None:
    """The number whose gaps a block marks, if it does."""
    numbers = columns.names[: columns.numbers]
    return next((j for j, name in enumerate(numbers) if IS_MISSING.format(name) == block), None)
