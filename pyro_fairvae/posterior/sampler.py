r"""Posterior of a channel that is valid however good or bad the networks are.

Sort rows into bins by x alone, with scores from networks that were not trained on them
(:mod:`.cross_fitting`). Where the recorded value depends on a alone, every bin b obeys

.. math:: \frac{h_b(a)}{\sum_{a' \ge a} h_b(a')} \sim \mathrm{Beta}(m_{a1}, m_{a2}), \quad
          C_r \sim \mathrm{Dir}(\mathrm{prior}_r), \quad \tilde a_i \sim \sum_a h_b(a)\, P(\tilde a | a),
          \quad P(\tilde a|a) \text{ made of the rows } C_r,

exactly, since h_b is the mean of P(a|x) over the bin. The distribution of the groups over bins is learned,
with a mean and a spread for each group, so that the spread of one group carries no information about the
frequency of another. The prior of log m1/m2 is nearly flat, and the log of the smaller m, which determines
how much bins differ, is normal. (If log m itself were normal, the size of a group of 1 %, and hence how often
it withholds, would be overestimated. With a prior ∝ 1/N on the number N of people in a group, the number of
them who state it carries no information about how often they do.) So the posterior of C given the counts in
the bins has its nominal coverage: a bad network makes bins that are alike, and the interval wide. It is drawn
by Gibbs sampling, which is conjugate except for m, for many tables at once.

Where people may misstate, the counts determine C only up to an *isometry*: for any A whose rows sum to 1, AC
and :math:`h A^{-1}` have the same likelihood as C and h, as long as they are probabilities, and so do swapped
groups. Where there is one attribute and every outcome is possible for every group, the sampler also moves
along such A and swaps, accepting by the prior alone; elsewhere, chains that disagree indicate the ambiguity.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.schema.attributes import UNAVAILABLE

BINS = 32  # at most
ROWS_IN_BIN = 100  # at least
THINNED = 5  # sweeps for each draw where the sampler also moves along isometries
START = 20.0  # weight of a chain's starting point, in people
LOG_ODDS = 3.0  # standard deviation of log m1/m2: nearly flat, so that the prior favours no group
LOG_SHAPE = (-0.5, 1.0)  # mean and standard deviation of the log of the smaller m
SMALLEST_SHARE = 1e-9  # smaller shares are not stretched


def bin_rows(scores: np.ndarray, most: int = BINS, least: int = ROWS_IN_BIN) -> np.ndarray:
    """The bin of each row, (rows,), from scores (rows, values) on the simplex.

    There are at most ``most`` bins, of at least ``least`` rows.

    Each bin is split at the median of the score that varies most in it. Scores are divided by the square root
    of their prevalence, so that rare values count, too.
    """
    rows = len(scores)
    depth = max(0, int(np.log2(min(most, max(1, rows // least)))))
    prevalence = scores.mean(0).clip(min=1e-6)
    scaled = scores / np.sqrt(prevalence)
    bins = np.zeros(rows, dtype=np.int64)
    for _ in range(depth):
        halves = np.zeros_like(bins)
        for b in np.unique(bins):
            inside = np.flatnonzero(bins == b)
            along = scaled[inside, scaled[inside].std(0).argmax()]
            halves[inside[np.argsort(along, kind="stable")[len(inside) // 2 :]]] = 1
        bins = 2 * bins + halves
    return bins


@dataclass(frozen=True)
class Bins:
    """The recorded outcomes in each bin, and the mean scores of the networks."""

    counts: np.ndarray  # (tables, bins, outcomes)
    scores: np.ndarray  # mean of h(a|x), (tables, bins, values)


def bin_tables(
    scores: np.ndarray, observed: np.ndarray, outcomes: int, weights: np.ndarray | None = None
) -> Bins:
    """Bins of scores (tables, rows, values) and of the recorded outcomes (tables, rows).

    With ``weights`` of rows, (tables, rows), counts are the sums of these, rounded to whole people.
    """
    counts, means = [], []
    of_tables = [None] * len(scores) if weights is None else list(weights)
    for row_scores, outcome, weight in zip(scores, observed, of_tables, strict=True):
        bins = bin_rows(row_scores)
        size = bins.max() + 1
        count = np.bincount(bins * outcomes + outcome, weight, minlength=size * outcomes)
        counts.append(np.rint(count).astype(np.int64).reshape(size, -1))
        means.append(
            np.stack(
                [
                    np.average(
                        row_scores[bins == b], axis=0, weights=None if weight is None else weight[bins == b]
                    )
                    for b in range(size)
                ]
            )
        )
    return Bins(np.stack(counts), np.stack(means))


@dataclass(frozen=True)
class State:
    """The current state of the chains; moves change its arrays in place."""

    rows: list[np.ndarray]  # C on its supports, (chains, tables, support) each
    h: np.ndarray  # (chains, tables, bins, values)
    spread: np.ndarray  # m, (chains, tables, values − 1, 2)


@dataclass(frozen=True)
class ChannelRows:
    """The rows of a channel as arrays."""

    channel: Channel

    @cached_property
    def priors(self) -> list[np.ndarray]:
        return [np.array(row.prior) for row in self.channel.rows]

    @cached_property
    def picked(self) -> list[np.ndarray]:
        """One-hot entries of each row, (support, values, outcomes)."""
        return [
            np.stack([row.entry == e for e in range(len(row.prior))]).astype(float)
            for row in self.channel.rows
        ]

    def tally(self, cells: np.ndarray) -> list[np.ndarray]:
        """People by entry, (…, support), from people by latent value and outcome, (…, values, outcomes)."""
        return [np.einsum("...ao,eao->...e", cells, entries) for entries in self.picked]

    def matrix(self, rows: list[np.ndarray]) -> np.ndarray:
        """P(observed | latent), (…, values, outcomes)."""
        product = self.channel.possible.astype(float)
        for row, entries in zip(rows, self.picked, strict=True):
            product = product * (np.einsum("...e,eao->...ao", row, entries) + (1 - entries.sum(0)))
        return product

    def log_likelihood(self, rows: list[np.ndarray], h: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Log-likelihood of the counts in bins, (chains, tables)."""
        return (counts * _log(h @ self.matrix(rows))).sum((-1, -2))


