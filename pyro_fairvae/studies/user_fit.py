"""Fit a classifier to a table in a file, keep the model in a folder, and audit rows kept out of fitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.auditing import Audit, NumberAudit, audit, audit_numbers
from pyro_fairvae.auditing.members import judge_number_members, unfair_member, with_members
from pyro_fairvae.auditing.survey_design import SurveyDesign, code_clusters
from pyro_fairvae.base.documents import sealed_content
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import check_replaceable, json_text
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.messages import printable
from pyro_fairvae.base.ranks import current
from pyro_fairvae.base.seeds import check_seed
from pyro_fairvae.data.coded_columns import code_groups, is_missing
from pyro_fairvae.data.number_labels import numbers_of_label
from pyro_fairvae.data.row_weights import row_weights
from pyro_fairvae.data.splits import random_share
from pyro_fairvae.data.table_encoder import check_names, names_of
from pyro_fairvae.data.table_files import read_table, read_words, take_columns
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.inference.checkpoint import CHECKPOINT, OtherConfig
from pyro_fairvae.storage.model_folder import ABOUT, AUDIT, MODEL, check_free
from pyro_fairvae.studies.streamed_fit import STREAMING, StreamedUserTable, streams

ReportGaps = Callable[[str, Mapping[str, int]], None]  # called with a column, and the rows of each word in it


@dataclass(frozen=True)
class UserTable:
    """A table as it was read, split into label, groups and features, among which are proxies.

    ``probabilities`` are given ones of the groups, by their names, and ``weights`` those of rows.
    """

    path: Path
    label: pd.Series
    groups: pd.DataFrame
    features: pd.DataFrame
    missing: list[str]
    values: list[str]
    probabilities: pd.DataFrame | None = None
    weights: pd.Series | None = None

    @property
    def source(self) -> dict[str, object]:
        """How the table was read, so that a model can read other tables in the same way."""
        return {
            "label": str(self.label.name),
            "groups": list(map(str, self.groups.columns)),
            "missing": self.missing,
            "values": self.values,
            "data": printable(self.path.name),
            "weights": "" if self.weights is None else str(self.weights.name),
        }

    def audited(self, holdout: float, seed: int) -> np.ndarray:
        """Which rows are only audited."""
        return random_share(len(self.features), holdout, seed)

    def fitted(self, rows: np.ndarray, model: object, say: Callable[[str], None]) -> tuple[Any, ...]:
        """The arguments of a fit to some of the rows."""
        probabilities = None if self.probabilities is None else self.probabilities[rows]
        return *self.some(rows), probabilities, self.counted(rows)

    def counted(self, rows: np.ndarray) -> pd.Series | None:
        """The weights of some rows, if they have any."""
        return None if self.weights is None else self.weights[rows]

    def some(self, rows: np.ndarray) -> tuple[pd.DataFrame, pd.Series, pd.DataFrame]:
        """Features, label and groups of some rows."""
        return self.features[rows], self.label[rows], self.groups[rows]

    def discard(self) -> None:
        """Nothing is on disk."""


@dataclass(frozen=True)
class FittedTable:
    """A saved model, and the audit of rows kept out of fitting, if they can be audited."""

    model: FairSSVAEClassifier | FairDecisions | FairSSVAERegressor
    frontier: pd.DataFrame  # λ, error and disparity on validation rows, a line for each member
    audit: Audit | NumberAudit | None
    audited_rows: int


def fit_table(
    path: Path,
    label: str,
    groups: Sequence[str],
    out: Path,
    *,
    model: FairSSVAEClassifier | FairDecisions | FairSSVAERegressor | None = None,
    missing: Sequence[str] = (),
    values: Sequence[str] = (),
    drop: Sequence[str] = (),
    proxy_proba: Mapping[str, str] | None = None,
    weights: str | None = None,
    holdout: float = 0.2,
    seed: int = 0,
    overwrite: bool = False,
    streaming: str = STREAMING[0],
    report: Callable[[str], None] | None = None,
    report_gaps: ReportGaps | None = None,
) -> FittedTable:
    """Fit ``model`` to the table in a file, and save it and its audit in the folder ``out``.

    ``missing`` are further words that mean not stated; ``values`` are words that are values in this table
    although they usually mean a gap; columns in ``drop`` are not features. ``proxy_proba`` names the
    column with the probability of each group, ``weights`` that with weights of rows, such as a survey's;
    these are not features either. ``holdout`` is the share of rows
    that are only audited; ``seed`` draws them, and is the model's ``random_state``. An interrupted fit
    continues from the checkpoint in ``out`` when called again with the same arguments; with ``overwrite``, a
    model and a checkpoint of another fit are replaced. With ``streaming`` rows of Parquet stay on disk
    (:mod:`.streamed_fit`), by default where they are many. ``report`` is called with progress messages,
    ``report_gaps`` before fitting with words of label and groups that were read as gaps without being in
    ``missing``.

    Processes that are :func:`~pyro_fairvae.base.ranks.joined` train together, each with the file of its own
    machine; the first one alone audits, and writes to the folder.
    """
    require(0 <= holdout < 1, f"holdout must be within [0, 1), got {holdout}.", "holdout")
    check_seed(seed)
    ranks = current()
    with alone_in(out) if ranks.is_first else nullcontext():
        ranks.from_first(lambda: check_free(out, overwrite))
        say = report or (lambda words: None)
        model = FairSSVAEClassifier() if model is None else model
        named = {
            role: list(names_of(getattr(model, role, ()))) for role in ("proxies", "withholding_depends_on")
        }
        for role, names in named.items():
            for name in names:
                require(
                    name not in drop and name not in (proxy_proba or {}).values() and name != weights,
                    f"{name!r} in {role} is also in drop, proxy_proba or weights; give each column one role.",
                )
        if ranks.is_first:
            for name in (*MODEL, *ABOUT, CHECKPOINT):
                check_replaceable(out / name, path)
        model.set_params(random_state=seed)
        rows: StreamedUserTable | UserTable
        if streams(path, streaming, model, proxy_proba, say, weights):
            require(
                ranks.count == 1,
                f"rows on disk are read by one process, but there are {ranks.count}; start it without "
                "torchrun, or give streaming='never'.",
                "streaming",
            )
            check_column_roles(label, groups, drop)
            rows = StreamedUserTable.open(path, label, groups, missing, values, drop)
        else:
            rows = ranks.everywhere(
                lambda: read_user_table(
                    path, label, groups, missing, values, drop, report_gaps, proxy_proba, weights
                )
            )
            if rows.weights is not None:
                row_weights(rows.weights, len(rows.features), f"the column {weights!r} of weights")
        audited = rows.audited(holdout, seed)
        given = rows.fitted(~audited, model, say)
        if isinstance(model, FairDecisions):
            require(
                ranks.count == 1,
                f"boosted trees alone are fitted by one process, but there are {ranks.count}; start it "
                "without torchrun, or fit a network.",
                "estimator",
            )
            model.fit(*given)
        else:
            _resumed_fit(model, given, out / CHECKPOINT, overwrite, say)
        model.source_ = rows.source | named | {"proxy_proba": dict(proxy_proba or {})}
        if not ranks.is_first:
            return FittedTable(model, model.frontier_, None, int(audited.sum()))
        result = _audit_held_out(model, *rows.some(audited), rows.counted(audited), say)
        about = {} if result is None else {AUDIT: json_text(sealed_content(result.to_dict()))}
        model.stored().save(out, overwrite, about, gone=(CHECKPOINT,))
        rows.discard()
        return FittedTable(model, model.frontier_, result, int(audited.sum()))


def _resumed_fit(
    model: FairSSVAEClassifier | FairSSVAERegressor,
    rows: tuple[Any, ...],
    checkpoint: Path,
    overwrite: bool,
    say: Callable[[str], None],
) -> None:
    """Fit, from a checkpoint if there is one; with ``overwrite`` that of another fit is discarded."""
    model.set_params(checkpoint=checkpoint)
    try:
        model.refit(*rows)
    except OtherConfig:
        if not overwrite:
            raise
        say("Discarding the checkpoint of another fit.")
        if current().is_first:
            checkpoint.unlink()
        model.refit(*rows)


def read_user_table(
    path: Path,
    label: str,
    groups: Sequence[str],
    missing: Sequence[str] = (),
    values: Sequence[str] = (),
    drop: Sequence[str] = (),
    report_gaps: ReportGaps | None = None,
    proxy_proba: Mapping[str, str] | None = None,
    weights: str | None = None,
) -> UserTable:
    """Read a table; split its columns into label, groups, features, probabilities of groups and weights."""
    given = proxy_proba or {}
    check_column_roles(label, groups, drop)
    for name in given.values():
        require(
            name not in (label, *groups, *drop),
            f"{name!r} is the label, a group or dropped, and cannot have probabilities of a group, too.",
            "proxy_proba",
        )
    require(
        weights is None or weights not in (label, *groups, *drop, *given.values()),
        f"{weights!r} is the label, a group, dropped or a probability of a group, and cannot have weights of "
        "rows, too.",
        "weights",
    )
    table = read_table(path, missing, values, names=[label, *groups])
    table.columns = pd.Index(check_names(table))
    labels = take_columns(table, [label], "label").iloc[:, 0]
    stated = take_columns(table, groups, "group")
    dropped = take_columns(table, drop, "columns to drop")
    if report_gaps is not None:
        for name, counts in unasked_gaps(path, [label, *groups], table, missing).items():
            report_gaps(name, counts)
    probabilities = take_columns(table, list(given.values()), "probabilities of groups")
    counted = take_columns(table, [] if weights is None else [weights], "weights")
    features = table.drop(columns=[label, *groups, *dropped, *probabilities, *counted])
    require(features.shape[1] > 0, f"{path} has no columns left to use as features.")
    by_group = probabilities.set_axis(list(given), axis=1) if given else None
    of_rows = None if weights is None else counted.iloc[:, 0]
    return UserTable(path, labels, stated, features, list(missing), list(values), by_group, of_rows)


def check_column_roles(label: str, groups: Sequence[str], drop: Sequence[str]) -> None:
    """Raise unless every column has one role."""
    require(label not in groups, f"{label!r} cannot be both the label and a group.", "label", "group")
    for name in drop:
        require(
            name not in (label, *groups),
            f"{name!r} is the label or a group, which are never features; leave it out of drop.",
            "drop",
        )


def unasked_gaps(
    path: Path, names: Sequence[str], table: pd.DataFrame, asked: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Words read as gaps that are not in ``asked``, with their row counts, by column; some may be values."""
    gaps = {}
    for name, column in read_words(path, names).items():
        taken = column[table[name].isna().to_numpy() & column.notna().to_numpy()].value_counts()
        counts = {str(word): int(count) for word, count in taken.items() if word not in ("", *asked)}
        if counts:
            gaps[str(name)] = counts
    return gaps


