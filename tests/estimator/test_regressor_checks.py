"""The regressor under scikit-learn's own checks of an estimator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from tests.support.user_tables import SMALLEST, inexact_weights

# Few and long steps: some checks ask for R². Their tables have fewer rows than a user's may.
ESTIMATOR = FairSSVAERegressor(
    lambdas=(0.0,), epochs=12, batch=64, hidden=8, layers=1, intervals="given_h", fewest_stated=2,
    options=SMALLEST | {"lr": 0.1},
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:y has two different numbers")
@parametrize_with_checks([ESTIMATOR], expected_failed_checks=inexact_weights)
def test_scikit_learns_checks(
    estimator: FairSSVAERegressor, check: Callable[[FairSSVAERegressor], None]
) -> None:
    check(estimator)
