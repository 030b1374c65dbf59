"""The classifier under scikit-learn's own checks of an estimator."""

from __future__ import annotations

from collections.abc import Callable

from sklearn.utils.estimator_checks import parametrize_with_checks

from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from tests.support.user_tables import SMALLEST, inexact_weights, tiny

# Few and long steps: some checks ask for an accuracy.
ESTIMATOR = tiny(lambdas=(0.0,), epochs=3, batch=64, options=SMALLEST | {"lr": 0.1})


@parametrize_with_checks([ESTIMATOR], expected_failed_checks=inexact_weights)
def test_scikit_learns_checks(
    estimator: FairSSVAEClassifier, check: Callable[[FairSSVAEClassifier], None]
) -> None:
    check(estimator)
