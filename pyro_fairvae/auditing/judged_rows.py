"""Rows on which the members of a frontier are compared, and intervals of each member's disparity there.

A disparity under imputed groups takes the imputation as certain. Decisions that were adjusted by the same
imputation look fairer under it than they are, so an interval around it is too narrow. The intervals here are
those of an audit: anchored on the rows that state their group, weighted for withholding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from pyro_fairvae.auditing.auditing import disparity
from pyro_fairvae.auditing.conditions import AuditedConditions
from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.auditing.survey_design import SurveyDesign
from pyro_fairvae.data.coded_columns import StatedGroups
from pyro_fairvae.evaluation.measures import AUDITED
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.nn.conditions import LABEL
from pyro_fairvae.schema.observed import Observed

CONFIDENCE = 0.9  # of the intervals of a frontier


@dataclass(frozen=True)
class JudgedRows:
    """Rows scored by models that were not fitted on them, and every member's decisions about them."""

    rows: AuditedRows  # whose decisions are those of the first member
    scores: np.ndarray | None  # P(a|x), (rows, groups)
    decided: np.ndarray  # (members, rows)
    design: np.ndarray | None  # v, (rows, columns), if withholding depends on more than the group
    by_label: bool = False  # whether it depends on the label

    @staticmethod
    def of(
        table: Observed, scores: np.ndarray, decided: np.ndarray, depends_on: Sequence[str] = ()
    ) -> JudgedRows:
        """Rows with what they state; those without a label are left out if withholding depends on it."""
        label = table.y_obs.cpu().numpy()
        group = StatedGroups(table.a_obs.cpu().numpy(), table.group_attributes).codes
        kept = np.flatnonzero((label < table.classes) | (LABEL not in depends_on))
        weight = None if table.weight is None else table.weight.double().cpu().numpy()
        whole = AuditedRows(label, decided[0], group, table.classes, table.groups, SurveyDesign(weight))
        rows = whole.some(kept)
        design = None
        if depends_on:
            coded = replace(table.take(torch.from_numpy(kept)), a_obs=torch.from_numpy(rows.group))
            design = AuditedConditions.of(coded, depends_on).design
        return JudgedRows(rows, scores[kept], decided[:, kept], design)

    @staticmethod
    def of_fit(fitted: Fit, table: Observed) -> JudgedRows:
        """Rows that no member of a fit was trained on; groups are imputed by the first member."""
        groups = torch.cat([heads.group_logits[0].cpu() for heads in fitted.heads(table.x)])
        return JudgedRows.of(
            table,
            groups.double().softmax(-1).numpy(),
            fitted.decide(table.x).numpy(),
            fitted.settings.withholding_depends_on,
        )

    def intervals(self, measure: str, confidence: float = CONFIDENCE) -> np.ndarray:
        """Ends of the interval of each member's disparity, (members, 2); NaN without an interval for it."""
        if measure not in AUDITED or not self.rows.stated.any():
            return np.full((len(self.decided), 2), np.nan)
        # Members of neighbouring targets often decide alike.
        different, member = np.unique(self.decided, axis=0, return_inverse=True)
        ends = [
            disparity(
                replace(self.rows, decided=decided), self.scores, self.design, AUDITED[measure], confidence
            )[1:]
            for decided in different
        ]
        return np.array(ends)[member.ravel()]


def with_intervals(frontier: pd.DataFrame, rows: JudgedRows, measure: str) -> pd.DataFrame:
    """A frontier with the columns ``low`` and ``high``, ends of 90 % intervals of the disparity."""
    low, high = rows.intervals(measure).T
    return frontier.assign(low=low, high=high)
