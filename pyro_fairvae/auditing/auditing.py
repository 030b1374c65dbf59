"""Audits: estimates of rates and disparities, with notes about their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.bounds import worst_case
from pyro_fairvae.auditing.conditions import AuditedConditions
from pyro_fairvae.auditing.control_variates import AuditedRates, AuditedRows, ControlVariates
from pyro_fairvae.auditing.inputs import code_rows, imputed_groups, positive_label
from pyro_fairvae.auditing.intersections import intersection_lines
from pyro_fairvae.auditing.intervals import largest_interval
from pyro_fairvae.auditing.measuring import Measuring, OwnRate, checked_scores
from pyro_fairvae.auditing.measuring import own_rates as rates_of_own
from pyro_fairvae.auditing.result import Audit
from pyro_fairvae.auditing.source import AuditCall, AuditSource
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data.coded_columns import as_column, word_of
from pyro_fairvae.data.frames import kind_of
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.data.row_weights import row_weights, without_absent
from pyro_fairvae.data.table_encoder import names_of
from pyro_fairvae.evaluation.measures import AUDITED, Audited
from pyro_fairvae.nn.conditions import LABEL
from pyro_fairvae.schema.attributes import Attributes

DEPENDS_ON = ("group", "group and label")
FEW = 20  # stating rows of a cell below which a note says that they are few
LISTED = 12  # notes on such cells; more are counted in one
MISFIT = 0.01  # p-value below which a note doubts the assumption


def audit(
    y_true: Any,
    y_pred: Any,
    sensitive_features: Any,
    *,
    X: Any = None,
    model: Any = None,
    groups_proba: Any = None,
    depends_on: str = "group",
    withholding_depends_on: Sequence[str] | None = None,
    pos_label: Any = None,
    confidence: float = 0.9,
    missing_values: Sequence[Any] = (),
    group_levels: int | None = None,
    random_state: int = 0,
    scores: Any = None,
    own_rates: Mapping[str, OwnRate] | None = None,
    sample_weight: Any = None,
    clusters: Any = None,
) -> Audit:
    r"""Disparities of any classifier's decisions where some rows do not state their group.

    Parameters
    ----------
    y_true, y_pred
        Labels, NaN where unknown, and decisions.
    sensitive_features
        One column of groups, or several, NaN, None or one of ``missing_values`` where not stated.
    X
        Features that are informative about the group. Trees learn P(a | x, y, ŷ) from them, cross-fitted.
    model
        Alternatively a fitted model with ``predict_groups_proba``, which is called with ``X``. It must not
        have been fitted on these rows.
    groups_proba
        Alternatively P(a | row) itself, (rows, groups), by an imputer that did not use these rows' groups: a
        DataFrame with a column for each group, or an array in the sorted order of the groups. X is then given
        for the columns in ``withholding_depends_on`` alone.
    depends_on
        What withholding may depend on: the ``"group"``, or ``"group and label"``. Rates given the label are
        unbiased in either case; rates over all labels (DDP) are not: in the second case they rely on
        imputations that distinguish the groups.
    withholding_depends_on
        Columns of X, and ``"label"``, that withholding may depend on besides the group, as in
        :class:`~pyro_fairvae.FairSSVAEClassifier`; by default those that ``model`` was fitted with. All
        estimates then weight stating rows by how often people like them withhold.
    pos_label
        The label of DEOPP; by default the last in sorted order.
    confidence
        Coverage of the intervals, at least 0.5 and below 1.
    missing_values
        Values other than NaN and None that mean "not stated", such as ``("unknown",)``; by default those of
        ``model``.
    group_levels
        The sensitive feature is a number, such as age: compare at most so many ranges of it. If ``model``
        was fitted to a number, its levels are merged into so many, 4 by default: few rows tell more levels
        apart.
    random_state
        Seed of the folds and trees that impute groups from ``X``.
    scores
        P(Y = ``pos_label``) of every row, by which AUC and calibration are reported.
    own_rates
        Rates of your own by name: functions of the arrays of labels (None where unknown), decisions and
        scores that return two numbers for each row, which are summed above and below the line, such as
        ``{"cost": lambda y, decided, scores: (5 * ((y == 0) & (decided == 1)), np.ones(len(y)))}``.
    sample_weight
        Weights of rows, such as those of a survey: how many people each stands for. Rows of weight 0 are
        taken as absent; only the ratios of weights matter. Errors are those of the design.
    clusters
        What was sampled as a whole, such as the household of each row; rows of different clusters are
        independent, those of one may be alike.

    Returns
    -------
    Audit
        Estimates with intervals, the same from stating rows alone, and bounds without assumptions. Rows may
        be given as frames of any library that narwhals knows; :meth:`.Audit.tables` has tables of the same.

    Raises
    ------
    InputError
        If nobody states a group, lengths differ, or an argument is invalid.

    Notes
    -----
    DEO is :math:`\max_{y,a,a'} |P(\hat Y=y|Y=y,A=a) - P(\hat Y=y|Y=y,A=a')|`, DEOPP the same at the label
    ``pos_label`` alone, and DDP :math:`\max_{c,a,a'} |P(\hat Y=c|A=a) - P(\hat Y=c|A=a')|`.

    Without X, model or probabilities, only the labels and decisions of rows that withhold are used. A bad
    imputer makes intervals wider, not wrong: see :mod:`pyro_fairvae.auditing.control_variates`. Intervals of
    a largest difference are those of :mod:`pyro_fairvae.auditing.intervals`; the estimate itself, the largest
    of several, is too large on average where rows are few. Labels are assumed to be missing without a
    systematic reason. Bounds apply to these rows alone, for any values of the withheld groups; they do not
    include sampling error.

    Where groups are imputed, the assumption on withholding is checked, as in
    :mod:`pyro_fairvae.posterior.withholding_check`: by the columns of X, the label, and bins of the imputed
    probabilities if these are given. If it is rejected, do not rely on the estimates. It takes rows as
    independent, and is not made where there are clusters.

    Of several sensitive columns some intersections are small, and the estimates of their rates mostly chance:
    where some have few rows, rates shrunk towards what the columns say one by one stand beside them, see
    :mod:`pyro_fairvae.auditing.intersections`. Disparities are of the estimates as they are.

    With ``sample_weight`` every count, mean and least-squares fit weighs rows, and with either that or
    ``clusters`` variances are those of the design: see :mod:`pyro_fairvae.auditing.survey_design`. Numbers of
    rows in tables, and the bins of a calibration curve, are of rows, not of people.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import audit, synthetic
    >>> table = synthetic(rows=1000)
    >>> draw = np.random.default_rng(0)
    >>> sex = np.where(draw.random(1000) < 0.4, None, np.array(["f", "m"])[table.a])
    >>> decided = np.where(draw.random(1000) < 0.8, table.y, table.a)  # errs in favour of group 1
    >>> result = audit(table.y, decided, sex, X=table.numbers)
    >>> result.rows["withheld"]
    373
    >>> deo = result.metrics.loc["deo"]
    >>> bool(deo["low"] < deo["estimate"] < deo["high"])
    True
    """
    choose("assumption", depends_on, DEPENDS_ON)
    require(0.5 <= confidence < 1, f"confidence must be within [0.5, 1), got {confidence}.")
    kind = kind_of(X, sensitive_features, y_pred, y_true)
    X, y_true, y_pred, sensitive_features, groups_proba, scores, sample_weight, clusters = in_one_order(
        X=X, y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features, groups_proba=groups_proba,
        scores=scores, sample_weight=sample_weight, clusters=clusters,
    )  # fmt: skip
    size = len(as_column(y_true, "y_true"))
    given = X, y_true, y_pred, sensitive_features, groups_proba, scores, clusters
    weight, given = without_absent(row_weights(sample_weight, size), *given)
    X, y_true, y_pred, sensitive_features, groups_proba, scores, clusters = given
    require(
        getattr(model, "number_", None) is None,
        "the model predicts a number, and audit is for classes; use pyro_fairvae.auditing.audit_numbers.",
    )
    rows, attributes, classes = code_rows(
        y_true, y_pred, sensitive_features, missing_values, model, group_levels, weight, clusters
    )
    positive = positive_label(pos_label, classes)
    graded = None if scores is None else checked_scores(scores, len(rows))
    words_of = np.array([*classes.tolist(), None], dtype=object)
    own = rates_of_own(own_rates or {}, words_of[rows.y], words_of[rows.decided], graded)
    notes: list[str] = []
    by_label = depends_on == "group and label"
    names = _conditions_of(withholding_depends_on, model, by_label)
    of_label = by_label or LABEL in names
    kept = rows.y < rows.classes if of_label else np.ones(len(rows), dtype=bool)
    if not kept.all():
        notes.append(f"{(~kept).sum()} rows without a label are left out, as withholding may depend on it.")
    require(
        bool((kept & rows.stated).any()),
        "no row has a label and states its group, which is required where withholding may depend on the "
        "label; give labels, or depends_on='group'.",
    )
    of_groups = None if names and groups_proba is not None else X
    imputed = imputed_groups(rows, attributes, of_groups, model, groups_proba, random_state)
    if imputed is None and X is not None and not rows.stated.all():
        notes.append("X is not used: too few rows state some group to learn from them.")
    everyone = rows
    rows = rows.some(kept)
    words = [word_of(label) for label in classes]
    of_kept = None if imputed is None else imputed[kept]
    depending = AuditedConditions.make(rows, X, kept, names, words) if names or of_kept is not None else None
    estimates = ControlVariates(rows, of_kept, by_label, None if depending is None else depending.design)
    notes += _notes(rows, attributes, classes, estimates, by_label, bool(names))
    check = None
    if depending is not None and of_kept is not None and not by_label:
        by_scores = model is not None or groups_proba is not None
        check = depending.check(estimates, of_kept, attributes.group_names, by_scores)
    odds, odds_stated = estimates.odds(), estimates.odds(adjusted=False)
    parity, parity_stated = estimates.parity(), estimates.parity(adjusted=False)
    rates_of = {"odds": (odds, odds_stated), "parity": (parity, parity_stated)}
    classes_of = {"all": range(len(classes)), "positive": [positive]}
    metrics = {
        name: _metric(
            rows, *rates_of[row.rates], classes_of[row.classes], confidence, given_label=row.rates == "odds"
        )
        for name, row in AUDITED.items()
    }
    groups = attributes.group_names
    rates = _rate_lines(
        odds, odds_stated, [f"P(Ŷ = {w} | Y = {w})" for w in words], groups, rows, confidence, True
    )
    rates += _rate_lines(
        parity, parity_stated, [f"P(Ŷ = {w})" for w in words], groups, rows, confidence, False
    )
    measuring = Measuring(estimates, positive, words, groups, confidence)
    figures = measuring.figures(
        None if graded is None else graded[kept],
        {name: (top[kept], bottom[kept]) for name, (top, bottom) in own.items()},
    )
    return Audit(
        pd.DataFrame(metrics).T.rename_axis("metric"),
        pd.DataFrame(rates),
        _group_lines(rows, groups, estimates, confidence),
        {
            "rows": len(rows),
            "stated": int(rows.stated.sum()),
            "withheld": int((~rows.stated).sum()),
            "unlabelled": int((rows.y == rows.classes).sum()),
        },
        ", ".join([depends_on, *names]),
        confidence,
        tuple(notes),
        None if check is None else check.summary(),
        figures,
        design=rows.design.summary(len(rows)),
        intersections=intersection_lines(estimates, attributes, words, positive, confidence),
        source=AuditSource(
            estimates, everyone, positive, tuple(words), attributes, imputed, graded,
            AuditCall(
                y_true, y_pred, sensitive_features, X if names else None, depends_on, names, confidence,
                tuple(missing_values) or tuple(getattr(model, "missing_values", ())), weight, clusters,
                kind,
            ),
        ),
    )  # fmt: skip


def disparity(
    rows: AuditedRows,
    scores: np.ndarray | None,
    design: np.ndarray | None,
    measure: Audited,
    confidence: float,
) -> tuple[float, float, float]:
    """A measure of decisions and the ends of its interval, as :func:`audit` reports them.

    ``scores`` are P(a|x), and ``design`` is v, if withholding depends on more than the group.
    """
    return disparity_of(ControlVariates(rows, scores, False, design), measure, rows.classes - 1, confidence)


def disparity_of(
    estimates: ControlVariates, measure: Audited, positive: int, confidence: float
) -> tuple[float, float, float]:
    """A measure of the decisions of some estimates, with the ends of its interval."""
    rates = estimates.odds() if measure.rates == "odds" else estimates.parity()
    over = range(estimates.rows.classes) if measure.classes == "all" else [positive]
    return _largest(rates, over, confidence)


def _conditions_of(given: Sequence[str] | None, model: Any, by_label: bool) -> tuple[str, ...]:
    """What withholding depends on besides the group, as given, or as the model was fitted."""
    if given is None:
        return () if by_label else names_of(getattr(model, "withholding_depends_on", ()))
    require(
        not isinstance(given, str),
        f"withholding_depends_on must be a list of names of columns, or of 'label', got {given!r}.",
    )
    require(
        not (given and by_label),
        "depends_on='group and label' and withholding_depends_on exclude each other; name 'label' in "
        "withholding_depends_on.",
        "depends_on",
        "withholding_depends_on",
    )
    return tuple(given)


def _metric(
    rows: AuditedRows,
    estimated: AuditedRates,
    stated: AuditedRates,
    over: Sequence[int],
    confidence: float,
    given_label: bool,
) -> dict[str, float]:
    """A largest difference over the classes ``over`` and all pairs of groups that have a rate."""
    line: dict[str, float] = {}
    for prefix, rates in (("", estimated), ("stated_", stated)):
        estimate, low, high = _largest(rates, over, confidence)
        line |= {f"{prefix}estimate": estimate, f"{prefix}low": low, f"{prefix}high": high}
    # A class in which no two groups can be compared is left out, as in the estimate.
    bounds = [pair for pair in (_bounds(rows, c, given_label) for c in over) if not np.isnan(pair).any()]
    line["bound_low"] = max((low for low, _ in bounds), default=float("nan"))
    line["bound_high"] = max((high for _, high in bounds), default=float("nan"))
    return line


def _largest(rates: AuditedRates, over: Sequence[int], confidence: float) -> tuple[float, float, float]:
    values = rates.values[list(over)]
    compared = values[(~np.isnan(values)).sum(1) > 1]
    if not len(compared):
        return float("nan"), float("nan"), float("nan")
    entries = np.arange(rates.values.size).reshape(rates.values.shape)[list(over)].ravel()
    covariance = rates.covariance()[np.ix_(entries, entries)]
    largest = np.nanmax(compared, axis=1) - np.nanmin(compared, axis=1)
    return float(largest.max()), *largest_interval(values, covariance, confidence)


def _bounds(rows: AuditedRows, c: int, given_label: bool) -> tuple[float, float]:
    """Bounds of the difference in P(Ŷ = c | Y = c, A), or P(Ŷ = c | A), on these rows."""
    inside = rows.y == c if given_label else np.ones(len(rows), dtype=bool)
    hit = rows.decided == c

    def by_group(chosen: np.ndarray) -> np.ndarray:
        return np.bincount(rows.group, rows.design.weighed(chosen.astype(float)), minlength=rows.groups + 1)

    hits, misses = by_group(inside & hit), by_group(inside & ~hit)
    return worst_case(hits[:-1], misses[:-1], (float(hits[-1]), float(misses[-1])))


def _rate_lines(
    estimated: AuditedRates,
    stated: AuditedRates,
    titles: Sequence[str],
    names: Sequence[str],
    rows: AuditedRows,
    confidence: float,
    given_label: bool,
) -> list[dict[str, Any]]:
    z = stats.norm.ppf((1 + confidence) / 2)
    lines = []
    for c, title in enumerate(titles):
        for g, name in enumerate(names):
            inside = (rows.group == g) & ((rows.y == c) | (not given_label))
            line: dict[str, Any] = {"rate": title, "group": name}
            for prefix, rates in (("", estimated), ("stated_", stated)):
                value = rates.values[c, g]
                half = z * np.sqrt(rates.variance(c, g))
                line[f"{prefix}estimate"] = float(value)
                line[f"{prefix}low"] = float(np.clip(value - half, 0, 1))
                line[f"{prefix}high"] = float(np.clip(value + half, 0, 1))
            lines.append(line | {"stated_rows": int(inside.sum())})
    return lines


def _group_lines(
    rows: AuditedRows, names: Sequence[str], estimates: ControlVariates, confidence: float
) -> pd.DataFrame:
    stated = np.bincount(rows.group[rows.stated], minlength=rows.groups)
    rate, low, high = estimates.withholding(float(stats.norm.ppf((1 + confidence) / 2)))
    if rows.stated.all():
        rate, low, high = np.zeros((3, rows.groups))
    total = rows.design.total(~rows.stated)
    people = rows.design.counts(rows.group, rows.groups + 1)[: rows.groups]
    with np.errstate(divide="ignore", invalid="ignore"):
        withheld = np.clip(people * rate / (1 - rate), 0, total)
        withheld *= total / np.nansum(withheld) if total else 0
    return pd.DataFrame(
        {
            "stated": stated, "withhold": rate, "withhold_low": low, "withhold_high": high,
            "withheld": withheld,
        },
        index=pd.Index(names, name="group"),
    )  # fmt: skip


def _rare(rows: AuditedRows, groups: Sequence[str], labels: Sequence[tuple[int, str]]) -> list[str]:
    """Notes about groups that few or no rows state at a label, each by itself where they are not many."""
    none, few = [], []
    for g, group in enumerate(groups):
        for c, label in labels:
            stating = int(((rows.group == g) & (rows.y == c)).sum())
            cell = f"of {group} with label {label}"
            if stating == 0:
                none.append(f"no row {cell} states its group: the group is left out there.")
            elif stating < FEW:
                few.append(f"few rows {cell} state their group ({stating}); see the intervals.")
    if len(none) + len(few) <= LISTED:
        return [*none, *few]
    cells = len(groups) * len(labels)
    return [
        f"of {cells} pairs of a group and a label, {len(none)} have no row that states its group, and are "
        f"left out, and {len(few)} have fewer than {FEW}, so that intervals are wide and the largest of the "
        "estimated differences is mostly chance: merge groups, or audit one sensitive column at a time."
    ]


def _notes(
    rows: AuditedRows,
    attributes: Attributes,
    classes: np.ndarray,
    estimates: ControlVariates,
    by_label: bool,
    conditional: bool,
) -> list[str]:
    notes = []
    withheld = not rows.stated.all()
    words = [word_of(label) for label in classes]
    absent = [c for c in range(rows.classes) if not (rows.y == c).any()]
    notes += [f"no row has the label {words[c]}, so rates given it cannot be estimated." for c in absent]
    never = [words[c] for c in range(rows.classes) if c not in absent and not (rows.decided == c).any()]
    notes += [f"no row has the decision {word}." for word in never]
    notes += _rare(
        rows, attributes.group_names, [(c, words[c]) for c in range(len(words)) if c not in absent]
    )
    misfit = estimates.misfit()
    if misfit < MISFIT:
        reason = "group and label" if by_label else "group"
        advice = "Try depends_on='group and label', and see the bounds, too."
        if by_label or conditional:
            advice = "See the bounds."
            reason += " and what withholding_depends_on names" * conditional
        notes.append(
            f"withholding seems to depend on more than the {reason} (p = {misfit:.2g}); estimates may be "
            f"biased. {advice}"
        )
    lost = [name for name, known in zip(attributes.group_names, estimates.told, strict=True) if not known]
    if by_label and lost:
        notes.append(
            f"how often {', '.join(lost)} withhold at each label cannot be estimated; DDP leaves them out. "
            "Give X or groups_proba, or more rows."
        )
    elif conditional and lost and withheld:
        notes.append(
            f"how often {', '.join(lost)} withhold cannot be estimated, so their rates are left out. Give X "
            "or groups_proba, more rows, or fewer names in withholding_depends_on."
        )
    elif by_label and withheld and not estimates.helps:
        notes.append("without imputed groups DDP relies on labels and decisions alone; give X.")
    if withheld and not by_label and not conditional:
        notes.append(
            "if withholding depended on the label, too, DEO and DEOPP of stated rows would still be "
            "unbiased, and DDP would not; see depends_on. If it depended on the decision, only the bounds "
            "would hold."
        )
    return notes
