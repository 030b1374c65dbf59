"""Who withholds: summaries of the posteriors of the channels' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TypedDict

import numpy as np
import pandas as pd
import torch
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from scipy import stats
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed, seeded
from pyro_fairvae.channels import priors
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.posterior.cross_fitting import cross_fit
from pyro_fairvae.posterior.sampler import Bins, bin_tables, sample_channel
from pyro_fairvae.posterior.scored_rows import ScoredRows, recalibrated
from pyro_fairvae.posterior.second_stage import SecondStage
from pyro_fairvae.posterior.stage_draws import channel_posterior, sample
from pyro_fairvae.posterior.withholding_check import CheckSummary, WithholdingCheck, check_withholding
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.observed import Observed, in_pieces

INTERVAL = (0.05, 0.95)
LITTLE = 0.95  # contraction below which a warning says that the data say little
SWAPPED = 0.01  # share of draws with swapped groups above which there is a warning
DISAGREEMENT = 1.1  # split R̂ above which a warning says that chains disagree
CHAINS = 4
LONGER = 4  # factor on the number of sweeps for chains that disagree
NO_EFFECT = 1e-5  # prior standard deviation of a coefficient that is 0
# What the rates of groups are where withholding depends on v.
OF_POPULATION = "rates are averaged over the people of the group"
AT_MEAN = "rates are those at the mean of what withholding depends on"


class Interval(TypedDict):
    """Mean and 90 % interval of a probability."""

    mean: float
    q05: float
    q95: float


class RateSummary(Interval, total=False):
    """The posterior of one outcome of one row, and optionally its prior, diagnostics and truth."""

    prior: Interval
    contraction: float  # 1 − Var(posterior) / Var(prior)
    r_hat: float
    ess: float
    truth: float
    yardstick: float  # the rate by another record of the group, where withholding is real


ChannelSummary = dict[str, dict[str, RateSummary]]  # by row, and by outcome
MemberPosterior = TypedDict(
    "MemberPosterior", {"lambda": float, "epoch": int, "a": ChannelSummary, "y": ChannelSummary}
)


class EffectSummary(Interval):
    """What a column of v does to withholding an attribute: a change in the log-odds of ∅."""

    attribute: str
    column: str


class PosteriorSummary(TypedDict):
    """The content of ``posterior.json``: P(ã|a) and P(ỹ|y), overall and for each member.

    ``effects`` are what makes people withhold, where withholding depends on more than the group; ``check``
    is the check of the assumption on withholding, if it was made. ``population`` is P(∅|a) of groups whose
    rows are crossed with columns, averaged over people.
    """

    describes: str
    a: ChannelSummary
    y: ChannelSummary
    warnings: list[str]
    members: list[MemberPosterior]
    effects: list[EffectSummary]
    check: CheckSummary | None
    population: dict[str, Interval]


@dataclass(frozen=True)
class ChannelDraws:
    """Draws of each row of a channel on its support.

    Attributes
    ----------
    channel : Channel
        The channel that was drawn.
    rows : list of ndarray
        Draws of each row, (chains, draws, tables, support). A table is a separate data set, or a
        member where each has its own networks.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, ChannelDraws, channel, prior_draws
    >>> sex = channel("a", Attributes.single(("f", "m"), "sex"))
    >>> draws = prior_draws(sex, draws=100)
    >>> draws.of(0, "unavailable").shape  # P(∅ | f): chains, draws, tables
    (1, 100, 1)
    >>> ChannelDraws.pool([draws, draws]).of(0, "unavailable").shape
    (1, 100, 2)
    """

    channel: Channel
    rows: list[np.ndarray]

    def of(self, row: int, outcome: str) -> np.ndarray:
        """Probability of an outcome of a row, (chains, draws, tables)."""
        return self.rows[row][..., self.channel.rows[row].outcomes.index(outcome)]

    def table(self, index: int) -> ChannelDraws:
        """The draws of one table."""
        return ChannelDraws(self.channel, [row[:, :, [index]] for row in self.rows])

    @staticmethod
    def pool(several: Sequence[ChannelDraws]) -> ChannelDraws:
        """Concatenate tables, members or runs with equal weight."""
        channel = several[0].channel
        require(
            all(draws.channel == channel for draws in several),
            "posteriors of different channels or priors cannot be pooled; inspect them one by one.",
        )
        require(
            len({draws.rows[0].shape for draws in several}) == 1,
            "posteriors of different kinds, or of different numbers of members, cannot be pooled with equal "
            "weight; inspect them one by one, or choose one kind with source.",
            "source",
        )
        rows = zip(*(draws.rows for draws in several), strict=True)
        return ChannelDraws(channel, [np.concatenate(same, axis=2) for same in rows])


@dataclass(frozen=True)
class Effects:
    """Draws of w, what makes people withhold: changes in the log-odds of ∅ with each column of v.

    Those of categories are relative to the average of people, as :meth:`.Conditions.relative` has them.
    """

    columns: tuple[str, ...]
    draws: np.ndarray  # (chains, draws, tables, attributes, columns)


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
    """
    # Scores only tell rows apart, so the networks can be trained as if nobody misstated.
    honest = [priors.channel(channel.name, channel.attributes, "truthful") for channel in channels]
    of_groups, of_labels = channels
    conditions = None
    names = (*settings.withholding_depends_on, *(column.name for column in of_groups.crossed))
    if names:
        conditions = Conditions.learn(train, names, len(seeds))
    fitted = cross_fit(train, (honest[0], honest[1]), settings, seeds, conditions=conditions)
    seed = derive_seed(seeds[0], 7)
    labels = _calibrate(of_labels, fitted.labels, _for_tables(train.y_obs, seeds), draws, seed)
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
        features = torch.cat([conditions.features(piece) for piece in in_pieces(train.x)], dim=-2)
        cell = None
        if of_groups.crossed:
            cell = torch.cat([of_groups.cell(piece) for piece in in_pieces(train.x)], dim=1)
            cell = cell.expand(len(seeds), *cell.shape[1:])
        dependence = Dependence(conditions, features, log_y.softmax(-1), cell)
    groups = _calibrate(
        of_groups,
        fitted.groups,
        _for_tables(train.a_obs, seeds),
        draws,
        seed,
        dependence,
        settings.withholding_scale,
        train,
    )
    return {of_groups.name: groups, of_labels.name: labels}