def sample_channel(
    channel: Channel,
    bins: Bins,
    draws: int = 500,
    warmup: int = 250,
    chains: int = 8,
    seed: int = 0,
    every: int = 1,
) -> list[np.ndarray]:
    """Draws of each row of C, (chains, draws, tables, support), by Gibbs sampling of C, h and m.

    Given C and h, the groups of the people in a bin with the recorded outcome o are multinomial with
    probabilities ∝ h_b(a) P(o|a); given these counts, rows are Dirichlet and the shares in bins Beta. A draw
    is kept after every ``every`` sweeps.
    """
    generator = np.random.default_rng([seed])
    counts = bins.counts
    tables, size, _ = counts.shape
    isometric = len(channel.attributes.names) == 1 and bool(channel.possible.all())
    channel_rows = ChannelRows(channel)
    repeated = np.broadcast_to(counts, (chains, *counts.shape))

    def dirichlet(concentration: np.ndarray) -> np.ndarray:
        gamma = generator.standard_gamma(concentration).clip(min=1e-300)
        return gamma / gamma.sum(-1, keepdims=True)

    # Chains start at different points, around the networks' scores of the bins and the rates they imply.
    h = dirichlet(np.broadcast_to(START * bins.scores + 0.5, (chains, tables, size, channel.values)))
    share = h[..., None] * channel.possible
    share = share / share.sum(-2, keepdims=True).clip(min=1e-300)
    expected = np.einsum("ctbao,tbo->ctao", share, counts)
    rows = [
        dirichlet(prior + START * tally / tally.sum(-1, keepdims=True).clip(min=1))
        for prior, tally in zip(channel_rows.priors, channel_rows.tally(expected), strict=True)
    ]
    spread = np.ones((chains, tables, channel.values - 1, 2))
    kept: list[list[np.ndarray]] = [[] for _ in rows]
    every = every * (THINNED if isometric else 1)
    warmup = warmup * every
    for step in range(warmup + draws * every):
        # (chains, tables, bins, outcomes, values): people by recorded outcome and latent value
        joint = h[..., None, :] * channel_rows.matrix(rows).swapaxes(-1, -2)[:, :, None]
        people = _allocate(generator, repeated, joint)
        h = draw_shares(generator, people.sum(-2), spread)
        cells = people.sum(2).swapaxes(-1, -2)  # (chains, tables, values, outcomes)
        tallies = channel_rows.tally(cells)
        rows = [dirichlet(prior + tally) for prior, tally in zip(channel_rows.priors, tallies, strict=True)]
        state = State(rows, h, spread)
        rescale(generator, state, channel_rows, counts)
        if isometric:
            move_along_isometry(generator, state, channel_rows.priors)
            swap_groups(generator, state, channel_rows.priors)
        move_spread(generator, h, spread)
        if step >= warmup and (step - warmup) % every == 0:
            for store, row in zip(kept, rows, strict=True):
                store.append(row)
    return [np.stack(store, axis=1) for store in kept]


