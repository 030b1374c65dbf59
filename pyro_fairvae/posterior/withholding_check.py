"""What the check of the assumption on withholding found, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

SCORES = "scores"  # the name of the bins of the networks' scores
REJECTED = 0.01  # p-values below it reject the assumption
MOST_SUGGESTED = 6
PROXY = " (proxy)"  # after the name of a proxy


@dataclass(frozen=True)
class CategoryCheck:
    """The share of people who withhold in a category, as recorded and as predicted."""

    name: str
    rows: int
    observed: float
    expected: float
    standard_error: float  # of their difference

    @property
    def distance(self) -> float:
        """Standard errors between what was recorded and what is predicted."""
        return abs(self.observed - self.expected) / max(self.standard_error, 1e-12)


@dataclass(frozen=True)
class ColumnCheck:
    """How well the withholding within the categories of a column is predicted."""

    name: str
    statistic: float
    degrees: int
    p_value: float
    categories: tuple[CategoryCheck, ...]
    in_v: bool = False
    attribute: str = ""  # that is withheld, where there are several

    @property
    def words(self) -> str:
        """Its name, with the attribute where there are several."""
        return f"{self.name} (for {self.attribute})" if self.attribute else self.name

    @property
    def candidate(self) -> bool:
        """Whether the column could be put into ``withholding_depends_on``."""
        return not self.in_v and self.name != SCORES and not self.name.endswith(PROXY)

    @property
    def explained(self) -> float:
        """χ² less its degrees of freedom, which is its mean where the assumption holds."""
        return self.statistic - self.degrees


class CheckSummary(TypedDict):
    """A :class:`WithholdingCheck` with what it says; ``columns`` are its columns as mappings."""

    says: str
    rejected: bool
    p_value: float
    suggestions: list[str]
    columns: list[dict[str, Any]]


@dataclass(frozen=True)
class WithholdingCheck:
    """Whether what was recorded agrees with the assumption on withholding.

    Attributes
    ----------
    p_value : float
        Uniform where the assumption holds; those of the columns combined by Cauchy's rule, which allows for
        their dependence.
    columns : tuple of ColumnCheck
        Those that speak most against the assumption first.
    """

    p_value: float
    columns: tuple[ColumnCheck, ...]

    @staticmethod
    def of(summary: Mapping[str, Any]) -> WithholdingCheck:
        """The check that the summary of a posterior holds, where a number that is not finite is None."""
        columns = [
            ColumnCheck(
                **{key: _number(value) for key, value in column.items() if key != "categories"},
                categories=tuple(
                    CategoryCheck(**{key: _number(value) for key, value in category.items()})
                    for category in column["categories"]
                ),
            )
            for column in summary["columns"]
        ]
        return WithholdingCheck(_number(summary["p_value"]), tuple(columns))

    def summary(self) -> CheckSummary:
        """What it says and all its columns in types that JSON supports; :meth:`of` reads it."""
        return {
            "says": self.in_words(),
            "rejected": self.rejected,
            "p_value": self.p_value,
            "suggestions": self.suggestions(),
            "columns": [asdict(column) for column in self.columns],
        }

    @property
    def rejected(self) -> bool:
        return self.p_value < REJECTED

    def against(self) -> list[ColumnCheck]:
        """The columns that reject the assumption, by Holm's rule, the strongest first."""
        ordered = sorted(self.columns, key=lambda column: column.p_value)
        kept = 0
        while kept < len(ordered) and ordered[kept].p_value * (len(ordered) - kept) < REJECTED:
            kept += 1
        return sorted(ordered[:kept], key=lambda column: column.explained, reverse=True)

    def candidates(self) -> list[ColumnCheck]:
        """The columns that could be put into ``withholding_depends_on``, those that explain most first."""
        columns = [column for column in self.columns if column.candidate]
        return sorted(columns, key=lambda column: column.explained, reverse=True)

    def suggestions(self) -> list[str]:
        """Columns to put into ``withholding_depends_on``, those that explain most first."""
        return list(dict.fromkeys(column.name for column in self.against() if column.candidate))

    def in_words(self) -> str:
        """One line: whether the assumption is rejected, by what, and what to do."""
        if not self.rejected:
            return (
                f"Check of the assumption on withholding: nothing speaks against it (p = {self.p_value:.2g})."
            )
        against = ", ".join(column.words for column in self.against()[:MOST_SUGGESTED])
        words = (
            f"The assumption on withholding is REJECTED (p {_small(self.p_value)}), so the rates below are "
            f"not to be trusted: withholding differs with {against} in ways it does not allow."
        )
        suggested = self.suggestions()[:MOST_SUGGESTED]
        if suggested:
            return f"{words} Put into withholding_depends_on: {','.join(suggested)}."
        return (
            f"{words} No column is left to be put into withholding_depends_on: effects are of another form, "
            "or a proxy tells of withholding itself."
        )


def _number(value: Any) -> Any:
    return float("nan") if value is None else value


def _small(p_value: float) -> str:
    return f"= {p_value:.2g}" if p_value >= 1e-6 else "< 1e-6"
