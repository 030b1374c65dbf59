r"""Tests and intervals over repeated splits of one data set.

Splits of the same rows are not independent: their training parts share rows, and so do their test parts, so
that the mean over J splits varies more than s²/J. Nadeau and Bengio (2003) correct the variance of a mean of
differences d to

.. math:: \widehat{\mathrm{Var}}(\bar d) = \left( \frac1J + \rho \right) s^2, \qquad
          \rho = n_\mathrm{test} / n_\mathrm{train},

with the t distribution of J − 1 degrees of freedom. It does not fall below ρ s², however many splits exist:
a data set tells only so much. ρ = 0 is the usual test, which rejects too often (``benchmarks/resplits.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from pyro_fairvae.base.errors import require

OVERLAP = 0.2 / 0.7  # ρ of the library's splits
LEVEL_OF_TESTS = 0.05
POWER = 0.8
MOST_PAIRS = 1000
BETTER, WORSE, ALIKE = "ours better", "ours worse", "not significant"


def half_width(values: ArrayLike, overlap: float = OVERLAP) -> float:
    """Half of the corrected 95 % t-interval of the mean over splits; NaN for fewer than two values."""
    v = np.asarray(values, dtype=float)
    v = v[~np.isnan(v)]
    if len(v) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(v) - 1) * v.std(ddof=1) * np.sqrt(1 / len(v) + overlap))


class Paired(NamedTuple):
    """Mean difference of two methods over the seeds that both have, and the p-value of its test.

    ``deviation`` is the standard deviation of the differences, ``half_width`` that of the mean's interval.
    """

    difference: float
    p: float
    pairs: int
    deviation: float = float("nan")
    half_width: float = float("nan")

    def verdict(self, p: float, less_is_better: bool = False) -> str:
        """The result in words at the 5 % level; ``p`` may be a corrected p-value."""
        if not p < LEVEL_OF_TESTS:
            return ALIKE
        return BETTER if (self.difference < 0) == less_is_better else WORSE


def paired_test(ours: pd.Series, theirs: pd.Series, overlap: float = OVERLAP) -> Paired:
    """Corrected t-test of ours − theirs, by seed in the index.

    The p-value is NaN for fewer than two pairs.
    """
    differences = (ours - theirs).dropna().to_numpy(dtype=float)
    pairs = len(differences)
    if pairs < 2:
        return Paired(float(differences.mean()) if pairs else float("nan"), float("nan"), pairs)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if np.ptp(differences) < 1e-12:  # limit of the test
        return Paired(mean, 1.0 if abs(mean) < 1e-12 else 0.0, pairs, 0.0, 0.0)
    t = mean / (deviation * np.sqrt(1 / pairs + overlap))
    p = float(2 * stats.t.sf(abs(t), pairs - 1))
    return Paired(mean, p, pairs, deviation, half_width(differences, overlap))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's correction of p-values (n,) for multiple tests: p₍ᵢ₎ ↦ maxⱼ≤ᵢ min(1, (n − j + 1) p₍ⱼ₎).

    A NaN stands for no test and stays NaN.
    """
    p = np.asarray(p_values, dtype=float)
    corrected = np.full(p.shape, np.nan)
    order = np.argsort(p)[: int((~np.isnan(p)).sum())]
    corrected[order] = np.maximum.accumulate(np.minimum(1, p[order] * np.arange(len(order), 0, -1)))
    return corrected


def power(
    difference: float,
    deviation: float,
    pairs: int,
    overlap: float = OVERLAP,
    level: float = LEVEL_OF_TESTS,
) -> float:
    """The chance that the test finds a difference, if differences of splits deviate by ``deviation``.

    The corrected variance is taken as the true one, so t has a noncentral t distribution.
    """
    require(pairs >= 2, f"a test needs at least 2 pairs, got {pairs}.")
    shift = abs(difference) / (deviation * np.sqrt(1 / pairs + overlap))
    beyond = stats.t.isf(level / 2, pairs - 1)
    found = stats.nct.sf(beyond, pairs - 1, shift) + stats.nct.cdf(-beyond, pairs - 1, shift)
    return float(np.nan_to_num(found, nan=1.0))  # far out SciPy gives up


def pairs_needed(
    difference: float,
    deviation: float,
    overlap: float = OVERLAP,
    level: float = LEVEL_OF_TESTS,
    wanted: float = POWER,
) -> int | None:
    """The fewest splits at which the power is as wanted; None where no number of splits reaches it.

    With ever more splits the variance tends to ρ s², which may be too much.
    """
    if not deviation > 0:
        return 2
    if power(difference, deviation, MOST_PAIRS, overlap, level) < wanted:
        return None
    low, high = 2, MOST_PAIRS
    while low < high:
        middle = (low + high) // 2
        enough = power(difference, deviation, middle, overlap, level) >= wanted
        low, high = (low, middle) if enough else (middle + 1, high)
    return low
