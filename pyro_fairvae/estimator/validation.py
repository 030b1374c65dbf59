"""Checks of labels and groups before a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.coded_columns import MANY, code_groups, code_labels, word_of
from pyro_fairvae.schema.attributes import Attributes

FEWEST_ROWS = 8
NOBODY = Attributes.single(("0", "1"))  # placeholder groups, which nobody states, where none are given


def check_labels(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of labels for ``rows`` rows, and the classes; raises if they cannot be learned."""
    if isinstance(y, np.ndarray) and y.ndim == 2:
        y = column_or_1d(y, warn=True)
    y_obs, classes = code_labels(y)
    require(
        len(y_obs) == rows,
        f"X and y have inconsistent numbers of samples: {rows} rows of X, {len(y_obs)} labels.",
    )
    stated = y_obs < len(classes)
    require(bool(stated.any()), f"all {rows} labels are missing; at least two classes must be stated.")
    require(
        len(classes) <= max(MANY, stated.sum() / 2),
        f"Unknown label type: y has {len(classes)} values in {stated.sum()} rows that state one; numbers "
        "and identifiers are not classes. Give another column, or fewer classes.",
    )
    try:
        check_classification_targets(classes[y_obs[stated]])
    except ValueError as reason:
        raise InputError(str(reason)) from reason
    require(
        len(classes) > 1,
        f"y has one class, {word_of(classes[0])}; a classifier needs at least two classes.",
    )
    require(
        rows >= FEWEST_ROWS,
        f"a table with n_samples={rows} is too small to fit and validate; give {FEWEST_ROWS} rows or more.",
    )
    return y_obs, classes


def check_groups(
    sensitive_features: Any, missing_values: Sequence[Any], rows: int
) -> tuple[np.ndarray, Attributes]:
    """Codes of the groups that ``rows`` rows state, and the groups; if none are given, nobody states one."""
    if sensitive_features is None:
        return np.full(rows, NOBODY.outcomes - 1), NOBODY
    groups = code_groups(sensitive_features, missing_values)
    require(
        len(groups.outcomes) == rows,
        f"X has {rows} rows, but sensitive_features {len(groups.outcomes)}; give the same number.",
    )
    stating, number = int(groups.stated.sum()), groups.attributes.groups
    require(
        number <= max(MANY, stating / 2),
        f"sensitive_features make {number} groups, which {stating} rows state; numbers and identifiers "
        "are not groups. Give other columns, or fewer groups.",
    )
    return groups.outcomes, groups.attributes
