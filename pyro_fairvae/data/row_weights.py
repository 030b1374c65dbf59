"""Weights of rows, such as those of a survey, checked and scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.given_rows import unmasked

WEIGHT = "sample_weight"


def row_weights(given: Any, rows: int, what: str = WEIGHT) -> np.ndarray | None:
    """Weights (rows,), 0 for rows to be taken as absent; None if all rows count alike.

    Raises unless they are finite numbers, none of them negative, and some positive.
    """
    if given is None:
        return None
    values = unmasked(given)
    if isinstance(values, pd.DataFrame) and values.shape[1] == 1:
        values = values.iloc[:, 0]
    try:
        plain = values.to_numpy(float, na_value=np.nan) if isinstance(values, pd.Series) else values
        weight = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError) as reason:
        raise InputError(
            f"{what} is not all numbers; give a finite weight, 0 or more, for each row."
        ) from reason
    if weight.ndim == 0 and np.isfinite(weight) and weight > 0:
        return None  # one number for all rows, as scikit-learn has it
    require(
        weight.shape == (rows,),
        f"{what} has the shape {weight.shape}; expected one weight for each of {rows} rows, ({rows},). "
        "Sample weights must be 1D array or scalar.",
    )
    bad = ~np.isfinite(weight)
    require(
        not bad.any(),
        f"{what} has {int(bad.sum())} values that are NaN or infinite, the first in row "
        f"{int(bad.argmax())}; give finite weights, and 0 for rows to leave out.",
    )
    negative = weight < 0
    require(
        not negative.any(),
        f"{what} has {int(negative.sum())} negative values, the first, {weight[negative.argmax()]:g}, in row "
        f"{int(negative.argmax())}; give weights of 0 or more.",
    )
    require(bool((weight > 0).any()), f"{what} is zero in all {rows} rows; some row must count.")
    if (weight == weight[0]).all():
        return None
    largest = weight.max()
    require(
        float(np.square(weight / largest).sum()) > 0 and largest < np.inf,
        f"{what} spans too many orders of magnitude; rescale it.",
    )
    return np.asarray(weight / largest)


def known_weights(weight: np.ndarray | None, known: np.ndarray) -> np.ndarray | None:
    """Weights of the rows whose label is known, some of which must count."""
    if weight is None:
        return None
    require(
        bool((weight[known] > 0).any()),
        f"{WEIGHT} is zero in all {int(known.sum())} rows with a label; some of them must count.",
    )
    return np.asarray(weight[known])


def scaled_weights(weight: np.ndarray) -> np.ndarray | None:
    """Positive weights with the mean 1; None if all are equal."""
    if (weight == weight[0]).all():
        return None
    return np.asarray(weight / weight.mean())


def effective_rows(weight: np.ndarray) -> float:
    r"""How many rows of equal weight tell as much, :math:`(\sum w)^2 / \sum w^2` (Kish 1965)."""
    return float(weight.sum() ** 2 / np.square(weight).sum())


def rows_of(values: Any, kept: np.ndarray) -> Any:
    """Some rows of a table, a column, an array or a list, in the kind they were given; None stays."""
    if values is None:
        return None
    if isinstance(values, pd.DataFrame | pd.Series):
        return values.iloc[kept]
    if isinstance(values, np.ndarray) or sparse.issparse(values):
        return values[kept]
    if isinstance(values, list | tuple):
        return [values[row] for row in kept]
    return np.asarray(values)[kept]


def without_absent(weight: np.ndarray | None, *given: Any) -> tuple[np.ndarray | None, tuple[Any, ...]]:
    """What was given without the rows of weight 0, and the weights of the others, with the mean 1."""
    if weight is None:
        return None, given
    kept = np.flatnonzero(weight > 0)
    if len(kept) < len(weight):
        given = tuple(rows_of(values, kept) for values in given)
    return scaled_weights(weight[kept]), given
