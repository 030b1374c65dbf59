"""Tables as people have them, with gaps, and a classifier that is fitted in a moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyro_fairvae.data import synthetic
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from tests.support.small import FEW_STEPS

SMALL = {"latent": 2, "decoder_hidden": 8, "pieces": 3, "lr": 0.01}
SMALLEST = SMALL | FEW_STEPS
RATES = {"f": 0.6, "m": 0.2}  # of withholding the group
LABEL_RATE = 0.2


class Made(NamedTuple):
    """A table whose truth is known: ``y`` and ``a`` are it, ``y_obs`` and ``a_obs`` what is written down."""

    X: pd.DataFrame
    y: np.ndarray
    a: np.ndarray
    y_obs: pd.Series
    a_obs: pd.Series


def made_table(rows: int, seed: int = 0) -> Made:
    table = synthetic(rows=rows, seed=seed)
    draw = np.random.default_rng([seed, 1])
    a, y = np.array(["f", "m"])[table.a], np.array(["no", "yes"])[table.y]
    withheld = draw.random(rows) < np.vectorize(RATES.__getitem__)(a)
    unlabelled = draw.random(rows) < LABEL_RATE
    return Made(
        pd.concat([table.numbers, table.categories], axis=1),
        y,
        a,
        pd.Series(y, name="hired").mask(unlabelled),
        pd.Series(a, name="sex").mask(withheld),
    )


def tiny(**changes: Any) -> FairSSVAEClassifier:
    """A classifier for a fit that takes a moment."""
    chosen = {"lambdas": (0.0, 1.0), "epochs": 2, "hidden": 8, "layers": 1, "intervals": "given_h",
              "options": SMALLEST}  # fmt: skip
    return FairSSVAEClassifier(**chosen | changes)


def inexact_weights(_: Any) -> dict[str, str]:
    """The check of scikit-learn's that a fit cannot pass, and why; the objective and audits do, exactly."""
    reason = "folds, held-out rows, batches and noise are drawn by row, so that copies of a row differ"
    return {"check_sample_weight_equivalence_on_dense_data": reason}
