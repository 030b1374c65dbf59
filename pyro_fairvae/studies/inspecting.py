"""Posteriors stored with models, summarised again without training."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.base.folders import is_current_file
from pyro_fairvae.base.options import build, option
from pyro_fairvae.posterior.channel_draws import ChannelDraws, Effects, prior_draws
from pyro_fairvae.posterior.curves import truthful_channel, withholding_curve
from pyro_fairvae.posterior.stored_draws import (
    CALIBRATED,
    GUIDE,
    SOURCES,
    keep_draws,
    kept_draws,
    kept_effects,
    kept_sources,
)
from pyro_fairvae.posterior.summaries import (
    AT_MEAN,
    OF_POPULATION,
    ChannelSummary,
    EffectSummary,
    describe,
    describe_effects,
)
from pyro_fairvae.posterior.withholding_check import CheckSummary
from pyro_fairvae.storage.model_folder import CONFIG
from pyro_fairvae.storage.stored_model import load_model
from pyro_fairvae.studies.config import TrainConfig, read_options
from pyro_fairvae.studies.members import check_choice, member_number


@dataclass(frozen=True)
class InspectConfig:
    """The posterior to look at."""

    source: str | None = option(
        None,
        "calibrated (cross-fitted) or guide (all members pooled, given h); default: the first of a run",
    )
    member: int | None = option(None, "guide posterior of the member with this number, 0 first")
    lambda_: float | None = option(None, "guide posterior of the member with this λ")

    def __post_init__(self) -> None:
        if self.source is not None:
            choose("source", self.source, SOURCES)
        check_choice(self.member, self.lambda_)
        require(
            not self.of_one_member or self.source in (None, "guide"),
            "a member's posterior is its guide's; leave out source, or give guide.",
        )

    @property
    def of_one_member(self) -> bool:
        """Whether the posterior of one member is asked for, by its number or its λ."""
        return self.member is not None or self.lambda_ is not None


@dataclass(frozen=True)
class Inspected:
    """Posteriors by channel, of one run or pooled over several."""

    draws: dict[str, ChannelDraws]
    truth: dict[str, np.ndarray] | None  # None if the runs have different truths
    describes: str
    warnings: list[str]
    # Rates of P(ã|a) by another record of the group, by row and outcome, where withholding is real.
    yardstick: dict[str, dict[str, float]] = field(default_factory=dict)
    w: Effects | None = None  # what makes people withhold, where it is more than the group
    # The check of each model, and what it allows withholding to depend on.
    checks: tuple[tuple[CheckSummary, tuple[str, ...]], ...] = ()

    @property
    def effects(self) -> list[EffectSummary]:
        """Mean and interval of each column's effect on withholding."""
        return [] if self.w is None else describe_effects(self.w, self.draws["a"].channel)

    def rows(self, name: str) -> ChannelSummary:
        """The summary of a channel by :func:`describe`."""
        truth = None if self.truth is None else self.truth.get(name)
        summary = describe(self.draws[name], truth, chains=True)
        for label, outcomes in self.yardstick.items() if name == "a" else ():
            for outcome, rate in outcomes.items():
                summary[label][outcome]["yardstick"] = rate
        return summary


def inspect_models(folders: Sequence[Path], config: InspectConfig) -> Inspected:
    """The posteriors of models, pooled with equal weight if there are several."""
    by_model = [_inspect_model(folder, config) for folder in folders]
    first = by_model[0]
    names = list(first.draws)
    same = all(
        other.truth is not None
        and first.truth is not None
        and np.array_equal(other.truth.get(n, ()), first.truth.get(n, ()))
        for other in by_model
        for n in names
    )
    pooled = f"; {len(folders)} runs pooled with equal weight" if len(folders) > 1 else ""
    return Inspected(
        {name: ChannelDraws.pool([one.draws[name] for one in by_model]) for name in names},
        first.truth if same else None,
        first.describes + pooled,
        list(dict.fromkeys(words for one in by_model for words in one.warnings)),
        first.yardstick if all(one.yardstick == first.yardstick for one in by_model) else {},
        _pooled([one.w for one in by_model]),
        tuple(check for one in by_model for check in one.checks),
    )


def _pooled(several: Sequence[Effects | None]) -> Effects | None:
    """Effects of several models with equal weight; None unless all have the same columns."""
    effects = [one for one in several if one is not None]
    if len(effects) < len(several) or len({(one.columns, one.draws.shape) for one in effects}) > 1:
        return None
    return Effects(effects[0].columns, np.concatenate([one.draws for one in effects], axis=2))


