"""Who withholds: summaries of the posteriors of the channels' rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import torch
from pyro.ops.stats import effective_sample_size
from scipy import stats

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.nn.conditions import BY_FORM_ALONE
from pyro_fairvae.posterior.calibration import DISAGREEMENT, Calibrated, largest_r_hat
from pyro_fairvae.posterior.channel_draws import ChannelDraws, Effects, guide_draws, guide_effects
from pyro_fairvae.posterior.withholding_check import CheckSummary
from pyro_fairvae.schema.attributes import UNAVAILABLE

INTERVAL = (0.05, 0.95)
LITTLE = 0.95  # contraction below which a warning says that the data say little
SWAPPED = 0.01  # share of draws with swapped groups above which there is a warning
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
    by_guide = {of.name: guide_draws(fit, of) for of in (guide.channel_a, guide.channel_y)}
    depends = guide.conditions is not None
    if calibrated:
        top = summarise_calibrated(calibrated, depends, truth)
    else:
        words = "90 % intervals, all members pooled with equal weight, given h and g"
        top = _summary(words + f"; {AT_MEAN}" * depends, by_guide, truth, chains=False)
    if depends and not top["effects"]:
        top["effects"] = describe_effects(guide_effects(fit), guide.channel_a)
    for k, (lambda_, epoch) in enumerate(zip(fit.lambdas, fit.chosen_epoch, strict=True)):
        a, y = (describe(by_guide[name].table(k), prior=False) for name in ("a", "y"))
        top["members"].append({"lambda": lambda_, "epoch": epoch, "a": a, "y": y})
    return top


def summarise_calibrated(
    calibrated: Mapping[str, Calibrated], depends: bool = False, truth: dict[str, np.ndarray] | None = None
) -> PosteriorSummary:
    """The result of :func:`summarise` without members, from posteriors by channel.

    ``depends`` is whether withholding depends on more than the group.
    """
    words = "90 % intervals, cross-fitted: they carry the uncertainty of the networks"
    draws = {name: posterior.draws for name, posterior in calibrated.items()}
    top = _summary(words + f"; {OF_POPULATION}" * depends, draws, truth, chains=True)
    for posterior in calibrated.values():
        top["warnings"] += cannot_tell(posterior)
        top["population"] |= {group: _interval(rates) for group, rates in posterior.over_cells.items()}
        if posterior.effects is not None:
            top["effects"] = describe_effects(posterior.effects, posterior.draws.channel)
        for check in posterior.checks[:1]:
            top["check"] = None if check is None else check.summary()
    return top


def _summary(
    describes: str, draws: Mapping[str, ChannelDraws], truth: dict[str, np.ndarray] | None, chains: bool
) -> PosteriorSummary:
    """The rates of channels, where they were learned."""

    def described(name: str) -> ChannelSummary:
        known = None if truth is None else truth.get(name)
        return describe(draws[name], known, chains=chains) if name in draws else {}

    return {
        "describes": describes,
        "a": described("a"),
        "y": described("y"),
        "warnings": [],
        "members": [],
        "effects": [],
        "check": None,
        "population": {},
    }


def describe_effects(effects: Effects, channel: Channel) -> list[EffectSummary]:
    """Mean and 90 % interval of what each column does to withholding each attribute."""
    return [
        {"attribute": attribute, "column": column, **_interval(effects.draws[..., j, k])}
        for j, attribute in enumerate(channel.attributes.names)
        for k, column in enumerate(effects.columns)
    ]


def withholding_rates(posterior: PosteriorSummary, knows_groups: bool = True) -> pd.DataFrame:
    """How often each group, and each class's label, is withheld, from the result of :func:`summarise`."""
    rates = [("group", given, rate) for given, rate in withheld_groups(posterior).items() if knows_groups]
    rates += [
        ("label", given, row[UNAVAILABLE]) for given, row in posterior["y"].items() if UNAVAILABLE in row
    ]
    return pd.DataFrame(withheld_line(*rate) for rate in rates)


def withheld_line(what: str, of: str, rate: Interval) -> dict[str, Any]:
    """A line of :func:`withholding_rates`."""
    return {"what": what, "of": of, "withheld": rate["mean"], "low": rate["q05"], "high": rate["q95"]}


def withheld_groups(posterior: PosteriorSummary) -> dict[str, RateSummary]:
    """How often each group withholds, by row, and over all people of a group whose rows are crossed."""
    rows = {given: row[UNAVAILABLE] for given, row in posterior["a"].items() if UNAVAILABLE in row}
    whole: dict[str, RateSummary] = {
        f"{group}, all": {**rate} for group, rate in posterior.get("population", {}).items()
    }
    return rows | whole


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
                summary["r_hat"] = largest_r_hat(values)
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


def _interval(values: np.ndarray) -> Interval:
    low, high = np.quantile(values, INTERVAL)
    return {"mean": float(values.mean()), "q05": float(low), "q95": float(high)}


def cannot_tell(posterior: Calibrated) -> list[str]:
    """Warnings about what the data do not determine in a channel, each with its reason."""
    draws, bins = posterior.draws, posterior.bins
    channel = draws.channel
    warnings = [BY_FORM_ALONE] if posterior.by_form_alone else []
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
            r_hat = largest_r_hat(rates)
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
