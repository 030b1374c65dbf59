"""Any classifier, cross-fitted: every row is scored by copies that were not fitted on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line
from pyro_fairvae.data.coded_columns import TOLERANCE
from pyro_fairvae.data.row_weights import WEIGHT


@dataclass(frozen=True)
class CrossFitted:
    """Copies of a classifier, one for each fold, fitted on the rows outside it."""

    copies: list[Any]
    classes: np.ndarray  # in order; a copy may not have seen all of them

    @staticmethod
    def fit(
        estimator: Any,
        X: Any,
        code: np.ndarray,
        fold: np.ndarray,
        classes: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> CrossFitted:
        """Fit on rows whose ``code`` is that of a class; copies see the classes themselves.

        Rows count by their ``weight`` if it is given.
        """
        copies, name = [], None if weight is None else _weight_parameter(estimator)
        for number in range(int(fold.max()) + 1):
            rows = np.flatnonzero((fold != number) & (code < len(classes)))
            weights = {} if name is None or weight is None else {name: weight[rows]}
            try:
                copies.append(clone(estimator).fit(_safe_indexing(X, rows), classes[code[rows]], **weights))
            except ValueError as reason:
                raise InputError(
                    f"{type(estimator).__name__} could not be fitted on {len(rows)} rows: "
                    f"{first_line(reason)}. If it cannot handle gaps or categories, give a pipeline that "
                    "does."
                ) from reason
        return CrossFitted(copies, classes)

    def out_of_fold(self, X: Any, fold: np.ndarray) -> np.ndarray:
        """Probabilities (rows, classes) of the rows that were cross-fitted, each by the copy of its fold."""
        scores = np.zeros((len(fold), len(self.classes)))
        for number, copy in enumerate(self.copies):
            rows = np.flatnonzero(fold == number)
            scores[rows] = self._of_copy(copy, _safe_indexing(X, rows))
        return scores

    def predict(self, X: Any) -> np.ndarray:
        """Mean probabilities of all copies, for new rows."""
        return np.mean([self._of_copy(copy, X) for copy in self.copies], axis=0)

    def _of_copy(self, copy: Any, X: Any) -> np.ndarray:
        found = np.asarray(copy.predict_proba(X), dtype=float)
        wrong = not (
            found.shape == (len(found), len(copy.classes_))
            and np.isfinite(found).all()
            and (abs(found - 0.5) <= 0.5 + TOLERANCE).all()
            and (abs(found.sum(1) - 1) <= TOLERANCE).all()
        )
        require(
            not wrong,
            f"predict_proba of {type(copy).__name__} must return probabilities of {len(copy.classes_)} "
            "classes that sum to 1 in each row; wrap it in sklearn.calibration.CalibratedClassifierCV, or "
            "give another classifier.",
        )
        scores = np.zeros((len(found), len(self.classes)))
        scores[:, np.searchsorted(self.classes, copy.classes_)] = found
        return scores


def _weight_parameter(estimator: Any) -> str:
    """The name under which ``fit`` takes weights of rows: of a pipeline, that of its last step."""
    name, last = WEIGHT, estimator
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name = f"{step}__{name}"
    taken = isinstance(last, FrozenEstimator) or has_fit_parameter(last, WEIGHT)
    require(
        taken,
        f"{type(last).__name__} takes no sample_weight in fit, so that rows cannot be weighed; give a "
        "classifier that does, or leave sample_weight out.",
    )
    return name