@dataclass(frozen=True)
class Dependence:
    """What withholding depends on, of every row; the columns of a crossed channel are conditions, too."""

    conditions: Conditions
    features: Tensor  # (tables, rows, columns)
    labels: Tensor  # q(y|x,ỹ), (tables, rows, classes)
    cell: Tensor | None  # of a crossed channel, (tables, rows) or (tables, rows, classes)

    def has_effect(self, channel: Channel) -> list[bool]:
        """Whether a column of v has a coefficient w: those of a crossed channel's rows have none."""
        crossed = {f"{column.name} = {value}" for column in channel.crossed for value in column.values}
        return [column not in crossed for column in self.conditions.columns]


def _for_tables(observed: Tensor, seeds: Sequence[int]) -> Tensor:
    return observed.expand(len(seeds), observed.shape[-1])


def _calibrate(
    channel: Channel,
    scores: Tensor,
    observed: Tensor,
    draws: int,
    seed: int,
    dependence: Dependence | None = None,
    scale: float = 1.0,
    checked: Observed | None = None,
) -> Calibrated:
    """The posterior of one channel given cross-fitted scores, (tables, rows, values).

    With the rows in ``checked`` the assumption on withholding is checked, too.
    """
    bins = bin_tables(scores.double().cpu().numpy(), observed.cpu().numpy(), channel.outcomes)
    if dependence is None and not channel.truthful:
        return Calibrated(ChannelDraws(channel, sample_channel(channel, bins, draws, seed=seed)), bins)
    if dependence is None and bool(channel.stated(observed).all()):
        return Calibrated(_all_stated(channel, bins, draws, seed), bins)
    scales: float | list[float] = scale
    owners = None
    if dependence is None:
        rows = ScoredRows.make(scores, observed, channel.outcomes)
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
        )
    stage = SecondStage(channel, rows, scales, owners)
    mode = stage.maximise()
    posterior = channel_posterior(stage, sample(stage, *mode, draws, CHAINS, seed))
    rates = [row[..., e].cpu().numpy() for row in posterior.rows for e in range(row.shape[-1])]
    if max(map(_r_hat, rates)) > DISAGREEMENT:
        posterior = channel_posterior(stage, sample(stage, *mode, draws, CHAINS, seed, every=LONGER))
    effects = None
    if dependence is not None:
        conditions, free = dependence.conditions, dependence.has_effect(channel)
        names = tuple(compress(conditions.columns, free))
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
        of_table = stage.of_tables(torch.tensor([table]))
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

    New networks are fitted on folds of the training rows, rows are sorted into bins by the scores of networks
    of other folds, and the channels are drawn given the counts in those bins.

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


