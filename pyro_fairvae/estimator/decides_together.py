"""Decisions about all rows of a table together, of estimators that know groups."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np

from pyro_fairvae.base.options import build
from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.evaluation.joint_decisions import DecidedTogether, JointProblem, JointRule


class DecidesTogether:
    """What estimators of tables have in common in deciding about all rows together."""

    classes_: np.ndarray

    @property
    @abstractmethod
    def groups_(self) -> tuple[str, ...]:
        """The groups."""

    @abstractmethod
    def _as_fitted(self) -> Self:
        """The estimator as it is now."""

    @abstractmethod
    def _require_groups(self) -> None:
        """Raise unless groups are known."""

    def decide_together(
        self,
        X: Any,
        sensitive_features: Any = None,
        *,
        report: Report = silent,
        **options: Any,
    ) -> DecidedTogether:
        r"""Decide about all rows of a table together, to a low expected error and unfairness of these rows.

        Minimises the objective

        .. math:: \frac1n \sum_i P(y_i \ne \hat y_i) + \lambda \max\{E F(\hat y, y, a) - \varepsilon, 0\}

        over all decisions ŷ, as the paper's appendix does: the expectation is over draws of the groups, and
        of the labels, that the features, and ã where it is stated, leave unknown. λ and the risk F are those
        of the member that decides; ε is its target, if it has one instead of a λ, and else 0. What is decided
        about a row depends on the other rows, so the rows should be all those that are decided about.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.
        sensitive_features : array-like or DataFrame, optional
            The stated groups ã, with gaps. Without them nobody is taken to have been asked: groups are
            imputed by the features alone.
        report : callable, optional
            Called with messages of progress.
        **options
            Those of :class:`~pyro_fairvae.evaluation.joint_decisions.JointRule`: ``rule``, ``"descent"``
            unless given (coordinate descent from several starts), ``"thresholds"`` (of each group; two
            classes), ``"thresholds+descent"`` or ``"rounding"`` (each row alone); ``decision_lambda`` and
            ``decision_risk``, λ and the name of F; ``loss``, ``"error"`` or ``"likelihood"`` (-log q(y|x), as
            in the paper); ``draws``; ``starts``; ``seed``.

        Returns
        -------
        DecidedTogether
            Its ``decisions`` are values of ``classes_``; ``summary`` and ``rates`` have objective, error,
            risk and rates by group, before and after.

        Raises
        ------
        InputError
            If the rows or options cannot be used, or the model was fitted without groups.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from pyro_fairvae import FairDecisions, synthetic
        >>> table = synthetic(rows=400)
        >>> sex = np.where(np.random.default_rng(0).random(400) < 0.4, None, np.array(["f", "m"])[table.a])
        >>> model = FairDecisions(LogisticRegression(), targets=(0.1,))
        >>> model = model.fit(table.numbers, table.y, sensitive_features=sex).select(0.1)
        >>> found = model.decide_together(table.numbers, sex, rule="thresholds")
        >>> found.decisions.shape, found.summary.columns.tolist()
        ((400,), ['objective', 'error', 'risk'])
        >>> bool(found.summary["objective"]["after"] <= found.summary["objective"]["before"])
        True
        """
        rule = build(JointRule, options)
        model = self._as_fitted()
        model._require_groups()
        X, sensitive_features = in_one_order(X=X, sensitive_features=sensitive_features)
        problem = model._joint(X, sensitive_features, rule)
        return problem.decide(rule, model.classes_, model.groups_, report)

    @abstractmethod
    def _joint(self, X: Any, sensitive_features: Any, rule: JointRule) -> JointProblem:
        """What decisions about rows together minimise."""
