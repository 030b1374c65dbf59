"""A fair classifier for tables with gaps, with scikit-learn's interface."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from pyro_fairvae.auditing.judged_rows import JudgedRows, with_intervals
from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import flatten
from pyro_fairvae.base.ranks import current
from pyro_fairvae.boosting.scores import FOLDS, BoostedScores, folds_of
from pyro_fairvae.channels.priors import sketched_channel
from pyro_fairvae.data.streamed_table import StreamedTable
from pyro_fairvae.decisions.score_adjustment import decision_scores
from pyro_fairvae.decisions.targets import check_targets, default_targets
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.estimator.network_estimator import NetworkEstimator, weights_of
from pyro_fairvae.estimator.state import restore_estimator
from pyro_fairvae.estimator.table_classifier import (
    GivenStream,
    GivenTable,
    TableClassifier,
    WithholdingWarning,
)
from pyro_fairvae.estimator.validation import (
    random_seed,
)
from pyro_fairvae.evaluation.joint_decisions import JointProblem, JointRule
from pyro_fairvae.evaluation.selection import (
    imputed_cells,
    metric_of,
    metrics_on_validation,
    select,
    select_target,
)
from pyro_fairvae.inference.settings import INTERVALS
from pyro_fairvae.inference.settling import check_refined
from pyro_fairvae.inference.training import Progress
from pyro_fairvae.nn.trunks import chosen_trunk
from pyro_fairvae.risks import RISKS
from pyro_fairvae.risks.costs import check_costs
from pyro_fairvae.schema.observed import SAMPLED, Observed
from pyro_fairvae.storage.stored_model import StoredModel, restoring


class FairSSVAEClassifier(NetworkEstimator, TableClassifier):
    r"""A classifier that is fair to groups which only some rows state.

    One fit gives a *frontier* of members, from the most accurate to the fairest: one for each target, the
    largest difference between groups that is allowed, or, as in the paper, one for each weight λ of the
    fairness risk. The member that decides is selected on rows held out of training; :meth:`select` selects
    another one at any time.

    For targets networks are trained without fairness, one for each fold of the rows and one on all of them;
    the latter decides, settled to each target by what networks of other folds say of the training rows.

    Parameters
    ----------
    risk : str, optional
        What is to be equal between groups: ``"deo"`` (rates of both kinds of right decisions), ``"deopp"``
        (that of the last class alone), ``"ddp"`` (decisions, whatever the label), or another of
        :data:`pyro_fairvae.risks.RISKS`. By default ``"deo"``; with ``group_levels``
        ``"mutual_information_given_label"``, how many nats decisions tell of the number among people of one
        label.
    targets : sequence of float, optional
        ε of each member, within (0, 1], besides one without a target, in the unit of the risk. Default:
        :data:`pyro_fairvae.decisions.targets.TARGETS`, or ``DEPENDENCE_TARGETS`` for mutual information
        and χ².
    lambdas : sequence of float, optional
        λ of each member, instead of targets.
    max_disparity : float, optional
        Select the member with the largest target up to this value; with ``lambdas``, the most accurate member
        whose disparity on held-out rows is at most this value, or the fairest if there is none. By default,
        with targets, the most accurate member with a fifth of the disparity without a target, if it costs at
        most one point of accuracy, else the fairest that does; with ``lambdas``, the largest λ that costs at
        most one point of accuracy and is no less fair than others, up to a standard error.
    thresholds : float, sequence of float or str, optional
        With two classes, the probability above which the second one is decided, 0.5 by default: one, or one
        for each group. ``"learned"``: one that each member learns in training, or ``"learned_by_group"``;
        they need ``lambdas``, and a member with λ = 0 keeps 0.5. :meth:`decision_function` includes them, and
        ``thresholds_`` says what they are.
    costs : sequence of float, optional
        With two classes, what a false positive and a false negative cost, such as ``(5, 1)``; the second of
        ``classes_`` is the positive. Settled decisions then minimise the expected cost under the targets, in
        place of the error; without a target the second class is decided where its probability exceeds
        :math:`c_{FP} / (c_{FP} + c_{FN})`. ``frontier_`` has the expected ``cost`` of a decision, and the
        member that decides by default may cost a hundredth of the mean of both more than without a target.
        Members with ``lambdas`` take ``thresholds`` instead.
    trunk : str
        ``"boosted"``: the network also sees cross-fitted scores of boosted trees; ``"mlp"``: it does not.
    epochs, batch : int, optional
        Passes over the rows, and rows in a step; by default they depend on the number of rows.
    hidden, layers : int
        Size of the network.
    validation_fraction : float
        Share of rows held out of training, on which the epoch and the member are selected.
    missing_values : sequence
        Values of the sensitive columns that mean "not stated", besides NaN, None and ``pd.NA``.
    withholding_depends_on : sequence of str
        What withholding may depend on besides the group: names of features, and ``"label"`` for the label.
        Columns of an array are called ``"0"``, ``"1"``, ….
    proxies : sequence of str
        Names of columns of X that tell of the group but must not decide, such as a district. They are used
        in ``fit`` alone, to learn who withholds. X may lack them afterwards, and they are not looked at if
        it has them.
    group_levels : int, optional
        The sensitive feature is a number, such as age, which is cut into at most so many levels, ranges side
        by side; 16 are many enough for most. A stated number is exact within its level, withholding changes
        smoothly from one to the next, and nobody can misstate it. By default values are groups.
    intervals : {"calibrated", "given_h"}
        Intervals of ``channels_``: cross-fitted, or faster to compute and too narrow.
    options : mapping, optional
        Any other option of :class:`~pyro_fairvae.inference.settings.Settings` by name, such as
        ``{"prior_a": "paper"}``.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    random_state : int, RandomState or None
        Seed of held-out rows, initial weights and noise.
    verbose : int
        1 shows a progress bar.
    checkpoint : path, optional
        A file for the state of training after each epoch. An interrupted fit resumes from it when ``fit``
        is called again on the same rows with the same parameters; the file is removed at the end.
    callback : callable, optional
        Called with a :class:`~pyro_fairvae.inference.training.Progress` after each epoch.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    groups_ : tuple of str
        The groups; combinations of values where several sensitive columns were given.
    frontier_ : DataFrame
        For each member: its target (NaN if it has none) or λ, and on held-out rows the error, the disparity
        expected under the imputed groups, and its standard error, which take the imputation as certain; and
        ``low`` and ``high``, the ends of a 90 % interval of the disparity by an :func:`~pyro_fairvae.audit`
        of these rows, which is anchored on those that state their group. NaN if audits have no interval for
        the risk.
    selected_ : int
        The member that decides.
    channels_ : DataFrame
        How often each group, and each class's label, is withheld, with 90 % intervals.
    withholding_curve_ : DataFrame or None
        With ``group_levels``: how often the number is withheld, along its levels.
    posterior_ : dict
        The posteriors of P(ã|a) and P(ỹ|y), in the format of :func:`~pyro_fairvae.summarise`; under
        ``"effects"`` what makes people withhold, where ``withholding_depends_on`` allows more than the group.
    withholding_check_ : WithholdingCheck or None
        Whether what was recorded agrees with the assumption on withholding: ``rejected``, ``p_value``,
        ``in_words()``, ``suggestions()`` for ``withholding_depends_on``, and ``columns``. None if intervals
        are not cross-fitted. ``fit`` warns if the assumption is rejected.
    summary_ : dict
        Contents of the table: ``rows``, ``training_rows`` and ``held_out_rows``; how many rows state each of
        the ``labels`` and ``groups``; and ``columns``, each with name, kind, gaps and distinct values. The
        kind of a proxy is ``"proxy (…)"``.
    members_ : MembersDocument or None
        The members side by side on held-out rows: rates by group, who gains and who loses a decision. None
        without groups.
    metric_ : str
        The name of the metric in the column ``disparity`` of ``frontier_``.
    thresholds_ : ndarray
        The thresholds of the member that decides, (1,), or (groups,) where each group has its own.
    n_features_in_ : int
        Number of columns of X, without proxies.
    feature_names_in_ : ndarray
        Names of these columns, if X has any.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import FairSSVAEClassifier, synthetic
    >>> table = synthetic(rows=100)
    >>> X, y = table.numbers, np.array(["no", "yes"])[table.y]
    >>> withheld = np.random.default_rng(0).random(100) < 0.4
    >>> sex = np.where(withheld, None, np.array(["f", "m"])[table.a])
    >>> model = FairSSVAEClassifier(lambdas=(0.0, 1.0), epochs=1, hidden=8, layers=1)
    >>> model = model.fit(X, y, sensitive_features=sex)
    >>> model.groups_, model.predict(X).shape, model.predict_proba(X).shape
    (('f', 'm'), (100,), (100, 2))
    >>> model.frontier_["lambda"].tolist()
    [0.0, 1.0]
    >>> model.select(lambda_=0.0).selected_
    0
    """

    def __init__(
        self,
        *,
        risk: str | None = None,
        targets: Sequence[float] | None = None,
        lambdas: Sequence[float] | None = None,
        max_disparity: float | None = None,
        thresholds: float | Sequence[float] | str | None = None,
        costs: Sequence[float] | None = None,
        trunk: str = "boosted",
        epochs: int | None = None,
        batch: int | None = None,
        hidden: int = 128,
        layers: int = 3,
        validation_fraction: float = 0.15,
        missing_values: Sequence[Any] = (),
        withholding_depends_on: Sequence[str] = (),
        proxies: Sequence[str] = (),
        group_levels: int | None = None,
        intervals: str = INTERVALS[0],
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = 0,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> None:
        self.risk = risk
        self.targets = targets
        self.lambdas = lambdas
        self.max_disparity = max_disparity
        self.thresholds = thresholds
        self.costs = costs
        self.trunk = trunk
        self.epochs = epochs
        self.batch = batch
        self.hidden = hidden
        self.layers = layers
        self.validation_fraction = validation_fraction
        self.missing_values = missing_values
        self.withholding_depends_on = withholding_depends_on
        self.proxies = proxies
        self.group_levels = group_levels
        self.intervals = intervals
        self.options = options
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.callback = callback

    _judged_rows: JudgedRows | None

    def fit(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any = None,
        proxy_proba: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        r"""Train the frontier on a table, its labels and its groups, any of which may have gaps.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features. Columns of a DataFrame are numbers or categories by their types.
            Frames of polars, pyarrow and others that narwhals knows are taken here, and wherever rows are
            given, as those of pandas.
        y : array-like, (rows,)
            Labels; NaN, None or ``pd.NA`` where none is stated.
        sensitive_features : array-like or DataFrame, optional
            One or several columns of groups, with the same kinds of gaps. Without it one member is fitted,
            at λ = 0, without fairness.
        proxy_proba : DataFrame or array-like, (rows, groups), optional
            Probabilities of the groups that are known from elsewhere, as surname geocoding produces: a
            proxy, too. A DataFrame names the groups by its columns, an array has them in the order of
            ``groups_``. All NaN in rows where they are unknown. A warning is given if they do not agree with
            the groups that rows state; training recalibrates them.
        sample_weight : array-like, (rows,), optional
            Weights of rows, 0 or more, such as those of a survey: how many people each stands for. Only their
            ratios matter, and rows of weight 0 are taken as absent. They weigh every row's part in training,
            in imputation, in decisions, in who withholds and in held-out metrics. The posterior of who
            withholds takes them as a pseudo-likelihood of Kish's effective number of rows,
            :math:`(\sum w)^2 / \sum w^2`.

        Returns
        -------
        FairSSVAEClassifier
            Itself.

        Raises
        ------
        InputError
            If tables, labels, groups or parameters cannot be used; raised before training begins.
        """
        self.refit(X, y, sensitive_features, proxy_proba, sample_weight)
        if self.checkpoint is not None:
            Path(self.checkpoint).unlink(missing_ok=True)
        return self

    def _learn(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any = None,
        proxy_proba: Any = None,
        sample_weight: Any = None,
    ) -> None:
        targets, lambdas = self._members()
        if sensitive_features is None:
            if targets or any(lambdas):
                warnings.warn(
                    "no sensitive_features were given: one member is fitted, with λ = 0, without fairness.",
                    stacklevel=4,
                )
            targets, lambdas = (), (0.0,)
        given: GivenTable | GivenStream
        if isinstance(X, StreamedTable):  # whose label and groups are named alone
            given = self._given_stream(X)
        else:
            weight, counted = self._counted_rows(X, y, sensitive_features, proxy_proba, sample_weight)
            given = self._given_table(*counted, weight)
        device = resolve_device(self.device)
        table = given.coded
        seed = random_seed(self.random_state)
        require(
            self.max_disparity is None or 0 <= self.max_disparity <= 1,
            f"max_disparity must be within [0, 1], got {self.max_disparity}.",
        )
        parts = table.parts(self.validation_fraction, seed)
        train, validation = map(table.observed, parts)
        validation = validation.sampled()
        settings = self._settings(train.rows, table.encoder.columns)
        settings.fairness.check(len(table.classes), table.attributes.groups)
        if targets:
            check_refined(settings.fairness)
        elif any(lambdas):
            settings.fairness.check_with_lambdas(train.weight is not None)
        if table.attributes.levels is not None:
            sketched_channel(table.attributes, settings.prior_a)
        config = flatten(asdict(settings)) | {
            "targets": list(targets), "lambdas": list(lambdas), "seed": seed,
            "share": self.validation_fraction, "rows": table.digest(),
        }  # fmt: skip
        ranks = current()
        ranks.check_same("rows or options", config)
        ranks.shares_members(FOLDS + 1 if targets else len(lambdas))  # raises if they cannot be
        fold = folds_of(train, seed)
        grown, own = train.sampled(), fold[:: train.every(SAMPLED)] if train.on_disk else fold
        scores: BoostedScores | None = None
        if chosen_trunk(train.columns, settings).scores:
            scores = ranks.from_first(partial(BoostedScores.learn, grown, own, seed))
        imputer = None
        if targets or any(lambdas):
            imputer = ranks.from_first(partial(TreeImputer.learn, grown, own, settings, seed, scores))
        self.scores_ = scores
        cells = None if imputer is None else imputer.joint(validation)
        imputation = None if imputer is None else imputer.of_training(train, fold, bool(targets))
        del grown
        learned, held_out = train, validation
        if scores is not None:
            learned, held_out = scores.to_learned(train, fold), scores.to_table(validation)
        self.fit_ = self._train(
            learned,
            held_out,
            targets,
            lambdas,
            torch.from_numpy(fold),
            settings,
            seed,
            device,
            config,
            imputation,
        )
        self.encoder_, self.classes_, self.attributes_ = table.encoder, table.classes, table.attributes
        self.proxy_encoder_ = table.proxies
        self.knows_groups_ = sensitive_features is not None
        self.source_: dict[str, Any] = {}
        self.summary_ = given.summary(train.rows)
        withholding = None if imputer is None else imputer.withholding
        self.posterior_, self.draws_ = self._posterior(learned, seed, withholding)
        self._judge(held_out, cells)
        check = self.posterior_["check"]
        if check is not None and check["rejected"]:
            warnings.warn(check["says"], WithholdingWarning, stacklevel=4)
        self._warn_if_one_class()

    def _further_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        further: dict[str, Any] = {} if self.thresholds is None else {"thresholds": self.thresholds}
        if self.costs is not None:
            further["costs"] = check_costs(self.costs)
        if self.group_levels is not None and self.lambdas is not None and _is_dependence(self._chosen_risk()):
            further["risk_estimator"] = given.pop("risk_estimator", "expected")  # no kink at 0 to smooth
        return further

    def _members(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Targets, or weights λ."""
        require(
            self.targets is None or self.lambdas is None,
            "targets and lambdas were both given; a member has a target or a λ.",
        )
        if self.lambdas is None:
            of_risk = default_targets(RISKS.get(self._chosen_risk()))
            return check_targets(of_risk if self.targets is None else self.targets), ()
        return (), weights_of(self.lambdas)

    def _judge(self, validation: Observed, believed: torch.Tensor | None) -> None:
        """The frontier on held-out rows, judged by P(y, a|row) as ``believed``, or as the fit imputes it."""
        fairness = self.fit_.settings.fairness
        self.metric_, risk = metric_of(fairness)
        cells = imputed_cells(self.fit_, validation, believed)
        members = metrics_on_validation(self.fit_, validation, fairness, risk, cells)
        self.frontier_ = pd.DataFrame(
            {
                **self._frontier_of(),
                "error": [member["error"] for member in members],
                **({} if self.costs is None else {"cost": [member["cost"] for member in members]}),
                "disparity": [member[self.metric_] for member in members],
                "standard_error": [member["standard_error"] for member in members],
            }
        )
        self._judged_rows = JudgedRows.of_fit(self.fit_, validation)
        self.frontier_ = with_intervals(self.frontier_, self._judged_rows, self.metric_)
        self.members_ = self._side_by_side(self._judged_rows)
        if not self.knows_groups_:
            self.frontier_[["disparity", "standard_error", "low", "high"]] = np.nan  # the groups are unknown
        if self.fit_.targets is None:
            self.selected_ = select(self.fit_.lambdas, members, self.metric_)
        else:
            self.selected_ = select_target(self.frontier_, costs=check_costs(self.costs))
        if self.max_disparity is not None and self.knows_groups_:
            self.selected_ = self._within(self.max_disparity, or_fairest=True)

    def _frontier_of(self) -> dict[str, Sequence[float]]:
        """What the members of the frontier differ in."""
        targets = self.fit_.targets
        if targets is None:
            return {"lambda": self.fit_.lambdas}
        return {"target": [math.nan if target is None else target for target in targets]}

    def select(
        self,
        max_disparity: float | None = None,
        *,
        lambda_: float | None = None,
        confidence: float | None = None,
    ) -> Self:
        """Select the member that decides from now on.

        Parameters
        ----------
        max_disparity : float, optional
            Select the member with the largest target up to this value; with ``lambdas``, the most accurate
            one whose disparity on held-out rows is at most this value.
        lambda_ : float, optional
            Select the member with this λ instead.
        confidence : float, optional
            With ``max_disparity``: select the most accurate member for which the upper end of the interval
            with this confidence, of an audit of the held-out rows, is at most ``max_disparity``. Possible for
            the risks deo, deopp and ddp.

        Returns
        -------
        FairSSVAEClassifier
            Itself.

        Raises
        ------
        InputError
            If there is no such member, or not exactly one of the two is given.
        """
        check_is_fitted(self)
        require(
            (max_disparity is None) != (lambda_ is None),
            "give either max_disparity or lambda_, exactly one of them.",
        )
        require(
            confidence is None or max_disparity is not None,
            "confidence is about max_disparity; give it, too, or leave confidence out.",
        )
        if lambda_ is not None:
            require(self.fit_.targets is None, "members have targets and no λ; give max_disparity.")
            self.selected_ = self._with_lambda(lambda_)
        elif confidence is not None and max_disparity is not None:
            require(
                self.knows_groups_, "the model was fitted without sensitive_features and knows no groups."
            )
            self.selected_ = self._confident(self.metric_, max_disparity, confidence, self._judged_rows)
        else:
            assert max_disparity is not None
            self.selected_ = self._within(max_disparity)
        return self

    def _within(self, limit: float, or_fairest: bool = False) -> int:
        if self.fit_.targets is not None:
            require(0 < limit <= 1, f"max_disparity must be within (0, 1], got {limit}.")
            return self._at_target(limit)
        return self._weighed_within(limit, or_fairest)

    @torch.no_grad()
    def predict_members(self, X: Any) -> np.ndarray:
        """The decision of every member, (members, rows), in the order of ``frontier_``.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (members, rows)
            Values of ``classes_``.
        """
        model = self._as_fitted()
        return np.asarray(model.classes_[model.fit_.decide(model._encoded(X)).numpy()])

    @property
    def thresholds_(self) -> np.ndarray:
        """The thresholds of the member that decides: one, or one for each group."""
        check_is_fitted(self)
        return self.fit_.thresholds[self.selected_].double().numpy()

    @torch.no_grad()
    def _scores(self, X: Any) -> np.ndarray:
        """The decision scores of the selected member, (rows, classes)."""
        x = self._encoded(X)
        fairness = self.fit_.settings.fairness
        scores = [
            decision_scores(heads, fairness, self.fit_.adjustment)[self.selected_].cpu()
            for heads in self.fit_.heads(x)
        ]
        return torch.cat(scores).numpy()

    @torch.no_grad()
    def predict_proba(self, X: Any) -> np.ndarray:
        """P_f(y|x) of the selected member as it was trained.

        Fair decisions need not have the largest probability: :meth:`predict` uses
        :meth:`decision_function`, which is adjusted for fairness and includes thresholds.

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
        heads_of_rows = model.fit_.heads(model._encoded(X))
        logits = [heads.class_logits[model.selected_].cpu() for heads in heads_of_rows]
        return torch.cat(logits).double().softmax(-1).numpy()

    def _joint(self, X: Any, sensitive_features: Any, rule: JointRule) -> JointProblem:
        table = self._observed(self._encoded(X), None, sensitive_features)
        return JointProblem.of_fit(self.fit_, self.selected_, table, rule, sensitive_features is not None)

    @classmethod
    def restored(cls, stored: StoredModel, folder: Path) -> Self:
        """The model that was read from a folder."""
        model = cls()
        with restoring(folder):
            require(
                stored.number is None,
                "it predicts a number and knows no classes to decide on; open it by FairSSVAERegressor, or "
                "use fairvae predict.",
            )
            model.fit_, model.proxy_encoder_, model.scores_ = stored.fit, stored.proxies, stored.scores
            restore_estimator(model, stored)
            model._judged_rows = None
        return model


def _is_dependence(risk: str) -> bool:
    return risk in RISKS and RISKS[risk].dependence
