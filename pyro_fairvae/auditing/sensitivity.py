"""How far withholding may depart from the model before a finding turns.

The dial Γ ≥ 1 is the odds ratio by which withholding may depend on the decision, or the label, beyond what is
modelled: see :mod:`.mechanisms`. At each Γ a disparity has a range over all ways to withhold within Γ, and an
interval that carries sampling error: that of the audit, moved by as much as the ends of pairwise intervals
move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.group_ratios import Ratio, group_ratios
from pyro_fairvae.auditing.measuring import FOUR_FIFTHS
from pyro_fairvae.auditing.mechanisms import Outcome
from pyro_fairvae.auditing.source import AuditSource, source_of
from pyro_fairvae.auditing.tables import intervals, number, records, table_of
from pyro_fairvae.base.errors import require
from pyro_fairvae.evaluation.measures import AUDITED

if TYPE_CHECKING:
    from pyro_fairvae.auditing.result import Audit

GAMMAS = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0)
TOLERANCE = 0.05
LARGEST = 1000.0  # Γ up to which the one that turns a finding is looked for
BISECTIONS = 20
Ends = tuple[float, float, float, float]  # the range over ways to withhold, and with sampling error


@dataclass(frozen=True)
class Sensitivity:
    """Disparities at every Γ, and where findings turn.

    Attributes
    ----------
    curves : DataFrame
        For each ``measure`` and ``gamma``: ``least`` and ``most``, the range over all ways to withhold
        within Γ, and ``low`` and ``high``, the ends of the interval; the last Γ is infinite.
    findings : DataFrame
        For each measure what is found at Γ = 1, in words, and the smallest Γ that ``overturns`` it: infinite
        if none does, NaN where nothing is found.
    tolerance : float
        The largest difference between groups that counts as fair.
    confidence : float
        Coverage of the intervals.
    """

    curves: pd.DataFrame
    findings: pd.DataFrame
    tolerance: float
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """All of it in types that JSON supports; an infinite Γ is written as null."""
        finite = [table.replace(np.inf, np.nan) for table in (self.curves, self.findings)]
        never = np.isinf(self.findings["overturns"].to_numpy(float))
        return {
            "curves": records(finite[0]),
            "findings": records(finite[1].assign(never=never)),
            "tolerance": self.tolerance,
            "confidence": self.confidence,
        }

    @staticmethod
    def of(content: dict[str, Any]) -> Sensitivity:
        """The result of :meth:`to_dict`."""
        curves, findings = table_of(content["curves"]), table_of(content["findings"])
        curves["gamma"] = curves["gamma"].fillna(np.inf)
        findings["overturns"] = np.where(findings["never"], np.inf, findings["overturns"].astype(float))
        return Sensitivity(
            curves, findings.drop(columns="never"), content["tolerance"], content["confidence"]
        )

    def in_cells(self) -> tuple[list[list[str]], list[list[str]]]:
        """Findings, and intervals by Γ, as cells of text, titles first."""
        findings = [["measure", "found at Γ = 1", "overturned from Γ ="]]
        for line in self.findings.to_dict("records"):
            findings.append([line["measure"], line["finding"], _turn(line["overturns"])])
        wide = self.curves.assign(shown=intervals(self.curves, "")).pivot(
            index="gamma", columns="measure", values="shown"
        )
        measures = list(self.findings["measure"])
        curves = [["Γ", *measures]]
        curves += [[_gamma(gamma), *wide.loc[gamma, measures]] for gamma in wide.index]
        return findings, curves

    def __str__(self) -> str:
        tables = [pd.DataFrame(lines[1:], columns=lines[0]) for lines in self.in_cells()]
        findings, curves = (table.to_string(index=False) for table in tables)
        return (
            "Sensitivity: the odds of withholding may be up to Γ times as high or as low as modelled, for "
            f"each decision and label apart\n\n{findings}\n\n{100 * self.confidence:g} % intervals by Γ:\n"
            f"{curves}"
        )


def sensitivity(
    audited: Audit, gammas: Sequence[float] = GAMMAS, tolerance: float = TOLERANCE
) -> Sensitivity:
    """See :meth:`pyro_fairvae.Audit.sensitivity`."""
    source = source_of(audited.source, "an analysis of sensitivity")
    given = ", ".join(f"{gamma:g}" for gamma in gammas) or "none"
    require(
        len(gammas) > 0 and all(gamma >= 1 for gamma in gammas),
        f"gammas must be odds ratios of 1 or more, got {given}.",
    )
    require(0 <= tolerance < 1, f"tolerance must be within [0, 1), got {tolerance}.")
    grid = sorted({1.0, *map(float, gammas), np.inf})
    curves, findings = [], []
    for measure, (measuring, start) in _measures(audited, source).items():
        dial = _Dial(measuring, start, audited.confidence)
        for gamma in grid:
            least, most, low, high = dial.at(gamma)
            curves.append(
                {"measure": measure, "gamma": gamma, "least": least, "most": most, "low": low, "high": high}
            )
        ratio = isinstance(measuring, LeastRatio)
        limit = FOUR_FIFTHS if ratio else tolerance
        finding, overturns = dial.turned(limit, ratio)
        findings.append({"measure": measure, "finding": finding, "overturns": overturns})
    return Sensitivity(pd.DataFrame(curves), pd.DataFrame(findings), tolerance, audited.confidence)


class LargestDifference:
    """Ranges and intervals of a largest difference over some outcomes."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = [outcome for outcome in outcomes if len(outcome.known) > 1]

    def at(self, gamma: float, z: float) -> Ends:
        """Range and ends at one Γ; ends may be beyond [0, 1]."""
        found = []
        for outcome in self.outcomes:
            (high, low), covariance = outcome.with_errors(gamma)
            most = high - low
            variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
            reach = z * np.sqrt(np.clip(variance, 0, None))
            pairs = ~np.eye(len(most), dtype=bool)
            found.append(
                (
                    (-most)[pairs].max(),
                    most[pairs].max(),
                    (-most - reach)[pairs].max(),
                    (most + reach)[pairs].max(),
                )
            )
        least, most, low, high = np.max(found, axis=0)
        return max(0.0, float(least)), float(most), float(low), float(high)