def _audit_held_out(
    model: FairSSVAEClassifier | FairDecisions | FairSSVAERegressor,
    features: pd.DataFrame,
    label: pd.Series,
    groups: pd.DataFrame,
    weights: pd.Series | None,
    say: Callable[[str], None],
) -> Audit | NumberAudit | None:
    """Audit the rows kept out of fitting, or report why not; the model is already saved either way."""
    if not len(features) or is_missing(label).all() or groups.isna().any(axis=1).all():
        say("No held-out row states label and group, so there is no audit.")
        return None
    try:
        if isinstance(model, FairSSVAERegressor):
            return audit_of_predictor(model, features, label, groups, sample_weight=weights)
        found = audit(label, model.predict(features), groups, X=features, model=model, sample_weight=weights)
        found = audit_with_members(found, model, features, weights)
    except InputError as reason:
        say(f"The held-out rows could not be audited: {reason}")
        return None
    try:
        return replace(found, by_gamma=found.sensitivity())
    except InputError:  # no two groups can be compared
        return found


def audit_with_members(
    found: Audit,
    model: FairSSVAEClassifier | FairDecisions,
    features: pd.DataFrame,
    sample_weight: pd.Series | None = None,
) -> Audit:
    """An audit of a model's decisions, together with those of its other members about the same rows."""
    if not model.knows_groups_:
        return found
    weight = row_weights(sample_weight, len(features))
    if weight is not None:
        features = features[weight > 0]
    against = unfair_member(model.frontier_)
    return with_members(found, model.predict_members(features), against, model.selected_)


def audit_of_predictor(
    model: FairSSVAERegressor,
    features: pd.DataFrame,
    outcomes: pd.Series,
    groups: pd.DataFrame,
    own_groups: bool = True,
    confidence: float = 0.9,
    sample_weight: pd.Series | None = None,
    clusters: pd.Series | None = None,
) -> NumberAudit:
    """An audit of a model's predictions, together with those of its other members about the same rows.

    ``own_groups``: the groups are those that the model was fitted to.
    """
    attributes = model.attributes_ if own_groups and model.knows_groups_ else None
    every = model.predict_members(features)
    found = audit_numbers(
        outcomes, every[model.selected_], groups, attributes=attributes, confidence=confidence,
        sample_weight=sample_weight, clusters=clusters,
    )  # fmt: skip
    weight = row_weights(sample_weight, len(features))
    design = SurveyDesign(weight, None if clusters is None else code_clusters(clusters, len(features)))
    stated = code_groups(groups, (), attributes)
    members = judge_number_members(
        every,
        numbers_of_label(outcomes),
        stated.codes,
        stated.attributes.group_names,
        unfair_member(model.frontier_),
        confidence,
        model.selected_,
        design,
    )
    return replace(found, members=members)
