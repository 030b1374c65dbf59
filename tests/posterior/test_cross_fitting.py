"""Scores of a row come from networks that have not seen it."""

from __future__ import annotations

from dataclasses import replace

import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data import Missingness, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.cross_fitting import _folds, cross_fit
from pyro_fairvae.schema.observed import Columns, Observed

SETTINGS = build(Settings, {"hidden": 8, "layers": 1, "pieces": 0, "batch": 64})


def table(seed: int = 0) -> Observed:
    return split(synthetic(rows=400, seed=seed), Missingness(), seed=seed).train


def fitted(
    train: Observed, seeds: list[int], settings: Settings = SETTINGS, epochs: int = 2
) -> tuple[torch.Tensor, torch.Tensor]:
    channels = channel("a", train.group_attributes), channel("y", train.label_attributes)
    found = cross_fit(train, channels, settings, seeds, epochs=epochs)
    return found.groups, found.labels


def test_scores_do_not_know_what_their_rows_say() -> None:
    """Features are noise: what a row says can be learned from the row alone, or from a twin of it."""
    rows = 300
    torch.manual_seed(0)
    x, said = torch.randn(rows, 12), torch.randint(0, 3, (2, rows))
    wide = replace(SETTINGS, hidden=64)
    alone = Observed(x, said[0], said[1], Columns(12, ()), 2, 2)
    twice = Observed(x.repeat(2, 1), said[0].repeat(2), said[1].repeat(2), Columns(12, ()), 2, 2)
    for train, least, most in ((alone, -0.25, 0.25), (twice, 0.35, 1.0)):
        for found, what in zip(fitted(train, [0], wide, epochs=30), (train.a_obs, train.y_obs), strict=True):
            torch.testing.assert_close(found.sum(-1), torch.ones(1, train.rows))
            stated = what < 2
            known = torch.corrcoef(torch.stack([found[0, stated, 1], what[stated].to(found)]))[0, 1]
            assert least < float(known) < most


def test_folds_are_even() -> None:
    assert torch.bincount(_folds(403, 4, 1, 0)).tolist() == [101, 101, 101, 100]


def test_tables_together_are_scored_like_tables_alone() -> None:
    """The first of two tables, up to the order of rows, which the first seed draws for both."""
    first, second = table(0), table(1)
    together = fitted(Observed.stack([first, second]), [0, 1])
    alone = fitted(first, [0])
    assert together[0].shape == (2, first.rows, 2)
    assert (together[0][:1] - alone[0]).abs().mean() < 0.1