def rescale(generator: np.random.Generator, state: State, of: ChannelRows, counts: np.ndarray) -> None:
    r"""One Metropolis step, in place: more people of a random row, who state it less often, or the reverse.

    Gibbs sampling mixes slowly in this direction, since the number of people who withhold and the rate at
    which they do are each drawn given the other. The probabilities of the row's outcomes other than ∅ are
    multiplied by :math:`e^t`, with t normal; the share S of its groups in each bin becomes :math:`e^{-t} S`,
    and the share R of the other groups is rescaled to the rest; m is scaled with S. The Jacobian is
    :math:`e^{t(\text{outcomes} - 1)} \prod_b e^{-t |S|} ((1 - e^{-t} S_b) / R_b)^{|R| - 1}`.
    """
    rows, h, spread = state.rows, state.h, state.spread
    values = h.shape[-1]
    r = generator.integers(len(rows))
    row = of.channel.rows[r]
    inside = np.isin(np.arange(values), row.groups)
    if UNAVAILABLE not in row.outcomes or inside.all():
        return
    t = generator.normal(scale=generator.choice([0.05, 0.2, 0.8]), size=rows[r].shape[:-1])
    moved_row = rows[r] * np.exp(t)[..., None]
    unavailable = row.outcomes.index(UNAVAILABLE)
    moved_row[..., unavailable] += 1 - moved_row.sum(-1)
    share, others = h[..., inside].sum(-1), h[..., ~inside].sum(-1)
    moved_others = 1 - np.exp(-t)[..., None] * share
    possible = (moved_row[..., unavailable] > 0) & (np.minimum(others, moved_others) > SMALLEST_SHARE).all(-1)
    moved_row = np.where(possible[..., None], moved_row, rows[r])
    stretch = np.where(possible[..., None], moved_others / others.clip(min=SMALLEST_SHARE), 1)
    shrink = np.where(possible, np.exp(-t), 1)[..., None]
    moved_h = h * np.where(inside, shrink[..., None], stretch[..., None])
    moved_spread = spread.copy()
    moved_spread[..., inside[:-1], 0] *= shrink
    moved_rows = [*rows[:r], moved_row, *rows[r + 1 :]]
    change = of.log_likelihood(moved_rows, moved_h, counts) - of.log_likelihood(rows, h, counts)
    change += ((of.priors[r] - 1) * (_log(moved_row) - _log(rows[r]))).sum(-1)
    change += log_density(moved_h, moved_spread) - log_density(h, spread)
    change += (log_prior(moved_spread) - log_prior(spread)).sum(-1)
    change += t * (len(row.outcomes) - 1 - inside.sum() * h.shape[-2])
    change += ((~inside).sum() - 1) * _log(stretch).sum(-1)
    accepted = possible & (np.log(generator.random(change.shape)) < change)
    rows[r][accepted] = moved_row[accepted]
    h[accepted], spread[accepted] = moved_h[accepted], moved_spread[accepted]


def move_along_isometry(generator: np.random.Generator, state: State, priors: list[np.ndarray]) -> None:
    r"""One Metropolis step, in place, that leaves :math:`\sum_a h_b(a) P(o|a)` unchanged.

    For two groups i and j at random, row i becomes :math:`e^t C_i + (1 - e^t) C_j` and the share of i in
    each bin :math:`e^{-t} h_b(i)`, with the difference added to j and t normal; the map has the Jacobian
    :math:`e^{t (\text{outcomes} - 1 - \text{bins})}`.
    """
    rows, h, spread = state.rows, state.h, state.spread
    i, j = generator.choice(len(rows), size=2, replace=False)
    t = generator.normal(scale=generator.choice([0.02, 0.1, 0.5]), size=(*rows[i].shape[:-1], 1))
    row = np.exp(t) * rows[i] + (1 - np.exp(t)) * rows[j]
    of_i = np.exp(-t) * h[..., i]
    of_j = h[..., j] + h[..., i] - of_i
    possible = (row > 0).all(-1) & (of_j > 0).all(-1)
    moved = h.copy()
    moved[..., i], moved[..., j] = of_i, of_j
    moved = np.where(possible[..., None, None], moved, h)
    row = np.where(possible[..., None], row, rows[i])
    change = ((priors[i] - 1) * (_log(row) - _log(rows[i]))).sum(-1)
    change += log_density(moved, spread) - log_density(h, spread)
    change += t[..., 0] * (row.shape[-1] - 1 - h.shape[-2])
    accepted = possible & (np.log(generator.random(change.shape)) < change)
    rows[i][accepted] = row[accepted]
    h[accepted] = moved[accepted]


