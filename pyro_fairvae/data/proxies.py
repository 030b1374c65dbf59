"""Proxies u of the group: columns that tell of it but must not decide, and given probabilities of the groups.

Probabilities, as surname geocoding produces, become columns of logarithms. They are compared with what is
stated; since training recalibrates them, a difference is a warning and not an error.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import TOLERANCE, by_group, first_row
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import Attributes

LEAST = 1e-4  # probabilities are clipped here before their logarithm is taken
KNOWN = "proxy_proba is known"  # the column that marks rows without probabilities
BINS = 10
MOST_DIFFERENT, LEAST_P = 0.05, 0.01  # mean difference and p-value beyond which a warning is given


def check_probabilities(proxy_proba: Any, rows: int, attributes: Attributes) -> np.ndarray:
    """Probabilities (rows, groups) that are valid; all NaN in rows where they are unknown."""
    given = by_group(proxy_proba, rows, attributes, "proxy_proba")
    index = proxy_proba.index if isinstance(proxy_proba, pd.DataFrame) else range(rows)
    gaps, sums = np.isnan(given), given.sum(1)
    require(not gaps.all(), "proxy_proba is missing in all rows; leave it out, or give probabilities.")
    wrong = gaps.any(1) & ~gaps.all(1)
    require(
        not wrong.any(),
        f"proxy_proba has a gap in {first_row(wrong, index)}; give the probabilities of all groups, or of "
        "none.",
    )
    wrong = np.abs(sums - 1) > TOLERANCE
    require(
        not wrong.any(),
        f"proxy_proba sums to {sums[wrong.argmax()]:.6g} in {first_row(wrong, index)}; expected 1 over the "
        f"groups {', '.join(attributes.group_names)}.",
    )
    return np.clip(given, 0, 1)


def proxy_table(
    columns: pd.DataFrame, probabilities: np.ndarray | None, attributes: Attributes
) -> pd.DataFrame | None:
    """Proxies as a table to encode: ``columns``, and log P of each group; None if there are neither.

    Rows without probabilities have their mean, and a column marks them.
    """
    if probabilities is None:
        return columns if columns.shape[1] else None
    known = ~np.isnan(probabilities).any(1)
    filled = np.where(known[:, None], probabilities, probabilities[known].mean(0))
    names = [f"log P({name})" for name in attributes.group_names]
    logs = pd.DataFrame(np.log(filled.clip(LEAST, 1)), columns=names)
    if not known.all():
        logs[KNOWN] = np.where(known, "yes", "no")
    return pd.concat([columns.reset_index(drop=True), logs], axis=1)


@dataclass(frozen=True)
class Calibration:
    """How far the probability of a group is from how often the group is stated.

    ``difference`` is the expected calibration error over :data:`BINS` bins, ``p_value`` that of the
    Hosmer–Lemeshow statistic.
    """

    group: str
    difference: float
    p_value: float


def calibration(probabilities: np.ndarray, codes: Integers, groups: tuple[str, ...]) -> list[Calibration]:
    """Compare probabilities with the groups of rows that state theirs; other rows have the last code.

    Some groups state theirs more often than others, so the probability among rows that state it is
    p_a s_a / Σ_b p_b s_b, with factors s of maximum likelihood. The expected count of each group is then
    equal to the observed one, and the statistic of B bins has B − 1 degrees of freedom.
    """
    used = (codes < len(groups)) & ~np.isnan(probabilities).any(1)
    codes = codes[used]
    if not len(codes):
        return []
    adjusted = _among_stated(probabilities[used], codes)
    results = []
    for a, group in enumerate(groups):
        p, stated = adjusted[:, a], codes == a
        edges = np.unique(np.quantile(p, np.arange(1, BINS) / BINS))
        bins = np.searchsorted(edges, p, side="right")
        surplus = np.bincount(bins, stated - p)
        variance = np.bincount(bins, p * (1 - p))
        # At least 1, since a count of which less is expected is far from normal.
        statistic = float((surplus**2 / variance.clip(1)).sum())
        p_value = float(chi2.sf(statistic, len(edges))) if len(edges) else 1.0
        results.append(Calibration(group, float(abs(surplus).sum() / len(codes)), p_value))
    return results


def _among_stated(probabilities: np.ndarray, codes: Integers) -> np.ndarray:
    """p_a s_a / Σ_b p_b s_b, (rows, groups), with factors s of maximum likelihood: convex in log s."""
    shares = np.bincount(codes, minlength=probabilities.shape[1]) / len(codes)
    occurs = shares > 0  # s of the others is 0
    logs = np.log(probabilities[:, occurs].clip(LEAST, 1))

    def loss(log_s: np.ndarray) -> tuple[float, np.ndarray]:
        value = logsumexp(logs + log_s, axis=1).mean() - shares[occurs] @ log_s
        return float(value), softmax(logs + log_s, axis=1).mean(0) - shares[occurs]

    log_s = minimize(loss, np.zeros(occurs.sum()), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    adjusted = np.zeros_like(probabilities)
    adjusted[:, occurs] = softmax(logs + log_s, axis=1)
    return adjusted


def warn_if_miscalibrated(probabilities: np.ndarray, codes: Integers, groups: tuple[str, ...]) -> None:
    """Warn of groups whose probabilities differ from what is stated by much more than chance."""
    wrong = [
        one
        for one in calibration(probabilities, codes, groups)
        if one.difference > MOST_DIFFERENT and one.p_value < LEAST_P / len(groups)
    ]
    if wrong:
        listed = ", ".join(f"{one.group}: by {one.difference:.2f}" for one in wrong)
        warnings.warn(
            "proxy_proba is not calibrated: among rows that state their group, the given probabilities "
            f"differ from what is stated by more than chance ({listed} on average), even if groups state "
            "theirs at different rates. Training recalibrates them, but check that they are of these groups "
            "and people, or name in withholding_depends_on what else makes people withhold.",
            stacklevel=6,
        )
