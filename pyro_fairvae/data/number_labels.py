"""A label that is a number, with gaps, as a user gives it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pyro_fairvae.base.errors import require
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
    numeric = is_number(column) and kind_of_numbers(column) == NUMBERS
    if not numeric:
        present = column.dropna()
        words = shorten(sorted(set(map(word_of, present))))
        require(
            False,
            f"{what} holds {words}, which are not numbers; an outcome that is a number is predicted here. For "
            "classes use FairSSVAEClassifier (fairvae fit --task classification).",
        )
    numbers = numbers_of(column)
    infinite = int(np.isinf(numbers).sum())
    require(
        infinite == 0,
        f"{what} contains infinity in {infinite} rows; replace it by a number, or by NaN where it is unknown.",
    )
    return numbers


def learn_outcome(numbers: Floats, fewest: int = FEWEST_STATED, what: str = "y") -> NumberOutcome:
    """The outcome of which some numbers are stated, NaN being the others; raises if it cannot be learned."""
    stated = numbers[~np.isnan(numbers)]
    require(
        len(stated) >= fewest,
        f"{what} is stated in {len(stated)} of {len(numbers)} rows; predicting a number needs {fewest} or more "
        "(fewest_stated).",
    )
    distinct = np.unique(stated)
    require(
        len(distinct) > 1,
        f"{what} is {distinct[0] if len(distinct) else 'missing'} in all rows that state it; there is nothing "
        "to predict.",
    )
    if len(distinct) == 2:
        warnings.warn(
            f"{what} has two different numbers, {' and '.join(map(word_of, distinct))}, which may be classes; "
            "for classes use FairSSVAEClassifier (fairvae fit --task classification).",
            stacklevel=6,
        )
    return NumberOutcome.of(stated)


def code_outcome(numbers: Floats, number: NumberOutcome) -> tuple[Integers, Floats]:
    """The level of each number, that after the last where it is NaN; and itself, standardised, 0 there."""
    missing = np.isnan(numbers)
    filled = np.where(missing, number.mean, numbers)
    codes = np.where(missing, len(number.levels.centres), number.levels.code(filled))
    return codes.astype(np.int64), np.where(missing, 0.0, number.standardised(filled))
