"""A label that is a number, with gaps, as a user gives it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.coded_columns import as_column, is_missing, shorten, word_of
from pyro_fairvae.data.number_columns import NUMBERS, is_number, kind_of_numbers, numbers_of, with_one_type
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.levels import FEWEST_STATED
from pyro_fairvae.schema.number_outcome import NumberOutcome


def numbers_of_label(values: Any, what: str = "y") -> Floats:
    """The numbers of a label, NaN where it is missing."""
    column = as_column(values, what)
    column = with_one_type(column.mask(is_missing(column)))
    if column.isna().all():
        return np.full(len(column), np.nan)
    if not is_number(column) or kind_of_numbers(column) != NUMBERS or column.dtype.kind == "c":
        words = shorten(sorted(set(map(word_of, column.dropna()))))
        raise InputError(
            f"{what} holds {words}, where numbers are predicted. For classes use FairSSVAEClassifier "
            "(fairvae fit --task classification)."
        )
    numbers = numbers_of(column)
    infinite = int(np.isinf(numbers).sum())
    require(
        infinite == 0,
        f"{what} contains infinity in {infinite} rows; replace it by a number, or by NaN if it is unknown.",
    )
    return numbers


def learn_outcome(numbers: Floats, fewest: int = FEWEST_STATED, what: str = "y") -> NumberOutcome:
    """The outcome of which some numbers are stated, NaN being the others; raises if it cannot be learned."""
    stated = numbers[~np.isnan(numbers)]
    require(
        len(stated) >= fewest,
        f"{what} is stated in {len(stated)} of {len(numbers)} rows; predicting a number needs {fewest} or "
        "more (fewest_stated).",
    )
    distinct = np.unique(stated)
    require(
        len(distinct) > 1,
        f"{what} is {distinct[0] if len(distinct) else 'missing'} in all rows that state it; a constant "
        "cannot be learned.",
    )
    if len(distinct) == 2:
        warnings.warn(
            f"{what} has two different numbers, {' and '.join(map(word_of, distinct))}; if they are classes, "
            "use FairSSVAEClassifier (fairvae fit --task classification).",
            stacklevel=8,
        )
    return NumberOutcome.of(stated)


def code_outcome(numbers: Floats, number: NumberOutcome) -> tuple[Integers, Floats]:
    """The level of each number, that after the last where it is NaN; and itself, standardised, 0 there."""
    missing = np.isnan(numbers)
    filled = np.where(missing, number.mean, numbers)
    codes = np.where(missing, len(number.levels.centres), number.levels.code(filled))
    return codes.astype(np.int64), np.where(missing, 0.0, number.standardised(filled))
