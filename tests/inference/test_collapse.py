"""A large λ must cost some error, not the classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit

SMALL = {"hidden": 32, "latent": 4, "decoder_hidden": 16, "batch": 256, "samples": 20, "epochs": 12,
         "channel_steps": 50}  # fmt: skip
# As the paper has it: λ times the mean of N draws, of the batch alone and from the start.
PLAIN = {"risk_estimator": "sampled", "decision_weight": 0.0, "risk_from": 0.0, "risk_full": 0.0}


@pytest.mark.parametrize(("options", "collapses"), [({}, False), (PLAIN, True)], ids=["default", "plain"])
def test_the_classifier_survives_a_large_weight(options: dict[str, object], collapses: bool) -> None:
    """A rare class and a rare group; only the plain estimator ends at the constant classifier."""
    table = synthetic(
        rows=5000, seed=7, group_prevalence=(0.3, 0.7), class_prevalence=(0.85, 0.15), dependence=0.15
    )
    parts = split(table, Missingness((0.8, 0.4)), seed=0)
    fitted = fit(parts.train, parts.validation, (0.0, 10.0), build(Settings, SMALL | options))
    unfair, fair = (
        evaluate(parts.test.y, decided, parts.test.a, 2)
        for decided in fitted.decide(torch.from_numpy(parts.test.x)).numpy()
    )
    assert unfair["positive_rate"] > 0.15
    assert (fair["positive_rate"] < 0.02) == collapses
    if not collapses:
        assert fair["positive_rate"] > 0.1
        assert fair["error"] < unfair["error"] + 0.03


def test_three_classes_are_still_told_apart_at_a_large_weight() -> None:
    """Three classes, three groups, 2,100 rows, demographic parity: nobody's class is left out."""
    table = synthetic(rows=3000, seed=3, groups=3, classes=3, group_strength=3.0)
    parts = split(table, Missingness((0.6, 0.4, 0.3), (0.0,) * 3, (0.2,) * 3), seed=0)
    settings = build(
        Settings, SMALL | {"risk": "ddp", "epochs": 25, "batch": 128, "imputation": "cross_fitted"}
    )
    # By its own imputations the member believes that its one class is right more often than it is.
    imputer = TreeImputer.learn(parts.train, folds_of(parts.train, 0), settings, seed=0)
    assert imputer is not None
    fitted = fit(parts.train, parts.validation, (0.0, 6.4), settings, imputation=imputer.learned)
    decided = fitted.decide(torch.from_numpy(parts.test.x)).numpy()
    unfair, fair = (evaluate(parts.test.y, one, parts.test.a, 3) for one in decided)
    assert (np.bincount(decided[1], minlength=3) > 0.1 * parts.test.rows).all()
    constant = 1 - np.bincount(parts.test.y).max() / parts.test.rows
    assert fair["error"] < constant - 0.15
    assert fair["ddp"] < unfair["ddp"] / 3
