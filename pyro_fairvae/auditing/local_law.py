"""The tables that New York's Local Law 144 asks of a tool that decides about applicants.

The rules count applicants whose category is known: how many there are, how many were selected (or scored
above the median of all), that rate, and its ratio to the largest rate of a category; for each sex, each race
or ethnicity, and each of their combinations; and how many applicants are of no known category. Nothing is
imputed there. Beside these columns stand the same rates with those unknown taken in, and how far they may be
off. Where rows have weights, rates and ratios are of the people they stand for; applicants are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyro_fairvae.auditing.measuring import impact_ratios
from pyro_fairvae.auditing.source import AuditSource, source_of
from pyro_fairvae.auditing.tables import number, records, table_of
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data.coded_columns import group_columns

if TYPE_CHECKING:
    from pyro_fairvae.auditing.result import Audit

BY = ("decisions", "scores")
SHRUNK = ("shrunk_rate", "shrunk_low", "shrunk_high")
RATES = {"decisions": "selection rate", "scores": "scoring rate"}


@dataclass(frozen=True)
class LawTable:
    """A line for each category, and the number of applicants whose category is ``unknown``."""

    lines: pd.DataFrame
    unknown: int


@dataclass(frozen=True)
class LocalLaw144:
    """The tables by name of their sensitive columns.

    Attributes
    ----------
    rate : str
        ``selection rate``, or ``scoring rate`` where selected means a score above the median.
    rows : int
        The number of applicants.
    confidence : float
        Coverage of the intervals.
    exclude_below : float
        The share below which a category is ``excluded`` from the ratios.
    tables : dict of str to LawTable
        Of each sensitive column, and of all together.
    """

    rate: str
    rows: int
    confidence: float
    exclude_below: float
    tables: dict[str, LawTable]

    def to_dict(self) -> dict[str, Any]:
        """The tables in types that JSON supports."""
        return {
            "rate": self.rate,
            "rows": self.rows,
            "confidence": self.confidence,
            "exclude_below": self.exclude_below,
            "tables": [
                {"name": name, "unknown": table.unknown, "lines": records(table.lines)}
                for name, table in self.tables.items()
            ],
        }

    @staticmethod
    def of(content: dict[str, Any]) -> LocalLaw144:
        """The tables of :meth:`to_dict`."""
        tables = {
            each["name"]: LawTable(table_of(each["lines"]), each["unknown"]) for each in content["tables"]
        }
        return LocalLaw144(
            content["rate"], content["rows"], content["confidence"], content["exclude_below"], tables
        )

    def in_cells(self, name: str) -> list[list[str]]:
        """One table as cells of text, titles first."""
        shown = f"{100 * self.confidence:g} %"
        titles = ["category", "applicants", "selected", self.rate, "impact ratio"]
        cells = [
            [*titles, f"{self.rate} with those unknown", shown, "impact ratio with those unknown", shown]
        ]
        small = self._has_shrunk(name)
        cells[0] += [f"{self.rate}, shrunk", shown] * small
        for line in self.tables[name].lines.to_dict("records"):
            ends = (
                f"[{number(line[f'{of}_low'])}, {number(line[f'{of}_high'])}]" for of in ("rate", "ratio")
            )
            of_rate, of_ratio = ends
            cells.append(
                [
                    line["category"], str(line["applicants"]), str(line["selected"]), number(line["rate"]),
                    "excluded" if line["excluded"] else number(line["impact_ratio"]),
                    number(line["estimated_rate"]), of_rate, number(line["estimated_ratio"]), of_ratio,
                ]
            )  # fmt: skip
            if small:
                of_shrunk = f"[{number(line['shrunk_low'])}, {number(line['shrunk_high'])}]"
                cells[-1] += [number(line["shrunk_rate"]), of_shrunk]
        return cells

    def _has_shrunk(self, name: str) -> bool:
        lines = self.tables[name].lines
        return "shrunk_rate" in lines and bool(lines["shrunk_rate"].notna().any())

    def note(self, name: str) -> str:
        """What is said below a table."""
        unknown = self.tables[name].unknown
        words = (
            f"{unknown} of {self.rows} applicants are of no known category, and are not in the first columns."
        )
        if self.tables[name].lines["excluded"].any():
            words += (
                f" Categories with less than {100 * self.exclude_below:g} % of those known are excluded from "
                "the impact ratios; the rules ask the auditor to say why."
            )
        if self._has_shrunk(name):
            words += (
                " Some of these intersections are small; shrunk rates, with those unknown, are drawn towards "
                "what each column says by itself."
            )
        return words

    def __str__(self) -> str:
        text = ["Local Law 144 (counts and the first ratios are of those whose category is known)"]
        for name in self.tables:
            titles, *lines = self.in_cells(name)
            shown = pd.DataFrame(lines, columns=_distinct(titles))
            text += ["", f"{name}:", shown.to_string(index=False), self.note(name)]
        return "\n".join(text)


def local_law_144(audited: Audit, by: str = "decisions", exclude_below: float = 0.0) -> LocalLaw144:
    """See :meth:`pyro_fairvae.Audit.local_law_144`."""
    from pyro_fairvae.auditing.auditing import audit  # which makes the audits that have this method

    choose("rate of Local Law 144", by, BY)
    require(0 <= exclude_below < 1, f"exclude_below must be within [0, 1), got {exclude_below}.")
    source = source_of(audited.source, "the tables of Local Law 144")
    decided, positive = source.everyone.decided, source.positive
    if by == "scores":
        require(
            source.scores is not None,
            "scoring rates need the scores: give scores to the audit, or take by='decisions'.",
        )
        assert source.scores is not None
        decided, positive = (source.scores > _median(source.scores, source.call.sample_weight)).astype(int), 1
        require(
            len(np.unique(decided)) > 1,
            "no score is above the median of all, so that scoring rates are 0; take by='decisions'.",
        )
    call, chosen = source.call, np.where(decided == positive, "selected", "not selected")
    columns = group_columns(call.sensitive_features, "sensitive_features")
    tables = {}
    for name, part, imputed in _parts(source, columns):
        plain = part is None and by == "decisions"
        again = (
            audited
            if plain
            else audit(
                call.y_true if by == "decisions" else np.full(len(decided), np.nan),
                call.y_pred if by == "decisions" else chosen,
                columns if part is None else part,
                X=call.X,
                groups_proba=imputed,
                depends_on=call.depends_on if by == "decisions" else "group",
                withholding_depends_on=call.names,
                pos_label=source.words[source.positive] if by == "decisions" else "selected",
                confidence=call.confidence,
                missing_values=call.missing_values,
                sample_weight=call.sample_weight,
                clusters=call.clusters,
            )
        )
        assert again.source is not None
        tables[name] = _table(again, chosen == "selected", exclude_below)
    return LocalLaw144(RATES[by], len(decided), call.confidence, exclude_below, tables)


def _parts(source: AuditSource, columns: pd.DataFrame) -> list[tuple[str, Any, Any]]:
    """The name, the column and the imputed groups of each table; no column where it is all of them."""
    attributes, imputed = source.attributes, source.imputed
    whole = None
    if imputed is not None:
        whole = pd.DataFrame(imputed, columns=list(attributes.group_names))
    if len(attributes.names) == 1:
        return [(attributes.names[0], None, whole)]
    parts: list[tuple[str, Any, Any]] = []
    for k, name in enumerate(attributes.names):
        marginal = None
        if imputed is not None:
            axes = tuple(1 + j for j in range(len(attributes.names)) if j != k)
            joint = imputed.reshape(len(imputed), *(len(values) for values in attributes.values))
            marginal = pd.DataFrame(joint.sum(axes), columns=list(attributes.values[k]))
        parts.append((name, columns.iloc[:, [k]], marginal))
    return [*parts, (" × ".join(attributes.names), None, whole)]


def _table(audited: Audit, selected: np.ndarray, exclude_below: float) -> LawTable:
    """Counts of those whose category is known, and estimates of all."""
    source, figures = audited.source, audited.figures
    assert source is not None
    assert figures is not None
    group, names = source.everyone.group, source.attributes.group_names
    applicants = np.bincount(group, minlength=len(names) + 1)[:-1]
    chosen = np.bincount(group[selected], minlength=len(names) + 1)[:-1]
    people = source.everyone.design.counts(group, len(names) + 1)[:-1]
    of_people = source.everyone.design.weighed(selected.astype(float))
    hired = np.bincount(group, of_people, minlength=len(names) + 1)[:-1]
    rate = np.divide(hired, people, out=np.full(len(names), np.nan), where=people > 0)
    excluded = people < exclude_below * people.sum()
    largest = np.nanmax(np.where(excluded, np.nan, rate)) if (~excluded & (applicants > 0)).any() else 0
    ratio = np.where(excluded | (largest == 0), np.nan, rate / (largest or 1))
    lines = pd.DataFrame(
        {
            "category": names, "applicants": applicants, "selected": chosen, "rate": rate,
            "impact_ratio": ratio, "excluded": excluded,
        }
    )  # fmt: skip
    of = figures.by_group.set_index(["measure", "group"])[["estimate", "low", "high"]]
    found = of.loc[[("selection rate", name) for name in names]].to_numpy(float)
    lines[["estimated_rate", "rate_low", "rate_high"]] = found
    ratios, _ = impact_ratios(source.estimates.parity(), source.positive, ~excluded, audited.confidence)
    lines[["estimated_ratio", "ratio_low", "ratio_high"]] = ratios
    lines[list(SHRUNK)] = np.nan
    if not audited.intersections.empty:
        of_rate = audited.intersections["rate"] == f"P(Ŷ = {source.words[source.positive]})"
        of_groups = audited.intersections[of_rate].set_index("group")
        lines[list(SHRUNK)] = of_groups.loc[list(names), ["estimate", "low", "high"]].to_numpy(float)
    return LawTable(lines, len(group) - int(applicants.sum()))


def _median(scores: np.ndarray, weight: np.ndarray | None) -> float:
    """The score that half of the people are above, at most."""
    if weight is None:
        return float(np.median(scores))
    return float(np.quantile(scores, 0.5, weights=weight, method="inverted_cdf"))


def _distinct(titles: list[str]) -> list[str]:
    """Titles of a DataFrame, which may not repeat."""
    return [title + " " * titles[:j].count(title) for j, title in enumerate(titles)]
