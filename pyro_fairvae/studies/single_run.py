"""One run: data in, a folder with everything about the result out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyro_fairvae.base import files as checkpoint
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.options import build
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.data import Splits, hide, split
from pyro_fairvae.evaluation.members import evaluate_members, score_imputers
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.posterior.summaries import Calibrated, ChannelDraws, calibrate_fit, guide_draws, summarise
from pyro_fairvae.studies.config import ENVIRONMENT, TrainConfig, environment, read_options
from pyro_fairvae.studies.faces import Faces, look_at_faces

CHECKPOINT, CONFIG, HISTORY = "checkpoint.pt", "config.json", "history.csv"
TEST_MASK = 3  # seed of what is hidden of test rows to score the imputers
RESULTS, POSTERIOR, DRAWS = "results.json", "posterior.json", "draws.npz"
FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE = "frontier.png", "posterior.png", "training.png"
FACES_FIGURE = "faces.png"
FIGURES = (FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE, FACES_FIGURE)
FILES = (CHECKPOINT, CONFIG, HISTORY, RESULTS, POSTERIOR, DRAWS, *FIGURES)


@dataclass(frozen=True)
class RunResult:
    """What a run came to, as its folder holds it."""

    fit: Fit
    results: dict[str, Any]
    posterior: dict[str, Any]
    draws: dict[str, np.ndarray]  # as in :func:`keep_draws`
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]
    faces: Faces | None  # of images alone


def train_run(
    config: TrainConfig,
    out: Path,
    device: torch.device,
    data_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    at_start: Callable[[int], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    workers: int = 0,
) -> RunResult:
    """Train, evaluate, and write ``config.json``, ``history.csv``, ``results.json``, ``posterior.json``,
    ``draws.npz``.

    A checkpoint is written after each epoch; with ``resume`` a killed run goes on from it to the same
    numbers, and a finished one is evaluated again. ``at_start`` is told how many epochs were done before,
    ``progress`` of each epoch done since.
    """
    require(
        not (resume and overwrite), "resume goes on with a run and overwrite replaces it; give one of them."
    )
    state = _resume_state(config, out, device) if resume else None
    if state is None and not overwrite:
        # A run that was killed in its first epoch has left its config and nothing else.
        _check_free(out, allowed={CONFIG} if resume else set())
    parts = load_parts(config, data_dir)
    _open_folder(out, config, device, fresh=state is None)

    if at_start is not None:
        at_start(0 if state is None else state["epoch"])

    def after_epoch(done: Progress) -> None:
        checkpoint.save(out / CHECKPOINT, config.flat(), done.state())
        if progress is not None:
            progress(done)

    fitted = fit(
        parts.train,
        parts.validation,
        config.lambdas,
        config.settings,
        config.seed,
        device,
        after_epoch=after_epoch,
        state=state,
        workers=workers,
    )
    results: dict[str, Any] = {**evaluate_members(fitted, parts)}
    calibrated = None
    if config.settings.kind_of_intervals == "calibrated":
        calibrated = calibrate_fit(fitted, parts.train, [config.seed])
    posterior: dict[str, Any] = {**summarise(fitted, calibrated, config.data.truth_by_channel())}
    draws = keep_draws(fitted, calibrated)
    hidden = hide(parts.test, config.data.missingness(), derive_seed(config.seed, TEST_MASK))
    results["imputation"] = score_imputers(fitted, parts.test, hidden, results["selected"])
    checkpoint.write_csv(out / HISTORY, fitted.history)
    checkpoint.write_json(out / RESULTS, results)
    checkpoint.write_arrays(out / DRAWS, draws)
    checkpoint.write_json(out / POSTERIOR, posterior)
    faces = look_at_faces(fitted, parts.test, results["selected"])
    return RunResult(fitted, results, posterior, draws, parts.test.classes, parts.test.groups, faces)


def keep_draws(fitted: Fit, calibrated: dict[str, Calibrated] | None) -> dict[str, np.ndarray]:
    """Draws as ``draws.npz`` holds them, by source (calibrated or guide), channel and number of row.

    Each is (chains, draws, tables, support); the guide's tables are the members.
    """
    guide = fitted.program.guide
    sources = {"guide": {c.name: guide_draws(fitted, c, 1000) for c in (guide.channel_a, guide.channel_y)}}
    if calibrated is not None:
        sources["calibrated"] = {name: each.draws for name, each in calibrated.items()}
    return {
        f"{source}/{name}/{r}": row.astype(np.float32)
        for source, channels in sources.items()
        for name, draws in channels.items()
        for r, row in enumerate(draws.rows)
    }


def source_of(arrays: Mapping[str, np.ndarray]) -> str:
    """The better source among draws: the calibrated one, unless the run has none."""
    return "calibrated" if any(key.startswith("calibrated/") for key in arrays) else "guide"


def kept_draws(arrays: Mapping[str, np.ndarray], source: str, channel: Channel) -> ChannelDraws:
    """The draws of a channel among those of :func:`keep_draws`."""
    rows = [arrays[f"{source}/{channel.name}/{r}"].astype(np.float64) for r in range(len(channel.rows))]
    return ChannelDraws(channel, rows)


def load_run(out: Path, device: torch.device, data_dir: str | Path | None = None) -> tuple[Fit, Splits, int]:
    """The fit of a finished run, its data, and the number of the member chosen on validation."""
    for name in (CONFIG, CHECKPOINT, RESULTS):
        require((out / name).is_file(), f"{out} is not the folder of a finished run: it has no {name}.")
    config = build(TrainConfig, read_options(out / CONFIG))
    state = checkpoint.load(out / CHECKPOINT, config.flat(), device)
    parts = load_parts(config, data_dir)
    fitted = fit(
        parts.train, parts.validation, config.lambdas, config.settings, config.seed, device, state=state
    )
    return fitted, parts, json.loads((out / RESULTS).read_text())["selected"]


def load_parts(config: TrainConfig, data_dir: str | Path | None = None) -> Splits:
    """The split data of a run."""
    table = config.data.table(config.seed, data_dir)
    config.settings.fairness.check(len(table.classes), len(table.groups))
    return split(table, config.data.missingness(), config.seed)


def _resume_state(config: TrainConfig, out: Path, device: torch.device) -> dict[str, Any] | None:
    path = out / CHECKPOINT
    return checkpoint.load(path, config.flat(), device) if path.exists() else None


def _check_free(out: Path, allowed: set[str]) -> None:
    if there := [name for name in FILES if name not in allowed and (out / name).exists()]:
        raise InputError(
            f"{out} already holds a run ({', '.join(there)}). Go on with it by --resume, replace it by "
            "--overwrite, or choose another folder with --out."
        )


def _open_folder(out: Path, config: TrainConfig, device: torch.device, fresh: bool) -> None:
    checkpoint.make_folder(out)
    checkpoint.write_json(out / CONFIG, config.flat() | {ENVIRONMENT: environment(device)})
    if fresh:
        for name in FILES:
            if name != CONFIG:
                (out / name).unlink(missing_ok=True)
