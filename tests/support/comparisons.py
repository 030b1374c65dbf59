"""Results of made-up methods, of which it is known which is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.studies.resplits import OVERLAP

METHODS = {
    "fair_ssvae": ("Fair-SS-VAE", False),
    "ss_vae": ("SS-VAE", False),
    "mfd_gty_gta": ("MFD (true y, true a)", True),
    "fairda": ("FairDA", False),
}
WEIGHTS = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0)


def made_up_results(
    gains: Mapping[str, float],
    seeds: int = 5,
    groups: Sequence[str] = ("gender",),
    levels: Sequence[str] = ("sparse",),
    metrics: Sequence[str] = ("deo",),
    noise: float = 0.003,
    labels: Mapping[str, tuple[str, bool]] = METHODS,
    weights: Sequence[float] = WEIGHTS,
) -> pd.DataFrame:
    """Results of methods whose disparity at the same error is less by their gain.

    Seeds move all methods alike, as splits do, and each a little on its own.
    """
    rng = np.random.default_rng(0)
    lines = []
    for group in groups:
        for level in levels:
            for metric in metrics:
                moves = rng.normal(0, 0.003, (seeds, 2))
                for method, gain in gains.items():
                    label, informed = labels[method]
                    for seed in range(seeds):
                        for weight in (0.0,) if method == "ss_vae" else weights:
                            own = rng.normal(0, noise, 2) + moves[seed]
                            error = 0.147 + 0.012 * np.log1p(weight) + 0.3 * own[0]
                            disparity = 0.02 + (0.09 - gain) * np.exp(-weight) - gain * 0.2 + own[1]
                            lines.append(
                                {
                                    "dataset": "adult", "group": group, "level": level, "metric": metric,
                                    "trunk": "default", "method": method,
                                    "label": label, "informed": informed,
                                    "paper": method in METHODS, "seed": seed, "weight": weight,
                                    "selected": weight == (0.0 if method == "ss_vae" else 0.8),
                                    "val_error": error + 0.001, "val_disparity": abs(disparity + 0.004),
                                    "error": error, "disparity": abs(disparity), "floor": 0.024,
                                    "positive_rate": 0.2, "constant_error": 0.247, "seconds": 10.0,
                                }
                            )  # fmt: skip
    return pd.DataFrame(lines)


def corrected_p(ours: Sequence[float], theirs: Sequence[float], overlap: float = OVERLAP) -> float:
    """SciPy's paired t-test, its statistic shrunk as the variance is corrected."""
    pairs = len(ours)
    t = stats.ttest_rel(ours, theirs).statistic / np.sqrt(1 + pairs * overlap)
    return float(2 * stats.t.sf(abs(t), pairs - 1))
