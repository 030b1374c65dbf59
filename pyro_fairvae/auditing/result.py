"""The result of an audit, as tables, text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.auditing.figures import Figures
from pyro_fairvae.auditing.local_law import LocalLaw144, local_law_144
from pyro_fairvae.auditing.sensitivity import GAMMAS, TOLERANCE, Sensitivity, sensitivity
from pyro_fairvae.auditing.source import AuditSource
from pyro_fairvae.auditing.survey_design import design_in_words
from pyro_fairvae.auditing.tables import intervals, number, plain, records, table_of
from pyro_fairvae.base.documents import read_document
from pyro_fairvae.data.frames import of_kind
from pyro_fairvae.posterior.withholding_check import CheckSummary
from pyro_fairvae.schema.documents import AuditDocument, MembersDocument, as_plain


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
    figures : Figures
        Impact ratios, predictive parity, and, from scores, AUC and calibration: see :class:`Figures`.
    design : dict, optional
        Where rows have weights or clusters: as how many ``effective_rows`` of equal weight they count, and
        the number of ``clusters``, None without them.
    intersections : DataFrame
        Where several sensitive columns make groups, some of them small: for each rate of each group the
        ``raw`` estimate, ``estimate`` with ``low`` and ``high``, shrunk towards what the columns say one by
        one, and which share of it is the group's ``own``. Else empty.
    local_law, by_gamma : optional
        What :meth:`local_law_144` and :meth:`sensitivity` gave, where it was put here to be kept with the
        rest.
    members : MembersDocument, optional
        The decisions of all members of a frontier about the same rows: see :mod:`.members`.
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
    figures: Figures | None = None
    local_law: LocalLaw144 | None = None
    by_gamma: Sensitivity | None = None
    design: dict[str, Any] | None = None
    intersections: pd.DataFrame = field(default_factory=pd.DataFrame)
    members: MembersDocument | None = None
    source: AuditSource | None = field(default=None, repr=False, compare=False)

    def local_law_144(self, by: str = "decisions", exclude_below: float = 0.0) -> LocalLaw144:
        """Selection rates and impact ratios as New York's Local Law 144 asks for them.

        Parameters
        ----------
        by
            ``"decisions"``: rates of those selected; ``"scores"``: of those who score above the median of
            all, for a tool that gives scores, which the audit must have been given.
        exclude_below
            Categories with a smaller share of the rows whose category is known are not compared, as the rules
            allow below 0.02; the auditor has to say why.

        Returns
        -------
        LocalLaw144
            A table for each sensitive column, and for all together, with those unknown counted.

        Examples
        --------
        >>> import numpy as np
        >>> from pyro_fairvae import audit
        >>> sex, hired = np.array(["f", "f", "m", "m", None] * 40), np.arange(200) % 3 == 0
        >>> law = audit(hired, hired, sex).local_law_144()
        >>> law.tables["group"].lines["selected"].tolist(), law.tables["group"].unknown
        ([27, 27], 40)
        """
        return local_law_144(self, by, exclude_below)

    def sensitivity(self, gammas: Sequence[float] = GAMMAS, tolerance: float = TOLERANCE) -> Sensitivity:
        r"""How far withholding may depart from what is modelled before a finding turns.

        Parameters
        ----------
        gammas
            Odds ratios Γ ≥ 1 at which intervals are given: the odds of withholding may be up to Γ times as
            high or as low as modelled, for each decision and label of a group apart, if the withheld rows
            add up to those that are there.
        tolerance
            The largest difference between groups that counts as fair.

        Returns
        -------
        Sensitivity
            Each disparity's interval at every Γ, from the audit's at Γ = 1 to the worst case, with sampling
            error, and the smallest Γ that overturns what is found.

        Notes
        -----
        This is the marginal sensitivity model of Tan (2006), :math:`1/Γ \le o(a, y, \hat y) / \hat o(a,
        \dots) \le Γ` of odds o. Within a group odds may thus differ by up to Γ² between two decisions.

        Examples
        --------
        >>> import numpy as np
        >>> from pyro_fairvae import audit
        >>> draw = np.random.default_rng(0)
        >>> sex, y = draw.choice(["f", "m"], 800), draw.integers(2, size=800)
        >>> decided = np.where((sex == "f") & (draw.random(800) < 0.5), 0, y)
        >>> said = np.where(draw.random(800) < 0.4, None, sex)
        >>> found = audit(y, decided, said).sensitivity()
        >>> found.findings.set_index("measure").loc["ddp", "finding"]
        'more than 0.05 apart'
        """
        return sensitivity(self, gammas, tolerance)

    def tables(self, kind: str | None = None) -> dict[str, Any]:
        """All tables by name, as frames of a library.

        Parameters
        ----------
        kind : str, optional
            The name of the library in narwhals: ``"pandas"``, ``"polars"``, ``"pyarrow"`` and others. By
            default that of the rows that were audited.

        Returns
        -------
        dict of str to frame
            ``metrics``, ``rates``, ``groups`` and, of :class:`Figures`, ``by_group``, ``disparities`` and
            ``calibration``, without an index: what it has is the first column.
        """
        kind = kind if kind is not None else None if self.source is None else self.source.call.kind
        found = {
            "metrics": self.metrics.reset_index(),
            "rates": self.rates,
            "groups": self.groups.reset_index(),
        }
        if self.figures is not None:
            found |= {"by_group": self.figures.by_group, "calibration": self.figures.calibration}
            found["disparities"] = self.figures.disparities.reset_index()
        return {name: of_kind(table, kind) for name, table in found.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}  # rows stay where they are

    def to_dict(self) -> dict[str, Any]:
        """The whole result in types that JSON supports."""
        return {
            "metrics": records(self.metrics.reset_index()),
            "rates": records(self.rates),
            "groups": records(self.groups.reset_index()),
            "rows": self.rows,
            "depends_on": self.depends_on,
            "confidence": self.confidence,
            "notes": list(self.notes),
            "check": plain(self.check),
            "figures": None if self.figures is None else self.figures.to_dict(),
            "local_law": None if self.local_law is None else self.local_law.to_dict(),
            "sensitivity": None if self.by_gamma is None else self.by_gamma.to_dict(),
            "design": plain(self.design),
            "intersections": records(self.intersections),
            "members": None if self.members is None else as_plain(self.members),
        }

    @staticmethod
    def read(path: Path) -> Audit:
        """Read an audit from a file that holds the result of :meth:`to_dict`."""
        document = read_document(path, AuditDocument, "an audit, as fairvae audit writes it")
        content = as_plain(document)
        return Audit(
            table_of(content["metrics"]).set_index("metric"),
            table_of(content["rates"]),
            table_of(content["groups"]).set_index("group"),
            content["rows"],
            content["depends_on"],
            content["confidence"],
            tuple(content["notes"]),
            content["check"],
            None if content["figures"] is None else Figures.of(content["figures"]),
            None if content["local_law"] is None else LocalLaw144.of(content["local_law"]),
            None if content["sensitivity"] is None else Sensitivity.of(content["sensitivity"]),
            content["design"],
            table_of(content["intersections"]),
            document.members,
        )

    def _intersections_in_text(self) -> str:
        lines = self.intersections
        table = pd.DataFrame(
            {
                "rate": lines["rate"],
                "group": lines["group"],
                "alone": lines["raw"].map(number),
                "shrunk": lines["estimate"].map(number),
                f"{100 * self.confidence:g} %": intervals(lines, ""),
                "of its own": lines["own"].map(lambda share: "–" if np.isnan(share) else f"{share:.0%}"),
                "stated rows": lines["stated_rows"],
            }
        )
        return (
            "Small intersections: estimates shrunk towards what each column says by itself\n"
            f"{table.to_string(index=False)}"
        )

    def __str__(self) -> str:
        shown = f"{100 * self.confidence:g} %"
        metrics = pd.DataFrame(
            {
                "estimate": self.metrics["estimate"].map(number),
                shown: intervals(self.metrics, ""),
                "stated rows alone": self.metrics["stated_estimate"].map(number),
                f"{shown} ": intervals(self.metrics, "stated_"),
                "bounds without assumption": intervals(self.metrics, "bound_"),
            }
        )
        rates = pd.DataFrame(
            {
                "rate": self.rates["rate"],
                "group": self.rates["group"],
                "estimate": self.rates["estimate"].map(number),
                shown: intervals(self.rates, ""),
                "stated rows alone": self.rates["stated_estimate"].map(number),
                f"{shown} ": intervals(self.rates, "stated_"),
                "stated rows": self.rates["stated_rows"],
            }
        )
        groups = pd.DataFrame(
            {
                "stated rows": self.groups["stated"],
                "withhold": self.groups["withhold"].map(number),
                shown: intervals(self.groups, "withhold_"),
                "of those who withhold": self.groups["withheld"].map(
                    lambda n: "–" if np.isnan(n) else f"{n:.0f}"
                ),
            }
        )
        counts = self.rows
        lines = [
            f"{counts['rows']} rows: {counts['stated']} state their group, {counts['withheld']} do not; "
            f"{counts['unlabelled']} without a label.",
            *([] if self.design is None else [design_in_words(self.design, counts["rows"])]),
            f"Assumed: whether a group is stated depends on the {self.depends_on} alone.",
            *([] if self.check is None else [f"{'!!! ' * self.check['rejected']}{self.check['says']}"]),
            "",
            metrics.to_string(),
            "",
            groups.to_string(),
            "",
            rates.to_string(index=False),
            *([] if self.intersections.empty else ["", self._intersections_in_text()]),
            *([] if self.figures is None else ["", self.figures.in_text(self.confidence)]),
            *([] if self.local_law is None else ["", str(self.local_law)]),
            *([] if self.by_gamma is None else ["", str(self.by_gamma)]),
            *(f"\nnote: {words}" for words in self.notes),
        ]
        return "\n".join(lines)
