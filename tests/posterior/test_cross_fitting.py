"""Scores of a row come from networks that have not seen it."""

from __future__ import annotations

from dataclasses import replace

import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.cross_fitting import _folds, cross_fit
from pyro_fairvae.schema.observed import Observed

SETTINGS = build(Settings, {"hidden": 8, "layers": 1, "pieces": 0, "batch": 64})


def table(seed: int = 0) -> Observed:
    return split(synthetic(rows=400, seed=seed), Missingness(), seed=seed).train


def fitted(train: Observed, seeds: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    channels = channel("a", train.group_attributes), channel("y", train.label_attributes)
    found = cross_fit(train, channels, SETTINGS, seeds, epochs=2)
    return found.groups, found.labels


def test_what_a_fold_says_does_not_reach_its_own_scores() -> None:
    train = table()
    inside = _folds(train.rows, 4, 0) == 2
    changed = replace(
        train,
        a_obs=torch.where(inside, 0, train.a_obs),
        y_obs=torch.where(inside, 1, train.y_obs),
    )
    for before, after in zip(fitted(train, [0]), fitted(changed, [0]), strict=True):
        assert torch.equal(before[:, inside], after[:, inside])
        assert not torch.equal(before[:, ~inside], after[:, ~inside])
        torch.testing.assert_close(before.sum(-1), torch.ones(1, train.rows))


def test_folds_are_even() -> None:
    assert torch.bincount(_folds(403, 4, 1)).tolist() == [101, 101, 101, 100]


def test_tables_together_are_scored_like_tables_alone() -> None:
    """The first of two tables, up to the order of rows, which the first seed draws for both."""
    first, second = table(0), table(1)
    together = fitted(Observed.stack([first, second]), [0, 1])
    alone = fitted(first, [0])
    assert together[0].shape == (2, first.rows, 2)
    assert (together[0][:1] - alone[0]).abs().mean() < 0.1
