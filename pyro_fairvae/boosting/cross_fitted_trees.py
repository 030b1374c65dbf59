"""Gradient boosting by LightGBM, cross-fitted; its models are text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.schema.attributes import Attributes

# Chosen by out-of-fold likelihood on tables of 1,000 to 30,000 rows; the number of trees is found by it, too.
SETTINGS: dict[str, Any] = {
    "num_leaves": 15,
    "learning_rate": 0.05,
    "feature_fraction": 0.5,
    "lambda_l2": 5.0,
    "min_data_in_leaf": 20,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
MOST_ROUNDS, PATIENCE = 1000, 25
# The cost of a tree grows with the columns. Coarser bins cost no likelihood on 1,500 columns (.525 for .528).
WIDE = {"max_bin": 63}
WIDE_FROM, MOST_COLUMN_ROUNDS = 500, 500_000
# Columns that each tree of levels of a number sees. Without the one that tells of the number a tree adds to
# the scores what only blurs them, and curves of withholding are learned from how sharp they are.
FEWEST_FOR_LEVELS = 6
FEWEST = 2  # known rows of two values or more that each fold needs


@dataclass(frozen=True)
class CrossFittedTrees:
    """Trees for each fold, grown on the rows outside it; without trees, all rows have the same scores."""

    boosters: tuple[Any, ...]  # lightgbm.Booster
    shares: np.ndarray  # of values among known rows, (values,)

    @staticmethod
    def grow(
        inputs: np.ndarray,
        categories: np.ndarray,
        code: np.ndarray,
        fold: np.ndarray,
        values: int,
        weight: np.ndarray | None = None,
        seed: int = 0,
        fewest_columns: int = 1,
    ) -> CrossFittedTrees:
        """Learn P(code|inputs) from rows whose code, (rows,), is below ``values``; others are unknown.

        The number of trees is the same in all folds: that with the best likelihood of the rows inside them.
        Each tree sees at least ``fewest_columns``.
        """
        import lightgbm  # slow to import

        known = np.flatnonzero(code < values)
        mass = np.ones(len(code)) if weight is None else weight
        shares = np.bincount(code[known], mass[known], values) + 0.5
        shares = shares / shares.sum()
        inside = [np.flatnonzero(fold[known] == number) for number in range(int(fold.max()) + 1)]
        enough = len(set(code[known])) > 1 and min(map(len, inside)) >= FEWEST
        if not enough:
            return CrossFittedTrees((), shares)
        several = {"objective": "multiclass", "num_class": values} if values > 2 else {"objective": "binary"}
        table = lightgbm.Dataset(
            inputs[known],
            code[known],
            weight=None if weight is None else weight[known],
            categorical_feature=np.flatnonzero(categories).tolist(),
        )
        every, columns = np.arange(len(known)), inputs.shape[1]
        fraction = max(SETTINGS["feature_fraction"], min(1.0, fewest_columns / columns))
        found: Any = lightgbm.cv(
            SETTINGS
            | several
            | (WIDE if columns > WIDE_FROM else {})
            | {"feature_fraction": fraction}
            | {"seed": seed % 2**31, "num_threads": torch.get_num_threads()},
            table,
            min(MOST_ROUNDS, MOST_COLUMN_ROUNDS // columns),
            folds=[(np.setdiff1d(every, rows), rows) for rows in inside],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
            return_cvbooster=True,
        )["cvbooster"]
        best = found.best_iteration
        return CrossFittedTrees.of_texts(
            [booster.model_to_string(num_iteration=best) for booster in found.boosters], shares
        )

    @staticmethod
    def fewest_columns(attributes: Attributes) -> int:
        """How many columns each tree for groups sees at least."""
        return 1 if attributes.levels is None else FEWEST_FOR_LEVELS

    def texts(self) -> list[str]:
        """The trees of each fold as text."""
        return [booster.model_to_string() for booster in self.boosters]

    @staticmethod
    def of_texts(texts: Sequence[str], shares: np.ndarray) -> CrossFittedTrees:
        """The trees of :meth:`texts`."""
        import lightgbm

        try:
            return CrossFittedTrees(tuple(lightgbm.Booster(model_str=text) for text in texts), shares)
        except lightgbm.basic.LightGBMError as reason:
            raise InputError(f"the trees cannot be read: {first_line(reason)}.") from reason

    def out_of_fold(self, inputs: np.ndarray, fold: np.ndarray) -> np.ndarray:
        """Scores, (rows, values), of the rows that trees were grown on, each by those of its fold."""
        scores = np.tile(self.shares, (len(inputs), 1))
        for number, booster in enumerate(self.boosters):
            rows = np.flatnonzero(fold == number)
            scores[rows] = _probabilities(booster, inputs[rows])
        return scores

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Scores, (rows, values), of other rows: the mean over folds."""
        if not self.boosters:
            return np.tile(self.shares, (len(inputs), 1))
        return np.mean([_probabilities(booster, inputs) for booster in self.boosters], axis=0)


def _probabilities(booster: Any, inputs: np.ndarray) -> np.ndarray:
    require(
        booster.num_feature() == inputs.shape[1],
        f"the trees are of another table: they take {booster.num_feature()} columns, got {inputs.shape[1]}.",
    )
    found = booster.predict(inputs, num_threads=torch.get_num_threads())
    if found.ndim == 2:
        return np.asarray(found)
    return np.column_stack([1 - found, found])


def even_folds(y_obs: np.ndarray, a_obs: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, with about the same recorded labels and groups in each."""
    order = np.random.default_rng([seed, folds]).permutation(len(y_obs))
    order = order[np.lexsort((a_obs[order], y_obs[order]))]
    fold = np.empty(len(y_obs), dtype=int)
    fold[order] = np.arange(len(y_obs)) % folds
    return fold
