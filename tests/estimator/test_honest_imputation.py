"""What imputes for the risk knows of no fairness, and of no row that it imputes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.posterior.channel_draws import guide_draws
from pyro_fairvae.schema.observed import Imputation

LAMBDAS = (0.0, 1.0, 20.0)
LABEL_RATES = (0.1, 0.5)
SMALL = {
    "imputation": "cross_fitted",
    "hidden": 16,
    "layers": 1,
    "pieces": 0,
    "epochs": 5,
    "batch": 128,
    "lr": 0.01,
    "decision_steps": 10,
}


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=2000, seed=3), Missingness(label_unavailable=LABEL_RATES), seed=3)


def settings(**more: object) -> Settings:
    return build(Settings, SMALL | more)


@pytest.fixture(scope="module")
def imputer(parts: Splits) -> TreeImputer:
    found = TreeImputer.learn(parts.train, folds_of(parts.train, 0), settings(), seed=0)
    assert found is not None
    return found


def label_rates(parts: Splits, imputation: Imputation | None) -> np.ndarray:
    """P(∅|y) of each member, (members, classes)."""
    fitted = fit(parts.train, parts.validation, LAMBDAS, settings(), imputation=imputation)
    draws = guide_draws(fitted, fitted.program.guide.channel_y)
    return np.stack([draws.of(y, "unavailable").mean((0, 1)) for y in range(2)], axis=1)


def test_rates_of_labels_do_not_move_with_lambda(parts: Splits, imputer: TreeImputer) -> None:
    """P(ỹ|y) is learned through P(y|x) that no fairness changed; by the members' own it moves."""
    honest, own = (label_rates(parts, imputation) for imputation in (imputer.learned, None))
    assert np.ptp(honest, axis=0).max() < 0.01
    assert np.ptp(own, axis=0).max() > 3 * np.ptp(honest, axis=0).max()
    assert np.abs(honest - LABEL_RATES).max() < 0.1  # at which labels were hidden


def test_members_of_all_lambdas_take_the_same_imputations(parts: Splits, imputer: TreeImputer) -> None:
    """The imputed share of labels is that of trees, whatever a member decides; and near the truth."""
    share = imputer.learned.joint.sum(-1).mean(0)
    torch.testing.assert_close(imputer.learned.joint.sum((1, 2)), torch.ones(parts.train.rows).double())
    truth = np.bincount(parts.test.y, minlength=2) / parts.test.rows
    assert np.abs(share.numpy() - truth).max() < 0.05


def test_stated_values_are_certain(parts: Splits, imputer: TreeImputer) -> None:
    train, joint = parts.train, imputer.learned.joint
    rows = torch.nonzero((train.y_obs < 2) & (train.a_obs < 2)).squeeze(-1)
    torch.testing.assert_close(
        joint[rows, train.y_obs[rows], train.a_obs[rows]], torch.ones(len(rows)).double()
    )


def test_a_row_is_imputed_without_what_it_states(parts: Splits) -> None:
    """Rows of a fold exchange their labels, and P(y|x) of these rows hardly changes: others teach it."""
    train, fold = parts.train, folds_of(parts.train, 0)
    inside = np.flatnonzero(fold == 0)
    y_obs = train.y_obs.clone()
    y_obs[inside] = train.y_obs[np.random.default_rng(0).permutation(inside)]
    found = [TreeImputer.learn(one, fold, settings(), seed=0) for one in (train, replace(train, y_obs=y_obs))]
    before, after = (one.learned.label[inside] for one in found if one is not None)
    # Another number of trees and another recalibration, but the same order of rows.
    assert float(torch.corrcoef(torch.stack([before[:, 1], after[:, 1]]))[0, 1]) > 0.97


@pytest.mark.parametrize(
    "changes",
    [
        {"imputation": "own"},
        {"imputation": "auto"},  # where no trees are grown anyway
        {"imputer": "features"},
        {"prior_a": "paper"},  # people may misstate
    ],
)
def test_trees_do_not_impute_where_they_cannot(parts: Splits, changes: dict[str, object]) -> None:
    assert TreeImputer.learn(parts.train, folds_of(parts.train, 0), settings(**changes), seed=0) is None


def test_an_imputation_of_other_rows_is_refused(parts: Splits, imputer: TreeImputer) -> None:
    some = Imputation(imputer.learned.joint[:10], imputer.learned.label[:10])
    with pytest.raises(InputError, match="imputation must be of the"):
        fit(parts.train, parts.validation, LAMBDAS, settings(), imputation=some)


def test_the_risk_takes_what_is_given(parts: Splits, imputer: TreeImputer) -> None:
    """Groups exchanged at random leave nothing to make equal: the gap that training sees is near 0."""
    order = torch.randperm(parts.train.rows, generator=torch.Generator().manual_seed(0))
    label = imputer.learned.joint.sum(-1, keepdim=True)
    groups = imputer.learned.joint.sum(1, keepdim=True)[order]
    mixed = Imputation(label * groups, imputer.learned.label)
    tables: list[Imputation] = [imputer.learned, mixed]
    few = settings(channel_steps=2)
    gaps = [
        fit(parts.train, parts.validation, (0.0,), few, imputation=one).history[-1]["gap"] for one in tables
    ]
    assert gaps[1] < 0.3 * gaps[0]