@torch.no_grad()
def guide_draws(fit: Fit, channel: Channel, draws: int = 4000, seed: int = 0) -> ChannelDraws:
    """Draws from the guide at the chosen epochs; h(a|x) and g(y|x) are taken as certain.

    Parameters
    ----------
    fit : Fit
        The fit whose guide is sampled.
    channel : Channel
        ``fit.program.guide.channel_a`` or ``channel_y``.
    draws, seed : int
        Number of draws, and the seed.

    Returns
    -------
    ChannelDraws
        With one chain, and a table for each member.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, fit, guide_draws, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, lambdas=(0.0, 1.0), settings=small)
    >>> guide_draws(fitted, fitted.program.guide.channel_a, draws=50).of(0, "unavailable").shape
    (1, 50, 2)
    """
    with fit.at_chosen_epoch() as program, seeded(seed):
        rows = [
            program.guide.sites.distribution(site).sample(torch.Size([draws])).squeeze(-2)
            for site in channel.sites
        ]
    return ChannelDraws(channel, [row.cpu().double().numpy()[None] for row in rows])


def prior_draws(channel: Channel, draws: int = 4000, seed: int = 0) -> ChannelDraws:
    """Draws from the prior of a channel.

    Parameters
    ----------
    channel : Channel
        The channel whose rows are drawn.
    draws, seed : int
        Number of draws, and the seed.

    Returns
    -------
    ChannelDraws
        With one chain and one table.

    Examples
    --------
    >>> from pyro_fairvae import Attributes, channel, prior_draws
    >>> sex = channel("a", Attributes.single(("f", "m"), "sex"), "{preset: truthful, strength: 20}")
    >>> bool(abs(prior_draws(sex).of(0, "unavailable").mean() - 0.5) < 0.01)
    True
    """
    generator = np.random.default_rng([seed])
    return ChannelDraws(channel, [generator.dirichlet(row.prior, size=(1, draws, 1)) for row in channel.rows])


def summarise(
    fit: Fit, calibrated: dict[str, Calibrated] | None = None, truth: dict[str, np.ndarray] | None = None
) -> PosteriorSummary:
    """Mean and 90 % interval of every outcome of every row, as in ``posterior.json``.

    Parameters
    ----------
    fit : Fit
        The fit whose channels are summarised.
    calibrated : dict of str to Calibrated, optional
        The result of :func:`calibrate_fit`.
    truth : dict of str to ndarray, optional
        P(ã|a) under ``"a"`` and P(ỹ|y) under ``"y"``, where they are known.

    Returns
    -------
    PosteriorSummary
        At the top level, ``a`` and ``y`` are the calibrated posteriors if ``calibrated`` is given, otherwise
        the members' posteriors pooled with equal weight; ``members`` has the posterior of each member's
        guide, in which h(a|x) and g(y|x) are taken as certain. Rows are keyed by group, outcomes by value or
        ``unavailable``.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, fit, split, summarise, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, settings=small)
    >>> withheld = summarise(fitted)
    >>> rate = withheld["a"]["0"]["unavailable"]  # P(∅ | a = 0)
    >>> rate["q05"] < rate["mean"] < rate["q95"]
    True
    """
    guide = fit.program.guide
    channels = {channel.name: channel for channel in (guide.channel_a, guide.channel_y)}
    by_guide = {name: guide_draws(fit, channel) for name, channel in channels.items()}
    top = {name: posterior.draws for name, posterior in calibrated.items()} if calibrated else by_guide
    warnings = [
        words
        for posterior in (calibrated or {}).values()
        for words in cannot_tell(posterior.draws.channel, posterior.bins, posterior.draws)
    ]

    def described(name: str) -> ChannelSummary:
        return describe(top[name], None if truth is None else truth.get(name), chains=calibrated is not None)

    def of_member(k: int) -> MemberPosterior:
        a, y = (describe(by_guide[name].table(k), prior=False) for name in ("a", "y"))
        return {"lambda": fit.lambdas[k], "epoch": fit.chosen_epoch[k], "a": a, "y": y}

    return {
        "describes": _described(calibrated is not None, guide.conditions is not None),
        "a": described("a"),
        "y": described("y"),
        "warnings": warnings,
        "members": [of_member(k) for k in range(len(fit.lambdas))],
        "effects": _effects(fit, calibrated),
        "check": _check_summary(calibrated),
        "population": {
            group: _interval(rates)
            for posterior in (calibrated or {}).values()
            for group, rates in posterior.over_cells.items()
        },
    }


