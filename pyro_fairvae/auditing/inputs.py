"""The inputs of an audit, checked and coded: labels, decisions, groups, and imputed groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.auditing.group_imputation import impute_groups
from pyro_fairvae.auditing.survey_design import SurveyDesign, code_clusters
from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.data.coded_columns import MANY, by_group, code_labels, shorten, word_of
from pyro_fairvae.data.number_groups import check_levels, code_sensitive, in_ranges, summed_over
from pyro_fairvae.data.table_encoder import as_frame
from pyro_fairvae.schema.attributes import Attributes

RANGES = 4  # of a number, unless a number of them is given: so many are told apart by few rows


def code_rows(
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    missing_values: Sequence[Any],
    model: Any,
    levels: int | None = None,
    weight: np.ndarray | None = None,
    clusters: Any = None,
) -> tuple[AuditedRows, Attributes, np.ndarray]:
    """Labels, decisions and groups as codes; the groups are those of ``model`` if it has names for them.

    A number is cut into ranges: ``levels`` at most, or few. Rows have a ``weight`` and ``clusters``.
    """
    check_levels(levels)
    known = getattr(model, "attributes_", None) if getattr(model, "knows_groups_", True) else None
    missing = missing_values if len(missing_values) else getattr(model, "missing_values", ())
    groups = code_sensitive(sensitive_features, missing, known, levels if known is None else None)
    require(
        levels is None or groups.attributes.levels is not None,
        "group_levels is for a number, but the model was fitted to groups; leave it out, or fit with "
        "group_levels.",
        "group_levels",
    )
    groups = in_ranges(groups, RANGES if levels is None else levels)
    _, labels = code_labels(y_true, what="y_true")
    decided, decisions = code_labels(y_pred, what="y_pred")
    require(bool((decided < len(decisions)).all()), "y_pred has gaps; every row needs a decision.")
    try:
        classes = np.union1d(labels, decisions)
    except TypeError as reason:
        raise InputError(
            f"y_true holds values such as {labels.tolist()[0]!r} and y_pred such as "
            f"{decisions.tolist()[0]!r}; give both with the same type of values."
        ) from reason
    _check_decisions(labels, decisions)
    require(
        len(classes) > 1, f"labels and decisions have one value, {classes.tolist()}; expected two or more."
    )
    y, _ = code_labels(y_true, classes, "y_true")
    decided, _ = code_labels(y_pred, classes, "y_pred")
    sizes = {len(y), len(decided), len(groups.outcomes)}
    require(
        len(sizes) == 1,
        f"y_true, y_pred and sensitive_features have {len(y)}, {len(decided)} and {len(groups.outcomes)} "
        "rows; they must have the same number.",
    )
    design = SurveyDesign(weight, code_clusters(clusters, len(y)))
    rows = AuditedRows(y, decided, groups.codes, len(classes), groups.attributes.groups, design)
    require(bool(rows.stated.any()), "no row states its group in full; an audit needs rows that do.")
    return rows, groups.attributes, classes


def _check_decisions(labels: np.ndarray, decisions: np.ndarray) -> None:
    """Refuse decisions that are scores, or whose values differ from those of the labels."""
    known = {*labels.tolist(), *map(word_of, labels)}
    unknown = [value for value in decisions.tolist() if value not in known and word_of(value) not in known]
    scores = any(isinstance(value, float) and not value.is_integer() for value in unknown)
    require(
        not scores and len(decisions) <= max(MANY, 2 * len(labels)),
        f"y_pred has {len(decisions)} values, such as {decisions.tolist()[-1]!r}, and y_true {len(labels)}; "
        "give decisions, not scores or probabilities.",
    )
    require(
        len(unknown) < len(decisions) or len(labels) == 0,
        f"y_true and y_pred have no value in common: {shorten(list(map(word_of, labels)))} and "
        f"{shorten(list(map(word_of, decisions)))}. Give both in the same values.",
    )


def positive_label(pos_label: Any, classes: np.ndarray) -> int:
    if pos_label is None:
        return len(classes) - 1
    same = [c for c, label in enumerate(classes) if label == pos_label]
    words = [word_of(label) for label in classes]
    return same[0] if same else words.index(choose("pos_label", word_of(pos_label), words))


def imputed_groups(
    rows: AuditedRows, attributes: Attributes, X: Any, model: Any, groups_proba: Any, seed: int
) -> np.ndarray | None:
    require(
        model is None or (X is not None and groups_proba is None),
        "model imputes groups from X: give X with it, and no groups_proba.",
    )
    require(groups_proba is None or X is None, "give X or groups_proba, not both.")
    if model is not None:
        require(
            hasattr(model, "predict_groups_proba"),
            f"model, a {type(model).__name__}, has no predict_groups_proba; give X alone, from which "
            "trees are trained to impute groups.",
        )
        groups_proba = model.predict_groups_proba(X)
        fine = getattr(getattr(model, "attributes_", None), "levels", None)
        if fine is not None and attributes.levels is not None:
            groups_proba = summed_over(groups_proba, fine, attributes.levels)
    if groups_proba is not None:
        return _checked(groups_proba, len(rows), attributes)
    if X is None:
        return None
    table = as_frame(X)
    require(
        len(table) == len(rows),
        f"X has {len(table)} rows, but y_true and y_pred have {len(rows)}; give the same rows.",
    )
    return None if rows.stated.all() else impute_groups(table, rows, seed)


def _checked(groups_proba: Any, rows: int, attributes: Attributes) -> np.ndarray:
    given = by_group(groups_proba, rows, attributes, "groups_proba")
    not_finite = int((~np.isfinite(given)).sum())
    require(
        not_finite == 0,
        f"groups_proba has {not_finite} values that are NaN or infinite; expected numbers for all rows.",
    )
    return given
