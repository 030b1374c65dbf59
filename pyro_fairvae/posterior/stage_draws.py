"""Draws from the posterior of a :class:`.SecondStage`, and of the population's rates.

They are made in coordinates in which the posterior is about standard normal: around the maximum, with the
information there as the metric; by importance where that works, else by Hamiltonian Monte Carlo. With very
many rows and conditions the posterior is normal enough to be drawn as such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.posterior.second_stage import AVERAGED, SecondStage
from pyro_fairvae.schema.attributes import UNAVAILABLE

LARGE = 10**7  # rows times parameters from which the posterior is taken as normal
WARMUP = 100
LEAPS = 6
ACCEPTED = 0.8  # share of proposals that the length of a leap aims at
WIDER = 1.5  # chains start this much farther from the maximum than the posterior's deviation
PROPOSALS = 4000  # of a Student distribution with so many degrees of freedom, at least:
TAILS = 5
ENOUGH = 600  # effective number of proposals that replaces a chain
ELEMENTS = 1 << 22  # numbers in memory at once


@dataclass(frozen=True)
class ChannelPosterior:
    """Draws of a channel and of what its withholding depends on."""

    rows: list[Tensor]  # each row, averaged over the population, (chains, draws, tables, support)
    effects: Tensor  # w + δ of the average person, (chains, draws, tables, attributes, columns of v)
    over_cells: dict[str, Tensor]  # P(∅|a) of a group whose rows are crossed, (chains, draws, tables)


def sample(
    stage: SecondStage, q: Tensor, information: Tensor, draws: int, chains: int, seed: int, every: int = 1
) -> Tensor:
    """Draws, (chains, draws, tables, parameters), around a maximum.

    Proposals of a Student distribution are drawn again by their weights, where enough of them count;
    other tables are drawn by Hamiltonian Monte Carlo, ``every`` times as long. With many rows and
    parameters the normal approximation is drawn.
    """
    if stage.rows.observed.shape[1] * q.shape[-1] > LARGE:
        noise = torch.Generator().manual_seed(seed)
        normal = torch.randn(chains, draws, *q.shape, generator=noise, dtype=torch.float64).to(q)
        return q + _unwhitened(torch.linalg.cholesky(information), normal)
    drawn, enough = by_importance(stage, q, information, draws * chains, seed)
    drawn = drawn.unflatten(0, (chains, draws))
    rest = torch.nonzero(~enough).flatten()
    if len(rest):
        some = stage.of_tables(rest)
        drawn[:, :, rest] = by_chains(some, q[rest], information[rest], draws, chains, seed, every)
    return drawn


@torch.no_grad()
def by_importance(
    stage: SecondStage, q: Tensor, information: Tensor, draws: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Draws (draws, tables, parameters) by importance, and which tables have enough of them."""
    noise = torch.Generator().manual_seed(seed)
    size = q.shape[-1]
    tails = max(TAILS, size**2 // 10)  # with more parameters heavy tails waste proposals
    normal = torch.randn(PROPOSALS, *q.shape, generator=noise, dtype=torch.float64)
    chi2 = torch.from_numpy(np.random.default_rng([seed]).chisquare(tails, size=(PROPOSALS, len(q))))
    x = (normal / (chi2 / tails).sqrt().unsqueeze(-1)).to(q)
    log_proposal = -(tails + size) / 2 * torch.log1p((x**2).sum(-1) / tails)
    place = q + _unwhitened(torch.linalg.cholesky(information), x)
    rows = stage.rows
    at_once = max(1, ELEMENTS // (rows.observed.numel() * rows.labels.shape[-1] * (stage.others + 1)))
    density = torch.cat([stage.log_density(piece) for piece in place.split(at_once)])
    weights = (density - log_proposal).nan_to_num(-torch.inf, posinf=-torch.inf).softmax(0)
    enough = weights.square().sum(0) * ENOUGH < 1
    chosen = torch.multinomial(weights.T.cpu(), draws, replacement=True, generator=noise).T.to(q.device)
    return place.gather(0, chosen.unsqueeze(-1).expand(-1, -1, size)), enough


def by_chains(
    stage: SecondStage, q: Tensor, information: Tensor, draws: int, chains: int, seed: int, every: int
) -> Tensor:
    """Draws, (chains, draws, tables, parameters), by Hamiltonian Monte Carlo around a maximum."""
    noise = torch.Generator().manual_seed(seed)
    factor = torch.linalg.cholesky(information)

    def normal() -> Tensor:
        return torch.randn(chains, *q.shape, generator=noise, dtype=torch.float64).to(q)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=noise, dtype=torch.float64).to(q)

    def place(x: Tensor) -> Tensor:
        return q + _unwhitened(factor, x)

    def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
        density, slope = stage.gradient(place(x))
        return density, _solved(factor, slope, upper=False)

    x = WIDER * normal()
    density, slope = gradient(x)
    leap = q.new_full((len(q),), 1.2 * q.shape[-1] ** -0.25)
    kept = []
    for step in range(WARMUP + draws * every):
        length = leap.unsqueeze(-1) * (0.8 + 0.4 * uniform(1))
        momentum = normal()
        energy = density - (momentum**2).sum(-1) / 2
        moved, moved_slope = x, slope
        momentum = momentum + length / 2 * slope
        for last in [False] * (LEAPS - 1) + [True]:
            moved = moved + length * momentum
            moved_density, moved_slope = gradient(moved)
            momentum = momentum + length * moved_slope * (0.5 if last else 1)
        change = moved_density - (momentum**2).sum(-1) / 2 - energy
        change = torch.where(change.isfinite(), change, -math.inf)
        accepted = uniform(*change.shape).log() < change
        x = torch.where(accepted.unsqueeze(-1), moved, x)
        slope = torch.where(accepted.unsqueeze(-1), moved_slope, slope)
        density = torch.where(accepted, moved_density, density)
        if step < WARMUP:
            leap = leap * torch.exp(0.1 * (change.clamp(max=0).exp().mean(0) - ACCEPTED))
        elif (step - WARMUP) % every == 0:
            kept.append(place(x))
    return torch.stack(kept, dim=1)


@torch.no_grad()
def channel_posterior(stage: SecondStage, draws: Tensor) -> ChannelPosterior:
    """Rows of the channel averaged over the people of its groups, and w + δ, from draws of parameters."""
    some = stage.fewer(AVERAGED)
    crossed = _crossed(stage)
    rows: list[list[Tensor]] = [[] for _ in stage.channel.rows]
    over_cells: dict[str, list[Tensor]] = {label: [] for label in crossed}
    for q in draws.flatten(0, 1):
        population, people = _population(some, q)
        for store, row in zip(rows, population, strict=True):
            store.append(row)
        for label, several in crossed.items():
            mass = torch.stack([people[r] for r in several])
            rates = [population[r][:, stage.channel.rows[r].outcomes.index(UNAVAILABLE)] for r in several]
            over_cells[label].append((mass * torch.stack(rates)).sum(0) / mass.sum(0))
    parts = stage.split(draws)
    return ChannelPosterior(
        [torch.stack(store).unflatten(0, draws.shape[:2]) for store in rows],
        parts.effects + _of_average_person(some, draws.mean((0, 1)), parts.differences),
        {label: torch.stack(rates).unflatten(0, draws.shape[:2]) for label, rates in over_cells.items()},
    )


def _of_average_person(stage: SecondStage, q: Tensor, differences: Tensor) -> Tensor:
    """δ averaged over the people's values, (…, tables, attributes, columns)."""
    people = stage.log_shares(stage.predictors(q)).exp() * stage.rows.labels.unsqueeze(-1)
    shares = (people.sum(-2) * stage.rows.weights.unsqueeze(-1)).sum(-2)
    shares = shares / shares.sum(-1, keepdim=True)  # (tables, groups)
    average = []
    for of_groups in stage.value_of:
        average.append((shares.unsqueeze(-1) * differences[..., of_groups, :]).sum(-2))
    return torch.stack(average, dim=-2)


def _crossed(stage: SecondStage) -> dict[str, list[int]]:
    """The rows of a group in different cells, by the group in words; all of them can be ∅."""
    channel = stage.channel
    attributes, found = channel.attributes, dict[str, list[int]]()
    for r, row in enumerate(channel.rows):
        if len(row.cells) == channel.cells:
            continue
        parts = attributes.group_parts[row.groups]
        others = [
            values[part[0]]
            for name, values, part in zip(attributes.names, attributes.values, parts.T, strict=True)
            if name != row.attribute and np.ptp(part) == 0
        ]
        prefix = f"{row.attribute}: " if len(attributes.names) > 1 else ""
        found.setdefault(prefix + ", ".join([row.own, *others]), []).append(r)
    outcomes = [row.outcomes for row in channel.rows]
    return {group: rs for group, rs in found.items() if all(UNAVAILABLE in outcomes[r] for r in rs)}


def _population(stage: SecondStage, q: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Each row averaged over the people it holds for, (tables, support), and their number, (tables,)."""
    plain = stage.row_draws(stage.split(q).ratios)
    predictors = stage.predictors(q)
    tilt = stage.tilt(predictors)
    if tilt is None:
        return plain, []
    people = stage.log_shares(predictors).exp() * stage.rows.labels.unsqueeze(-1)
    averaged, masses = [], []
    for row, probabilities in zip(stage.channel.rows, plain, strict=True):
        weight = people[..., row.groups]
        if stage.rows.cell is not None:
            inside = torch.isin(stage.rows.cell, stage.rows.cell.new_tensor(row.cells))
            weight = weight * (inside if inside.dim() == 3 else inside.unsqueeze(-1)).unsqueeze(-1)
        mass = weight.sum((-1, -2, -3))
        masses.append(mass)
        if UNAVAILABLE not in row.outcomes:
            averaged.append(probabilities)
            continue
        withheld = row.outcomes.index(UNAVAILABLE)
        t = tilt[..., stage.channel.attributes.names.index(row.attribute), row.groups]
        rate = probabilities[:, withheld, None, None, None]
        rate = torch.sigmoid(torch.logit(rate, eps=1e-12) + t)
        mean = (weight * rate).sum((-1, -2, -3)) / mass
        mean = torch.where(mass > 0, mean, probabilities[:, withheld])  # a cell may be empty
        rest = (1 - mean) / (1 - probabilities[:, withheld]).clamp(min=1e-12)
        whole = probabilities * rest.unsqueeze(-1)
        whole[:, withheld] = mean
        averaged.append(whole)
    return averaged, masses


def _unwhitened(factor: Tensor, x: Tensor) -> Tensor:
    """Standard normal x, (…, tables, parameters), as one whose precision has the Cholesky factor."""
    return _solved(factor.mT, x, upper=True)


def _solved(triangles: Tensor, x: Tensor, upper: bool) -> Tensor:
    """T⁻¹ x of each table's triangle T; draws are columns, since broadcasting would copy T for each."""
    columns = x.flatten(0, -3).permute(1, 2, 0)
    solved = torch.linalg.solve_triangular(triangles, columns, upper=upper)
    return solved.permute(2, 0, 1).reshape(x.shape)
