"""Fair decisions of any classifier, for groups that only some rows state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from pyro_fairvae.auditing.judged_rows import JudgedRows, with_intervals
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.boosting.cross_fitted_trees import CrossFittedTrees, even_folds
from pyro_fairvae.boosting.tree_inputs import are_categories, tree_inputs
from pyro_fairvae.channels.priors import channel, columns_given, sketched_channel
from pyro_fairvae.data.given_rows import unmasked
from pyro_fairvae.data.row_weights import known_weights
from pyro_fairvae.data.table_encoder import names_of
from pyro_fairvae.data.user_table import stated_rows
from pyro_fairvae.decisions.targets import check_targets, default_targets, settle
from pyro_fairvae.estimator.cross_fitted import CrossFitted
from pyro_fairvae.estimator.imputation import (
    GroupImputer,
    Imputed,
    LabelImputer,
    groups_by_label,
    imputed,
    recalibrated_labels,
)
from pyro_fairvae.estimator.state import restore_estimator
from pyro_fairvae.estimator.table_classifier import TableClassifier, WithholdingWarning
from pyro_fairvae.estimator.validation import random_seed
from pyro_fairvae.evaluation.joint_decisions import BelievedRows, JointProblem, JointRule, check_no_costs
from pyro_fairvae.evaluation.selection import metric_of, select_target, standard_error
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.stored_draws import keep_calibrated
from pyro_fairvae.posterior.summaries import summarise_calibrated
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk, RiskSettings
from pyro_fairvae.risks.costs import Costs, check_costs, check_costs_of, expected_cost, relative_costs
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.storage.contents import TreeDecisions
from pyro_fairvae.storage.stored_model import StoredModel, load_model, restoring

SETTLED_ROWS = 1 << 16  # at most, that decisions are settled on


class FairDecisions(MetaEstimatorMixin, TableClassifier):
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
        Any scikit-learn classifier or pipeline with ``predict_proba``, which receives X as it is given, or
        as a table of pandas if it is a frame of another library; or a fitted one within
        ``sklearn.frozen.FrozenEstimator``, which must not have been fitted on these rows.
        By default boosted trees, which take numbers, categories and gaps.
    risk : str, optional
        What is to be equal between groups: ``"deo"``, ``"deopp"``, ``"ddp"``, or another of
        :data:`pyro_fairvae.risks.RISKS`. By default ``"deo"``, or ``"mutual_information_given_label"`` with
        ``group_levels``.
    targets : sequence of float, optional
        ε, within (0, 1], of the frontier, in the unit of the risk.
    max_disparity : float, optional
        Decide at this target. By default at the most accurate whose disparity is at most a fifth of that
        without a target, if it costs at most one point of accuracy; else at the fairest that does.
    costs : sequence of float, optional
        With two classes, what a false positive and a false negative cost, such as ``(5, 1)``; the second of
        ``classes_`` is the positive. Settled decisions then minimise the expected cost under the targets, in
        place of the error; without a target the second class is decided where its probability exceeds
        :math:`c_{FP} / (c_{FP} + c_{FN})`. ``frontier_`` has the expected ``cost`` of a decision, and the
        member that decides by default may cost a hundredth of the mean of both more than without a target.
    folds : int
        Of cross-fitting.
    missing_values : sequence
        Values of the sensitive columns that mean "not stated", besides NaN, None and ``pd.NA``.
    prior_a, prior_y : str or mapping
        Priors on P(ã|a) and P(ỹ|y), under which nobody misstates.
    withholding_depends_on : sequence of str
        What withholding may depend on besides the group: names of features, and ``"label"`` for the label.
        Columns of an array are called ``"0"``, ``"1"``, ….
    proxies : sequence of str
        Names of columns of X that tell of the group but must not decide, such as a district. They are used
        in ``fit`` alone, to learn who withholds and to impute groups, and ``estimator`` does not see them. X
        may lack them afterwards, and they are not looked at if it has them.
    group_levels : int, optional
        The sensitive feature is a number, cut into at most so many levels, as
        :class:`~pyro_fairvae.FairSSVAEClassifier` has it.
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
        cross-fitted scores and imputations, which they take as certain; and ``low`` and ``high``, the ends of
        a 90 % interval of the disparity by an :func:`~pyro_fairvae.audit` of the same decisions, which is
        anchored on rows that state their group. NaN if audits have no interval for the risk.
    posterior_ : dict
        The posteriors of P(ã|a) and P(ỹ|y), in the format of :func:`~pyro_fairvae.summarise`; under
        ``"effects"`` what makes people withhold, where ``withholding_depends_on`` allows more than the group.
    members_ : MembersDocument or None
        The targets side by side on rows scored by models that were not fitted on them: rates by group, who
        gains and who loses a decision. None without groups.
    metric_ : str
        The name of the metric in the column ``disparity`` of ``frontier_``.
    summary_ : dict
        Contents of the table, as :class:`~pyro_fairvae.FairSSVAEClassifier` has them.
    selected_ : int
        The line of ``frontier_`` that decides.
    channels_ : DataFrame
        How often each group, and each class's label, is withheld, with 90 % intervals.
    withholding_curve_ : DataFrame or None
        With ``group_levels``: how often the number is withheld, along its levels.
    withholding_check_ : WithholdingCheck or None
        Whether what was recorded agrees with the assumption on withholding.
    n_features_in_ : int
        Number of columns of X, without proxies.
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
        risk: str | None = None,
        targets: Sequence[float] | None = None,
        max_disparity: float | None = None,
        costs: Sequence[float] | None = None,
        folds: int = 5,
        missing_values: Sequence[Any] = (),
        prior_a: Any = "truthful",
        prior_y: Any = "truthful",
        withholding_depends_on: Sequence[str] = (),
        proxies: Sequence[str] = (),
        group_levels: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.risk = risk
        self.targets = targets
        self.max_disparity = max_disparity
        self.costs = costs
        self.folds = folds
        self.missing_values = missing_values
        self.prior_a = prior_a
        self.prior_y = prior_y
        self.withholding_depends_on = withholding_depends_on
        self.proxies = proxies
        self.group_levels = group_levels
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = None if self.estimator is None else get_tags(self.estimator).input_tags
        for name in ("allow_nan", "string", "categorical"):
            setattr(tags.input_tags, name, given is None or getattr(given, name))
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any = None,
        proxy_proba: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        r"""Cross-fit, learn who withholds, and settle decisions to the targets.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features.
            Frames of polars, pyarrow and others that narwhals knows are taken here, and wherever rows are
            given, as those of pandas.
        y : array-like, (rows,)
            Labels; NaN, None or ``pd.NA`` where none is stated.
        sensitive_features : array-like or DataFrame, optional
            One or several columns of groups, with the same kinds of gaps. Without it decisions are those of
            the classifier.
        proxy_proba : DataFrame or array-like, (rows, groups), optional
            Probabilities of the groups that are known from elsewhere: a proxy, too, in the form that
            :meth:`.FairSSVAEClassifier.fit` takes.
        sample_weight : array-like, (rows,), optional
            Weights of rows, 0 or more, such as those of a survey: how many people each stands for. Only their
            ratios matter, and rows of weight 0 are taken as absent. They weigh every row's part in training,
            in imputation, in decisions, in who withholds and in held-out metrics. The posterior of who
            withholds takes them as a pseudo-likelihood of Kish's effective number of rows,
            :math:`(\sum w)^2 / \sum w^2`.

        Returns
        -------
        FairDecisions
            Itself.

        Raises
        ------
        InputError
            If tables, labels, groups or parameters cannot be used.
        """
        return self.refit(X, y, sensitive_features, proxy_proba, sample_weight)

    def _learn(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any = None,
        proxy_proba: Any = None,
        sample_weight: Any = None,
    ) -> None:
        targets = self._checked_targets()
        settings = Settings(
            prior_a=self.prior_a,
            prior_y=self.prior_y,
            withholding_depends_on=names_of(self.withholding_depends_on),
        )
        weight, counted = self._counted_rows(X, y, sensitive_features, proxy_proba, sample_weight)
        given = self._given_table(*counted, weight)
        coded = given.coded
        if coded.attributes.levels is not None:
            sketched_channel(coded.attributes, settings.prior_a)
        y_obs, a_obs, classes = coded.y_obs, coded.a_obs, coded.classes
        check_costs_of(check_costs(self.costs), len(classes))
        seed = random_seed(self.random_state)
        self.encoder_, self.classes_, self.attributes_ = coded.encoder, classes, coded.attributes
        self.proxy_encoder_ = coded.proxies
        self.knows_groups_ = sensitive_features is not None
        self.summary_ = given.summary(len(y_obs))
        self.source_: dict[str, Any] = {}
        self.metric_, _ = metric_of(RiskSettings(risk=self._chosen_risk()))
        table = coded.observed()
        fold = even_folds(y_obs, a_obs, self.folds, seed)
        scores = self._cross_fit(self._given(self._features(counted[0])), table, fold, seed)
        labels = LabelImputer.learn(scores, table, self.prior_y, seed)
        self.recalibration_ = labels.recalibration
        label = recalibrated_labels(scores, self.recalibration_)
        withholding = {"y": labels.withholding}
        self.grouper_: CrossFittedTrees | None = None
        self._settling: tuple[Imputed, Observed] | None = None
        if self.knows_groups_:
            groups = GroupImputer.learn(table, label, labels, fold, settings, seed)
            self.grouper_, withholding["a"] = groups.trees, groups.withholding
            self._judge(imputed(label, labels, groups, table, fold), table, targets)
        else:
            warnings.warn(
                "no sensitive_features were given: decisions are those of the classifier, without fairness.",
                stacklevel=4,
            )
            self._adjustment = np.zeros((1, len(classes), len(classes), 1))
            known = y_obs < len(classes)
            decided = self._weighed_by_cost(label)[known].argmax(1)
            own = known_weights(_weights_of(table), known)
            error = float(np.average(decided != y_obs[known], weights=own))
            paid = {}
            if self.costs is not None:
                stated = np.eye(2)[y_obs[known]] * (1 if own is None else own[:, None])
                paid["cost"] = [expected_cost(self._costs, decided, stated)]
            self.frontier_ = pd.DataFrame(
                {"target": [np.nan], "error": [error]}
                | paid
                | {name: [np.nan] for name in ("disparity", "standard_error", "low", "high")}
            )
            self.selected_, self.members_ = 0, None
        self.posterior_ = summarise_calibrated(withholding, bool(settings.withholding_depends_on))
        self.draws_ = keep_calibrated(withholding)
        check = self.posterior_["check"]
        if check is not None and check["rejected"]:
            warnings.warn(check["says"], WithholdingWarning, stacklevel=4)
        self._warn_if_one_class()

    def _cross_fit(self, X: Any, table: Observed, fold: np.ndarray, seed: int) -> np.ndarray:
        """Fit the classifier in folds; its scores of every row by the copy that was not fitted on it."""
        y_obs, classes, weight = table.y_obs.numpy(), table.classes, _weights_of(table)
        if self.estimator is None:
            inputs = self._tree_inputs(table.x)
            categories = are_categories(self.encoder_.columns)
            trees = CrossFittedTrees.grow(inputs, categories, y_obs, fold, classes, weight, seed)
            self.labeller_: CrossFittedTrees | CrossFitted = trees
            return trees.out_of_fold(inputs, fold)
        fitted = CrossFitted.fit(self.estimator, X, y_obs, fold, self.classes_, weight)
        self.labeller_ = fitted
        return fitted.out_of_fold(X, fold)

    def _judge(self, believed: Imputed, table: Observed, targets: np.ndarray) -> None:
        """Settle decisions to the targets, and choose one."""
        every = -(-table.rows // SETTLED_ROWS)
        believed = believed.some(slice(None, None, every))
        self._settling = believed, table.take(torch.arange(0, table.rows, every))
        self._adjustment, frontier = self._settled(believed, targets)
        judged = self._judged(self._adjustment)
        self.frontier_ = with_intervals(frontier, judged, self.metric_)
        self.members_ = self._side_by_side(judged)
        self.selected_ = select_target(self.frontier_, costs=check_costs(self.costs))
        if self.max_disparity is not None:
            self.select(self.max_disparity)

    @property
    def _costs(self) -> Costs:
        found = check_costs(self.costs)
        assert found is not None
        return found

    def _weighed_by_cost(self, label: np.ndarray) -> np.ndarray:
        """P(y|x) times what an error about people of y counts: the scores that decide without a target."""
        return label if self.costs is None else label * np.array(relative_costs(self._costs))

    def _checked_targets(self) -> np.ndarray:
        check_costs(self.costs)
        risk = RISKS[choose("risk", self._chosen_risk(), RISKS)]
        require(
            self.estimator is None or hasattr(self.estimator, "predict_proba"),
            f"{type(self.estimator).__name__} has no predict_proba, from which decisions are settled; give a "
            "classifier that has, or wrap it in sklearn.calibration.CalibratedClassifierCV.",
        )
        require(
            isinstance(self.folds, (int, np.integer)) and self.folds >= 2,
            f"folds must be a whole number of at least 2, got {self.folds!r}.",
        )
        require(
            self.max_disparity is None or 0 < self.max_disparity <= 1,
            f"max_disparity must be within (0, 1], got {self.max_disparity}.",
        )
        return np.array(check_targets(default_targets(risk) if self.targets is None else self.targets))

    def _judged(self, adjustment: np.ndarray) -> JudgedRows:
        """The rows that decisions were settled on, with the decisions by each of some adjustments."""
        assert self._settling is not None
        believed, table = self._settling
        scores = self._weighed_by_cost(believed.label)
        decided = [adjusted(scores, believed.cells, nu).argmax(1) for nu in adjustment]
        depends_on = names_of(self.withholding_depends_on)
        return JudgedRows.of(table, believed.cells.sum(1), np.stack(decided), depends_on)

    def _settled(self, believed: Imputed, targets: np.ndarray) -> tuple[np.ndarray, pd.DataFrame]:
        risk = RISKS[self._chosen_risk()]
        assert self._settling is not None
        masses, label_masses = believed.joint, believed.label_given
        weight = _weights_of(self._settling[1])
        if weight is not None:
            masses, label_masses = masses * weight[:, None, None], label_masses * weight[:, None]
        scores = self._weighed_by_cost(believed.label)
        parts = (scores, believed.cells, masses, self._weighed_by_cost(label_masses), targets)
        label, cells, joint, label_given, aims = map(torch.from_numpy, parts)
        settled = settle(label, cells, joint, label_given, risk, aims)
        none = torch.zeros_like(settled.adjustment[:1])
        adjustment = torch.cat([none, settled.adjustment]).numpy()
        lines = []
        for target, nu in zip([np.nan, *targets], adjustment, strict=True):
            decided = adjusted(scores, believed.cells, nu).argmax(1)
            one_hot = np.eye(len(self.classes_))[decided]
            lines.append(
                {
                    "target": target,
                    "error": 1 - float((one_hot * label_masses).sum(1).mean()),
                    **(
                        {}
                        if self.costs is None
                        else {"cost": expected_cost(self._costs, decided, label_masses)}
                    ),
                    "disparity": _disparity(risk, one_hot, masses),
                    "standard_error": standard_error(risk, decided, masses),
                }
            )
        return adjustment, pd.DataFrame(lines)

    def select(self, max_disparity: float, *, confidence: float | None = None) -> Self:
        """Settle decisions at this disparity, and decide so from now on.

        Parameters
        ----------
        max_disparity : float
            The target, within (0, 1]; it joins ``frontier_`` if it is new. A loaded model has no rows to
            settle decisions on, and takes the largest of its targets up to this one.
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
        self._require_groups()
        require(0 < max_disparity <= 1, f"max_disparity must be within (0, 1], got {max_disparity}.")
        if confidence is not None:
            rows = None if self._settling is None else self._judged(self._adjustment)
            self.selected_ = self._confident(self.metric_, max_disparity, confidence, rows)
            return self
        known = np.flatnonzero(np.isclose(self.frontier_["target"], max_disparity))
        if self._settling is None:  # loaded
            self.selected_ = self._at_target(max_disparity)
            return self
        if not len(known):
            adjustment, lines = self._settled(self._settling[0], np.array([max_disparity]))
            lines = with_intervals(lines, self._judged(adjustment), self.metric_)
            self.frontier_ = pd.concat([self.frontier_, lines[1:]], ignore_index=True)
            self._adjustment = np.concatenate([self._adjustment, adjustment[1:]])
            self.members_ = self._side_by_side(self._judged(self._adjustment))
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
        model = self._as_fitted()
        return model._labels(X, model._inputs(X))

    def predict_members(self, X: Any) -> np.ndarray:
        """The decision of every target, (targets, rows), in the order of ``frontier_``.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (targets, rows)
            Values of ``classes_``.
        """
        model = self._as_fitted()
        inputs = model._inputs(X)
        label = model._labels(X, inputs)
        if not model.knows_groups_:
            return np.asarray(model.classes_[label.argmax(1)])[None]
        cells = model._cells(inputs, label)
        decided = [adjusted(label, cells, nu).argmax(1) for nu in model._adjustment]
        return np.asarray(model.classes_[np.stack(decided)])

    def predict_groups_proba(self, X: Any) -> Any:
        """P(a|x), by the features alone.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (rows, groups)
            In the order of ``groups_``; where X is a frame of another library than pandas, such as polars, a
            frame of that library with a column for each group.
        """
        model = self._as_fitted()
        model._require_groups()
        inputs = model._inputs(X)
        return model._by_group(model._cells(inputs, model._labels(X, inputs)).sum(1), X)

    def _decider(self) -> TreeDecisions:
        require(
            isinstance(self.labeller_, CrossFittedTrees),
            f"decisions of {type(self.estimator).__name__} cannot be saved without code; use joblib.dump, or "
            "estimator=None for boosted trees.",
        )
        assert isinstance(self.labeller_, CrossFittedTrees)
        return TreeDecisions(self.labeller_, self.grouper_, self.recalibration_, self._adjustment)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model of a folder; no code from the folder is run, and nothing is fitted.

        Parameters
        ----------
        folder : path
            Written by :meth:`save` or ``fairvae fit --estimator boosting``.

        Returns
        -------
        FairDecisions
            The fitted model.

        Raises
        ------
        InputError
            If the folder holds no model, a damaged one, or one of another kind.
        """
        return cls.restored(load_model(Path(folder)), Path(folder))

    @classmethod
    def restored(cls, stored: StoredModel, folder: Path) -> Self:
        """The model that was read from a folder."""
        model = cls()
        with restoring(folder):
            decider = stored.decider
            require(
                isinstance(decider, TreeDecisions), "a network decides; load it by FairSSVAEClassifier.load."
            )
            assert isinstance(decider, TreeDecisions)
            restore_estimator(model, stored)
            model.proxy_encoder_ = stored.proxies
            model.labeller_, model.grouper_ = decider.labels, decider.groups
            model.recalibration_, model._adjustment = decider.recalibration, decider.adjustment
            model._settling = None
        return model

    def _scores(self, X: Any) -> np.ndarray:
        inputs = self._inputs(X)
        label, nu = self._labels(X, inputs), self._adjustment[self.selected_]
        scores = self._weighed_by_cost(label)
        return adjusted(scores, self._cells(inputs, label), nu) if nu.any() else scores

    def _joint(self, X: Any, sensitive_features: Any, rule: JointRule) -> JointProblem:
        check_no_costs(self.costs)
        target = self.frontier_["target"][self.selected_]
        risk = rule.risk_of(RiskSettings(risk=self._chosen_risk()))
        weight = rule.weight_of(None, None if np.isnan(target) else float(target))
        inputs = self._inputs(X)
        label = self._labels(X, inputs)
        imputed = cells = self._cells(inputs, label)
        if sensitive_features is not None:
            x = torch.from_numpy(self.encoder_.encode(self._frame(self._features(X))))
            described = (self.encoder_, self.classes_, self.attributes_, self.missing_values)
            stated = stated_rows(x, sensitive_features, *described).a_obs.numpy()
            imputed = cells * self._chance_of_stating()[:, stated].T[:, None]
            imputed = imputed / imputed.sum((1, 2), keepdims=True).clip(min=1e-300)
        alone = adjusted(label, cells, self._adjustment[self.selected_]).argmax(1)
        rows = BelievedRows(*map(torch.from_numpy, (label, imputed, alone)))
        return JointProblem(rows, risk, *weight)

    def _chance_of_stating(self) -> np.ndarray:
        """P(ã|a) at posterior means, (groups, outcomes).

        Where withholding depends on more than the group, ∅ is taken to tell nothing.
        """
        attributes = self.attributes_
        of_group, of_outcome = attributes.group_parts[:, None], attributes.outcome_parts[None]
        withheld = of_outcome == [len(values) for values in attributes.values]
        if names_of(self.withholding_depends_on) or columns_given(attributes, self.prior_a):
            return np.all((of_group == of_outcome) | withheld, axis=2).astype(float)
        of, rates = channel("a", attributes, self.prior_a), self.posterior_["a"]
        means = [[rates[row.label][outcome]["mean"] for outcome in row.outcomes] for row in of.rows]
        return of.matrix([torch.tensor(row).double() for row in means]).numpy()

    def _labels(self, X: Any, inputs: np.ndarray) -> np.ndarray:
        """P(y|x), (rows, classes)."""
        taken = inputs if isinstance(self.labeller_, CrossFittedTrees) else self._given(self._features(X))
        return recalibrated_labels(self.labeller_.predict(taken), self.recalibration_)

    def _cells(self, inputs: np.ndarray, label: np.ndarray) -> np.ndarray:
        """P(y, a|x), (rows, classes, groups)."""
        assert self.grouper_ is not None
        return label[..., None] * groups_by_label(self.grouper_, inputs, label)

    def _inputs(self, X: Any) -> np.ndarray:
        """Columns for trees."""
        return self._tree_inputs(self.encoder_.encode(self._frame(self._features(X))))

    def _tree_inputs(self, x: Any) -> np.ndarray:
        return tree_inputs(x, self.encoder_.columns)

    @staticmethod
    def _given(X: Any) -> Any:
        """X as it is given to the classifier."""
        return X if isinstance(X, pd.DataFrame) else np.asarray(unmasked(X))


def _weights_of(table: Observed) -> np.ndarray | None:
    return None if table.weight is None else table.weight.double().numpy()


def adjusted(label: np.ndarray, cells: np.ndarray, nu: np.ndarray) -> np.ndarray:
    """The scores that decide, (rows, classes), from P(y|x), P(y, a|x) and ν."""
    return np.asarray(label + np.einsum("rya,cya->rc", cells, nu))


def _disparity(risk: ComposedRisk, one_hot: np.ndarray, cells: np.ndarray) -> float:
    sums = (cells.sum(0), np.einsum("rc,rya->yac", one_hot, cells))
    return float(risk(CellSums(*map(torch.from_numpy, sums))).value)