class LeastRatio:
    """The same of the least ratio of two groups' rates."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcomes = [outcome] if len(outcome.known) > 1 else []

    def at(self, gamma: float, z: float) -> Ends:
        (high, low), covariance = self.outcomes[0].with_errors(gamma)
        pairs = ~np.eye(len(high), dtype=bool)
        with np.errstate(divide="ignore", invalid="ignore"):
            downward = np.where(high > 0, low / high, 1.0)
            upward = np.where(low > 0, high / low, np.inf)
        # Of each pair the lower rate at its lowest over the other, and the reverse.
        below, _ = fieller(low, high, covariance[1, 1], covariance[0, 0], covariance[0, 1], z)
        _, above = fieller(high, low, covariance[0, 0], covariance[1, 1], covariance[0, 1], z)
        ends = downward[pairs].min(), upward[pairs].min(), below[pairs].min(), above[pairs].min()
        least, most, lowest, highest = (float(min(1.0, end)) for end in ends)
        return least, most, lowest, highest


def fieller(
    top: np.ndarray,
    bottom: np.ndarray,
    of_top: np.ndarray,
    of_bottom: np.ndarray,
    of_both: np.ndarray,
    z: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of ratios: where top − c bottom is z of its standard errors from 0; [0, ∞) if nowhere."""
    a = bottom**2 - z**2 * of_bottom
    b = top * bottom - z**2 * of_both
    root = np.sqrt(np.clip(b**2 - a * (top**2 - z**2 * of_top), 0, None))
    bounded = a > 0
    below = np.where(bounded, (b - root) / np.where(bounded, a, 1), 0.0)
    above = np.where(bounded, (b + root) / np.where(bounded, a, 1), np.inf)
    return np.maximum(below, 0.0), above


