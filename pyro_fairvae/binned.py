r"""Posterior of a channel that holds whatever the networks are worth.

Sort rows into bins by x alone, with scores from networks that have not seen them (:mod:`.crossfit`). Where
what is written down depends on a alone, every bin b obeys

.. math:: h_b \sim \mathrm{Dir}(2 \bar h_b), \quad C_r \sim \mathrm{Dir}(\mathrm{prior}_r), \quad
          \tilde a_i \sim \sum_a h_b(a)\, P(\tilde a | a), \quad P(\tilde a|a) \text{ made of the rows } C_r,

exactly, since h_b is the mean of P(a|x) over the bin; what the networks expect of it, the mean score, weighs
as two people do. So the posterior of C given the counts in the bins has the coverage it claims: a bad network
makes bins that are alike, and the interval wide. It is drawn by Gibbs sampling, which is conjugate
throughout, for many tables at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyro_fairvae.channels import Channel

BINS = 32  # at most
ROWS_IN_BIN = 100  # at least
PEOPLE = 2.0  # that the networks' expectation of a bin is worth


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
    channel: Channel, bins: Bins, draws: int = 1000, warmup: int = 500, chains: int = 4, seed: int = 0
) -> list[np.ndarray]:
    """Draws of each row of C, (chains, draws, tables, support), by Gibbs sampling of C and h.


    Chains start at draws of the prior. Given C and h, the people of a bin who wrote down o fall to the groups
    by a multinomial with probabilities ∝ h_b(a) P(o|a); given how many of them there are, rows and bins are
    Dirichlet.
    """
    generator = np.random.default_rng([seed])
    counts = bins.counts
    tables, _, outcomes = counts.shape
    expected = PEOPLE * bins.scores.clip(min=0.01)
    priors = [np.array(row.prior) for row in channel.rows]
    picked = [np.stack([row.entry == e for e in range(len(row.prior))]).astype(float) for row in channel.rows]
    rest = [1 - each.sum(0) for each in picked]
    repeated = np.broadcast_to(counts, (chains, *counts.shape))

    def dirichlet(concentration: np.ndarray) -> np.ndarray:
        gamma = generator.standard_gamma(concentration).clip(min=1e-300)
        return gamma / gamma.sum(-1, keepdims=True)

    rows = [dirichlet(np.broadcast_to(prior, (chains, tables, len(prior)))) for prior in priors]
    h = dirichlet(np.broadcast_to(expected, (chains, *expected.shape)))
    kept: list[list[np.ndarray]] = [[] for _ in rows]
    for step in range(warmup + draws):
        matrix = np.ones((chains, tables, channel.values, outcomes))
        for row, each, other in zip(rows, picked, rest, strict=True):
            matrix = matrix * (np.einsum("...e,eao->...ao", row, each) + other)
        matrix = matrix * channel.possible
        # (chains, tables, bins, outcomes, values): people by what they wrote down and what they are
        joint = h[..., None, :] * matrix.swapaxes(-1, -2)[:, :, None]
        people = _allocate(generator, repeated, joint)
        h = dirichlet(expected + people.sum(-2))
        cells = people.sum(2).swapaxes(-1, -2)  # (chains, tables, values, outcomes)
        rows = [
            dirichlet(prior + np.einsum("...ao,eao->...e", cells, each))
            for prior, each in zip(priors, picked, strict=True)
        ]
        if step >= warmup:
            for store, row in zip(kept, rows, strict=True):
                store.append(row)
    return [np.stack(store, axis=1) for store in kept]


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
