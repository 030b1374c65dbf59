"""What withholding depends on besides the group in an audit, and the check of the assumption on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.base.errors import require
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data.table_encoder import TableEncoder, as_frame
from pyro_fairvae.nn.conditions import LABEL, Conditions
from pyro_fairvae.posterior.checking import check_withholding
from pyro_fairvae.posterior.withholding_check import WithholdingCheck
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Columns, Observed

MOST_LOG_ODDS = 20.0
NEGLIGIBLE = 1e-6  # of the largest singular value, below which columns of v depend on each other


@dataclass(frozen=True)
class AuditedConditions:
    """Audited rows as a table, and v, if withholding depends on more than the group.

    ``design`` has the linearly independent combinations of the columns of v, with the variance 1.
    """

    table: Observed
    conditions: Conditions | None
    design: np.ndarray | None

    @staticmethod
    def make(
        rows: AuditedRows, X: Any, kept: np.ndarray, names: Sequence[str], words: Sequence[str]
    ) -> AuditedConditions:
        """Those of some rows; ``names`` are columns of X, or the label, which every row must then have."""
        features = [name for name in names if name != LABEL]
        require(
            not features or X is not None,
            f"withholding_depends_on names {', '.join(features)}, but X is not given; give X with these "
            "columns.",
            "withholding_depends_on",
        )
        encoder, x = None, np.zeros((len(rows), 0), dtype=np.float32)
        if X is not None:
            frame = as_frame(X)[kept]
            encoder = TableEncoder.learn(frame, warn=False)  # columns that say nothing are no news here
            x = encoder.encode(frame)
        table = Observed(
            torch.from_numpy(x),
            torch.from_numpy(rows.y),
            torch.from_numpy(rows.group),
            Columns(0, (), ()) if encoder is None else encoder.columns,
            rows.classes,
            rows.groups,
            class_names=tuple(words),
            weight=None if rows.design.weight is None else torch.from_numpy(rows.design.weight),
        )
        return AuditedConditions.of(
            table, [name for name in names if encoder is None or name not in encoder.left_out]
        )

    @staticmethod
    def of(table: Observed, names: Sequence[str]) -> AuditedConditions:
        """Those of a table, whose rows all have a label if it is among ``names``."""
        if not names or bool((table.a_obs < table.groups).all()):
            return AuditedConditions(table, None, None)
        conditions = Conditions.learn(table, names, 1)
        assert isinstance(table.x, torch.Tensor)
        v = conditions.features(table.x)[0].double().numpy()
        if conditions.classes:
            v = np.c_[v, conditions.labels[0].double().numpy()[table.y_obs]]
        v = v - v.mean(0)
        left, size, _ = np.linalg.svd(v, full_matrices=False)
        return AuditedConditions(table, conditions, left[:, size > NEGLIGIBLE * size[0]] * np.sqrt(len(v)))

    def check(
        self, estimates: ControlVariates, scores: np.ndarray, names: Sequence[str], by_scores: bool
    ) -> WithholdingCheck | None:
        """The check of the assumption on withholding; None where the estimates are not identified.

        It takes rows as independent, and is not made of rows in clusters.
        """
        clustered = estimates.design.cluster is not None
        if clustered or not estimates.told.all() or estimates.rows.stated.all():
            return None
        groups = Attributes.single(tuple(names))
        size = len(names)
        weights = estimates.moments.weights
        withheld, tilt = 1 - 1 / weights, None
        if self.design is not None:
            # Where columns tell who withholds for certain, log-odds grow without end.
            withheld = expit(weights[:size])
            tilt = np.clip(self.design @ weights[size:], -MOST_LOG_ODDS, MOST_LOG_ODDS)[:, None, None]
        withheld = np.clip(withheld, 0, 1 - 1e-9)
        plain = channel("a", groups)
        return check_withholding(
            self.table,
            plain,
            scores,
            [np.array([1 - rate, rate]) for rate in withheld],
            self.conditions,
            tilt,
            by_scores=by_scores,
        )