def _inspect_model(folder: Path, config: InspectConfig) -> Inspected:
    model = load_model(folder)
    channels = model.channels if model.knows_groups else model.channels[1:]
    # A model of an earlier version stores no draws, but those of its guide can be drawn again.
    arrays = model.draws or keep_draws(model.fit, None)
    sources = kept_sources(arrays)
    source = GUIDE if config.of_one_member else config.source or sources[0]
    require(
        source in sources,
        f"{folder} holds no {source} posterior, only {' and '.join(sources)}; give that as source.",
    )
    try:
        draws = {channel.name: kept_draws(arrays, source, channel) for channel in channels}
    except KeyError as reason:
        raise InputError(f"the draws in {folder} belong to another model: they have no {reason}.") from reason
    w = None
    if model.knows_groups:
        columns = dict.fromkeys(effect["column"] for effect in model.posterior["effects"])
        w = kept_effects(arrays, source, channels[0], tuple(columns))
    describes = "cross-fitted: intervals carry the uncertainty of the networks"
    if source == GUIDE:
        describes = "the guide's, all members pooled with equal weight, given h and g"
    if config.of_one_member:
        member = member_number(model.fit.lambdas, config.member, config.lambda_, str(folder))
        draws = {name: of_channel.table(member) for name, of_channel in draws.items()}
        describes = f"the guide's of member {member} (λ = {model.fit.lambdas[member]:g}), given h and g"
        w = w and Effects(w.columns, w.draws[:, :, [member]])
    depends_on = model.depends_on
    if depends_on and model.knows_groups:
        describes += f"; {OF_POPULATION if source == CALIBRATED else AT_MEAN}"
    check = model.posterior["check"]
    warnings = list(model.posterior["warnings"]) if source == CALIBRATED else []
    yardstick = {
        label: {outcome: summary["yardstick"] for outcome, summary in row.items() if "yardstick" in summary}
        for label, row in model.posterior["a"].items()
    }
    checks = () if check is None else ((check, depends_on),)
    truth = _truth(folder)
    if truth is not None and model.knows_groups and "a" not in truth:
        curve = withholding_curve(model.posterior["a"], model.attributes)
        if curve is not None and "truth" in curve:
            truth["a"] = truthful_channel(curve["truth"].to_numpy())
    return Inspected(draws, truth, describes, warnings, yardstick, w, checks)


def _truth(folder: Path) -> dict[str, np.ndarray] | None:
    """The rates at which a run hid values; None for a model of a user's table."""
    if not is_current_file(folder / CONFIG):
        return None
    return build(TrainConfig, read_options(folder / CONFIG)).data.truth_by_channel()


def write_inference_data(path: Path, inspected: Inspected) -> None:
    """Write ArviZ InferenceData as NetCDF: a variable for each row of a channel, in posterior and prior."""
    try:
        with warnings.catch_warnings():
            # It warns once a day of a coming version, which the pinned requirement excludes.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as reason:
        raise InputError(
            "ArviZ is not installed; install it with pip install 'pyro_fairvae[arviz]'."
        ) from reason
    posterior: dict[str, np.ndarray] = {}
    prior: dict[str, np.ndarray] = {}
    coordinates, dimensions = {}, {}
    for name, draws in inspected.draws.items():
        before = prior_draws(draws.channel)
        for r, row in enumerate(draws.channel.rows):
            variable = f"{name}[{row.label}]"
            dimension = f"says_{name}_{r}"
            coordinates[dimension] = list(row.outcomes)
            dimensions[variable] = [dimension]
            chains, count, tables, support = draws.rows[r].shape
            merged = draws.rows[r].swapaxes(1, 2).reshape(chains * tables, count, support)
            posterior[variable] = merged
            prior[variable] = before.rows[r][:, :, 0]
    if inspected.w is not None:
        channel, w = inspected.draws["a"].channel, inspected.w
        variable = channel.withholding_site
        coordinates |= {"withheld": list(channel.attributes.names), "column": list(w.columns)}
        dimensions[variable] = ["withheld", "column"]
        posterior[variable] = w.draws.swapaxes(1, 2).reshape(-1, w.draws.shape[1], *w.draws.shape[3:])
    data = arviz.from_dict(posterior=posterior, prior=prior, coords=coordinates, dims=dimensions)
    data.posterior.attrs["describes"] = inspected.describes
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "data.nc"
        data.to_netcdf(str(whole))
        write_whole(path, whole.read_bytes())
