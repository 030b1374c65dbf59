r"""Posterior of a channel that holds whatever the networks are worth.

Sort rows into bins by x alone, with scores from networks that have not seen them (:mod:`.crossfit`). Where
what is written down depends on a alone, every bin b obeys

.. math:: \log m_a \sim N(0, 1), \quad h_b \sim \mathrm{Dir}(m), \quad
          C_r \sim \mathrm{Dir}(\mathrm{prior}_r), \quad \tilde a_i \sim \sum_a h_b(a)\, P(\tilde a | a),
          \quad P(\tilde a|a) \text{ made of the rows } C_r,

exactly, since h_b is the mean of P(a|x) over the bin; how the groups spread over bins, m, is learned. So the
posterior of C given the counts in the bins has the coverage it claims: a bad network makes bins that are
alike, and the interval wide. It is drawn by Gibbs sampling, which is conjugate but for m, for many tables at
once.

Where people may misstate, the counts fix C only up to an *isometry*: for any A whose rows sum to 1, AC and
:math:`h A^{-1}` say the same of the data as C and h, as long as they are probabilities, and so does swapping
groups. Where there is one attribute and anybody can say anything, the sampler also moves along such A and
swaps, accepting by the prior alone; elsewhere chains that disagree are the sign of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from pyro_fairvae.channels import Channel

BINS = 32  # at most
ROWS_IN_BIN = 100  # at least
THINNED = 5  # sweeps for each draw where the sampler has to wander along isometries
START = 20.0  # people that a chain's start is worth
SPREAD = 1.0  # deviation of log m


def bin_rows(scores: np.ndarray) -> np.ndarray:
    """The bin of each row, (rows,), of scores (rows, values) on the simplex.

    Bins are halved at the median of the direction in which they spread most, values counted in the deviations
    that their prevalence would give them, so that rare ones count, too.
    """
    rows = len(scores)
    depth = max(0, int(np.log2(min(BINS, max(1, rows // ROWS_IN_BIN)))))
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
    """What was written down in each bin, and what the networks expect of it."""

    counts: np.ndarray  # (tables, bins, outcomes)
    scores: np.ndarray  # mean of h(a|x), (tables, bins, values)


def bin_tables(scores: np.ndarray, observed: np.ndarray, outcomes: int) -> Bins:
    """Bins of scores (tables, rows, values) and of what the rows say, (tables, rows)."""
    counts, means = [], []
    for of_rows, said in zip(scores, observed, strict=True):
        bins = bin_rows(of_rows)
        size = bins.max() + 1
        counts.append(np.bincount(bins * outcomes + said, minlength=size * outcomes).reshape(size, -1))
        means.append(np.stack([of_rows[bins == b].mean(0) for b in range(size)]))
    return Bins(np.stack(counts), np.stack(means))


def draw_posterior(
    channel: Channel, bins: Bins, draws: int = 500, warmup: int = 250, chains: int = 8, seed: int = 0
) -> list[np.ndarray]:
    """Draws of each row of C, (chains, draws, tables, support), by Gibbs sampling of C, h and m.

    Given C and h, the people of a bin who wrote down o fall to the groups by a multinomial with probabilities
    ∝ h_b(a) P(o|a); given how many of them there are, rows and bins are Dirichlet.
    """
    generator = np.random.default_rng([seed])
    counts = bins.counts
    tables, size, outcomes = counts.shape
    isometric = len(channel.attributes.names) == 1 and bool(channel.possible.all())
    priors = [np.array(row.prior) for row in channel.rows]
    picked = [np.stack([row.entry == e for e in range(len(row.prior))]).astype(float) for row in channel.rows]
    rest = [1 - each.sum(0) for each in picked]
    repeated = np.broadcast_to(counts, (chains, *counts.shape))

    def dirichlet(concentration: np.ndarray) -> np.ndarray:
        gamma = generator.standard_gamma(concentration).clip(min=1e-300)
        return gamma / gamma.sum(-1, keepdims=True)

    # Chains start apart, around what the networks expect of the bins and people there then say.
    h = dirichlet(np.broadcast_to(START * bins.scores + 0.5, (chains, tables, size, channel.values)))
    share = h[..., None] * channel.possible
    share = share / share.sum(-2, keepdims=True).clip(min=1e-300)
    said = np.einsum("ctbao,tbo->ctao", share, counts)
    rows = [
        dirichlet(prior + START * (told / told.sum(-1, keepdims=True).clip(min=1)))
        for prior, told in zip(
            priors, (np.einsum("...ao,eao->...e", said, each) for each in picked), strict=True
        )
    ]
    spread = np.ones((chains, tables, channel.values))
    kept: list[list[np.ndarray]] = [[] for _ in rows]
    every = THINNED if isometric else 1
    for step in range(warmup + draws * every):
        matrix = np.ones((chains, tables, channel.values, outcomes))
        for row, each, other in zip(rows, picked, rest, strict=True):
            matrix = matrix * (np.einsum("...e,eao->...ao", row, each) + other)
        matrix = matrix * channel.possible
        # (chains, tables, bins, outcomes, values): people by what they wrote down and what they are
        joint = h[..., None, :] * matrix.swapaxes(-1, -2)[:, :, None]
        people = _allocate(generator, repeated, joint)
        h = dirichlet(spread[:, :, None] + people.sum(-2))
        cells = people.sum(2).swapaxes(-1, -2)  # (chains, tables, values, outcomes)
        rows = [
            dirichlet(prior + np.einsum("...ao,eao->...e", cells, each))
            for prior, each in zip(priors, picked, strict=True)
        ]
        if isometric:
            move_along_isometry(generator, rows, h, priors, spread)
            swap_groups(generator, rows, h, priors, spread)
        move_spread(generator, h, spread)
        if step >= warmup and (step - warmup) % every == 0:
            for store, row in zip(kept, rows, strict=True):
                store.append(row)
    return [np.stack(store, axis=1) for store in kept]


def move_along_isometry(
    generator: np.random.Generator,
    rows: list[np.ndarray],
    h: np.ndarray,
    priors: list[np.ndarray],
    spread: np.ndarray,
) -> None:
    r"""One Metropolis step, in place, that leaves :math:`\sum_a h_b(a) P(o|a)` as it is.

    For two groups i and j at random, row i becomes :math:`e^t C_i + (1 - e^t) C_j` and what bins hold of i
    :math:`e^{-t} h_b(i)`, the rest going to j, with t normal; the map has the Jacobian
    :math:`e^{t (\text{outcomes} - 1 - \text{bins})}`. ``spread`` is m.
    """
    i, j = generator.choice(len(rows), size=2, replace=False)
    t = generator.normal(scale=generator.choice([0.02, 0.1, 0.5]), size=(*rows[i].shape[:-1], 1))
    row = np.exp(t) * rows[i] + (1 - np.exp(t)) * rows[j]
    of_i = np.exp(-t) * h[..., i]
    of_j = h[..., j] + h[..., i] - of_i
    possible = (row > 0).all(-1) & (of_j > 0).all(-1)

    def logs(values: np.ndarray) -> np.ndarray:
        return np.log(np.where(possible[..., None], values, 1.0).clip(min=1e-300))

    change = ((priors[i] - 1) * (logs(row) - logs(rows[i]))).sum(-1)
    for group, values in ((i, of_i), (j, of_j)):
        change += (spread[..., group] - 1) * (logs(values) - logs(h[..., group])).sum(-1)
    change += t[..., 0] * (row.shape[-1] - 1 - h.shape[-2])
    accepted = possible & (np.log(generator.random(change.shape)) < change)
    rows[i][accepted] = row[accepted]
    for group, values in ((i, of_i), (j, of_j)):
        h[..., group] = np.where(accepted[..., None], values, h[..., group])


def swap_groups(
    generator: np.random.Generator,
    rows: list[np.ndarray],
    h: np.ndarray,
    priors: list[np.ndarray],
    spread: np.ndarray,
) -> None:
    """One Metropolis step, in place, that calls two groups at random by each other's name."""
    i, j = generator.choice(len(rows), size=2, replace=False)
    logs = [np.log(rows[group].clip(min=1e-300)) for group in (i, j)]
    change = ((priors[i] - priors[j]) * (logs[1] - logs[0])).sum(-1)
    # Half of the proposals are to stay, or the chain would swap to and fro.
    accepted = np.log(2 * generator.random(change.shape)) < np.minimum(change, 0.0)
    rows[i][accepted], rows[j][accepted] = rows[j][accepted], rows[i][accepted]
    h[..., [i, j]] = np.where(accepted[..., None, None], h[..., [j, i]], h[..., [i, j]])
    spread[..., [i, j]] = np.where(accepted[..., None], spread[..., [j, i]], spread[..., [i, j]])


def move_spread(generator: np.random.Generator, h: np.ndarray, spread: np.ndarray) -> None:
    """A Metropolis step, in place, for each entry of m, and one for all at once."""
    bins, values = h.shape[-2:]
    sums = np.log(h.clip(min=1e-300)).sum(-2)

    def log_density(m: np.ndarray) -> np.ndarray:
        likelihood = bins * (gammaln(m.sum(-1)) - gammaln(m).sum(-1)) + ((m - 1) * sums).sum(-1)
        return likelihood - (np.log(m) ** 2).sum(-1) / (2 * SPREAD**2)  # as a density of log m

    for moved in (*np.eye(values), np.ones(values)):
        step = generator.normal(scale=generator.choice([0.1, 0.5]), size=(*spread.shape[:-1], 1))
        proposed = spread * np.exp(step * moved)
        change = log_density(proposed) - log_density(spread)
        accepted = np.log(generator.random(change.shape)) < change
        spread[accepted] = proposed[accepted]


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
