"""P(a | x, y, ŷ) of every row, from trees that were not trained on the row's group."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees, even_folds
from pyro_fairvae.boosting.tree_inputs import are_categories, tree_inputs
from pyro_fairvae.data.table_encoder import TableEncoder

TREE_FOLDS = 5
FEWEST_OF_GROUP = 10  # stating rows of each group that learning needs


def impute_groups(table: pd.DataFrame, rows: AuditedRows, seed: int) -> np.ndarray | None:
    """Probabilities (rows, groups); None if too few rows state some group.

    Rows that state their group are scored by trees of other folds, the others by the mean over folds. Rows
    count by their weights, and those of a cluster are in one fold.
    """
    if np.bincount(rows.group, minlength=rows.groups + 1)[: rows.groups].min() < FEWEST_OF_GROUP:
        return None
    encoder = TableEncoder.learn(table)
    label = np.where(rows.y < rows.classes, rows.y, np.nan)
    inputs = np.column_stack([tree_inputs(encoder.encode(table), encoder.columns), label, rows.decided])
    categories = np.append(are_categories(encoder.columns), [True, True])
    fold = even_folds(rows.decided, rows.group, TREE_FOLDS, seed)
    if rows.design.cluster is not None:
        fold = rows.design.folds(len(rows), TREE_FOLDS)
    trees = CrossFittedTrees.grow(
        inputs, categories, rows.group, fold, rows.groups, rows.design.weight, seed=seed
    )
    stated = rows.stated[:, None]
    return np.where(stated, trees.out_of_fold(inputs, fold), trees.predict(inputs))
