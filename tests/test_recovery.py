"""Who withholds is recovered where it can be known, with the width that it should have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.channels import Channel
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.objective import Weights
from pyro_fairvae.posterior import channel_draws, summarise
from pyro_fairvae.training import Fit, Settings, fit

SMALL = {"hidden": 32, "latent": 4, "decoder_hidden": 16, "batch": 512, "samples": 10}
SPARSE = Missingness((0.8, 0.4))


def train(splits: Splits, **changes: object) -> Fit:
    settings = Settings(**(SMALL | changes))  # type: ignore[arg-type]
    return fit(splits.train, splits.validation, (0.0,), settings)


def rates(fitted: Fit) -> tuple[float, float]:
    """α̂ and β̂, posterior means."""
    found = summarise(fitted)["a"]
    return found["1"]["unavailable"]["mean"], found["0"]["unavailable"]["mean"]


@pytest.fixture(scope="module")
def known() -> Splits:
    return split(synthetic(rows=10_000, seed=2, group_strength=3.0), SPARSE, seed=0)


@pytest.mark.parametrize("sites", ["dirichlet", "map"])
def test_rates_are_recovered(known: Splits, sites: str) -> None:
    alpha, beta = rates(train(known, epochs=20, sites=sites))
    assert alpha == pytest.approx(0.4, abs=0.03)
    assert beta == pytest.approx(0.8, abs=0.03)


def test_rates_of_three_groups_are_recovered() -> None:
    truth = (0.6, 0.2, 0.4)
    missing = Missingness(truth, (0.0, 0.0, 0.0), (0.2, 0.2, 0.2))
    table = synthetic(rows=12_000, seed=1, groups=3, classes=3, group_strength=4.0)
    found = summarise(train(split(table, missing, 0), epochs=20))["a"]
    for group, rate in enumerate(truth):
        assert found[str(group)]["unavailable"]["mean"] == pytest.approx(rate, abs=0.03)


def test_the_papers_bracket_does_not_recover_them(known: Splits) -> None:
    """Rows with ∅ left out of the bracket pull the channels towards "nobody withholds"."""
    alpha, beta = rates(train(known, epochs=20, weights=Weights("paper")))
    assert alpha < 0.4 - 0.05
    assert beta < 0.8 - 0.03


def test_twice_the_epochs_do_not_move_the_rates() -> None:
    """Few rows and many features overfit h; the epoch chosen by held-out log P(ã|x) does not drift."""
    splits = split(synthetic(rows=5700, seed=4, numbers=60), SPARSE, seed=0)
    short, long = (train(splits, epochs=epochs, hidden=128, lr=2e-3) for epochs in (15, 30))
    assert abs(rates(short)[0] - rates(long)[0]) < 0.02
    last = long.program.guide.channel_mean(long.program.guide.channel_a)[0, 1, 2].item()
    assert abs(last - 0.4) > 2 * abs(rates(long)[0] - 0.4)  # the last epoch's is dragged away


@pytest.mark.parametrize(
    "weights", [Weights(), Weights(elbo_weight=0.5, supervision_weight=4.5)], ids=["default", "heavy"]
)
def test_posterior_has_the_width_of_the_closed_form_where_groups_are_known(weights: Weights) -> None:
    """Where x tells a for certain, the posterior of a row is Dir(prior + counts), at any weights."""
    table = synthetic(rows=6000, seed=5, group_strength=16.0)
    splits = split(table, SPARSE, seed=0)
    fitted = train(splits, epochs=30, weights=weights)
    order = np.random.default_rng(np.random.SeedSequence(0).generate_state(3)[0]).permutation(table.rows)
    group, observed = table.a[order[: splits.train.rows]], splits.train.a_obs.numpy()
    channel = fitted.program.guide.channel_a
    draws = channel_draws(fitted, channel, draws=20_000)[:, 0]
    for value in range(2):
        counts = [((group == value) & (observed == o)).sum() for o in channel.support(value)]
        exact = torch.distributions.Dirichlet(channel.concentration(value) + torch.tensor(counts))
        found = draws[:, value, channel.unavailable]
        assert found.mean().item() == pytest.approx(exact.mean[1].item(), abs=0.005)
        assert found.std().item() == pytest.approx(exact.stddev[1].item(), rel=0.15)


def test_a_prior_worth_many_people_weighs_as_many() -> None:
    """Known groups, and a prior of 4,000 people against the counts: the closed form again."""
    from pyro_fairvae import priors

    table = synthetic(rows=6000, seed=5, group_strength=16.0)
    splits = split(table, SPARSE, seed=0)
    heavy = Channel("a", ((3600.0, 0.0, 400.0), (0.0, 3600.0, 400.0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(priors.PRIORS, "heavy", lambda values: heavy.prior)
        fitted = train(splits, epochs=30, prior_a="heavy")
    order = np.random.default_rng(np.random.SeedSequence(0).generate_state(3)[0]).permutation(table.rows)
    group, observed = table.a[order[: splits.train.rows]], splits.train.a_obs.numpy()
    for value in range(2):
        hidden = ((group == value) & (observed == 2)).sum()
        exact = (400 + hidden) / (4000 + (group == value).sum())
        assert rates(fitted)[1 - value] == pytest.approx(exact, abs=0.01)
