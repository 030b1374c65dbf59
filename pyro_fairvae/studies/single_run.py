"""One run: train on a data set and write all results to a folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyro_fairvae import __version__
from pyro_fairvae.auditing.judged_rows import JudgedRows, with_intervals
from pyro_fairvae.auditing.members import judge_members, unfair_member
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import check_replaceable, csv_text, json_text, write_whole
from pyro_fairvae.base.folders import alone_in, is_current_file
from pyro_fairvae.base.options import build
from pyro_fairvae.base.ranks import current
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.boosting.scores import FOLDS, folds_of, for_trunk
from pyro_fairvae.data import Complete, Splits, hide, split
from pyro_fairvae.data.table_encoder import TableEncoder
from pyro_fairvae.data.user_table import counted
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.evaluation.members import evaluate_members, frontier_of, score_imputers
from pyro_fairvae.inference import checkpoint
from pyro_fairvae.inference.checkpoint import CHECKPOINT
from pyro_fairvae.inference.divided_members import check_same_rows
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.posterior.calibration import calibrate_fit
from pyro_fairvae.posterior.stored_draws import keep_draws
from pyro_fairvae.posterior.summaries import add_yardstick, summarise
from pyro_fairvae.schema.attributes import UNAVAILABLE
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.storage.model_folder import ABOUT, CONFIG, DOCUMENT, HISTORY, MODEL, POSTERIOR, RESULTS
from pyro_fairvae.storage.stored_model import StoredModel, load_model
from pyro_fairvae.studies.config import ENVIRONMENT, TrainConfig, environment, read_options
from pyro_fairvae.studies.faces import Faces, look_at_faces

TEST_MASK = 3  # seed that hides values of test rows, to score the imputers
FILES = (CHECKPOINT, *MODEL, *ABOUT)


@dataclass(frozen=True)
class RunResult:
    """The results of a run, as in its folder."""

    model: StoredModel
    results: dict[str, Any]
    faces: Faces | None  # None unless rows are images

    @property
    def fit(self) -> Fit:
        return self.model.fit


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
    """Train, evaluate, and write ``config.json``, ``history.csv``, ``results.json``, ``posterior.json`` and
    the model, which every other command reads.

    A checkpoint is written after each epoch; with ``resume`` a killed run continues from it to the same
    numbers, and a finished one is evaluated again. ``at_start`` is called with the number of epochs done
    before, ``progress`` after each epoch. A run that is overwritten stays until the new one is whole.

    Processes that are :func:`~pyro_fairvae.base.ranks.joined` train together, each with the files of its own
    machine; the first one alone uses the folder.
    """
    require(not (resume and overwrite), "resume continues a run and overwrite replaces it; give one of them.")
    ranks = current()
    with alone_in(out) if ranks.is_first else nullcontext():
        state = ranks.from_first(lambda: _checked_folder(config, out, resume, overwrite))
        loaded = ranks.everywhere(lambda: load_parts(config, data_dir))
        check_same_rows(ranks, (loaded.train, loaded.validation), config.flat(), __version__)
        ranks.shares_members(FOLDS + 1 if config.targets else len(config.lambdas))
        parts, scores = for_trunk(loaded, config.settings, config.seed)
        if ranks.is_first:
            _open_folder(out, config, device, fresh=state is None)

        if at_start is not None:
            at_start(0 if state is None else state["epoch"])

        def after_epoch(done: Progress) -> None:
            reached = done.state()
            if ranks.is_first:
                checkpoint.save(out / CHECKPOINT, config.flat(), reached)
            if progress is not None:
                progress(done)

        train, validation, settings, seed = parts.train, parts.validation, config.settings, config.seed
        fold = folds_of(train, seed)
        imputer = None
        if config.targets or any(config.lambdas):
            imputer = ranks.from_first(lambda: TreeImputer.learn(loaded.train, fold, settings, seed, scores))
        imputation = None if imputer is None else imputer.learned
        if config.targets:
            fitted = fit_to_targets(
                train, validation, config.targets, torch.from_numpy(fold), settings, seed, device,
                after_epoch, state, workers, imputation,
            )  # fmt: skip
        else:
            fitted = fit(
                train, validation, config.lambdas, settings, seed, device,
                after_epoch=after_epoch, state=state, workers=workers, imputation=imputation,
            )  # fmt: skip
        evaluated = evaluate_members(
            fitted, parts, None if imputer is None else imputer.joint(loaded.validation)
        )
        results: dict[str, Any] = {**evaluated}
        calibrated = None
        if config.settings.kind_of_intervals == "calibrated":
            calibrated = calibrate_fit(fitted, parts.train, [config.seed])
        posterior = summarise(fitted, calibrated, config.data.truth_of(parts))
        if parts.yardstick is not None:
            add_yardstick(posterior["a"], fitted.program.guide.channel_a, parts.yardstick)
        hidden = hide(parts.test, config.data.missingness(), derive_seed(config.seed, TEST_MASK))
        results["imputation"] = score_imputers(fitted, parts.test, hidden, results["selected"])
        judged = JudgedRows.of_fit(fitted, validation)
        frontier = with_intervals(frontier_of(evaluated), judged, results["metric"])
        attributes = parts.test.attributes
        model = StoredModel(
            decider=fitted,
            columns=_columns(parts.test),
            classes=_classes(parts.test.classes),
            attributes=attributes,
            knows_groups=True,
            selected=results["selected"],
            metric=results["metric"],
            frontier=frontier,
            posterior=posterior,
            summary=_summary(parts),
            source={
                "label": config.data.label_name,
                "groups": list(attributes.names),
                "missing": [],
                "values": [],
                "data": config.data.dataset,
            },
            draws=keep_draws(fitted, calibrated),
            feature_names=parts.test.encoder.names if parts.test.encoder else (),
            proxies=parts.test.u_encoder,
            scores=scores,
            members=judge_members(
                judged, parts.test.classes, attributes.group_names, unfair_member(frontier)
            ),
        )
        about = {
            CONFIG: _config_text(config, device),
            HISTORY: csv_text(fitted.history),
            RESULTS: json_text(results),
            POSTERIOR: json_text(posterior),
        }
        if ranks.is_first:
            model.save(out, overwrite=True, about=about)
        return RunResult(model, results, look_at_faces(fitted, parts.test, results["selected"]))


def _classes(names: tuple[str, ...]) -> np.ndarray:
    """Classes as in a file of such rows: whole numbers if all names are, otherwise text."""
    numbers = all(name.isdecimal() and str(int(name)) == name for name in names)
    return np.array([int(name) for name in names]) if numbers else np.array(names)


def _columns(test: Complete) -> TableEncoder | Pixels:
    if isinstance(test.columns, Pixels):
        return test.columns
    assert test.encoder is not None
    return test.encoder


def _summary(parts: Splits) -> dict[str, Any]:
    """Counts of labels and groups, and the columns, of the training and validation rows."""
    tables = (parts.train, parts.validation)
    y_obs, a_obs = (
        np.concatenate([getattr(t, name).cpu().numpy() for t in tables]) for name in ("y_obs", "a_obs")
    )
    labels = [*parts.test.classes, UNAVAILABLE]
    return {
        "rows": len(y_obs),
        "labels": counted(labels, y_obs),
        "groups": counted(parts.test.attributes.outcome_names, a_obs),
        "columns": _column_summary(parts.train, parts.test.encoder),
        "training_rows": parts.train.rows,
        "held_out_rows": parts.validation.rows,
    }


def _column_summary(train: Observed, encoder: TableEncoder | None) -> list[dict[str, Any]]:
    if encoder is None:
        return []
    assert isinstance(train.x, torch.Tensor)
    values = {number.name: len(train.x[:, j].unique()) for j, number in enumerate(encoder.numbers)}
    values |= {category.name: len(category.values) for category in encoder.categories}
    return [
        {"name": name, "kind": encoder.kind_of(name), "missing": 0, "values": values.get(name, 1)}
        for name in encoder.names
    ]


def load_run(
    out: Path, device: torch.device, data_dir: str | Path | None = None
) -> tuple[StoredModel, Splits]:
    """The model of a finished run and its data; nothing is trained again."""
    for name in (CONFIG, DOCUMENT):
        require(is_current_file(out / name), f"{out} is not the folder of a finished run: it has no {name}.")
    config = build(TrainConfig, read_options(out / CONFIG))
    model, parts = load_model(out, device), load_parts(config, data_dir)
    return model, parts if model.scores is None else model.scores.to_parts(parts, config.seed)


def load_parts(config: TrainConfig, data_dir: str | Path | None = None) -> Splits:
    """The split data of a run."""
    table = config.data.table(config.seed, data_dir)
    config.settings.fairness.check(len(table.classes), len(table.groups))
    return split(table, config.data.missingness(), config.seed, config.data.proxies)


def _checked_folder(config: TrainConfig, out: Path, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The state to resume from, if any; raises unless the folder may be written to."""
    state = _resume_state(config, out) if resume else None
    if state is None and not overwrite:
        # A run that was killed in its first epoch left only its config.
        _check_free(out, allowed={CONFIG} if resume else set())
    for name in FILES:
        check_replaceable(out / name)
    return state


def _resume_state(config: TrainConfig, out: Path) -> dict[str, Any] | None:
    path = out / CHECKPOINT
    return checkpoint.load(path, config.flat()) if path.exists() else None


def _check_free(out: Path, allowed: set[str]) -> None:
    if existing := [name for name in FILES if name not in allowed and (out / name).exists()]:
        raise InputError(
            f"{out} already holds a run ({', '.join(existing)}). Pass resume=True to continue it, "
            "overwrite=True to replace it, or choose another folder.",
            "resume",
            "overwrite",
            "out",
        )


def _open_folder(out: Path, config: TrainConfig, device: torch.device, fresh: bool) -> None:
    """Write the config, and delete what an unfinished run left; a finished run stays as it is."""
    if (out / DOCUMENT).exists():
        return
    write_whole(out / CONFIG, _config_text(config, device))
    if fresh:
        for name in FILES:
            if name != CONFIG:
                (out / name).unlink(missing_ok=True)


def _config_text(config: TrainConfig, device: torch.device) -> str:
    return json_text(config.flat() | {ENVIRONMENT: environment(device)})
