"""An audit of predicted numbers: means of predictions and of their errors in each group, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.survey_design import SurveyDesign, code_clusters, design_in_words
from pyro_fairvae.base.documents import read_document
from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import as_column, code_groups
from pyro_fairvae.data.given_rows import in_one_order
from pyro_fairvae.data.number_labels import numbers_of_label
from pyro_fairvae.data.row_weights import row_weights, without_absent
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.documents import MembersDocument, NumberAuditDocument, as_plain

FEWEST = 5  # rows of a group, below which it has no interval
WHAT = {
    "prediction": "mean prediction",
    "error": "mean of prediction − outcome",
    "absolute_error": "mean absolute error",
}
ASSUMED = "Assumed: whether a group is stated depends on the group alone."
NOTES = (
    "Rows that state their group stand for all of it; rows that do not are left out.",
    "Errors are those of rows that state their outcome, too. If withholding it depends on the outcome, "
    "errors of all rows may differ.",
)


@dataclass(frozen=True)
class NumberAudit:
    """The result of an audit of predicted numbers.

    Attributes
    ----------
    differences : DataFrame
        A line for mean predictions, mean errors and mean absolute errors: the largest difference between two
        groups, ``estimate``, with the ``low`` and ``high`` ends of its interval, and these groups.
    means : DataFrame
        A line for each of them and each group: the mean with its interval, and the ``rows`` it is of.
    rows : dict of str to int
        The number of ``rows``, and how many of them are ``stated``, ``withheld`` and ``unlabelled``.
    confidence : float
        Coverage of the intervals.
    notes : tuple of str
        Remarks in words.
    design : dict, optional
        Where rows have weights or clusters, as :class:`~pyro_fairvae.Audit` has it.
    """

    differences: pd.DataFrame
    means: pd.DataFrame
    rows: dict[str, int]
    confidence: float
    notes: tuple[str, ...] = NOTES
    design: dict[str, Any] | None = None
    members: MembersDocument | None = None  # predictions of all members of a frontier about the same rows

    def to_dict(self) -> dict[str, Any]:
        """The whole result in types that JSON supports."""
        return {
            "kind": "numbers",
            "differences": _records(self.differences),
            "means": _records(self.means),
            "rows": self.rows,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "design": self.design,
            "members": None if self.members is None else as_plain(self.members),
        }

    @staticmethod
    def read(path: Path) -> NumberAudit:
        """Read an audit from a file that holds the result of :meth:`to_dict`."""
        what = "an audit of predicted numbers, as fairvae audit writes it"
        document = read_document(path, NumberAuditDocument, what)
        content = as_plain(document)
        differences, means = (pd.DataFrame(content[name]) for name in ("differences", "means"))
        return NumberAudit(
            differences,
            means,
            content["rows"],
            content["confidence"],
            tuple(content["notes"]),
            content["design"],
            document.members,
        )

    def lines(self) -> tuple[list[list[str]], list[list[str]]]:
        """Both tables in words, titles first."""
        interval = f"{100 * self.confidence:g} %"
        first = [["largest difference of", "between", "estimate", interval]]
        first += [
            [WHAT[line.what], f"{line.higher} and {line.lower}", f"{line.estimate:.4g}", _range(line)]
            for line in self.differences.itertuples()
        ]
        second = [["mean of", "group", "estimate", interval, "rows"]]
        second += [
            [WHAT[line.what], line.group, f"{line.estimate:.4g}", _range(line), str(line.rows)]
            for line in self.means.itertuples()
        ]
        return first, second

    def __str__(self) -> str:
        counts = self.rows
        tables = (pd.DataFrame(lines[1:], columns=lines[0]).to_string(index=False) for lines in self.lines())
        return "\n".join(
            [
                f"{counts['rows']} rows: {counts['stated']} state their group, {counts['withheld']} do not; "
                f"{counts['unlabelled']} without an outcome.",
                *([] if self.design is None else [design_in_words(self.design, counts["rows"])]),
                ASSUMED,
                *(f"\n{table}" for table in tables),
                *(f"\nnote: {words}" for words in self.notes),
            ]
        )


def audit_numbers(
    y: Any,
    predicted: Any,
    sensitive_features: Any,
    *,
    attributes: Attributes | None = None,
    missing_values: Sequence[Any] = (),
    confidence: float = 0.9,
    sample_weight: Any = None,
    clusters: Any = None,
) -> NumberAudit:
    """Means of predictions and of their errors in each group, and the largest differences between groups.

    Intervals are Welch's, for means of rows that state their group; of the largest of several differences,
    with Šidák's correction for their number. The lower end is 0 where groups may be equal.

    Parameters
    ----------
    y, predicted : array-like, (rows,)
        Outcomes, which may have gaps, and predictions, which may not.
    sensitive_features : array-like or DataFrame
        One or several columns of groups, with gaps.
    attributes : Attributes, optional
        Those of a model, whose groups are compared.
    missing_values : sequence
        Values of the sensitive columns that mean "not stated", besides NaN, None and ``pd.NA``.
    confidence : float
        Coverage of the intervals.
    sample_weight, clusters : array-like, (rows,), optional
        How rows were sampled, as :func:`~pyro_fairvae.audit` has it; errors are those of this design.

    Returns
    -------
    NumberAudit
        Tables of means and differences.

    Raises
    ------
    InputError
        If predictions are not finite numbers, or fewer than two groups have some rows.

    Examples
    --------
    >>> result = audit_numbers([1.0, 2.0] * 20, [1.0, 2.0, 2.0, 3.0] * 10, ["f", "f", "m", "m"] * 10)
    >>> result.differences[["what", "estimate"]].values.tolist()
    [['prediction', 1.0], ['error', 1.0], ['absolute_error', 1.0]]
    """
    require(0 < confidence < 1, f"confidence must be within (0, 1), got {confidence}.")
    y, predicted, sensitive_features, sample_weight, clusters = in_one_order(
        y=y, predicted=predicted, sensitive_features=sensitive_features, sample_weight=sample_weight,
        clusters=clusters,
    )  # fmt: skip
    given = y, predicted, sensitive_features, clusters
    size = len(as_column(y, "y"))
    weight, (y, predicted, sensitive_features, clusters) = without_absent(
        row_weights(sample_weight, size), *given
    )
    numbers, found = numbers_of_label(y), numbers_of_label(predicted, "predicted")
    groups = code_groups(sensitive_features, missing_values, attributes)
    require(
        len(numbers) == len(found) == len(groups.outcomes),
        f"there are {len(numbers)} outcomes, {len(found)} predictions and {len(groups.outcomes)} groups; "
        "give one of each for every row.",
    )
    gaps = int(np.isnan(found).sum())
    require(gaps == 0, f"predictions are missing in {gaps} rows; leave these rows out.")
    design = SurveyDesign(weight, code_clusters(clusters, len(found)))
    error = found - numbers
    values = {"prediction": found, "error": error, "absolute_error": np.abs(error)}
    means, differences = [], []
    for what, column in values.items():
        known = ~np.isnan(column)
        codes = groups.codes[known]
        own, largest = compare_groups(
            column[known], codes, groups.attributes.group_names, confidence, design.some(known)
        )
        means += [{"what": what} | line for line in own]
        if largest is not None:
            differences.append({"what": what} | largest)
    require(
        bool(differences),
        f"fewer than two groups have {FEWEST} rows that state them, so that none can be compared.",
    )
    stated = int((groups.codes < groups.attributes.groups).sum())
    counts = {
        "rows": len(found), "stated": stated, "withheld": len(found) - stated,
        "unlabelled": int(np.isnan(numbers).sum()),
    }  # fmt: skip
    return NumberAudit(
        pd.DataFrame(differences), pd.DataFrame(means), counts, confidence,
        design=design.summary(len(found)),
    )  # fmt: skip


def compare_groups(
    values: Floats,
    codes: Integers,
    names: Sequence[str],
    confidence: float,
    design: SurveyDesign | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The mean of each group that has enough rows, and the largest difference; None with fewer than two."""
    design = design or SurveyDesign()
    lines, known = [], []
    for code, name in enumerate(names):
        inside = codes == code
        own = _GroupMean.of(name, values, inside, design)
        if own is None:
            continue
        known.append(own)
        half = float(stats.t.ppf((1 + confidence) / 2, own.units - 1)) * own.variance**0.5
        lines.append(
            {
                "group": name, "estimate": own.mean, "low": own.mean - half, "high": own.mean + half,
                "rows": int(inside.sum()),
            }
        )  # fmt: skip
    pairs = list(combinations(known, 2))
    if not pairs:
        return lines, None
    one, other = max(pairs, key=lambda pair: abs(pair[0].mean - pair[1].mean))
    variance = one.variance + other.variance
    squares = one.variance**2 / (one.units - 1) + other.variance**2 / (other.units - 1)
    freedom = variance**2 / max(squares, 1e-300)
    if one.influence is not None and other.influence is not None:  # they may share clusters
        variance -= 2 * float(one.influence @ other.influence)
    level = confidence ** (1 / len(pairs))
    half = float(stats.t.ppf((1 + level) / 2, max(freedom, 1.0))) * variance**0.5
    estimate = abs(one.mean - other.mean)
    higher, lower = (one, other) if one.mean >= other.mean else (other, one)
    return lines, {
        "estimate": estimate, "low": max(0.0, estimate - half), "high": estimate + half,
        "higher": higher.name, "lower": lower.name,
    }  # fmt: skip


