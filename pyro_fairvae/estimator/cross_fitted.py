"""Any classifier, cross-fitted: every row is scored by copies that were not fitted on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from pyro_fairvae.base.errors import InputError


@dataclass(frozen=True)
class CrossFitted:
    """Copies of a classifier, one for each fold, fitted on the rows outside it."""

    copies: list[Any]
    codes: int  # classes, of which a copy may not have seen all

    @staticmethod
    def fit(
        estimator: Any,
        X: Any,
        code: np.ndarray,
        fold: np.ndarray,
        codes: int,
        weight: np.ndarray | None = None,
        of_code: Callable[[np.ndarray], np.ndarray] = lambda code: code,
    ) -> CrossFitted:
        """Fit on rows whose ``code`` is below ``codes``; ``of_code`` gives the labels that copies see."""
        copies = []
        for number in range(int(fold.max()) + 1):
            rows = np.flatnonzero((fold != number) & (code < codes))
            more = {} if weight is None else {"sample_weight": weight[rows]}
            try:
                copies.append(clone(estimator).fit(_safe_indexing(X, rows), of_code(code[rows]), **more))
            except ValueError as reason:
                raise InputError(
                    f"{type(estimator).__name__} could not be fitted on {len(rows)} rows: {reason} If it "
                    "cannot handle gaps or categories, give a pipeline that does."
                ) from reason
        return CrossFitted(copies, codes)

    def out_of_fold(self, X: Any, fold: np.ndarray, code_of: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Probabilities (rows, codes) of the rows that were cross-fitted, each by the copy of its fold."""
        scores = np.zeros((len(fold), self.codes))
        for number, copy in enumerate(self.copies):
            rows = np.flatnonzero(fold == number)
            scores[rows] = self._of_copy(copy, _safe_indexing(X, rows), code_of)
        return scores

    def predict(self, X: Any, code_of: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Mean probabilities of all copies, for new rows."""
        return np.mean([self._of_copy(copy, X, code_of) for copy in self.copies], axis=0)

    def _of_copy(self, copy: Any, X: Any, code_of: Callable[[Any], np.ndarray]) -> np.ndarray:
        found = np.asarray(copy.predict_proba(X), dtype=float)
        scores = np.zeros((len(found), self.codes))
        scores[:, code_of(copy.classes_)] = found
        return scores
