"""Posteriors of the channels that are valid for any networks: cross-fitted scores, then the second stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
import torch
from pyro.ops.stats import split_gelman_rubin
from torch import Tensor

from pyro_fairvae.base.ranks import current
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.channels import priors
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.conditions import Conditions, by_form_alone
from pyro_fairvae.posterior.channel_draws import ChannelDraws, Effects
from pyro_fairvae.posterior.checking import check_withholding
from pyro_fairvae.posterior.cross_fitting import CrossFitted, cross_fit
from pyro_fairvae.posterior.ordered_stage import OrderedStage
from pyro_fairvae.posterior.row_channel import RowChannel
from pyro_fairvae.posterior.sampler import Bins, bin_tables, sample_channel
from pyro_fairvae.posterior.scored_rows import ScoredRows, recalibrated
from pyro_fairvae.posterior.second_stage import SecondStage
from pyro_fairvae.posterior.stage_draws import channel_posterior, sample
from pyro_fairvae.posterior.withholding_check import WithholdingCheck
from pyro_fairvae.schema.observed import Observed, in_pieces

DISAGREEMENT = 1.1  # split R̂ above which chains disagree
CHAINS = 4
LONGER = 4  # factor on the number of sweeps for chains that disagree
NO_EFFECT = 1e-5  # prior standard deviation of a coefficient that is 0


@dataclass(frozen=True)
class Calibrated:
    """The posterior of a channel that is valid for any networks, and the scores that it is computed from.

    Where withholding depends on conditions v, the rows of ``draws`` are those of the population, averaged
    over the v of its people.
    """

    draws: ChannelDraws
    bins: Bins
    effects: Effects | None = None
    checks: tuple[WithholdingCheck | None, ...] = ()  # of the assumption on withholding, one for each table
    over_cells: Mapping[str, np.ndarray] = field(default_factory=dict)  # P(∅|a) of groups with crossed rows
    by_form_alone: bool = False  # nothing but the form of the channel tells v from the group
    recalibration: np.ndarray | None = None  # b and C at the mode, (tables, values − 1, values)
    by_row: RowChannel | None = None  # P(ã|a,v), where withholding depends on v; of the first table


def calibrate(
    train: Observed,
    channels: tuple[Channel, Channel],
    settings: Settings,
    seeds: Sequence[int],
    draws: int = 300,
) -> dict[str, Calibrated]:
    """Posteriors of P(ã|a) and P(ỹ|y) by cross-fitting; a seed for each table.

    Given the scores, a channel without misstatement, and one whose withholding depends on v, is drawn by
    :mod:`.second_stage`; others by :mod:`.sampler`, which moves between channels that fit equally well.

    Rows with weights enter networks, and what is drawn given their scores, by these. They are no likelihood
    then, but a pseudo-likelihood: weights are scaled to add up to Kish's effective number of rows, so that
    intervals are about as wide as those of so many rows of equal weight; clusters are not known of.
    """
    # Scores only tell rows apart, so the networks can be trained as if nobody misstated.
    honest = [priors.channel(channel.name, channel.attributes, "truthful") for channel in channels]
    conditions = conditions_of(train, channels[0], settings, len(seeds))
    fitted = cross_fit(train, (honest[0], honest[1]), settings, seeds, conditions=conditions)
    return current().from_first(
        lambda: _given_scores(train, channels, settings, seeds, draws, conditions, fitted)
    )


def _given_scores(
    train: Observed,
    channels: tuple[Channel, Channel],
    settings: Settings,
    seeds: Sequence[int],
    draws: int,
    conditions: Conditions | None,
    fitted: CrossFitted,
) -> dict[str, Calibrated]:
    """:func:`calibrate` given cross-fitted scores."""
    of_groups, of_labels = channels
    seed = derive_seed(seeds[0], 7)
    weights = None if train.weight is None else _for_tables(train.weight, seeds)
    labels = calibrate_scores(
        of_labels, fitted.labels, _for_tables(train.y_obs, seeds), draws, seed, weights=weights
    )
    dependence = None
    if conditions is not None:
        mean = torch.stack(
            [
                of_labels.matrix([torch.from_numpy(row.mean((0, 1)))[t] for row in labels.draws.rows])
                for t in range(len(seeds))
            ]
        )
        log_y = fitted.labels.double().log() + of_labels.log_likelihood(
            mean.to(fitted.labels.device), _for_tables(train.y_obs, seeds)
        )
        dependence = Dependence.of(train, conditions, of_groups, log_y.softmax(-1))
    groups = calibrate_scores(
        of_groups,
        fitted.groups,
        _for_tables(train.a_obs, seeds),
        draws,
        seed,
        dependence,
        settings.withholding_scale,
        train,
        weights,
    )
    return {of_groups.name: groups, of_labels.name: labels}


def conditions_of(
    train: Observed, channel: Channel, settings: Settings, tables: int = 1
) -> Conditions | None:
    """What withholding the group depends on; None if it is the group alone."""
    names = (*settings.withholding_depends_on, *(column.name for column in channel.crossed))
    return Conditions.learn(train, names, tables) if names else None


@dataclass(frozen=True)
class Dependence:
    """What withholding depends on, of every row; the columns of a crossed channel are conditions, too."""

    conditions: Conditions
    features: Tensor  # (tables, rows, columns)
    labels: Tensor  # q(y|x,ỹ), (tables, rows, classes)
    cell: Tensor | None  # of a crossed channel, (tables, rows) or (tables, rows, classes)

    @staticmethod
    def of(train: Observed, conditions: Conditions, channel: Channel, labels: Tensor) -> Dependence:
        """That of the training rows."""
        features = torch.cat([conditions.features(piece) for piece in in_pieces(train.x)], dim=-2)
        cell = None
        if channel.crossed:
            cell = torch.cat([channel.cell(piece) for piece in in_pieces(train.x)], dim=1)
            cell = cell.expand(len(labels), *cell.shape[1:])
        return Dependence(conditions, features, labels, cell)

    def has_effect(self, channel: Channel) -> list[bool]:
        """Whether a column of v has a coefficient w: those that never vary, or of crossed rows, do not."""
        crossed = {f"{column.name} = {value}" for column in channel.crossed for value in column.values}
        columns = zip(self.conditions.columns, self.conditions.varies, strict=True)
        return [varies and column not in crossed for column, varies in columns]


def _for_tables(observed: Tensor, seeds: Sequence[int]) -> Tensor:
    return observed.expand(len(seeds), observed.shape[-1])


def calibrate_scores(
    channel: Channel,
    scores: Tensor,
    observed: Tensor,
    draws: int,
    seed: int,
    dependence: Dependence | None = None,
    scale: float = 1.0,
    checked: Observed | None = None,
    weights: Tensor | None = None,
) -> Calibrated:
    """The posterior of one channel given cross-fitted scores, (tables, rows, values).

    With the rows in ``checked`` the assumption on withholding is checked, too. ``weights`` of rows,
    (tables, rows), are scaled to Kish's effective number of rows; where people may misstate, weighed counts
    are rounded to whole people.
    """
    if weights is not None:
        weights = weights.double()
        weights = weights * (weights.sum(-1) / weights.square().sum(-1)).unsqueeze(-1)
    bins = bin_tables(
        scores.double().cpu().numpy(),
        observed.cpu().numpy(),
        channel.outcomes,
        None if weights is None else weights.cpu().numpy(),
    )
    if dependence is None and not channel.truthful:
        return Calibrated(ChannelDraws(channel, sample_channel(channel, bins, draws, seed=seed)), bins)
    if dependence is None and bool(channel.stated(observed).all()):
        return Calibrated(_all_stated(channel, bins, draws, seed), bins)
    scales: float | list[float] = scale
    owners = None
    if dependence is None:
        rows = ScoredRows.make(scores, observed, channel.outcomes, weights=weights)
    else:
        scales = [scale if free else NO_EFFECT for free in dependence.has_effect(channel)]
        owners = dependence.conditions.features_of_columns
        of_label = dependence.conditions.classes > 0
        rows = ScoredRows.make(
            scores,
            observed,
            channel.outcomes,
            dependence.features,
            dependence.labels if of_label else None,
            dependence.conditions.labels if of_label else None,
            dependence.cell,
            weights,
        )
    stage = (OrderedStage if channel.ordered else SecondStage)(channel, rows, scales, owners)
    mode = stage.maximise()
    posterior = channel_posterior(stage, sample(stage, *mode, draws, CHAINS, seed))
    rates = [row[..., e].cpu().numpy() for row in posterior.rows for e in range(row.shape[-1])]
    if max(map(largest_r_hat, rates)) > DISAGREEMENT:
        posterior = channel_posterior(stage, sample(stage, *mode, draws, CHAINS, seed, every=LONGER))
    effects, by_row = None, None
    if dependence is not None:
        by_row = RowChannel.at(stage, mode[0][[0]], dependence.conditions)
        conditions, free = dependence.conditions, dependence.has_effect(channel)
        names = tuple(compress(conditions.words, free))
        relative = conditions.relative(posterior.effects).cpu().numpy()[..., free]
        effects = Effects(names, relative) if names else None
    checks: list[WithholdingCheck | None] = []
    for table in range(len(scores) if checked is not None else 0):
        assert checked is not None
        checks.append(_check(checked, stage, mode[0], scores, dependence, table))
    return Calibrated(
        ChannelDraws(channel, [row.cpu().numpy() for row in posterior.rows]),
        bins,
        effects,
        tuple(checks),
        {group: rates.cpu().numpy() for group, rates in posterior.over_cells.items()},
        checked is not None
        and dependence is not None
        and by_form_alone(checked, dependence.conditions.names),
        stage.split(mode[0]).recalibration.cpu().numpy(),
        by_row,
    )


def _all_stated(channel: Channel, bins: Bins, draws: int, seed: int) -> ChannelDraws:
    """The posterior where every row states its value truthfully: Dirichlet, whatever the scores."""
    generator = np.random.default_rng([seed])
    counts = bins.counts.sum(1)  # (tables, outcomes)
    rows = []
    for row in channel.rows:
        people = np.stack(
            [counts[:, (row.entry == e).any(0)].sum(-1) for e in range(len(row.prior))], axis=-1
        )
        gamma = generator.standard_gamma(np.array(row.prior) + people, size=(CHAINS, draws, *people.shape))
        rows.append(gamma / gamma.sum(-1, keepdims=True))
    return ChannelDraws(channel, rows)


def _check(
    train: Observed,
    stage: SecondStage,
    mode: Tensor,
    scores: Tensor,
    dependence: Dependence | None,
    table: int,
) -> WithholdingCheck | None:
    """The check of one table, at the mode of the posterior: means of skewed rates fit badly."""
    q, tilt = mode[[table]], None
    parts = stage.split(q)
    if dependence is None:
        shares = recalibrated(scores[table], parts.recalibration[0])
    else:
        of_table = stage.of_tables(torch.tensor([table], device=mode.device))
        predictors = of_table.predictors(q)[0]
        if predictors.shape[-2] == 1:  # no label, or one that is known
            predictors = predictors.squeeze(-2)
        shares = of_table.log_shares(predictors).exp()
        tilt = of_table.tilt(predictors)
    return check_withholding(
        train,
        stage.channel,
        shares.cpu().numpy(),
        [row[0].cpu().numpy() for row in stage.row_draws(parts.ratios)],
        None if dependence is None else dependence.conditions,
        None if tilt is None else tilt.cpu().numpy(),
        table,
        by_group=True,
    )


def calibrate_fit(fit: Fit, train: Observed, seeds: Sequence[int]) -> dict[str, Calibrated]:
    """Posteriors of P(ã|a) and P(ỹ|y) whose intervals are valid for any networks.

    New networks are fitted on folds of the training rows, every row is scored by networks of other folds, and
    the channels are drawn given these scores, which are recalibrated at the same time.

    Parameters
    ----------
    fit : Fit
        The fit that provides channels, priors and settings.
    train : Observed
        The rows that the fit was trained on.
    seeds : sequence of int
        One for each table: one in all, or one for each member where members have separate rows.

    Returns
    -------
    dict of str to Calibrated
        By channel, ``"a"`` and ``"y"``: ``draws`` and the ``bins`` that they are computed from.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, calibrate_fit, fit, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, settings=small)
    >>> calibrated = calibrate_fit(fitted, parts.train, seeds=[0])
    >>> sorted(calibrated), calibrated["a"].draws.of(0, "unavailable").shape[1:]
    (['a', 'y'], (300, 1))
    """
    guide = fit.program.guide
    return calibrate(train.to(fit.device, fit.dtype), (guide.channel_a, guide.channel_y), fit.settings, seeds)


def largest_r_hat(values: np.ndarray) -> float:
    """Split R̂ of (chains, draws, tables), the largest over tables."""
    return float(split_gelman_rubin(torch.from_numpy(values), chain_dim=0, sample_dim=1).max())
