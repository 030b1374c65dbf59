"""The result of an audit, as tables, text and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.documents import read_document
from pyro_fairvae.posterior.withholding_check import CheckSummary
from pyro_fairvae.schema.documents import AuditDocument, as_plain


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    metrics : DataFrame
        A line for each of DEO, DEOPP and DDP: ``estimate`` with ``low`` and ``high``, the same from stating
        rows alone (``stated_…``), and ``bound_low`` and ``bound_high``, which hold for any reason for
        withholding.
    rates : DataFrame
        A line for each rate of each group, with the same columns except the bounds.
    groups : DataFrame
        A line for each group: how many rows state it, how often these rows withhold it, and how many of
        the rows that withhold belong to it.
    rows : dict of str to int
        The number of ``rows``, and how many of them are ``stated``, ``withheld`` and ``unlabelled``.
    depends_on : str
        What withholding was assumed to depend on.
    confidence : float
        Coverage of the intervals.
    notes : tuple of str
        Warnings and remarks in words.
    check : dict, optional
        The check of the assumption on withholding: what it ``says``, whether it is ``rejected``, its
        ``p_value``, ``suggestions`` for ``withholding_depends_on``, and ``columns``. None if it was not made.

    Examples
    --------
    >>> from pyro_fairvae import audit
    >>> labels, decided = ["no", "yes"] * 40, ["no", "yes", "yes", "yes"] * 20
    >>> result = audit(labels, decided, ["f", "f", "m", "m", None] * 16)
    >>> print(str(result).splitlines()[0])
    80 rows: 64 state their group, 16 do not; 0 without a label.
    >>> result.to_dict()["rows"] == result.rows
    True
    """

    metrics: pd.DataFrame
    rates: pd.DataFrame
    groups: pd.DataFrame
    rows: dict[str, int]
    depends_on: str
    confidence: float
    notes: tuple[str, ...] = field(default=())
    check: CheckSummary | None = None

    def to_dict(self) -> dict[str, Any]:
        """The whole result in types that JSON supports."""
        return {
            "metrics": _records(self.metrics.reset_index()),
            "rates": _records(self.rates),
            "groups": _records(self.groups.reset_index()),
            "rows": self.rows,
            "depends_on": self.depends_on,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "check": _plain(self.check),
        }

    @staticmethod
    def read(path: Path) -> Audit:
        """Read an audit from a file that holds the result of :meth:`to_dict`."""
        content = as_plain(read_document(path, AuditDocument, "an audit, as fairvae audit writes it"))
        return Audit(
            _table(content["metrics"]).set_index("metric"),
            _table(content["rates"]),
            _table(content["groups"]).set_index("group"),
            content["rows"],
            content["depends_on"],
            content["confidence"],
            tuple(content["notes"]),
            content["check"],
        )

    def __str__(self) -> str:
        shown = f"{100 * self.confidence:g} %"
        metrics = pd.DataFrame(
            {
                "estimate": self.metrics["estimate"].map(_number),
                shown: _intervals(self.metrics, ""),
                "stated rows alone": self.metrics["stated_estimate"].map(_number),
                f"{shown} ": _intervals(self.metrics, "stated_"),
                "bounds without assumption": _intervals(self.metrics, "bound_"),
            }
        )
        rates = pd.DataFrame(
            {
                "rate": self.rates["rate"],
                "group": self.rates["group"],
                "estimate": self.rates["estimate"].map(_number),
                shown: _intervals(self.rates, ""),
                "stated rows alone": self.rates["stated_estimate"].map(_number),
                f"{shown} ": _intervals(self.rates, "stated_"),
                "stated rows": self.rates["stated_rows"],
            }
        )
        groups = pd.DataFrame(
            {
                "stated rows": self.groups["stated"],
                "withhold": self.groups["withhold"].map(_number),
                shown: _intervals(self.groups, "withhold_"),
                "of those who withhold": self.groups["withheld"].map(
                    lambda n: "–" if np.isnan(n) else f"{n:.0f}"
                ),
            }
        )
        counts = self.rows
        lines = [
            f"{counts['rows']} rows: {counts['stated']} state their group, {counts['withheld']} do not; "
            f"{counts['unlabelled']} without a label.",
            f"Assumed: whether a group is stated depends on the {self.depends_on} alone.",
            *([] if self.check is None else [f"{'!!! ' * self.check['rejected']}{self.check['says']}"]),
            "",
            metrics.to_string(),
            "",
            groups.to_string(),
            "",
            rates.to_string(index=False),
            *(f"\nnote: {words}" for words in self.notes),
        ]
        return "\n".join(lines)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{key: _plain(value) for key, value in line.items()} for line in table.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value as a plain JSON type; NaN becomes None."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def _table(records: list[dict[str, Any]]) -> pd.DataFrame:
    """The table of :func:`_records`, with NaN where JSON had null."""
    return pd.DataFrame(
        [{key: np.nan if value is None else value for key, value in line.items()} for line in records]
    )


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _intervals(table: pd.DataFrame, prefix: str) -> pd.Series:
    pairs = zip(table[f"{prefix}low"], table[f"{prefix}high"], strict=True)
    return pd.Series([f"[{_number(low)}, {_number(high)}]" for low, high in pairs], index=table.index)