def _described(calibrated: bool, depends: bool) -> str:
    """What the rates of a summary are, in words."""
    words = "90 % intervals, all members pooled with equal weight, given h and g"
    if calibrated:
        words = "90 % intervals, cross-fitted: they carry the uncertainty of the networks"
    return words + f"; {OF_POPULATION if calibrated else AT_MEAN}" * depends


def _effects(fit: Fit, calibrated: dict[str, Calibrated] | None) -> list[EffectSummary]:
    """Mean and interval of w, calibrated if it is, else the guide's, members pooled."""
    guide = fit.program.guide
    if guide.conditions is None:
        return []
    posterior = None if calibrated is None else calibrated[guide.channel_a.name].effects
    return describe_effects(posterior or guide_effects(fit), guide.channel_a)


@torch.no_grad()
def guide_effects(fit: Fit, draws: int = 1000) -> Effects:
    """Draws of w from the guide at the chosen epochs; its tables are members."""
    conditions = fit.program.guide.conditions
    assert conditions is not None
    with fit.at_chosen_epoch() as program, seeded(0):
        site = program.guide.channel_a.withholding_site
        w = program.guide.sites.distribution(site).sample(torch.Size([draws])).squeeze(-3)
    return Effects(conditions.columns, conditions.relative(w).cpu().numpy()[None])


def describe_effects(effects: Effects, channel: Channel) -> list[EffectSummary]:
    """Mean and 90 % interval of what each column does to withholding each attribute."""
    return [
        {"attribute": attribute, "column": column, **_interval(effects.draws[..., j, k])}
        for j, attribute in enumerate(channel.attributes.names)
        for k, column in enumerate(effects.columns)
    ]


def _check_summary(calibrated: dict[str, Calibrated] | None) -> CheckSummary | None:
    """The first table's check of the groups' channel."""
    checks = [check for posterior in (calibrated or {}).values() for check in posterior.checks if check]
    if not checks:
        return None
    return checks[0].summary()


def withholding_rates(posterior: PosteriorSummary, knows_groups: bool = True) -> pd.DataFrame:
    """How often each group, and each class's label, is withheld, from the result of :func:`summarise`."""
    lines = [
        {
            "what": what,
            "of": given,
            "withheld": row[UNAVAILABLE]["mean"],
            "low": row[UNAVAILABLE]["q05"],
            "high": row[UNAVAILABLE]["q95"],
        }
        for what, rates in (("group", posterior["a"]), ("label", posterior["y"]))
        for given, row in rates.items()
        if UNAVAILABLE in row and (what == "label" or knows_groups)
    ]
    return pd.DataFrame(lines)


def describe(
    draws: ChannelDraws, truth: np.ndarray | None = None, prior: bool = True, chains: bool = False
) -> ChannelSummary:
    """For each row and outcome: mean and interval, those of the prior, contraction, diagnostics, truth.

    Contraction is 1 − Var(posterior) / Var(prior): 0 where the data carry no information about the rate, 1
    where they determine it.
    """
    channel = draws.channel
    known = None if truth is None else channel.row_probabilities(truth)
    summaries: ChannelSummary = {}
    for r, row in enumerate(channel.rows):
        before = torch.distributions.Dirichlet(torch.tensor(row.prior, dtype=torch.float64))
        summaries[row.label] = {}
        for e, outcome in enumerate(row.outcomes):
            values = draws.of(r, outcome)
            summary: RateSummary = {**_interval(values)}
            if prior:
                mass, rest = row.prior[e], sum(row.prior) - row.prior[e]
                low, high = beta_interval(mass, rest)
                summary["prior"] = {"mean": float(before.mean[e]), "q05": low, "q95": high}
                summary["contraction"] = float(1 - values.var() / before.variance[e])
            if chains and values.shape[0] > 1:
                tensor = torch.from_numpy(values)
                summary["r_hat"] = _r_hat(values)
                summary["ess"] = float(effective_sample_size(tensor, chain_dim=0, sample_dim=1).min())
            if known is not None and np.isfinite(known[r][e]):
                summary["truth"] = float(known[r][e])
            summaries[row.label][outcome] = summary
    return summaries


