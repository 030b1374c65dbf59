"""Checks of labels, groups, proxies and what withholding depends on, before a fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.base.seeds import check_seed
from pyro_fairvae.data.coded_columns import (
    MANY,
    as_column,
    code_labels,
    group_columns,
    is_missing,
    word_of,
)
from pyro_fairvae.data.number_groups import check_levels, code_sensitive
from pyro_fairvae.data.number_labels import code_outcome, learn_outcome, numbers_of_label
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.data.table_files import take_columns
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import MOST_LEVELS
from pyro_fairvae.schema.number_outcome import NumberOutcome

FEWEST_ROWS = 8
MOST_GROUPS = MOST_LEVELS  # groups, like levels of a number, are enumerated
LABEL = "label"  # in withholding_depends_on, whatever the name of y
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
    check_classes(classes, classes[y_obs[stated]], int(stated.sum()), rows)
    return y_obs, classes


def check_classes(classes: np.ndarray, labels: np.ndarray, stated: int, rows: int) -> None:
    """Raise unless classes, which so many of the rows state as ``labels``, can be learned."""
    require(stated > 0, f"all {rows} labels are missing; at least two classes must be stated.")
    require(
        len(classes) <= max(MANY, stated / 2),
        f"Unknown label type: y has {len(classes)} values in {stated} rows that state one; numbers "
        "and identifiers are not classes. Give another column, or fewer classes.",
    )
    try:
        check_classification_targets(labels)
    except (TypeError, ValueError) as reason:
        raise InputError(first_line(reason) + ".") from reason
    require(
        len(classes) > 1,
        f"y has one class, {word_of(classes[0])}; a classifier needs at least two classes.",
    )
    require(
        rows >= FEWEST_ROWS,
        f"a table with n_samples={rows} is too small to fit and validate; give {FEWEST_ROWS} rows or more.",
    )


def check_outcomes(
    y: Any, rows: int, fewest: int
) -> tuple[np.ndarray, np.ndarray, NumberOutcome, np.ndarray]:
    """Levels of an outcome that is a number, their names, the outcome, and itself, standardised.

    Raises if fewer than ``fewest`` of ``rows`` rows state it, or if it cannot be learned.
    """
    if isinstance(y, np.ndarray) and y.ndim == 2:
        y = column_or_1d(y, warn=True)
    numbers = numbers_of_label(y)
    require(
        len(numbers) == rows,
        f"X and y have inconsistent numbers of samples: {rows} rows of X, {len(numbers)} outcomes.",
    )
    require(
        rows >= FEWEST_ROWS,
        f"a table with n_samples={rows} is too small to fit and validate; give {FEWEST_ROWS} or more.",
    )
    number = learn_outcome(numbers, fewest)
    codes, outcome = code_outcome(numbers, number)
    return codes, np.array(number.levels.names), number, outcome


def check_groups(
    sensitive_features: Any, missing_values: Sequence[Any], rows: int, levels: int | None = None
) -> tuple[np.ndarray, Attributes]:
    """Codes of the groups that ``rows`` rows state, and the groups; if none are given, nobody states one.

    With ``levels`` groups are so many levels of a number at most.
    """
    check_levels(levels)
    if sensitive_features is None:
        return np.full(rows, NOBODY.outcomes - 1), NOBODY
    groups = code_sensitive(sensitive_features, missing_values, levels=levels)
    require(
        len(groups.outcomes) == rows,
        f"X has {rows} rows, but sensitive_features {len(groups.outcomes)}; give the same number.",
    )
    check_number_of_groups(groups.attributes.groups, int(groups.stated.sum()))
    return groups.outcomes, groups.attributes


def check_number_of_groups(number: int, stating: int) -> None:
    """Raise unless so many rows can state so many groups."""
    require(
        number <= max(MANY, stating / 2),
        f"sensitive_features make {number} groups, which {stating} rows state; numbers and identifiers "
        "are not groups. Give other columns, or fewer groups, or group_levels for a number such as age.",
    )
    require(
        number <= MOST_GROUPS,
        f"sensitive_features make {number} groups; the most that can be told apart here is {MOST_GROUPS}. "
        "Join small groups to larger ones, or give fewer columns.",
    )


def check_number(levels: int | None, proxy_proba: Any) -> None:
    """Check that what else is given fits a group that is a number."""
    require(
        levels is None or proxy_proba is None,
        "proxy_proba has probabilities of groups, but group_levels cuts a number into levels, which have no "
        "names yet; put a prediction of the number among the columns of X, and name it in proxies.",
    )


def random_seed(random_state: Any) -> int:
    """The seed that a ``random_state`` of scikit-learn gives."""
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        check_seed(int(random_state), "random_state")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def check_roles(
    frame: pd.DataFrame,
    proxies: tuple[str, ...],
    depends_on: tuple[str, ...],
    y: Any,
    sensitive_features: Any,
    missing_values: Sequence[Any],
) -> None:
    """Check that proxies, and what withholding depends on, are columns of X that can have this role."""
    if not (proxies or depends_on):
        return
    require(
        sensitive_features is not None,
        "proxies and withholding_depends_on are about the group, but no sensitive_features were given; give "
        "them, or leave these out.",
    )
    both = [name for name in proxies if name in depends_on]
    require(
        not both,
        f"{', '.join(map(repr, both))} cannot be in both proxies and withholding_depends_on: a proxy tells "
        "of the group and nothing else. Choose one for each column.",
    )
    there = [str(name) for name in frame.columns]
    require(
        LABEL not in depends_on or LABEL not in there,
        f"{LABEL!r} in withholding_depends_on is the label y, but X has a column of this name, too; rename "
        "that column.",
    )
    groups = group_columns(sensitive_features, "sensitive_features")
    if not isinstance(sensitive_features, pd.DataFrame) and getattr(sensitive_features, "name", None) is None:
        groups.columns = pd.RangeIndex(groups.shape[1])  # they have no names of their own
    own = [(as_column(y, "y"), f"the label itself; write {LABEL!r} if withholding depends on it")]
    own += [
        (column, "the group itself, on which withholding always depends; leave it out")
        for _, column in groups.items()
    ]
    for role, given in (("proxies", proxies), ("withholding_depends_on", depends_on)):
        names = [name for name in given if role == "proxies" or name != LABEL]
        for name, (column, what) in product(names, own):
            same = name in there and _same_values(frame.iloc[:, there.index(name)], column, missing_values)
            require(not same and name != column.name, f"{name!r} in {role} is {what}.")
        take_columns(frame, names, f"parameter {role}")
    require(
        len(proxies) < len(there),
        f"proxies name all {len(there)} columns of X, and no feature is left to decide by; leave some out.",
    )


def _same_values(first: pd.Series, second: pd.Series, missing_values: Sequence[Any]) -> bool:
    """Whether two columns have the same values and gaps in all rows."""
    one, other = (
        np.where(is_missing(column, missing_values), None, column.astype(object).map(word_of))
        for column in (first, second)
    )
    return np.array_equal(one, other)


def check_depends_on(depends_on: tuple[str, ...], encoder: TableEncoder) -> None:
    """Check that withholding can depend on these features."""
    silent = [name for name in depends_on if name in encoder.left_out]
    require(
        not silent,
        f"{', '.join(map(repr, silent))} in withholding_depends_on says nothing and is not a feature: all "
        "rows have one value, or nearly each has its own. Leave it out.",
    )
