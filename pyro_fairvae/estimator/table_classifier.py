"""What estimators of tables have in common: checking X; and classifiers: deciding by scores, accuracy."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from pyro_fairvae.auditing.judged_rows import JudgedRows
from pyro_fairvae.auditing.members import decided_alike, judge_members, unfair_member
from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.data.coded_columns import StatedGroups, code_labels, word_of
from pyro_fairvae.data.frames import as_pandas, like
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.data.proxies import check_probabilities, proxy_table, warn_if_miscalibrated
from pyro_fairvae.data.row_weights import WEIGHT, known_weights, row_weights, without_absent
from pyro_fairvae.data.streamed_table import StreamedTable
from pyro_fairvae.data.table_encoder import TableEncoder, as_frame, check_names, names_of, without_columns
from pyro_fairvae.data.user_table import CodedTable
from pyro_fairvae.estimator.decides_together import DecidesTogether
from pyro_fairvae.estimator.state import stored_model
from pyro_fairvae.estimator.validation import (
    NOBODY,
    check_classes,
    check_depends_on,
    check_groups,
    check_labels,
    check_number,
    check_number_of_groups,
    check_roles,
)
from pyro_fairvae.evaluation.selection import paid_by
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.posterior.curves import withholding_curve
from pyro_fairvae.posterior.summaries import PosteriorSummary, withholding_rates
from pyro_fairvae.posterior.withholding_check import WithholdingCheck
from pyro_fairvae.risks.gaps import RISK_OF_NUMBERS
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.documents import MembersDocument
from pyro_fairvae.schema.number_outcome import NumberOutcome
from pyro_fairvae.storage.contents import TreeDecisions
from pyro_fairvae.storage.stored_model import StoredModel

AUDITED_RISKS = ("deo", "deopp", "ddp")  # whose intervals an audit has
DEFAULT_RISK = "deo"


class WithholdingWarning(UserWarning):
    """What was recorded rejects the assumption on withholding."""


class OneClassWarning(UserWarning):
    """The member that decides gives everybody one class."""


@dataclass(frozen=True)
class GivenTable:
    """A table as it was given to ``fit``, and its codes."""

    features: pd.DataFrame
    proxies: pd.DataFrame | None  # with the logarithms of given probabilities
    coded: CodedTable

    def summary(self, training_rows: int) -> dict[str, Any]:
        """Its contents, of which so many rows were trained on."""
        counts = {"training_rows": training_rows, "held_out_rows": len(self.features) - training_rows}
        return self.coded.summary(self.features, self.proxies) | counts


@dataclass(frozen=True)
class GivenStream:
    """A table that stays in its file."""

    coded: StreamedTable

    def summary(self, training_rows: int) -> dict[str, Any]:
        """Its contents, of which so many rows were trained on."""
        return self.coded.summary(training_rows)


class TableEstimator(BaseEstimator):
    """What is learned from a table whose groups have gaps, and knows who withholds."""

    classes_: np.ndarray  # of the label; levels, if that is a number
    encoder_: TableEncoder
    proxy_encoder_: TableEncoder | None
    attributes_: Attributes
    knows_groups_: bool
    frontier_: pd.DataFrame
    members_: MembersDocument | None
    selected_: int
    posterior_: PosteriorSummary
    missing_values: Sequence[Any]
    withholding_depends_on: Sequence[str]
    proxies: Sequence[str]
    group_levels: int | None = None
    risk: str | None

    @abstractmethod
    def _learn(self, X: Any, y: Any, *others: Any) -> None:
        """Fit, and set the fitted attributes."""

    def refit(self, X: Any, y: Any, *others: Any) -> Self:
        """As ``fit``, which calls it, but a checkpoint is kept.

        All fitted attributes change at once when fitting has succeeded: until then, and if it fails, the
        estimator decides as before.
        """
        anew = object.__new__(type(self))
        anew.__dict__ = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        anew._learn(X, y, *others)
        self.__dict__ = anew.__dict__
        return self

    def _as_fitted(self) -> Self:
        """The estimator as it is now, which neither a refit nor a selection in another thread changes."""
        check_is_fitted(self)
        now = object.__new__(type(self))
        now.__dict__ = dict(vars(self))
        return now

    def _chosen_risk(self) -> str:
        """The name of the risk."""
        if self.risk is not None:
            return self.risk
        return DEFAULT_RISK if self.group_levels is None else RISK_OF_NUMBERS

    @property
    def groups_(self) -> tuple[str, ...]:
        """The groups, in the order of :meth:`predict_groups_proba`; empty if none were given."""
        check_is_fitted(self)
        return self.attributes_.group_names if self.knows_groups_ else ()

    @property
    def withholding_check_(self) -> WithholdingCheck | None:
        """The check of the assumption on withholding; None if it was not made."""
        check_is_fitted(self)
        check = self.posterior_["check"]
        return None if check is None else WithholdingCheck.of(check)

    @property
    def withholding_curve_(self) -> pd.DataFrame | None:
        """How often a number is withheld along its levels, with 90 % intervals; None without a number.

        Columns are ``level``, its ends ``from`` and ``to``, ``centre``, the mean of the stated numbers in it,
        ``withheld``, ``low`` and ``high``.
        """
        check_is_fitted(self)
        return withholding_curve(self.posterior_["a"], self.attributes_) if self.knows_groups_ else None

    @property
    def channels_(self) -> pd.DataFrame:
        """How often each group, and each class's label, is withheld, with 90 % intervals."""
        check_is_fitted(self)
        return withholding_rates(self.posterior_, self.knows_groups_)

    @abstractmethod
    def predict_members(self, X: Any) -> np.ndarray:
        """The decision, or prediction, of every member, (members, rows), in the order of ``frontier_``."""

    @abstractmethod
    def _decider(self) -> Fit | TreeDecisions:
        """What decides, in the form that is stored."""

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder of JSON and safetensors, from which ``load`` restores the same model.

        :class:`~pyro_fairvae.FairDecisions` around another classifier than boosted trees cannot be saved so,
        since such a folder holds no code: use :mod:`pickle` or ``joblib``.

        Parameters
        ----------
        folder : path
            Created if it does not exist.
        overwrite : bool
            Whether to replace a model in the folder.
        """
        self.stored().save(Path(folder), overwrite)

    def stored(self) -> StoredModel:
        """The model in the form that all commands read and write."""
        model = self._as_fitted()
        return stored_model(model, model._decider())

    @staticmethod
    def _counted_rows(
        X: Any, y: Any, sensitive_features: Any, proxy_proba: Any, sample_weight: Any
    ) -> tuple[np.ndarray | None, tuple[Any, Any, Any, Any]]:
        """Weights of the rows that have one above 0, and these rows; None where all count alike."""
        given = as_pandas(X, "X"), y, sensitive_features, proxy_proba
        if sample_weight is None:
            return None, given
        names = ("X", "y", "sensitive_features", "proxy_proba", WEIGHT)
        *ordered, weights = in_one_order(**dict(zip(names, (*given, sample_weight), strict=True)))
        weight, (X, y, sensitive_features, proxy_proba) = without_absent(
            row_weights(weights, _num_samples(X)), *ordered
        )
        return weight, (X, y, sensitive_features, proxy_proba)

    def _given_table(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        proxy_proba: Any,
        weight: np.ndarray | None = None,
    ) -> GivenTable:
        """What ``fit`` was given, checked and coded."""
        if y is None:
            raise InputError("requires y to be passed, but the target y is None.")
        X, y, sensitive_features, proxy_proba = in_one_order(
            X=X, y=y, sensitive_features=sensitive_features, proxy_proba=proxy_proba
        )
        whole = as_frame(X)
        check_names(whole)
        proxies, depends_on = names_of(self.proxies), names_of(self.withholding_depends_on)
        features = without_columns(whole, proxies)
        validate_data(self, without_columns(X, proxies), skip_check_array=True)
        y_obs, classes, number, outcome = self._coded_label(y, len(features))
        a_obs, attributes = check_groups(
            sensitive_features, self.missing_values, len(features), self.group_levels
        )
        check_roles(whole, proxies, depends_on, y, sensitive_features, self.missing_values)
        encoder = TableEncoder.learn(features)
        check_number(self.group_levels, proxy_proba)
        u_table = _proxy_table(whole, features, proxy_proba, a_obs, attributes)
        u_encoder = None if u_table is None else TableEncoder.learn(u_table)
        check_depends_on(depends_on, encoder)
        u = None if u_table is None or u_encoder is None else u_encoder.encode(u_table)
        coded = CodedTable(
            encoder.encode(features),
            y_obs,
            a_obs,
            encoder,
            classes,
            attributes,
            u,
            u_encoder,
            number,
            outcome,
            weight,
        )
        return GivenTable(features, u_table, coded)

    def _given_stream(self, table: StreamedTable) -> GivenStream:
        """A table that stays in its file, with the same checks; roles of columns by its first rows."""
        depends_on = names_of(self.withholding_depends_on)
        require(not names_of(self.proxies), "proxies need all rows in memory; leave them out.", "proxies")
        validate_data(self, table.first[list(table.features)], skip_check_array=True)
        stated = int((table.y_obs < len(table.classes)).sum())
        check_classes(table.classes, table.classes, stated, table.rows)
        stating = int(table.attributes.stated[table.a_obs].sum())
        check_number_of_groups(table.attributes.groups, stating)
        first = table.first
        check_roles(
            first[list(table.features)],
            (),
            depends_on,
            first[table.label],
            first[list(table.group_names)],
            self.missing_values,
        )
        check_depends_on(depends_on, table.encoder)
        return GivenStream(table)

    def _coded_label(
        self, y: Any, rows: int
    ) -> tuple[np.ndarray, np.ndarray, NumberOutcome | None, np.ndarray | None]:
        """Codes of labels and the classes; of a number its levels, and itself, standardised."""
        return *check_labels(y, rows), None, None

    def _features(self, X: Any) -> Any:
        """X without the proxies that it may have; a frame of another library becomes one of pandas."""
        X = as_pandas(X, "X")
        if self.proxy_encoder_ is None:
            return X
        named = isinstance(X, pd.DataFrame) and hasattr(self, "feature_names_in_")
        # Without names, X has proxies if it has the columns of the whole table.
        there = named or set(self.encoder_.names) <= set(map(str, as_frame(X).columns))
        return without_columns(X, self.proxy_encoder_.names) if there else X

    def _by_group(self, probabilities: np.ndarray, given: Any) -> Any:
        """Probabilities (rows, groups), as a frame where X was one of another library than pandas."""
        table = pd.DataFrame(probabilities, columns=list(self.groups_))
        found = like(table, given)
        return probabilities if found is table else found

    def _require_groups(self) -> None:
        require(self.knows_groups_, "the model was fitted without sensitive_features and knows no groups.")

    def _frame(self, X: Any) -> pd.DataFrame:
        """X as a table with the columns seen in fitting, by name or, where there are none, by place."""
        frame = as_frame(X)
        require(len(frame) > 0, f"X has 0 rows (shape={frame.shape}); give at least one.")
        named = hasattr(self, "feature_names_in_")
        if isinstance(X, pd.DataFrame) and named:
            self.encoder_.aligned(frame)  # its error suggests the new name of a missing column
        validate_data(self, X, reset=False, skip_check_array=True)
        known = named or set(self.encoder_.names) <= set(check_names(frame))
        if not (isinstance(X, pd.DataFrame) and known):
            frame.columns = pd.Index(self.encoder_.names)  # by position; scikit-learn has warned
        return frame


class TableClassifier(ClassifierMixin, TableEstimator, DecidesTogether):
    """A classifier whose decision is the class with the largest score."""

    @abstractmethod
    def _scores(self, X: Any) -> np.ndarray:
        """The scores that decide, (rows, classes)."""

    def predict(self, X: Any) -> np.ndarray:
        """The class that the selected member decides on, by :meth:`decision_function`.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray, (rows,)
            Values of ``classes_``.
        """
        model = self._as_fitted()
        return np.asarray(model.classes_[model._scores(X).argmax(1)])

    def decision_function(self, X: Any) -> np.ndarray:
        r"""The scores that decide.

        The decision is the class c with the largest

        .. math:: s_c(x) = P_f(c|x) + \sum_{ya} \nu_{cya} P(y, a|x),

        where the weights ν, fitted after training, are 0 where nothing was made fair. P(y, a|x) contains the
        group inferred from x. Scores are not probabilities: they may lie outside [0, 1]. Of
        :class:`~pyro_fairvae.FairSSVAEClassifier` with ``lambdas``, ``options={"refine_decisions": 0}`` turns
        ν off, and thresholds (``options={"thresholds": …}``) shift P_f here and nowhere else.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.

        Returns
        -------
        ndarray
            With two classes, s of the second minus s of the first, (rows,): the decision is the second class
            where it is positive. With more classes, s itself, (rows, classes).
        """
        scores = self._as_fitted()._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on rows that have a label.

        Parameters
        ----------
        X : DataFrame or array-like, (rows, columns)
            Features, with the same columns as in ``fit``.
        y : array-like, (rows,)
            Labels, which may have gaps.
        sample_weight : array-like, (rows,), optional
            Weights of rows, 0 or more.

        Returns
        -------
        float
            The share of labelled rows with a correct decision.
        """
        model = self._as_fitted()
        X, y, sample_weight = in_one_order(X=X, y=y, sample_weight=sample_weight)
        decided = model.predict(X)
        codes, _ = code_labels(y, model.classes_)
        require(len(codes) == len(decided), f"X has {len(decided)} rows, but y {len(codes)}.")
        known = codes < len(model.classes_)
        require(bool(known.any()), "all labels are missing; give at least one to compute a score.")
        weight = row_weights(sample_weight, len(codes))
        own = known_weights(weight, known)
        return float(accuracy_score(model.classes_[codes[known]], decided[known], sample_weight=own))

    def _side_by_side(self, judged: JudgedRows) -> MembersDocument | None:
        """The members of the frontier on rows that none of them was trained on."""
        if not self.knows_groups_:
            return None
        words = tuple(map(word_of, self.classes_))
        return judge_members(judged, words, self.attributes_.group_names, unfair_member(self.frontier_))

    def _warn_if_one_class(self) -> None:
        alike = decided_alike(self.selected_, self.members_)
        if alike is not None:
            warnings.warn(
                f"the member that decides gives everybody one class: {alike[0]} for all {alike[1]} rows that "
                "it was judged on. frontier_ and members_ show the others, and select chooses among them.",
                OneClassWarning,
                stacklevel=5,
            )

    def _confident(self, risk: str, limit: float, confidence: float, rows: JudgedRows | None) -> int:
        """The most accurate member whose disparity, at the upper end of its audit, is within a limit."""
        choose("risk that can be selected with confidence", risk, AUDITED_RISKS)
        require(0 < confidence < 1, f"confidence must be within (0, 1), got {confidence}.")
        require(
            rows is not None, "a loaded model has no rows to audit; select with confidence before saving it."
        )
        assert rows is not None
        ends = rows.intervals(risk, confidence)[:, 1]
        within = self.frontier_[ends <= limit]
        require(
            len(within) > 0,
            f"no member's disparity is at most {limit} with {100 * confidence:g} % confidence; the least "
            f"upper end is {np.nanmin(ends):.3f}. More rows, or smaller targets, may lower it.",
        )
        return int(within[paid_by(within)].idxmin())

    def _at_target(self, limit: float) -> int:
        """The member with the largest target up to a limit, or with the least."""
        targets = self.frontier_["target"]
        within = targets[targets <= limit * (1 + 1e-9)]
        if not len(within):
            warnings.warn(
                f"the least target is {targets.min():g}, above {limit}; it is selected. Fit with "
                f"targets=[{limit}] to settle decisions there.",
                stacklevel=4,
            )
        chosen = int(within.idxmax() if len(within) else targets.idxmin())
        line = self.frontier_.iloc[chosen]
        if line["disparity"] - 2 * line["standard_error"] > limit:
            warnings.warn(
                f"decisions settled at {line['target']:g} have a disparity of {line['disparity']:.3f} "
                f"(standard error {line['standard_error']:.3f}): deterministic decisions came no nearer.",
                stacklevel=4,
            )
        return chosen


def _proxy_table(
    whole: pd.DataFrame,
    features: pd.DataFrame,
    proxy_proba: Any,
    a_obs: np.ndarray,
    attributes: Attributes,
) -> pd.DataFrame | None:
    """The columns of X that are not features, and the logs of given probabilities, if any."""
    probabilities = None
    if proxy_proba is not None:
        require(
            attributes is not NOBODY,
            "proxy_proba has probabilities of groups, but no sensitive_features were given; give them, "
            "or leave it out.",
        )
        probabilities = check_probabilities(proxy_proba, len(whole), attributes)
        codes = StatedGroups(a_obs, attributes).codes
        warn_if_miscalibrated(probabilities, codes, attributes.group_names)
    columns = without_columns(whole, check_names(features))
    table = proxy_table(columns, probabilities, attributes)
    if table is not None:
        check_names(pd.concat([features, table], axis=1))
    return table