class _Dial:
    """The range and the interval of one measure at any Γ."""

    def __init__(
        self, measuring: LargestDifference | LeastRatio, start: tuple[float, float], confidence: float
    ) -> None:
        self.measuring, self.start = measuring, start
        self.z = float(stats.norm.ppf((1 + confidence) / 2))
        self.known: dict[float, Ends] = {}
        self.first = self.measuring.at(1.0, self.z)

    def at(self, gamma: float) -> Ends:
        """Range and interval at Γ, wide enough for every smaller Γ that was asked for."""
        if gamma not in self.known:
            least, most, low, high = self.measuring.at(gamma, self.z)
            low = np.clip(self.start[0] + low - self.first[2], 0, least)
            high = np.clip(self.start[1] + high - self.first[3], min(most, 1.0), 1)
            self.known[gamma] = (least, min(most, 1.0), float(low), float(high))
        smaller = np.array([ends for other, ends in self.known.items() if other <= gamma])
        mins, maxs = smaller.min(0), smaller.max(0)
        return float(mins[0]), float(maxs[1]), float(mins[2]), float(maxs[3])

    def turned(self, limit: float, ratio: bool) -> tuple[str, float]:
        """What is found at Γ = 1, in words, and the smallest Γ at which it no longer is."""
        low, high = self.at(1.0)[2:]
        below, above = high <= limit, low > limit
        if ratio:
            below, above = high < limit, low >= limit
        if not below and not above:
            return f"undecided: {number(low)} to {number(high)} holds {limit:g}", float("nan")
        words = f"{'at most' if below else 'more than'} {limit:g} apart"
        if ratio:
            words = "four-fifths rule broken" if below else "four-fifths rule kept"

        def holds(gamma: float) -> bool:
            low, high = self.at(gamma)[2:]
            if ratio:
                return high < limit if below else low >= limit
            return high <= limit if below else low > limit

        if holds(np.inf):
            return words, float("inf")
        grid = np.geomspace(1, LARGEST, 40)
        past = next((k for k, gamma in enumerate(grid) if not holds(float(gamma))), None)
        if past is None:
            return words, float("inf")
        return words, _turning(holds, float(grid[past - 1]), float(grid[past]))


def _turning(holds: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _measures(
    audited: Audit, source: AuditSource
) -> dict[str, tuple[LargestDifference | LeastRatio, tuple[float, float]]]:
    """The measures with two groups to compare, and their intervals at Γ = 1."""
    estimates, rows, positive = source.estimates, source.estimates.rows, source.positive
    everyone = np.ones(len(rows), dtype=bool)
    parity, odds = estimates.parity(), estimates.odds()
    of_rates = {
        "parity": [Outcome(estimates, everyone, rows.decided == c, parity, c) for c in range(rows.classes)],
        "odds": [Outcome(estimates, rows.y == c, rows.decided == c, odds, c) for c in range(rows.classes)],
    }
    made: dict[str, LargestDifference | LeastRatio] = {}
    for name, row in AUDITED.items():
        over = of_rates[row.rates] if row.classes == "all" else [of_rates[row.rates][positive]]
        made[name] = LargestDifference(over)
    made["impact_ratio"] = LeastRatio(of_rates["parity"][positive])
    labelled, right = rows.y < rows.classes, rows.y == positive
    for name, chosen in (
        ("predictive_parity", rows.decided == positive),
        ("false_omission", rows.decided != positive),
    ):
        inside = labelled & chosen
        rates = group_ratios(estimates, [Ratio((inside & right).astype(float), inside.astype(float))])
        made[name] = LargestDifference([Outcome(estimates, inside, right, rates, 0)])
    assert audited.figures is not None
    ends = pd.concat([audited.metrics, audited.figures.disparities])[["low", "high"]].astype(float)
    kept = {name: each for name, each in made.items() if each.outcomes and ends.loc[name].notna().all()}
    require(
        bool(kept), "no two groups can be compared, so that there is no disparity whose sensitivity to show."
    )
    return {name: (each, (ends.loc[name, "low"], ends.loc[name, "high"])) for name, each in kept.items()}


def _gamma(gamma: float) -> str:
    return "any" if np.isinf(gamma) else f"{gamma:g}"


def _turn(gamma: float) -> str:
    return "–" if np.isnan(gamma) else "never" if np.isinf(gamma) else f"{gamma:.2f}"