@dataclass(frozen=True)
class _GroupMean:
    """The mean of a group, its variance, and of how many rows or clusters it is."""

    name: str
    mean: float
    variance: float
    units: int
    influence: np.ndarray | None  # of each cluster, where groups may share them

    @staticmethod
    def of(name: str, values: Floats, inside: np.ndarray, design: SurveyDesign) -> _GroupMean | None:
        units = design.units(inside)
        if units < FEWEST:
            return None
        if design.plain:
            own = values[inside]
            return _GroupMean(name, float(own.mean()), float(own.var(ddof=1) / len(own)), units, None)
        mass = design.weighed(inside.astype(float))
        mean = float(mass @ values / mass.sum())
        influence = mass * (values - mean) / mass.sum()
        if design.cluster is not None:
            influence = np.bincount(design.cluster, influence)
        influence = influence * (units / (units - 1)) ** 0.5
        return _GroupMean(name, mean, float(influence @ influence), units, influence)


def intervals_of_members(
    predicted: np.ndarray,
    codes: Integers,
    names: Sequence[str],
    confidence: float = 0.9,
    design: SurveyDesign | None = None,
) -> np.ndarray:
    """Ends of the interval of the largest difference of means of each member's predictions, (members, 2)."""
    ends = []
    for own in predicted:
        _, largest = compare_groups(own, codes, names, confidence, design)
        ends.append((np.nan, np.nan) if largest is None else (largest["low"], largest["high"]))
    return np.array(ends)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {key: value.item() if isinstance(value, np.generic) else value for key, value in line.items()}
        for line in table.to_dict("records")
    ]


def _range(line: Any) -> str:
    return f"[{line.low:.4g}, {line.high:.4g}]"
