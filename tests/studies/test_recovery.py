"""Who withholds is recovered where it can be known, with the width that it should have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from pyro_fairvae.guides import FactoredGuide

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.posterior.channel_draws import guide_draws
from pyro_fairvae.posterior.summaries import summarise
from pyro_fairvae.studies.recovery import RecoverConfig

SMALL = {"hidden": 32, "latent": 4, "decoder_hidden": 16, "batch": 512, "samples": 10}
SPARSE = Missingness((0.8, 0.4))


def train(splits: Splits, **changes: object) -> Fit:
    settings = build(Settings, SMALL | changes)
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
    alpha, beta = rates(train(known, epochs=20, objective="paper"))
    assert alpha < 0.4 - 0.05
    assert beta < 0.8 - 0.03


def test_twice_the_epochs_do_not_move_the_rates() -> None:
    """Few rows and many features overfit h; the epoch chosen by held-out log P(ã|x) does not drift."""
    splits = split(synthetic(rows=5700, seed=4, numbers=60), SPARSE, seed=0)
    short, long = (train(splits, epochs=epochs, hidden=128, lr=2e-3, pieces=0) for epochs in (15, 30))
    assert abs(rates(short)[0] - rates(long)[0]) < 0.02
    last = long.program.guide.channel_mean(long.program.guide.channel_a)[0, 1, 2].item()
    assert abs(last - 0.4) > 2 * abs(rates(long)[0] - 0.4)  # the last epoch's is dragged away


@pytest.fixture
def told() -> Iterator[tuple[Splits, np.ndarray]]:
    """Rows whose first feature is the group, a guide that knows it (h is known), and the true groups."""
    table = synthetic(rows=6000, seed=5)
    table.numbers["x0"] = table.a.astype(float)
    splits = split(table, SPARSE, seed=0)
    heads = FactoredGuide.heads

    def knowing(self: FactoredGuide, x: torch.Tensor) -> Encoded:
        group = 100 * x[..., :1].sign()
        return heads(self, x)._replace(group_logits=torch.cat([-group, group], dim=-1).unsqueeze(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FactoredGuide, "heads", knowing)
        yield splits, (splits.train.x[:, 0] > 0).long().numpy()


def closed_form(
    channel: Channel, group: np.ndarray, splits: Splits, value: int
) -> torch.distributions.Dirichlet:
    """Prior and counts of a row of the channel, on its support, where groups are known."""
    observed = splits.train.a_obs.numpy()
    support = np.flatnonzero(channel.possible[value])
    counts = [((group == value) & (observed == outcome)).sum() for outcome in support]
    return torch.distributions.Dirichlet(channel.concentration(value) + torch.tensor(counts))


@pytest.mark.parametrize(
    "weights", [{}, {"elbo_weight": 0.5, "supervision_weight": 4.5}], ids=["default", "heavy"]
)
def test_posterior_is_the_closed_form_where_h_is_known(
    told: tuple[Splits, np.ndarray], weights: dict[str, float]
) -> None:
    """Dir(prior + counts) at any weights: that of SVI at its end, and closer still once refined.

    Refining takes gradients of single draws, so its mean ends within half a posterior deviation, .009.
    """
    splits, group = told
    fitted = train(splits, epochs=20, **weights)
    channel = fitted.program.guide.channel_a
    settled = guide_draws(fitted, channel, draws=20_000)
    for value in range(2):
        exact = closed_form(channel, group, splits, value)
        last = fitted.program.guide.sites.distribution(channel.sites[value])
        assert last.mean[0, 0, 1].item() == pytest.approx(exact.mean[1].item(), abs=0.01)
        assert last.variance[0, 0, 1].sqrt().item() == pytest.approx(exact.stddev[1].item(), rel=0.25)
        found = settled.of(value, "unavailable")
        assert found.mean().item() == pytest.approx(exact.mean[1].item(), abs=0.0045)
        assert found.std().item() == pytest.approx(exact.stddev[1].item(), rel=0.1)


def test_a_prior_worth_many_people_weighs_as_many(told: tuple[Splits, np.ndarray]) -> None:
    """A prior of 4,000 people who mostly state their group, against the counts."""
    splits, group = told
    heavy = "{preset: informed, strength: 4000, rows: {every: {unavailable: 0.1}}}"
    fitted = train(splits, epochs=20, prior_a=heavy)
    channel = fitted.program.guide.channel_a
    for value in range(2):
        exact = closed_form(channel, group, splits, value).mean[1].item()
        assert rates(fitted)[1 - value] == pytest.approx(exact, abs=0.002)


def test_proxies_of_simulated_withholding_are_refused() -> None:
    with pytest.raises(InputError, match=r"officer.* were given, but who withholds in adult is simulated"):
        RecoverConfig(proxies=("officer",))
