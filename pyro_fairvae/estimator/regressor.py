"""Fair prediction of numbers for tables with gaps, with scikit-learn's interface."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from pyro_fairvae.auditing.members import judge_number_members, unfair_member
from pyro_fairvae.auditing.number_audit import intervals_of_members
from pyro_fairvae.auditing.survey_design import SurveyDesign
from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import flatten
from pyro_fairvae.data.coded_columns import StatedGroups
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.data.number_labels import code_outcome, numbers_of_label
from pyro_fairvae.data.row_weights import known_weights, row_weights
from pyro_fairvae.estimator.network_estimator import NetworkEstimator, weights_of
from pyro_fairvae.estimator.state import restore_estimator
from pyro_fairvae.estimator.table_classifier import WithholdingWarning
from pyro_fairvae.estimator.validation import check_outcomes, random_seed
from pyro_fairvae.evaluation.number_frontier import judge_numbers, select_number
from pyro_fairvae.inference.settings import INTERVALS
from pyro_fairvae.inference.training import Progress
from pyro_fairvae.risks import check_of_numbers
from pyro_fairvae.schema.levels import FEWEST_STATED
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.storage.stored_model import StoredModel, restoring

LAMBDAS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


class FairSSVAERegressor(RegressorMixin, NetworkEstimator):
    r"""A predictor of a number that is fair to groups which only some rows state.

    As :class:`~pyro_fairvae.FairSSVAEClassifier`, for an outcome that is a number and may have gaps: one
    fit gives a *frontier* of members, one for each weight λ of the fairness risk. Nobody misstates an
    outcome, and outcomes are withheld at one rate, whatever they are. With
    ``options={"prior_y": "truthful"}`` each level of the outcome has a rate, and neighbouring levels have
    similar ones: they are learned through the density of outcomes given the features, so leave this off where
    numbers are heaped, as rounded ones are.

    Parameters
    ----------
    risk : str
        What is to be equal between groups: ``"mean_gap"`` (mean predictions), ``"correlation_ratio"`` (the
        same, as a share of the variance of predictions), ``"kolmogorov_smirnov"`` or ``"wasserstein"`` (their
        distributions), or ``"mean_gap_given_y"`` and ``"correlation_ratio_given_y"`` (mean predictions of
        people with like outcomes); :data:`pyro_fairvae.risks.NUMBER_RISKS`.
    lambdas : sequence of float
        λ of each member. Inside of the model outcomes have a standard deviation of 1.
    max_disparity : float, optional
        Select the most accurate member whose disparity on held-out rows is at most this value, or the fairest
        if there is none. By default the largest λ that costs at most 5 % of the error and is no less fair
        than others, up to a standard error.
    fewest_stated : int
        With fewer outcomes than this ``fit`` refuses.
    withholding_depends_on : sequence of str
        Features that withholding the group may depend on besides the group; not the outcome.
    epochs, batch, hidden, layers, validation_fraction, missing_values, proxies, intervals, options, device, …
        As of :class:`~pyro_fairvae.FairSSVAEClassifier`.

    Attributes
    ----------
    groups_ : tuple of str
        The groups.
    number_ : NumberOutcome
        The outcome: mean, deviation, levels.
    frontier_ : DataFrame
        λ of each member, and on held-out rows the root mean squared ``error`` of those that state their
        outcome, the ``disparity`` expected under the imputed groups and its ``standard_error``, which takes
        the imputation as certain; of ``"mean_gap"`` also ``low`` and ``high``, the ends of a 90 % interval by
        rows that state their group. Errors and, but for shares, disparities have the unit of y.
    selected_ : int
        The member that predicts.
    channels_ : DataFrame
        How often each group, and the outcome, is withheld, with 90 % intervals.
    members_ : MembersDocument or None
        The members side by side on held-out rows: means by group and how predictions change.
    posterior_, withholding_check_, summary_, metric_, n_features_in_, feature_names_in_
        As of :class:`~pyro_fairvae.FairSSVAEClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import FairSSVAERegressor, synthetic
    >>> table = synthetic(rows=100)
    >>> draw = np.random.default_rng(0)
    >>> X, y = table.numbers, 40 + 5 * table.y + draw.normal(size=100)
    >>> y[draw.random(100) < 0.2] = np.nan
    >>> sex = np.where(draw.random(100) < 0.4, None, np.array(["f", "m"])[table.a])
    >>> model = FairSSVAERegressor(lambdas=(0.0, 1.0), epochs=1, hidden=8, layers=1, intervals="given_h")
    >>> model = model.fit(X, y, sensitive_features=sex)
    >>> model.groups_, model.predict(X).shape, model.predict_interval(X).shape
    (('f', 'm'), (100,), (100, 2))
    >>> model.select(lambda_=1.0).selected_
    1
    """

    trunk = "mlp"
    # A rate for each level is learned through the density of y, which heaped numbers do not have.
    other_defaults: ClassVar[dict[str, Any]] = {"prior_y": "mar"}

    def __init__(
        self,
        *,
        risk: str = "mean_gap",
        lambdas: Sequence[float] = LAMBDAS,
        max_disparity: float | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        hidden: int = 128,
        layers: int = 3,
        validation_fraction: float = 0.15,
        missing_values: Sequence[Any] = (),
        withholding_depends_on: Sequence[str] = (),
        proxies: Sequence[str] = (),
        fewest_stated: int = FEWEST_STATED,
        intervals: str = INTERVALS[0],
        options: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = 0,
        verbose: int = 0,
        checkpoint: str | Path | None = None,
        callback: Callable[[Progress], None] | None = None,
    ) -> None:
        self.risk = risk
        self.lambdas = lambdas
        self.max_disparity = max_disparity
        self.epochs = epochs
        self.batch = batch
        self.hidden = hidden
        self.layers = layers
        self.validation_fraction = validation_fraction
        self.missing_values = missing_values
        self.withholding_depends_on = withholding_depends_on
        self.proxies = proxies
        self.fewest_stated = fewest_stated
        self.intervals = intervals
        self.options = options
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.callback = callback

    def fit(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any = None,
        proxy_proba: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        r"""Train the frontier on a table, its outcomes and its groups, any of which may have gaps.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features. Columns of a DataFrame are numbers or categories by their types.
            Frames of polars, pyarrow and others that narwhals knows are taken here, and wherever rows are
            given, as those of pandas.
        y : array-like, (rows,)
            Outcomes, numbers; NaN, None or ``pd.NA`` where none is stated.
        sensitive_features : array-like or DataFrame, optional
            One or several columns of groups, with the same kinds of gaps. Without it one member is fitted,
            at λ = 0, without fairness.
        proxy_proba : DataFrame or array-like, (rows, groups), optional
            Given probabilities of the groups, as for the classifier.
        sample_weight : array-like, (rows,), optional
            Weights of rows, 0 or more, such as those of a survey: how many people each stands for. Only their
            ratios matter, and rows of weight 0 are taken as absent. They weigh every row's part in training,
            in imputation, in decisions, in who withholds and in held-out metrics. The posterior of who
            withholds takes them as a pseudo-likelihood of Kish's effective number of rows,
            :math:`(\sum w)^2 / \sum w^2`.

        Returns
        -------
        FairSSVAERegressor
            Itself.

        Raises
        ------
        InputError
            If tables, outcomes, groups or parameters cannot be used; raised before training begins.
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
        lambdas = weights_of(self.lambdas)
        require(
            self.max_disparity is None or self.max_disparity >= 0,
            f"max_disparity must not be negative, got {self.max_disparity}.",
        )
        if sensitive_features is None:
            if any(lambdas):
                warnings.warn(
                    "no sensitive_features were given: one member is fitted, with λ = 0, without fairness.",
                    stacklevel=4,
                )
            lambdas = (0.0,)
        weight, counted = self._counted_rows(X, y, sensitive_features, proxy_proba, sample_weight)
        given = self._given_table(*counted, weight)
        table = given.coded
        seed = random_seed(self.random_state)
        parts = table.parts(self.validation_fraction, seed)
        train, validation = map(table.observed, parts)
        settings = self._settings(train.rows, table.encoder.columns)
        check_of_numbers(settings.fairness)
        config = flatten(asdict(settings)) | {
            "lambdas": list(lambdas), "seed": seed, "share": self.validation_fraction, "rows": table.digest(),
        }  # fmt: skip
        device = resolve_device(self.device)
        fold = torch.zeros(train.rows, dtype=torch.long)
        self.scores_ = None
        self.fit_ = self._train(
            train, validation, (), lambdas, fold, settings, seed, device, config, None
        )  # fmt: skip
        self.encoder_, self.classes_, self.attributes_ = table.encoder, table.classes, table.attributes
        self.number_, self.proxy_encoder_ = table.number, table.proxies
        self.knows_groups_ = sensitive_features is not None
        self.source_: dict[str, Any] = {}
        self.summary_ = given.summary(train.rows)
        self.posterior_, self.draws_ = self._posterior(train, seed, None)
        self._judge(validation)
        check = self.posterior_["check"]
        if check is not None and check["rejected"]:
            warnings.warn(check["says"], WithholdingWarning, stacklevel=4)

    def _coded_label(
        self, y: Any, rows: int
    ) -> tuple[np.ndarray, np.ndarray, NumberOutcome | None, np.ndarray | None]:
        return check_outcomes(y, rows, self.fewest_stated)

    def _recorded(self, y: Any) -> tuple[np.ndarray, np.ndarray | None]:
        assert self.number_ is not None
        return code_outcome(numbers_of_label(y), self.number_)

    def _judge(self, validation: Observed) -> None:
        self.metric_ = self.fit_.settings.fairness.risk
        members = judge_numbers(self.fit_, validation)
        self.frontier_ = pd.DataFrame(
            {
                "lambda": self.fit_.lambdas,
                "error": [member["error"] for member in members],
                "disparity": [member[self.metric_] for member in members],
                "standard_error": [member["standard_error"] for member in members],
            }
        )
        assert self.number_ is not None
        predicted = self.number_.restored(self.fit_.predict_numbers(validation.x).double().numpy())
        codes, groups = StatedGroups(validation.a_obs.numpy(), self.attributes_).codes, self.attributes_
        weight = None if validation.weight is None else validation.weight.double().cpu().numpy()
        design = SurveyDesign(weight)
        self.frontier_[["low", "high"]] = np.nan
        if self.metric_ == "mean_gap":  # of the others an audit knows no interval
            ends = intervals_of_members(predicted, codes, groups.group_names, design=design)
            self.frontier_[["low", "high"]] = ends
        self.members_ = None
        if self.knows_groups_:
            assert validation.outcome is not None
            stated = (validation.y_obs < validation.classes).cpu().numpy()
            y = np.where(stated, self.number_.restored(validation.outcome.double().cpu().numpy()), np.nan)
            self.members_ = judge_number_members(
                predicted, y, codes, groups.group_names, unfair_member(self.frontier_), design=design
            )
        self.selected_ = select_number(self.fit_.lambdas, members, self.metric_)
        if not self.knows_groups_:
            self.frontier_[["disparity", "standard_error"]] = np.nan  # the groups are unknown
        elif self.max_disparity is not None:
            self.selected_ = self._weighed_within(self.max_disparity, or_fairest=True)

    def select(self, max_disparity: float | None = None, *, lambda_: float | None = None) -> Self:
        """Select the member that predicts from now on.

        Parameters
        ----------
        max_disparity : float, optional
            Select the most accurate member whose disparity on held-out rows is at most this value.
        lambda_ : float, optional
            Select the member with this λ instead.

        Returns
        -------
        FairSSVAERegressor
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
        if lambda_ is not None:
            self.selected_ = self._with_lambda(lambda_)
        else:
            assert max_disparity is not None
            self.selected_ = self._weighed_within(max_disparity, or_fairest=False)
        return self

    @torch.no_grad()
    def predict(self, X: Any) -> np.ndarray:
        """E_f[y|x] of each row of X in the unit of y, the mean of the selected member's density, (rows,)."""
        model = self._as_fitted()
        assert model.number_ is not None
        found = model.fit_.predict_numbers(model._encoded(X))[model.selected_]
        return model.number_.restored(found.double().numpy())

    @torch.no_grad()
    def predict_members(self, X: Any) -> np.ndarray:
        """The prediction of every member in the unit of y, (members, rows), in the order of ``frontier_``.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (members, rows)
            Predictions.
        """
        model = self._as_fitted()
        assert model.number_ is not None
        return model.number_.restored(model.fit_.predict_numbers(model._encoded(X)).double().numpy())

    @torch.no_grad()
    def predict_interval(self, X: Any, confidence: float = 0.9) -> np.ndarray:
        """Ends, (rows, 2), of the interval with this probability under the density P_f(y|x), as trained.

        They are quantiles that leave equal probabilities on both sides, in the unit of y.
        """
        require(0 < confidence < 1, f"confidence must be within (0, 1), got {confidence}.")
        model = self._as_fitted()
        assert model.number_ is not None
        shares = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
        found = [
            density.member(model.selected_).quantiles(shares)
            for density in model.fit_.densities(model._encoded(X))
        ]
        return model.number_.restored(torch.cat(found).numpy())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² on rows that have an outcome.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.
        y : array-like, (rows,)
            Outcomes, which may have gaps.
        sample_weight : array-like, (rows,), optional
            Weights of rows, 0 or more.

        Returns
        -------
        float
            The share of the variance of y that predictions explain.
        """
        model = self._as_fitted()
        X, y, sample_weight = in_one_order(X=X, y=y, sample_weight=sample_weight)
        predicted, numbers = model.predict(X), numbers_of_label(y)
        require(len(numbers) == len(predicted), f"X has {len(predicted)} rows, but y {len(numbers)}.")
        known = ~np.isnan(numbers)
        require(bool(known.any()), "all outcomes are missing; give at least one to compute a score.")
        own = known_weights(row_weights(sample_weight, len(numbers)), known)
        return float(r2_score(numbers[known], predicted[known], sample_weight=own))

    @classmethod
    def restored(cls, stored: StoredModel, folder: Path) -> Self:
        model = cls()
        with restoring(folder):
            require(stored.number is not None, "it is a model of classes; open it by FairSSVAEClassifier.")
            model.fit_, model.number_, model.scores_ = stored.fit, stored.number, None
            model.proxy_encoder_ = stored.proxies
            restore_estimator(model, stored)
        return model
