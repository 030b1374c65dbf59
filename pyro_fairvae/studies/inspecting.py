"""The posteriors that finished runs hold, looked at again without training."""

from __future__ import annotations

import json
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.files import write_whole
from pyro_fairvae.base.options import build, option
from pyro_fairvae.posterior.summaries import ChannelDraws, ChannelSummary, describe, prior_draws
from pyro_fairvae.studies.config import TrainConfig, read_options
from pyro_fairvae.studies.single_run import CONFIG, DRAWS, POSTERIOR, kept_draws, source_of

SOURCES = ("calibrated", "guide")


@dataclass(frozen=True)
class InspectConfig:
    """Whose posterior is looked at."""

    source: str | None = option(
        None, "calibrated (cross-fitted) or guide (all members pooled, given h); the first that a run has"
    )
    member: int | None = option(None, "that of one member by its number, 0 first, from its guide")

    def __post_init__(self) -> None:
        if self.source is not None:
            choose("source", self.source, SOURCES)
        require(
            self.member is None or self.source in (None, "guide"),
            "a member's posterior is its guide's; leave out --source, or give --source guide.",
        )


@dataclass(frozen=True)
class Inspected:
    """Posteriors by channel, of one run or pooled over several."""

    draws: dict[str, ChannelDraws]
    truth: dict[str, np.ndarray] | None  # None where the runs differ in it
    describes: str
    warnings: list[str]

    def rows(self, name: str) -> ChannelSummary:
        """What :func:`describe` says of a channel."""
        truth = None if self.truth is None else self.truth[name]
        return describe(self.draws[name], truth, chains=True)


def inspect_runs(runs: Sequence[Path], config: InspectConfig) -> Inspected:
    """The posteriors of runs, pooled with equal weight where there are several."""
    each = [_inspect_run(run, config) for run in runs]
    first = each[0]
    names = list(first.draws)
    same = all(
        other.truth is not None and first.truth is not None and np.array_equal(other.truth[n], first.truth[n])
        for other in each
        for n in names
    )
    pooled = f"; {len(runs)} runs pooled with equal weight" if len(runs) > 1 else ""
    return Inspected(
        {name: ChannelDraws.pool([one.draws[name] for one in each]) for name in names},
        first.truth if same else None,
        first.describes + pooled,
        list(dict.fromkeys(words for one in each for words in one.warnings)),
    )


def _inspect_run(run: Path, config: InspectConfig) -> Inspected:
    for name in (CONFIG, DRAWS, POSTERIOR):
        require(
            (run / name).is_file(),
            f"{run} holds no posterior: it has no {name}. Give the folder of a finished run; one that was "
            "stopped is finished by fairvae train with --resume.",
        )
    trained = build(TrainConfig, read_options(run / CONFIG))
    arrays = read_draws(run / DRAWS)
    source = "guide" if config.member is not None else config.source or source_of(arrays)
    require(
        any(key.startswith(f"{source}/") for key in arrays),
        f"{run} holds no {source} posterior; it was trained with --intervals given_h. Use --source guide.",
    )
    try:
        draws = {each.name: kept_draws(arrays, source, each) for each in trained.channels()}
    except KeyError as reason:
        raise InputError(f"{run / DRAWS} is of another run: it has no {reason}.") from reason
    describes = "cross-fitted: intervals carry the uncertainty of the networks"
    if source == "guide":
        describes = "the guide's, all members pooled with equal weight, given h and g"
    if config.member is not None:
        members = draws["a"].rows[0].shape[2]
        require(
            0 <= config.member < members,
            f"member {config.member} was asked for, but {run} has members 0 to {members - 1}.",
        )
        draws = {name: each.table(config.member) for name, each in draws.items()}
        describes = (
            f"the guide's of member {config.member} (λ = {trained.lambdas[config.member]:g}), given h and g"
        )
    warnings = _warnings(run / POSTERIOR) if source == "calibrated" else []
    return Inspected(draws, trained.data.truth_by_channel(), describes, warnings)


def _warnings(path: Path) -> list[str]:
    try:
        return list(json.loads(path.read_text())["warnings"])
    except (json.JSONDecodeError, KeyError) as reason:
        raise InputError(f"{path} is broken. Evaluate the run again by fairvae train --resume.") from reason


def read_draws(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as reason:
        raise InputError(f"{path} is broken: {reason}. Evaluate the run again by --resume.") from reason


def write_inference_data(path: Path, inspected: Inspected) -> None:
    """ArviZ InferenceData, as NetCDF: a variable for each row of each channel, in posterior and prior."""
    try:
        with warnings.catch_warnings():
            # Once a day it tells of a coming version, which is pinned away here.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as reason:
        raise InputError(
            "ArviZ is not installed; install it by pip install 'pyro_fairvae[arviz]'."
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
    data = arviz.from_dict(posterior=posterior, prior=prior, coords=coordinates, dims=dimensions)
    data.posterior.attrs["describes"] = inspected.describes
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "data.nc"
        data.to_netcdf(str(whole))
        write_whole(path, whole.read_bytes())
