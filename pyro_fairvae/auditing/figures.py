"""What regulators ask of decisions: impact ratios, predictive parity, calibration and AUC, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from pyro_fairvae.auditing.tables import intervals, number, plain, records, table_of

# fmt: off
MEANS = {
    "impact_ratio": "least selection rate of a group over the largest; below 0.8 breaks the four-fifths rule",
    "predictive_parity": "largest difference between groups of P(Y = y | Ŷ = y, A), y the label that matters",
    "false_omission": "largest difference between groups of P(Y = y | Ŷ ≠ y, A), y the label that matters",
    "mean_odds": "mean over labels y of the largest difference between groups of P(Ŷ = y | Y = y, A)",
    "auc": "largest difference between groups of the area under the ROC curve of the scores",
    "calibration": "largest difference between groups of the mean of label less score",
}
# fmt: on


@dataclass(frozen=True)
class Figures:
    """What regulators ask of decisions, by group and as disparities.

    Attributes
    ----------
    positive : str
        The label that matters: to be decided for it is to be selected.
    by_group : DataFrame
        A line for each ``measure`` of each ``group``: ``estimate`` with ``low`` and ``high``, the same from
        stating rows alone (``stated_…``), and ``stated_rows``, those that count.
    disparities : DataFrame
        The same columns for the least impact ratio and the largest differences, by ``measure``.
    four_fifths : dict
        The group with the least impact ratio and the one it is compared with, whether the estimate breaks
        the four-fifths rule, and the ``probability`` that it is ``broken``, under a flat prior of the rates.
    calibration : DataFrame
        The calibration curve of each group: the mean ``score`` of a fifth of the rows, and the ``share`` of
        rows with the label that matters; empty without scores.
    """

    positive: str
    by_group: pd.DataFrame
    disparities: pd.DataFrame
    four_fifths: dict[str, Any]
    calibration: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """All of it in types that JSON supports."""
        return {
            "positive": self.positive,
            "by_group": records(self.by_group),
            "disparities": records(self.disparities.reset_index()),
            "four_fifths": plain(self.four_fifths),
            "calibration": records(self.calibration),
        }

    @staticmethod
    def of(content: dict[str, Any]) -> Figures:
        """The figures of :meth:`to_dict`."""
        probability = content["four_fifths"]["probability"]
        return Figures(
            content["positive"],
            table_of(content["by_group"]),
            table_of(content["disparities"]).set_index("measure"),
            content["four_fifths"] | {"probability": float("nan") if probability is None else probability},
            table_of(content["calibration"]),
        )

    def four_fifths_in_words(self) -> str:
        """Whether the four-fifths rule is broken, and how sure that is."""
        found = self.four_fifths
        if found["broken"] is None:
            return "The four-fifths rule cannot be judged: no two groups have a selection rate above 0."
        return (
            f"The four-fifths rule is {'broken' if found['broken'] else 'kept'} by the estimate: "
            f"{found['least']} beside {found['largest']}; the probability that it is broken is "
            f"{found['probability']:.3f} (under a flat prior of the rates)."
        )

    def in_text(self, confidence: float) -> str:
        """Tables for people."""
        shown = f"{100 * confidence:g} %"

        def columns(table: pd.DataFrame) -> dict[str, pd.Series]:
            return {
                "estimate": table["estimate"].map(number),
                shown: intervals(table, ""),
                "stated rows alone": table["stated_estimate"].map(number),
                f"{shown} ": intervals(table, "stated_"),
            }

        by_group = {name: self.by_group[name] for name in ("measure", "group")} | columns(self.by_group)
        by_group["stated rows"] = self.by_group["stated_rows"]
        lines = [
            f"To be selected is to be decided {self.positive}. {self.four_fifths_in_words()}",
            "",
            pd.DataFrame(columns(self.disparities)).to_string(),
            "",
            pd.DataFrame(by_group).to_string(index=False),
        ]
        if not self.calibration.empty:
            curve = self.calibration
            shares = {
                "group": curve["group"],
                "scores": [f"{a:.3f} to {b:.3f}" for a, b in zip(curve["start"], curve["end"], strict=True)],
                "mean score": curve["score"].map(number),
                f"share of {self.positive}": curve["share"].map(number),
                shown: intervals(curve, ""),
                "stated rows": curve["stated_rows"],
            }
            lines += ["", pd.DataFrame(shares).to_string(index=False)]
        return "\n".join(lines)