def add_yardstick(summary: ChannelSummary, channel: Channel, counted: np.ndarray) -> None:
    """Put P(ã|a) as counted by a yardstick of the group, (groups, outcomes), beside a channel's rates."""
    for row, rates in zip(channel.rows, channel.row_probabilities(counted), strict=True):
        if len(row.cells) < channel.cells:
            continue  # what was counted is not by cell
        for outcome, rate in zip(row.outcomes, rates, strict=True):
            if np.isfinite(rate):
                summary[row.label][outcome]["yardstick"] = float(rate)


def beta_interval(mass: float, rest: float) -> tuple[float, float]:
    """The 90 % interval of one entry of a Dirichlet, whose other entries sum to ``rest``."""
    low, high = stats.beta.ppf(INTERVAL, mass, rest)
    return float(low), float(high)


def _r_hat(values: np.ndarray) -> float:
    """Split R̂ of (chains, draws, tables), the largest over tables."""
    return float(split_gelman_rubin(torch.from_numpy(values), chain_dim=0, sample_dim=1).max())


def _interval(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, INTERVAL)
    return {"mean": float(values.mean()), "q05": float(low), "q95": float(high)}


def cannot_tell(channel: Channel, bins: Bins, draws: ChannelDraws) -> list[str]:
    """Warnings about what the data do not determine in a channel, each with its reason."""
    warnings = []
    counts = bins.counts.sum((0, 1)).astype(int)
    for j, (attribute, values) in enumerate(
        zip(channel.attributes.names, channel.attributes.values, strict=True)
    ):
        for v, value in enumerate(values):
            if counts[channel.attributes.outcome_parts[:, j] == v].sum() == 0:
                warnings.append(
                    f"nobody states {attribute} {value}: only the prior determines how often they withhold."
                )
    if not channel.truthful:
        warnings.append(
            f"the prior of channel {channel.name!r} lets people misstate: a whole set of channels then fits "
            "the data equally well, and the prior decides among them. Check how the result depends on it."
        )
        warnings += _swapped(channel, draws)
    for r, row in enumerate(channel.rows):
        if UNAVAILABLE not in row.outcomes:
            continue
        rates = draws.of(r, UNAVAILABLE)
        prior = torch.distributions.Dirichlet(torch.tensor(row.prior, dtype=torch.float64))
        contraction = 1 - rates.var() / float(prior.variance[row.outcomes.index(UNAVAILABLE)])
        strong = sum(row.prior) > 0.1 * counts.sum()  # such a prior leaves little to learn
        if contraction < LITTLE and channel.truthful and not strong:
            shares = bins.scores[..., row.groups].sum(-1)
            low, high = np.quantile(rates, INTERVAL)
            warnings.append(
                f"the data say little about P(∅ | {row.label}), which lies within [{low:.2f}, {high:.2f}]: "
                f"the share of {row.label} predicted from x varies only between {shares.min():.2f} and "
                f"{shares.max():.2f}, and it must vary to determine the rate."
            )
        if rates.shape[0] > 1:
            r_hat = _r_hat(rates)
            if r_hat > DISAGREEMENT:
                warnings.append(
                    f"chains disagree about P(∅ | {row.label}) (R̂ = {r_hat:.2f}); do not trust its interval."
                )
    return warnings


def _swapped(channel: Channel, draws: ChannelDraws) -> list[str]:
    """Warnings about draws with swapped groups: others state a group more often than its own members do."""
    warnings = []
    for r, row in enumerate(channel.rows):
        rivals = [
            draws.of(s, row.own)
            for s, other in enumerate(channel.rows)
            if (other.attribute, other.own != row.own) == (row.attribute, True) and row.own in other.outcomes
        ]
        if row.own not in row.outcomes or not rivals:
            continue
        share = float((np.stack(rivals) > draws.of(r, row.own)).any(0).mean())
        if share > SWAPPED:
            warnings.append(
                f"in {100 * share:.0f} % of the draws others state {row.own} more often than {row.label} do: "
                "groups may be swapped. A more truthful prior distinguishes them."
            )
    return warnings
