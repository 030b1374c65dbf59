"""Fair decisions of any classifier, for groups that only some rows state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from pyro_fairvae.auditing import audit
from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.coded_columns import StatedGroups, code_labels
from pyro_fairvae.data.table_encoder import TableEncoder, as_frame, check_names
from pyro_fairvae.data.tree_features import TreeFeatures
from pyro_fairvae.data.user_table import CodedTable
from pyro_fairvae.decisions.targets import settle
from pyro_fairvae.estimator.cross_fitted import CrossFitted
from pyro_fairvae.estimator.validation import check_groups, check_labels, random_seed
from pyro_fairvae.evaluation.selection import standard_error
from pyro_fairvae.posterior.calibration import Calibrated, calibrate_scores
from pyro_fairvae.posterior.scored_rows import recalibrated
from pyro_fairvae.posterior.summaries import describe, withheld_line
from pyro_fairvae.posterior.withholding_check import WithholdingCheck
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.observed import Observed

TARGETS = (0.2, 0.15, 0.1, 0.07, 0.05, 0.035, 0.025, 0.02, 0.015, 0.01, 0.005)
SETTLED_ROWS = 20_000  # at most, that decisions are settled on
WITHIN = 0.01  # budget of error of the default choice
SHARE = 0.2  # of the disparity without a target that the default choice aims at


class FairDecisions(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Fair decisions of any classifier with ``predict_proba``, where groups and labels have gaps.

    The classifier is cross-fitted on rows that state their label. Who withholds is learned from scores of
    the group, cross-fitted as well; so is :math:`P(a|x,y)`, by boosted trees on rows that state both, weighed
    for withholding. Decisions are then settled, for each of many targets ε, so that every difference between
    groups that the risk compares is at most ε under these imputations
    (:mod:`pyro_fairvae.decisions.targets`). No row is judged by a model that was fitted on it, and no group
    is needed to predict.

    Parameters
    ----------
    estimator : classifier, optional
        Any scikit-learn classifier or pipeline with ``predict_proba``, which receives X as it is given; or a
        fitted one within ``sklearn.frozen.FrozenEstimator``, which must not have been fitted on these rows.
        By default boosted trees, which take numbers, categories and gaps.
    risk : str
        What is to be equal between groups: ``"deo"``, ``"deopp"``, ``"ddp"``, or another of
        :data:`pyro_fairvae.risks.RISKS`.
    targets : sequence of float, optional
        ε, within (0, 1], of the frontier.
    max_disparity : float, optional
        Decide at this target. By default at the most accurate whose disparity is at most a fifth of that
        without a target, if it costs at most one point of accuracy; else at the fairest that does.
    folds : int
        Of cross-fitting.
    missing_values : sequence
        Values of the sensitive columns that mean "not stated", besides NaN, None and ``pd.NA``.
    prior_a, prior_y : str or mapping
        Priors on P(ã|a) and P(ỹ|y), under which nobody misstates.
    random_state : int, RandomState or None
        Seed of folds, trees and draws.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    groups_ : tuple of str
        The groups; empty if none were given.
    frontier_ : DataFrame
        For each target, the first of which is none (NaN): error, disparity and its standard error, on
        cross-fitted scores and imputations.
    selected_ : int
        The line of ``frontier_`` that decides.
    channels_ : DataFrame
        How often each group, and each class's label, is withheld, with 90 % intervals.
    withholding_check_ : WithholdingCheck or None
        Whether what was recorded agrees with the assumption that withholding depends on the group alone.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray
        Names of these columns, if X has any.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from pyro_fairvae import FairDecisions, synthetic
    >>> table = synthetic(rows=400)
    >>> X, y = table.numbers, np.array(["no", "yes"])[table.y]
    >>> withheld = np.random.default_rng(0).random(400) < 0.4
    >>> sex = np.where(withheld, None, np.array(["f", "m"])[table.a])
    >>> model = FairDecisions(LogisticRegression(), targets=(0.1, 0.05)).fit(X, y, sensitive_features=sex)
    >>> model.frontier_["target"].tolist()
    [nan, 0.1, 0.05]
    >>> model.select(max_disparity=0.08).predict(X).shape
    (400,)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        risk: str = "deo",
        targets: Sequence[float] | None = None,
        max_disparity: float | None = None,
        folds: int = 5,
        missing_values: Sequence[Any] = (),
        prior_a: Any = "truthful",
        prior_y: Any = "truthful",
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.risk = risk
        self.targets = targets
        self.max_disparity = max_disparity
        self.folds = folds
        self.missing_values = missing_values
        self.prior_a = prior_a
        self.prior_y = prior_y
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = None if self.estimator is None else get_tags(self.estimator).input_tags
        for name in ("allow_nan", "string", "categorical"):
            setattr(tags.input_tags, name, given is None or getattr(given, name))
        return tags

    def fit(self, X: Any, y: Any, sensitive_features: Any = None) -> Self:
        """Cross-fit, learn who withholds, and settle decisions to the targets.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features.
        y : array-like, (rows,)
            Labels; NaN, None or ``pd.NA`` where none is stated.
        sensitive_features : array-like or DataFrame, optional
            One or several columns of groups, with the same kinds of gaps. Without it decisions are those of
            the classifier.

        Returns
        -------
        FairDecisions
            Itself.

        Raises
        ------
        InputError
            If tables, labels, groups or parameters cannot be used.
        """
        if y is None:
            raise InputError("requires y to be passed, but the target y is None.")
        targets = self._checked_targets()
        frame = as_frame(X)
        check_names(frame)
        validate_data(self, X, skip_check_array=True)
        y_obs, classes = check_labels(y, len(frame))
        a_obs, attributes = check_groups(sensitive_features, self.missing_values, len(frame))
        seed = random_seed(self.random_state)
        self.encoder_, self.classes_, self.attributes_ = TableEncoder.learn(frame), classes, attributes
        self.knows_groups_ = sensitive_features is not None
        self.trees_ = TreeFeatures(self.encoder_)
        fold = _folds(y_obs, a_obs, self.folds, seed)
        inputs, features = self._inputs(X), self.trees_.encode(frame)
        base = _boosted(self.trees_.categorical, seed) if self.estimator is None else self.estimator
        self.labeller_ = CrossFitted.fit(base, inputs, y_obs, fold, len(classes), of_code=classes.take)
        scores = self.labeller_.out_of_fold(inputs, fold, self._code_of)
        table = CodedTable(
            self.encoder_.encode(frame), y_obs, a_obs, self.encoder_, classes, attributes
        ).observed()
        channels = (
            channel("a", attributes, self.prior_a),
            channel("y", table.label_attributes, self.prior_y),
        )
        of_labels = _calibrated(channels[1], scores, y_obs, seed)
        self.recalibration_ = of_labels.recalibration
        label = self._recalibrated(scores)
        self._withholding = {"y": of_labels}
        self.grouper_: CrossFitted | None = None
        if self.knows_groups_:
            cells, imputed, label_given = self._impute(
                features, fold, label, y_obs, a_obs, channels[0], table, seed
            )
            kept = slice(None, None, -(-len(label) // SETTLED_ROWS))
            stated = StatedGroups(a_obs, attributes).codes
            self._settling = tuple(part[kept] for part in (label, cells, imputed, label_given, y_obs, stated))
            self._settle(targets)
            self.selected_ = self._default()
            if self.max_disparity is not None:
                self.select(self.max_disparity)
        else:
            warnings.warn(
                "no sensitive_features were given: decisions are those of the classifier, without fairness.",
                stacklevel=2,
            )
            self._adjustment = np.zeros((1, len(classes), len(classes), 1))
            known = y_obs < len(classes)
            error = float((label[known].argmax(1) != y_obs[known]).mean())
            self.frontier_ = pd.DataFrame(
                {"target": [np.nan], "error": [error], "disparity": [np.nan], "standard_error": [np.nan]}
            )
            self.selected_ = 0
        return self

    def _checked_targets(self) -> np.ndarray:
        choose("risk", self.risk, RISKS)
        require(
            self.estimator is None or hasattr(self.estimator, "predict_proba"),
            f"{type(self.estimator).__name__} has no predict_proba, from which decisions are settled; give a "
            "classifier that has, or wrap it in sklearn.calibration.CalibratedClassifierCV.",
        )
        require(
            isinstance(self.folds, (int, np.integer)) and self.folds >= 2,
            f"folds must be a whole number of at least 2, got {self.folds!r}.",
        )
        given = TARGETS if self.targets is None else self.targets
        try:
            targets = np.array([float(target) for target in given])
        except (TypeError, ValueError) as reason:
            raise InputError(f"targets must be numbers within (0, 1], got {self.targets!r}.") from reason
        for name, values in (("targets", targets), ("max_disparity", [self.max_disparity])):
            bad = [value for value in values if value is not None and not 0 < value <= 1]
            require(not bad, f"{name} must be within (0, 1], got {bad and bad[0]}.")
        require(len(set(targets)) == len(targets), f"targets has a value twice: {list(targets)}.")
        return np.sort(targets)[::-1]

    def _impute(
        self,
        features: np.ndarray,
        fold: np.ndarray,
        label: np.ndarray,
        y_obs: np.ndarray,
        a_obs: np.ndarray,
        of: Channel,
        table: Observed,
        seed: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """P(y, a|x), P(y, a|x, ỹ, ã) and P(y|x, ỹ) of every row, by models that were not fitted on it."""
        stated = StatedGroups(a_obs, self.attributes_).codes  # of rows that state all attributes
        groups, classes = self.attributes_.groups, len(self.classes_)
        require(
            bool((np.bincount(stated[stated < groups], minlength=groups) > self.folds).all()),
            f"every group must be stated by more than {self.folds} rows, the number of folds; merge or drop "
            "rare groups, or use fewer folds.",
        )
        of_x = CrossFitted.fit(_boosted(self.trees_.categorical, seed), features, stated, fold, groups)
        scores = of_x.out_of_fold(features, fold, np.asarray)
        of_groups = _calibrated(of, scores, a_obs, seed, table)
        self._withholding["a"] = of_groups
        matrix = _mean_matrix(of_groups)
        whole = [list(self.attributes_.outcome_names).index(name) for name in self.attributes_.group_names]
        states = matrix[np.arange(groups), whole]  # P(all stated|a)
        weight = np.where(stated < groups, 1 / states.clip(min=0.01)[np.minimum(stated, groups - 1)], 0.0)
        known = np.where((stated < groups) & (y_obs < classes), stated, groups)
        with_label = np.c_[features, np.where(y_obs < classes, y_obs, np.nan)]
        grouper = CrossFitted.fit(
            _boosted(np.r_[self.trees_.categorical, True], seed), with_label, known, fold, groups, weight
        )
        by_label = np.stack(
            [
                grouper.out_of_fold(np.c_[features, np.full(len(features), y)], fold, np.asarray)
                for y in range(classes)
            ],
            axis=1,
        )  # P(a|x,y), (rows, classes, groups)
        self.grouper_ = grouper
        label_given = label * _mean_matrix(self._withholding["y"])[:, y_obs].T
        label_given /= label_given.sum(1, keepdims=True)
        group_given = by_label * matrix[:, a_obs].T[:, None]
        group_given /= group_given.sum(2, keepdims=True).clip(min=1e-300)
        return label[..., None] * by_label, label_given[..., None] * group_given, label_given

    def _settle(self, targets: np.ndarray) -> None:
        """The frontier: decisions without a target, and those settled to each."""
        found = self._settled(targets)
        self._adjustment = found[0]
        self.frontier_ = found[1]

    def _settled(self, targets: np.ndarray) -> tuple[np.ndarray, pd.DataFrame]:
        label, cells, imputed, label_given = (torch.from_numpy(part) for part in self._settling[:4])
        risk = RISKS[self.risk]
        settled = settle(label, cells, imputed, label_given, risk, torch.from_numpy(targets.copy()))
        none = torch.zeros_like(settled.adjustment[:1])
        adjustment = torch.cat([none, settled.adjustment]).numpy()
        lines = []
        for target, nu in zip([np.nan, *targets], adjustment, strict=True):
            decided = _adjusted(self._settling[0], self._settling[1], nu).argmax(1)
            one_hot = np.eye(len(self.classes_))[decided]
            lines.append(
                {
                    "target": target,
                    "error": 1 - float((one_hot * self._settling[3]).sum(1).mean()),
                    "disparity": _disparity(risk, one_hot, self._settling[2]),
                    "standard_error": standard_error(risk, decided, self._settling[2]),
                }
            )
        return adjustment, pd.DataFrame(lines)

    def _default(self) -> int:
        frontier = self.frontier_
        allowed = frontier[frontier["error"] <= frontier["error"][0] + WITHIN]
        aimed = allowed[allowed["disparity"] <= SHARE * frontier["disparity"][0]]
        return int(aimed["error"].idxmin() if len(aimed) else allowed["disparity"].idxmin())

    def select(self, max_disparity: float, *, confidence: float | None = None) -> Self:
        """Settle decisions at this disparity, and decide so from now on.

        Parameters
        ----------
        max_disparity : float
            The target, within (0, 1]; it joins ``frontier_`` if it is new.
        confidence : float, optional
            Decide at the most accurate target for which the upper end of the audit's interval with this
            confidence, of decisions on cross-fitted scores, is at most ``max_disparity`` instead. Possible
            for the risks deo, deopp and ddp.

        Returns
        -------
        FairDecisions
            Itself.

        Raises
        ------
        InputError
            If no target is within the limit with this confidence, or no groups were given.
        """
        check_is_fitted(self)
        require(self.knows_groups_, "the model was fitted without sensitive_features and knows no groups.")
        require(0 < max_disparity <= 1, f"max_disparity must be within (0, 1], got {max_disparity}.")
        if confidence is not None:
            self.selected_ = self._confident(max_disparity, confidence)
            return self
        known = np.flatnonzero(np.isclose(self.frontier_["target"], max_disparity))
        if not len(known):
            adjustment, lines = self._settled(np.array([max_disparity]))
            self.frontier_ = pd.concat([self.frontier_, lines[1:]], ignore_index=True)
            self._adjustment = np.concatenate([self._adjustment, adjustment[1:]])
            known = np.array([len(self.frontier_) - 1])
        self.selected_ = int(known[0])
        reached = float(self.frontier_["disparity"][self.selected_])
        if reached > max_disparity * 1.05:
            warnings.warn(
                f"decisions cannot be settled at a disparity of {max_disparity}: they come as near as "
                f"{reached:.3f}.",
                stacklevel=2,
            )
        return self

    def _confident(self, limit: float, confidence: float) -> int:
        """The most accurate line of the frontier whose audited upper end is within the limit."""
        choose("risk that can be selected with confidence", self.risk, ("deo", "deopp", "ddp"))
        label, cells, _, _, y_obs, stated = self._settling
        groups = len(self.groups_)
        y_true = np.where(y_obs < len(self.classes_), y_obs, np.nan)
        said = np.where(stated < groups, stated, np.nan)
        by_group = cells.sum(1)
        ends = []
        for nu in self._adjustment:
            decided = _adjusted(label, cells, nu).argmax(1)
            done = audit(y_true, decided, said, groups_proba=by_group, confidence=confidence)
            ends.append(float(done.metrics["high"][self.risk]))
        within = self.frontier_[np.array(ends) <= limit]
        require(
            len(within) > 0,
            f"no target's disparity is at most {limit} with {100 * confidence:g} % confidence; the least "
            f"upper end is {min(ends):.3f}. More rows, or smaller targets, may lower it.",
        )
        return int(within["error"].idxmin())

    @property
    def groups_(self) -> tuple[str, ...]:
        """The groups; empty if none were given."""
        check_is_fitted(self)
        return self.attributes_.group_names if self.knows_groups_ else ()

    @property
    def withholding_check_(self) -> WithholdingCheck | None:
        """The check of the assumption on withholding; None if it was not made."""
        check_is_fitted(self)
        checks = self._withholding["a"].checks if "a" in self._withholding else ()
        return checks[0] if checks else None

    @property
    def channels_(self) -> pd.DataFrame:
        """How often each group, and each class's label, is withheld, with 90 % intervals."""
        check_is_fitted(self)
        lines = []
        for what, name in (("group", "a"), ("label", "y")):
            if name in self._withholding:
                rows = describe(self._withholding[name].draws)
                lines += [
                    withheld_line(what, given, row[UNAVAILABLE])
                    for given, row in rows.items()
                    if UNAVAILABLE in row
                ]
        return pd.DataFrame(lines)

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores that decide, as :class:`~pyro_fairvae.FairSSVAEClassifier` has them.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray
            With two classes, the score of the second minus that of the first, (rows,); else (rows, classes).
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The decisions at the selected target.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (rows,)
            Values of ``classes_``.
        """
        check_is_fitted(self)
        return np.asarray(self.classes_[self._scores(X).argmax(1)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y|x), the mean of the cross-fitted classifiers; fair decisions need not have the largest.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (rows, classes)
            In the order of ``classes_``; rows sum to 1.
        """
        check_is_fitted(self)
        self._check_columns(X)
        return self._recalibrated(self.labeller_.predict(self._inputs(X), self._code_of))

    def predict_groups_proba(self, X: Any) -> np.ndarray:
        """P(a|x), by the features alone.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (rows, groups)
            In the order of ``groups_``.
        """
        check_is_fitted(self)
        require(self.knows_groups_, "the model was fitted without sensitive_features and knows no groups.")
        return self._cells(X, self.predict_proba(X)).sum(1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on rows that have a label.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.
        y : array-like, (rows,)
            Labels, which may have gaps.
        sample_weight : array-like, (rows,), optional
            Weights of rows.

        Returns
        -------
        float
            The share of labelled rows with a correct decision.
        """
        decided = self.predict(X)
        codes, _ = code_labels(y, self.classes_)
        require(len(codes) == len(decided), f"X has {len(decided)} rows, but y {len(codes)}.")
        known = codes < len(self.classes_)
        require(bool(known.any()), "all labels are missing; give at least one to compute a score.")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(self.classes_[codes[known]], decided[known], sample_weight=weight))

    def _scores(self, X: Any) -> np.ndarray:
        label = self.predict_proba(X)
        nu = self._adjustment[self.selected_]
        return _adjusted(label, self._cells(X, label), nu) if self.knows_groups_ and nu.any() else label

    def _cells(self, X: Any, label: np.ndarray) -> np.ndarray:
        """P(y, a|x), (rows, classes, groups)."""
        assert self.grouper_ is not None
        features = self.trees_.encode(self._frame(X))
        by_label = [
            self.grouper_.predict(np.c_[features, np.full(len(features), y)], np.asarray)
            for y in range(len(self.classes_))
        ]
        return label[..., None] * np.stack(by_label, axis=1)

    def _inputs(self, X: Any) -> Any:
        """What the classifier is given: X itself, or its columns for trees."""
        if self.estimator is None:
            return self.trees_.encode(self._frame(X))
        return X if isinstance(X, pd.DataFrame) else np.asarray(X)

    def _frame(self, X: Any) -> pd.DataFrame:
        frame = as_frame(X)
        if not (isinstance(X, pd.DataFrame) and set(self.encoder_.names) <= set(map(str, frame.columns))):
            frame.columns = pd.Index(self.encoder_.names)
        return frame

    def _check_columns(self, X: Any) -> None:
        frame = as_frame(X)
        require(len(frame) > 0, f"X has 0 rows (shape={frame.shape}); give at least one.")
        if isinstance(X, pd.DataFrame) and hasattr(self, "feature_names_in_"):
            self.encoder_.aligned(frame)
        validate_data(self, X, reset=False, skip_check_array=True)

    def _recalibrated(self, scores: np.ndarray) -> np.ndarray:
        if self.recalibration_ is None:
            return scores
        return recalibrated(torch.from_numpy(scores), torch.from_numpy(self.recalibration_[0])).numpy()

    def _code_of(self, classes: Any) -> np.ndarray:
        return np.searchsorted(self.classes_, classes)


def _boosted(categorical: np.ndarray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

    return HistGradientBoostingClassifier(
        categorical_features=categorical, early_stopping=False, random_state=seed
    )


def _folds(y_obs: np.ndarray, a_obs: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, with about the same stated labels and groups in each."""
    order = np.random.default_rng([seed, folds]).permutation(len(y_obs))
    order = order[np.lexsort((a_obs[order], y_obs[order]))]
    fold = np.empty(len(y_obs), dtype=int)
    fold[order] = np.arange(len(y_obs)) % folds
    return fold


def _calibrated(
    of: Channel, scores: np.ndarray, observed: np.ndarray, seed: int, checked: Any = None
) -> Calibrated:
    return calibrate_scores(
        of, torch.from_numpy(scores)[None], torch.from_numpy(observed)[None], 300, seed, checked=checked
    )


def _mean_matrix(posterior: Calibrated) -> np.ndarray:
    """P(observed|latent) at the posterior means, (values, outcomes)."""
    rows = [torch.from_numpy(row.mean((0, 1))[0]) for row in posterior.draws.rows]
    return posterior.draws.channel.matrix(rows).numpy()


def _adjusted(label: np.ndarray, cells: np.ndarray, nu: np.ndarray) -> np.ndarray:
    return np.asarray(label + np.einsum("rya,cya->rc", cells, nu))


def _disparity(risk: ComposedRisk, one_hot: np.ndarray, cells: np.ndarray) -> float:
    sums = (cells.sum(0), np.einsum("rc,rya->yac", one_hot, cells))
    return float(risk(CellSums(*map(torch.from_numpy, sums))).value)
