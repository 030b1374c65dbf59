"""P(a | x, y, ŷ) of every row, from trees that were not trained on the row's group."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.data.tree_features import TreeFeatures

TREE_FOLDS = 5
FEWEST_OF_GROUP = 10  # stating rows of each group that learning needs


def impute_groups(table: pd.DataFrame, rows: AuditedRows, seed: int) -> np.ndarray | None:
    """Probabilities (rows, groups); None if too few rows state some group.

    Rows that state their group are scored by trees of other folds, the others by the mean over folds.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, and not every audit has X
    from sklearn.model_selection import StratifiedKFold

    stated = np.flatnonzero(rows.stated)
    counts = np.bincount(rows.group[stated], minlength=rows.groups)
    if counts.min() < FEWEST_OF_GROUP:
        return None
    features, categorical = _features(table, rows)
    withheld = np.flatnonzero(~rows.stated)
    probability = np.zeros((len(rows), rows.groups))
    folds = StratifiedKFold(TREE_FOLDS, shuffle=True, random_state=seed)
    for inside, outside in folds.split(stated, rows.group[stated]):
        trees = HistGradientBoostingClassifier(
            categorical_features=categorical, max_iter=60, early_stopping=False, random_state=seed
        )
        trees.fit(features[stated[inside]], rows.group[stated[inside]])
        probability[stated[outside]] = trees.predict_proba(features[stated[outside]])
        if len(withheld):
            probability[withheld] += trees.predict_proba(features[withheld]) / TREE_FOLDS
    return probability


def _features(table: pd.DataFrame, rows: AuditedRows) -> tuple[np.ndarray, np.ndarray]:
    """The table for trees, with label and decision as categories, and which columns are categories."""
    trees = TreeFeatures(TableEncoder.learn(table))
    label = np.where(rows.y < rows.classes, rows.y, np.nan)
    features = np.c_[trees.encode(table), label, rows.decided]
    return features, np.r_[trees.categorical, True, True]