def swap_groups(generator: np.random.Generator, state: State, priors: list[np.ndarray]) -> None:
    """One Metropolis step, in place, that exchanges two groups at random."""
    rows, h, spread = state.rows, state.h, state.spread
    i, j = generator.choice(len(rows), size=2, replace=False)
    order = np.arange(h.shape[-1])
    order[[i, j]] = j, i
    swapped = h[..., order]
    # With two groups m is exchanged, too; with more groups m stays the same.
    moved = spread[..., ::-1] if h.shape[-1] == 2 else spread
    change = ((priors[i] - priors[j]) * (_log(rows[j]) - _log(rows[i]))).sum(-1)
    change += log_density(swapped, moved) - log_density(h, spread)
    # Half of the proposals are to stay; otherwise the chain would alternate between the two orders.
    accepted = np.log(2 * generator.random(change.shape)) < np.minimum(change, 0.0)
    rows[i][accepted], rows[j][accepted] = rows[j][accepted], rows[i][accepted]
    h[accepted], spread[accepted] = swapped[accepted], moved[accepted]


def move_spread(generator: np.random.Generator, h: np.ndarray, spread: np.ndarray) -> None:
    """A Metropolis step, in place, for each of the two numbers m of each group, and one for both at once."""
    of_group, rest = _sticks(h)
    sums = np.stack([_log(of_group).sum(-2), _log(rest).sum(-2)], axis=-1)  # as spread

    def density(m: np.ndarray) -> np.ndarray:
        """Log-density of each group's log m given h, up to a constant."""
        normal = gammaln(m.sum(-1)) - gammaln(m).sum(-1)
        return h.shape[-2] * normal + (m * sums).sum(-1) + log_prior(m)

    for direction in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        step = generator.normal(scale=generator.choice([0.1, 0.5]), size=(*spread.shape[:-1], 1))
        proposed = spread * np.exp(step * np.array(direction))
        accepted = np.log(generator.random(step.shape[:-1])) < density(proposed) - density(spread)
        spread[accepted] = proposed[accepted]


def draw_shares(generator: np.random.Generator, people: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """A draw of h given the number of people of each group in the bins, (…, bins, values)."""
    later = people[..., ::-1].cumsum(-1)[..., ::-1] - people  # people of the groups after a group
    gamma = [
        generator.standard_gamma(spread[:, :, None, :, k] + counts[..., :-1]).clip(min=1e-300)
        for k, counts in enumerate((people, later))
    ]
    share, rest = (part / (gamma[0] + gamma[1]) for part in gamma)
    one = np.ones_like(share[..., :1])
    return np.concatenate([share, one], axis=-1) * np.concatenate([one, rest.cumprod(-1)], axis=-1)


def draw_spread(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A draw of m from its prior, (*shape, 2)."""
    odds = generator.normal(scale=LOG_ODDS, size=shape)
    smaller = generator.normal(*LOG_SHAPE, size=shape)
    return np.exp(smaller[..., None] + np.stack([odds, -odds], axis=-1).clip(min=0))


def log_prior(m: np.ndarray) -> np.ndarray:
    """Log-density of each group's log m under the prior, up to a constant."""
    odds = (np.log(m[..., 0]) - np.log(m[..., 1])) / LOG_ODDS
    smaller = (np.log(m.min(-1)) - LOG_SHAPE[0]) / LOG_SHAPE[1]
    return -(odds**2 + smaller**2) / 2


def log_density(h: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """log p(h | m), summed over bins."""
    of_group, rest = _sticks(h)
    a, b = spread[:, :, None, :, 0], spread[:, :, None, :, 1]
    terms = (a - 1) * _log(of_group) + (b - 1) * _log(rest) + gammaln(a + b) - gammaln(a) - gammaln(b)
    left = h[..., ::-1].cumsum(-1)[..., ::-1][..., :-1]
    return (terms - _log(left)).sum((-1, -2))


def _sticks(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share of each group but the last among itself and later groups, and the share of the later ones."""
    left = h[..., ::-1].cumsum(-1)[..., ::-1].clip(min=1e-300)
    return h[..., :-1] / left[..., :-1], left[..., 1:] / left[..., :-1]


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(values.clip(min=1e-300))


def _allocate(generator: np.random.Generator, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Multinomial draws of ``counts`` (…) with probabilities ∝ ``weights`` (…, values)."""
    people = np.zeros_like(weights)
    left, mass = counts.copy(), weights[..., ::-1].cumsum(-1)[..., ::-1]
    values = weights.shape[-1]
    for value in range(values - 1):
        share = np.divide(
            weights[..., value], mass[..., value], out=np.zeros(left.shape), where=mass[..., value] > 0
        )
        taken = generator.binomial(left, share.clip(0, 1))
        people[..., value] = taken
        left = left - taken
    people[..., -1] = left
    return people
