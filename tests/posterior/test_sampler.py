"""The calibrated posterior, against closed forms, importance sampling and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.base.options import build
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.data import Missingness, Table, split, synthetic
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.posterior.calibration import Calibrated, calibrate, calibrate_scores
from pyro_fairvae.posterior.channel_draws import ChannelDraws
from pyro_fairvae.posterior.cross_fitting import cross_fit
from pyro_fairvae.posterior.sampler import (
    Bins,
    ChannelRows,
    State,
    bin_rows,
    bin_tables,
    draw_shares,
    draw_spread,
    move_along_isometry,
    move_spread,
    rescale,
    sample_channel,
    swap_groups,
)
from pyro_fairvae.posterior.summaries import cannot_tell, describe
from pyro_fairvae.schema.attributes import Attributes

TWO = Attributes.single(("0", "1"))
MILD = "{rows: {every: {own: 8, other: 1, unavailable: 4}}}"  # 13 people, most of them honest
SMALL = {"hidden": 16, "layers": 2, "pieces": 0, "batch": 256, "lr": 3e-3}


def posterior(prior: str, bins: Bins, **options: int) -> ChannelDraws:
    made = channel("a", TWO, prior)
    return ChannelDraws(made, sample_channel(made, bins, **options))


def simulate(shares: np.ndarray, truth: np.ndarray, people: int, seed: int, tables: int = 1) -> Bins:
    """Bins with known shares of groups, (bins, groups), of so many people each."""
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(people, shares @ truth, size=(tables, len(shares)))
    return Bins(counts, np.broadcast_to(shares, (tables, *shares.shape)))


def spread(bins: int, low: float = 0.03, high: float = 0.97) -> np.ndarray:
    share = np.linspace(low, high, bins)
    return np.stack([1 - share, share], axis=1)


HONEST = np.array([[0.2, 0.0, 0.8], [0.0, 0.6, 0.4]])


def test_bins_have_equal_sizes_and_follow_the_scores() -> None:
    scores = np.random.default_rng(0).dirichlet([0.5, 1, 2], size=3200)
    bins = bin_rows(scores)
    assert np.bincount(bins).tolist() == [100] * 32
    within = np.mean([scores[bins == b].var(0) for b in range(32)], axis=0)
    assert (within < 0.25 * scores.var(0)).all()
    said = np.random.default_rng(1).integers(0, 4, size=3200)
    made = bin_tables(scores[None], said[None], 4)
    assert made.counts.sum((0, 1)).tolist() == np.bincount(said).tolist()


def test_it_is_the_closed_form_where_bins_know_the_group() -> None:
    """Dir(prior + counts), also for a prior worth as many people as there are."""
    bins = simulate(np.array([[1.0, 0.0], [0.0, 1.0]]), HONEST, 1000, seed=0)
    prior = "{preset: informed, strength: 1000, rows: {every: {unavailable: 0.1}}}"
    draws = posterior(prior, bins, draws=1500)
    for group in range(2):
        counts = bins.counts[0, group, [group, 2]]
        exact = torch.distributions.Dirichlet(torch.tensor([900.0, 100.0]) + torch.from_numpy(counts))
        found = draws.of(group, "unavailable")
        assert found.mean() == pytest.approx(float(exact.mean[1]), abs=0.002)
        assert found.std() == pytest.approx(float(exact.stddev[1]), rel=0.1)


@pytest.mark.parametrize("prior", ["truthful", "mar", MILD])
def test_it_agrees_with_importance_sampling(prior: str) -> None:
    """Few people, so that draws from the prior, weighted by the likelihood, are a posterior, too."""
    bins = simulate(np.array([[0.8, 0.2], [0.3, 0.7]]), HONEST, 12, seed=3)
    draws = posterior(prior, bins, draws=800 if prior == MILD else 2000, warmup=100)
    made = draws.channel
    generator = np.random.default_rng(0)
    size = 200_000
    rows = [torch.from_numpy(generator.dirichlet(row.prior, size=size)) for row in made.rows]
    matrix = made.matrix(rows).numpy()
    spread = draw_spread(generator, (1, size, 1))
    h = draw_shares(generator, np.zeros((1, size, 2, 2)), spread)[0]
    likelihood = (bins.counts[0] * np.log((h @ matrix).clip(min=1e-300))).sum((1, 2))
    weights = np.exp(likelihood - likelihood.max())
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 1000  # as many draws as that
    for r, row in enumerate(made.rows):
        for e, outcome in enumerate(row.outcomes):
            values = rows[r][:, e].numpy()
            mean = float(weights @ values)
            deviation = float(np.sqrt(weights @ (values - mean) ** 2))
            assert draws.of(r, outcome).mean() == pytest.approx(mean, abs=0.02)
            assert draws.of(r, outcome).std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("known", [True, False], ids=["good scores", "worthless scores"])
def test_intervals_cover_whatever_the_scores_are_worth(known: bool) -> None:
    """120 tables; worthless scores mix everybody in every bin and cost width, not coverage."""
    generator = np.random.default_rng(5)
    tables, rows = 120, 1600
    share = generator.beta(0.6, 0.6, size=(tables, rows))
    group = (generator.random((tables, rows)) < share).astype(int)
    upper = HONEST.cumsum(1)[group][..., :-1]
    said = (generator.random((tables, rows, 1)) >= upper).sum(-1)
    scores = share if known else 0.5 + 0.2 * (share - 0.5) + 0.1 * generator.normal(size=share.shape)
    scores = scores.clip(0.01, 0.99)
    made = bin_tables(np.stack([1 - scores, scores], axis=-1), said, 3)
    draws = posterior("truthful", made, draws=200, warmup=150, chains=4)
    widths = []
    for g, rate in enumerate((0.8, 0.4)):
        low, high = np.quantile(draws.of(g, "unavailable"), [0.05, 0.95], axis=(0, 1))
        assert 0.82 <= ((low <= rate) & (rate <= high)).mean() <= 0.96
        widths.append((high - low).mean())
    assert (max(widths) < 0.12) == known


def test_a_flat_prior_swaps_the_groups_and_a_mildly_truthful_one_does_not() -> None:
    bins = simulate(spread(16), HONEST, 200, seed=1)
    flat, mild = (posterior(prior, bins, draws=150, warmup=100) for prior in ("flat", MILD))
    larger = [(draws.of(0, "unavailable") > draws.of(1, "unavailable")).mean() for draws in (flat, mild)]
    assert larger[0] == pytest.approx(0.5, abs=0.1)
    assert larger[1] > 0.99
    warnings = [" ".join(cannot_tell(Calibrated(draws, bins))) for draws in (flat, mild)]
    assert "swapped" in warnings[0]
    assert "swapped" not in warnings[1]
    assert all("lets people misstate" in words for words in warnings)


def test_with_misstatement_the_answer_moves_with_the_prior() -> None:
    """Data without a lie fit liars as well: the more of them the prior expects, the more it finds."""
    bins = simulate(spread(16, 0.15, 0.85), HONEST, 500, seed=2)
    lies = []
    for other in (0.05, 0.5, 2.0):
        prior = f"{{rows: {{every: {{own: 8, other: {other}, unavailable: 4}}}}}}"
        draws = posterior(prior, bins, draws=100, warmup=60)
        lies.append(float((draws.of(0, "1").mean() + draws.of(1, "0").mean()) / 2))
    assert lies[0] < lies[1] < lies[2]
    assert lies[2] > 2 * lies[0]


def test_the_likelihood_does_not_change_along_isometries() -> None:
    """Draws differ far more in the channel than in what they say of the bins."""
    shares = spread(8, 0.2, 0.8)
    bins = simulate(shares, HONEST, 5000, seed=4)
    draws = posterior(MILD, bins, draws=100, warmup=60)
    lie = draws.of(0, "1")
    assert lie.max() - lie.min() > 0.05
    observed = bins.counts[0].sum(0) / bins.counts.sum()
    assert observed == pytest.approx(shares.mean(0) @ HONEST, abs=0.01)


@pytest.mark.parametrize("groups", [2, 3])
def test_moves_leave_the_prior_as_it_is(groups: int) -> None:
    """Exact draws from an uneven prior, and no data, stay such under every move."""
    generator = np.random.default_rng(0)
    size, bins = 20_000, 3
    attributes = Attributes.single(tuple(str(g) for g in range(groups)))
    uneven = "{rows: {every: {own: 3, other: 1, unavailable: 1}, 1: {own: 3, other: 1, unavailable: 2}}}"
    of = ChannelRows(channel("a", attributes, uneven))
    priors = of.priors
    rows = [generator.dirichlet(prior, size=(1, size)) for prior in priors]
    spread = draw_spread(generator, (1, size, groups - 1))
    h = draw_shares(generator, np.zeros((1, size, bins, groups)), spread)

    def moments() -> np.ndarray:
        swapped = (rows[0][..., 0] < rows[1][..., 0]).mean()
        means = [row.mean((0, 1)) for row in rows]
        of_bins = [h[..., 0].mean(), h[..., 0].var(), h[..., 1].mean(), h[..., 1].var()]
        return np.array([swapped, *np.concatenate(means), *of_bins, *(spread / (1 + spread)).mean((0, 1, 2))])

    state = State(rows, h, spread)
    before = moments()
    for _ in range(40):
        move_along_isometry(generator, state, priors)
        swap_groups(generator, state, priors)
        rescale(generator, state, of, np.zeros((1, bins, groups + 1)))
        move_spread(generator, h, spread)
    assert h.sum(-1) == pytest.approx(1)
    assert moments() == pytest.approx(before, abs=0.012)


def test_what_cannot_be_told_is_said() -> None:
    alike = simulate(spread(16, 0.49, 0.51), HONEST, 200, seed=1)
    draws = posterior("truthful", alike)
    assert "the data say little about P(∅ | 1)" in " ".join(cannot_tell(Calibrated(draws, alike)))
    never = np.array([[0.0, 0.0, 1.0], [0.0, 0.6, 0.4]])
    silent = simulate(spread(16), never, 200, seed=1)
    draws = posterior("truthful", silent)
    assert "nobody states group 0" in " ".join(cannot_tell(Calibrated(draws, silent)))
    told = simulate(spread(16), HONEST, 200, seed=1)
    draws = posterior("truthful", told)
    assert cannot_tell(Calibrated(draws, told)) == []


def test_contraction_and_pooling() -> None:
    bins = simulate(spread(16), HONEST, 200, seed=1)
    draws = posterior("truthful", bins)
    found = describe(draws, HONEST, chains=True)["1"]["unavailable"]
    assert found["contraction"] == pytest.approx(1 - 12 * draws.of(1, "unavailable").var())
    assert found["prior"] == pytest.approx({"mean": 0.5, "q05": 0.05, "q95": 0.95})
    assert found["truth"] == pytest.approx(0.4)
    assert found["r_hat"] < 1.1
    other = posterior("truthful", simulate(spread(16), HONEST, 200, seed=2))
    pooled = ChannelDraws.pool([draws, other])
    means = [each.of(1, "unavailable").mean() for each in (draws, other)]
    assert pooled.of(1, "unavailable").mean() == pytest.approx(np.mean(means))


def fitted(table: Table, missing: Missingness, prior: str) -> dict[str, Calibrated]:
    train = split(table, missing, seed=0).train
    channels = channel("a", train.group_attributes, prior), channel("y", train.label_attributes)
    return calibrate(train, channels, build(Settings, SMALL), [0])


def rates(found: Calibrated) -> dict[str, tuple[float, float]]:
    """Mean and half the width of the 90 % interval of each rate of withholding."""
    return {
        label: (row["unavailable"]["mean"], (row["unavailable"]["q95"] - row["unavailable"]["q05"]) / 2)
        for label, row in describe(found.draws).items()
    }


@pytest.mark.parametrize("data", ["synthetic", "adult"])
def test_swapping_on_whole_data(data: str, request: pytest.FixtureRequest) -> None:
    """From cross-fitting on: a flat prior leaves open who is who, a mildly truthful one does not."""
    table = synthetic(rows=4000, seed=3)
    if data == "adult":
        table = request.getfixturevalue("adult").take(6000, seed=0)
    train = split(table, Missingness((0.8, 0.4)), seed=0).train
    honest = channel("a", train.group_attributes), channel("y", train.label_attributes)
    scores = cross_fit(train, honest, build(Settings, SMALL), [0]).groups
    shares = []
    for prior in ("flat", MILD):
        of_groups = channel("a", train.group_attributes, prior)
        draws = calibrate_scores(of_groups, scores, train.a_obs.unsqueeze(0), draws=150, seed=0).draws
        shares.append((draws.of(0, "unavailable") > draws.of(1, "unavailable")).mean())
    assert 0.2 < shares[0] < 0.8
    assert shares[1] > 0.95


def test_labels_have_a_channel_like_groups() -> None:
    missing = Missingness((0.5, 0.3), label_unavailable=(0.6, 0.2))
    found = rates(fitted(synthetic(rows=6000, seed=2), missing, "truthful")["y"])
    for label, truth in (("0", 0.6), ("1", 0.2)):
        mean, half = found[label]
        assert mean == pytest.approx(truth, abs=2.5 * half)
        assert half < 0.05


def test_two_attributes_of_which_one_depends_on_the_other() -> None:
    """P(ã_first | a_first, a_second), each attribute withheld by a different subset of people."""
    attributes = Attributes(("first", "second"), (("0", "1"), ("0", "1")))
    table = synthetic(rows=16_000, seed=1, groups=4, group_strength=4.0, numbers=10)
    table = Table(table.numbers, table.categories, table.y, table.a, table.classes, attributes)
    truth = """{first: {preset: informed, strength: 1, given: second, rows: {
        0: {0: {unavailable: 0.7}, 1: {unavailable: 0.3}},
        1: {0: {unavailable: 0.2}, 1: {unavailable: 0.5}}}},
        second: {preset: informed, strength: 1, rows: {0: {unavailable: 0.4}, 1: {unavailable: 0.1}}}}"""
    known = channel("a", attributes, truth)
    missing = Missingness(channel=tuple(map(tuple, known.mean_matrix().tolist())))
    found = rates(fitted(table, missing, "{first: {given: second}}")["a"])
    expected = {"first: 0, 0": 0.7, "first: 0, 1": 0.3, "first: 1, 0": 0.2, "first: 1, 1": 0.5,
                "second: 0": 0.4, "second: 1": 0.1}  # fmt: skip
    assert set(found) == set(expected)
    for label, rate in expected.items():
        mean, half = found[label]
        assert mean == pytest.approx(rate, abs=2.5 * half)
        assert half < 0.06
