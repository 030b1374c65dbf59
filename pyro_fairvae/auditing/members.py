"""The members of a frontier side by side: error, disparities, rates by group, who gains and who loses.

Every member's decisions about the same rows are judged as those of an audit are. A person gains a decision
under a member if it is made about them, and is not without fairness; the shares of a group that gain and lose
it are rates like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.auditing import disparity_of
from pyro_fairvae.auditing.control_variates import ControlVariates
from pyro_fairvae.auditing.group_ratios import Ratio, group_ratios
from pyro_fairvae.auditing.judged_rows import CONFIDENCE, JudgedRows
from pyro_fairvae.auditing.number_audit import WHAT, compare_groups
from pyro_fairvae.auditing.result import Audit
from pyro_fairvae.auditing.source import source_of
from pyro_fairvae.auditing.survey_design import SurveyDesign
from pyro_fairvae.auditing.tables import plain
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.evaluation.measures import AUDITED
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.documents import (
    MemberFigures,
    MemberMeasure,
    MemberRate,
    MembersDocument,
    RowCounts,
)

MOST_CLASSES = 6  # whose rates are all given; of more, those of the label that matters


def judge_members(
    judged: JudgedRows,
    words: Sequence[str],
    groups: Sequence[str],
    against: int,
    positive: int | None = None,
    confidence: float = CONFIDENCE,
) -> MembersDocument | None:
    """Every member's decisions about the same rows; None where nobody states a group.

    Parameters
    ----------
    judged : JudgedRows
        The rows, and the decisions of all members.
    words, groups : sequence of str
        Names of the classes and of the groups.
    against : int
        The member without fairness, against which others gain and lose decisions.
    positive : int, optional
        The class that matters; the last by default.
    confidence : float
        Of the intervals.

    Returns
    -------
    MembersDocument
        For each member its error where labels are known, disparities, rates by group, and the shares of each
        group that gain and lose a decision.
    """
    rows = judged.rows
    if not rows.stated.any():
        return None
    positive = rows.classes - 1 if positive is None else positive
    shown = range(rows.classes) if 2 < rows.classes <= MOST_CLASSES else [positive]
    different, member = np.unique(judged.decided, axis=0, return_inverse=True)  # neighbours often agree
    found = [
        _figures(judged, decided, judged.decided[against], words, groups, shown, positive, confidence)
        for decided in different
    ]
    stated, unlabelled = int(rows.stated.sum()), int((rows.y == rows.classes).sum())
    counts = RowCounts(len(rows), stated, len(rows) - stated, unlabelled)
    return MembersDocument(counts, confidence, against, [found[k] for k in member.ravel()])


def _figures(
    judged: JudgedRows,
    decided: np.ndarray,
    before: np.ndarray,
    words: Sequence[str],
    groups: Sequence[str],
    shown: Sequence[int],
    positive: int,
    confidence: float,
) -> MemberFigures:
    rows = replace(judged.rows, decided=decided)
    estimates = ControlVariates(rows, judged.scores, judged.by_label, judged.design)
    labelled = rows.y < rows.classes
    everyone = np.ones(len(rows))
    measures = [
        MemberMeasure(name, *map(plain, disparity_of(estimates, measure, positive, confidence)))
        for name, measure in AUDITED.items()
    ]
    rates: dict[str, Ratio] = {}
    changes: dict[str, Ratio] = {}
    for c in shown:
        hit, had = decided == c, before == c
        rates[f"decided {words[c]}"] = Ratio(hit.astype(float), everyone)
        for of, inside in (
            (f"labelled {words[c]}", labelled & (rows.y == c)),
            ("labelled otherwise", labelled & (rows.y != c)),
        ):
            one_label = rows.classes == 2 or of != "labelled otherwise"
            rates[f"decided {words[c]} of those {of}"] = Ratio(
                (hit & inside).astype(float), inside.astype(float), one_label
            )
        changes[f"gain the decision {words[c]}"] = Ratio((hit & ~had).astype(float), everyone)
        changes[f"lose the decision {words[c]}"] = Ratio((had & ~hit).astype(float), everyone)
    counts = np.bincount(decided, minlength=rows.classes)
    wrong = (decided != rows.y)[labelled].astype(float)
    return MemberFigures(
        float(rows.design.some(labelled).mean(wrong)) if len(wrong) else None,
        {word: int(count) for word, count in zip(words, counts, strict=True)},
        measures,
        *(_of_groups(estimates, ratios, groups, confidence) for ratios in (rates, changes)),
    )


def _of_groups(
    estimates: ControlVariates, ratios: dict[str, Ratio], groups: Sequence[str], confidence: float
) -> list[MemberRate]:
    found = group_ratios(estimates, list(ratios.values()))
    z = float(stats.norm.ppf((1 + confidence) / 2))
    lines = []
    for r, (name, ratio) in enumerate(ratios.items()):
        for g, group in enumerate(groups):
            estimate, low, high = map(plain, found.interval(r, g, z))
            stated = int(((estimates.rows.group == g) & (ratio.bottom > 0)).sum())
            lines.append(MemberRate(name, group, estimate, low, high, stated))
    return lines


def with_members(audited: Audit, decided: np.ndarray, against: int, selected: int) -> Audit:
    """An audit, together with the decisions of all members about its rows, (members, rows).

    ``selected`` is the member whose decisions it is of.
    """
    source = source_of(audited.source, "figures of the members of a frontier")
    estimates = source.estimates
    values, places = np.unique(decided, return_inverse=True)
    words = [word_of(value) for value in values]
    if not set(words) <= set(source.words):
        return audited  # members decide for a class that this audit has not
    coded = np.array([source.words.index(word) for word in words])[places].reshape(decided.shape)
    kept = np.ones(len(source.everyone), dtype=bool)
    if len(estimates.rows) < len(kept):  # those without a label were left out
        kept = source.everyone.y < source.everyone.classes
    judged = JudgedRows(
        estimates.rows,
        None if source.imputed is None else source.imputed[kept],
        coded[:, kept],
        estimates.conditions,
        estimates.by_label,
    )
    found = judge_members(
        judged,
        source.words,
        source.attributes.group_names,
        against,
        source.positive,
        audited.confidence,
    )
    if found is None:
        return audited
    found.audited = selected
    return replace(audited, members=found)


def judge_number_members(
    predicted: Floats,
    y: Floats,
    codes: Integers,
    groups: Sequence[str],
    against: int,
    confidence: float = CONFIDENCE,
    audited: int | None = None,
    design: SurveyDesign | None = None,
) -> MembersDocument | None:
    """Every member's predictions of a number, (members, rows); ``y`` may have gaps.

    Means by group are those of rows that state it, as in :func:`~pyro_fairvae.auditing.audit_numbers`, and
    changes the means of prediction less that of the member ``against``.
    """
    known, design = ~np.isnan(y), design or SurveyDesign()
    stated = int((codes < len(groups)).sum())
    if not stated:
        return None
    members = []
    for own in predicted:
        error = own - y
        measures, rates = [], []
        for what, values in (("prediction", own), ("error", error), ("absolute_error", np.abs(error))):
            inside = known | (what == "prediction")
            lines, largest = compare_groups(
                values[inside], codes[inside], groups, confidence, design.some(inside)
            )
            rates += [_mean(WHAT[what], line) for line in lines]
            if largest is not None:
                measures.append(MemberMeasure(what, *(largest[name] for name in ("estimate", "low", "high"))))
        changes, _ = compare_groups(own - predicted[against], codes, groups, confidence, design)
        rms = float(np.sqrt(design.some(known).mean(error[known] ** 2))) if known.any() else None
        members.append(
            MemberFigures(
                rms, {}, measures, rates, [_mean("mean change of the prediction", line) for line in changes]
            )
        )
    counts = RowCounts(len(y), stated, len(y) - stated, int((~known).sum()))
    return MembersDocument(counts, confidence, against, members, audited)


def _mean(name: str, line: dict[str, Any]) -> MemberRate:
    estimate, low, high = (line[key] for key in ("estimate", "low", "high"))
    return MemberRate(name, line["group"], estimate, low, high, line["rows"])


def decided_alike(member: int, *documents: MembersDocument | None) -> tuple[str, int] | None:
    """The class that a member decides for everybody, and for how many rows; None if there are several."""
    counts: dict[str, int] = {}
    for document in documents:
        decided = {} if document is None else document.members[member].decided
        for word, count in decided.items():
            counts[word] = counts.get(word, 0) + count
    given = [(word, count) for word, count in counts.items() if count]
    return given[0] if len(given) == 1 else None


def unfair_member(frontier: pd.DataFrame) -> int:
    """The member without fairness: of targets the one that has none, of weights the least λ."""
    if "target" in frontier and frontier["target"].isna().any():
        return int(np.flatnonzero(frontier["target"].isna())[0])
    return int(np.argmin(frontier["lambda"])) if "lambda" in frontier else int(np.argmax(frontier["target"]))
