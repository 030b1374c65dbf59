"""Dependence of decisions on groups: twins of the risks of dependence, and estimates for numbers.

Nothing here shares code with :mod:`pyro_fairvae.risks.dependence`: tables are counted by NumPy and SciPy, and
mutual information of numbers is estimated from nearest neighbours by scikit-learn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigvalsh

from pyro_fairvae.base.errors import require
from pyro_fairvae.evaluation.metrics import Array, Decisions

NEIGHBOURS = 3  # of Kraskov, Stögbauer and Grassberger's estimate
FEWEST = 20  # rows of a label, of which dependence is estimated


def maximal_correlation(of: Decisions) -> float:
    """HGR of group and decision."""
    return float("nan") if len(of.table) < 2 else _second_singular_value(of.table)


def maximal_correlation_given_label(of: Decisions) -> float:
    """The largest HGR of group and decision among rows of a label."""
    comparable = [table for table in _by_label(of) if (table.sum(1) > 0).sum() > 1]
    return max(map(_second_singular_value, comparable), default=float("nan"))


def mutual_information_of_numbers(
    decided: npt.ArrayLike,
    sensitive: npt.ArrayLike,
    label: npt.ArrayLike | None = None,
    *,
    discrete: tuple[bool, bool] = (False, False),
    seed: int = 0,
) -> float:
    r"""Mutual information of decisions and a sensitive attribute, of which one or both are numbers.

    By nearest neighbours (Kraskov, Stögbauer and Grassberger 2004; Ross 2014), so it has no parameters that
    are trained, and shares nothing with the critics of training.

    Parameters
    ----------
    decided, sensitive : array-like, (rows,)
        Numbers or codes.
    label : array-like, (rows,), optional
        Codes of y: the result is then Σ_y P(y) I(Ŷ; A | Y = y), over labels of at least 20 rows.
    discrete : tuple of bool
        Whether ``decided`` and ``sensitive`` are codes of classes rather than numbers; not both.
    seed : int
        Of the noise, tiny beside the numbers, by which ties are broken.

    Returns
    -------
    float
        In nats, never negative; NaN if there are too few rows.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae.evaluation.dependence import mutual_information_of_numbers
    >>> a = np.random.default_rng(0).normal(size=2000)
    >>> decided = 0.6 * a + 0.8 * np.random.default_rng(1).normal(size=2000)
    >>> bool(abs(mutual_information_of_numbers(decided, a) - 0.223) < 0.06)  # −log(1 − .6²) / 2
    True
    """
    first, second = np.asarray(decided), np.asarray(sensitive)
    require(
        first.ndim == 1 and first.shape == second.shape,
        f"decided and sensitive must have one value a row, got the shapes {first.shape} and {second.shape}.",
    )
    require(not all(discrete), "both are classes, of which tables are counted: use mutual_information.")
    labels = np.zeros(len(first)) if label is None else np.asarray(label)
    require(labels.shape == first.shape, f"label has the shape {labels.shape}, expected {first.shape}.")
    if discrete[1]:
        first, second, discrete = second, first, (True, False)
    parts = [labels == value for value in np.unique(labels)]
    found = [
        (_of_neighbours(first[rows], second[rows], discrete[0], seed), rows.sum())
        for rows in parts
        if rows.sum() >= FEWEST
    ]
    if not found:
        return float("nan")
    values, sizes = zip(*found, strict=True)
    return float(np.average(values, weights=sizes))


def _of_neighbours(first: Array, numbers: Array, classes: bool, seed: int) -> float:
    # Neighbours and trees are loaded by what needs them alone.
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    if len(np.unique(first)) < 2 or len(np.unique(numbers)) < 2:
        return 0.0
    estimate = mutual_info_classif if classes else mutual_info_regression
    found = estimate(
        numbers.reshape(-1, 1), first, discrete_features=False, n_neighbors=NEIGHBOURS, random_state=seed
    )
    return float(found[0])


def _by_label(of: Decisions) -> list[Array]:
    """Masses by (group, decision) of each label that occurs."""
    tables = np.zeros((of.classes, of.a.max() + 1, of.classes))
    np.add.at(tables, (of.y, of.a, of.decided), of.weight)
    return [table for table in tables if table.sum() > 0]


def _second_singular_value(table: Array) -> float:
    """Of P(group, decision) / √(P(group) P(decision)), by eigenvalues of its square; the first one is 1."""
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    if min(table.shape) < 2:
        return 0.0
    scaled = table / np.sqrt(np.outer(table.sum(1), table.sum(0)))
    return float(np.sqrt(max(0.0, eigvalsh(scaled.T @ scaled)[-2])))
