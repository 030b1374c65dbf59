"""One run: data in, a folder with everything about the result out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae import checkpoint
from pyro_fairvae.batch import Observed
from pyro_fairvae.channels import Channel
from pyro_fairvae.data import Complete, Splits, hide, load, split
from pyro_fairvae.errors import InputError, require
from pyro_fairvae.fitted import Fit
from pyro_fairvae.metrics import evaluate, evaluate_expected, fair_floor, imputation_scores
from pyro_fairvae.objective import beliefs
from pyro_fairvae.options import build
from pyro_fairvae.posterior import Calibrated, ChannelDraws, calibrate_fit, guide_draws, summarise
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk, impute
from pyro_fairvae.risks.imputers import PROBABILITIES, STANDS_IN
from pyro_fairvae.seeds import derive_seed
from pyro_fairvae.studies.config import ENVIRONMENT, TrainConfig, environment, read_options
from pyro_fairvae.training import Progress, fit

CHECKPOINT, CONFIG, HISTORY = "checkpoint.pt", "config.json", "history.csv"
TEST_MASK = 3  # seed of what is hidden of test rows to score the imputers
RESULTS, POSTERIOR, DRAWS = "results.json", "posterior.json", "draws.npz"
FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE = "frontier.png", "posterior.png", "training.png"
FILES = (
    CHECKPOINT, CONFIG, HISTORY, RESULTS, POSTERIOR, DRAWS, FRONTIER_FIGURE, POSTERIOR_FIGURE, TRAINING_FIGURE
)  # fmt: skip


@dataclass(frozen=True)
class RunResult:
    """What a run came to, as its folder holds it."""

    fit: Fit
    results: dict[str, Any]
    posterior: dict[str, Any]
    draws: dict[str, np.ndarray]  # as in :func:`keep_draws`
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]


def train_run(
    config: TrainConfig,
    out: Path,
    device: torch.device,
    data_dir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    at_start: Callable[[int], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
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
    )
    results = evaluate_members(fitted, parts)
    calibrated = None
    if config.settings.kind_of_intervals == "calibrated":
        calibrated = calibrate_fit(fitted, parts.train, [config.seed])
    posterior = summarise(fitted, calibrated, config.data.truth_by_channel())
    draws = keep_draws(fitted, calibrated)
    hidden = hide(parts.test, config.data.missingness(), derive_seed(config.seed, TEST_MASK))
    results["imputation"] = score_imputers(fitted, parts.test, hidden, results["selected"])
    checkpoint.write_csv(out / HISTORY, fitted.history)
    checkpoint.write_json(out / RESULTS, results)
    checkpoint.write_arrays(out / DRAWS, draws)
    checkpoint.write_json(out / POSTERIOR, posterior)
    return RunResult(fitted, results, posterior, draws, parts.test.classes, parts.test.groups)


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


def evaluate_members(fitted: Fit, parts: Splits) -> dict[str, Any]:
    """Metrics of every member on validation (expected, nothing hidden is read) and on test.

    ``selected`` is chosen by :func:`select`. The metric is the twin of the risk that was trained, ``risk``
    where it was trained over classes of the user's choice, and DEO for a user's own risk.
    """
    metric, judge = _metric_of(fitted)
    expected = _validation_metrics(fitted, parts, judge)
    tested = metrics_on_test(fitted, parts.test)
    members = [
        {"weight": weight, "val": val, "test": test}
        for weight, val, test in zip(fitted.weights_of_risk, expected, tested, strict=True)
    ]
    selected = select(fitted.weights_of_risk, expected, metric)
    return {"members": members, "metric": metric, "selected": selected}


def select(
    weights: tuple[float, ...], validation: list[dict[str, float]], metric: str = "deo", within: float = 0.01
) -> int:
    """Index of the member to use, of those that cost at most ``within`` of error, judged on validation.

    It has the largest λ among those whose metric is within one standard error of the least: a validation part
    has too few people in the rarest cells to tell the members' gaps apart, and λ was meant to close them.
    """
    limit = validation[int(np.argmin(weights))]["error"] + within
    allowed = [k for k, metrics in enumerate(validation) if not metrics["error"] > limit]
    # A metric that could not be taken (NaN) is no reason to choose a member.
    found = {k: float(np.nan_to_num(validation[k][metric], nan=np.inf)) for k in allowed}
    fairest = min(found, key=lambda k: found[k])
    bound = found[fairest] + np.nan_to_num(validation[fairest]["standard_error"])
    return max((k for k in found if found[k] <= bound), key=lambda k: weights[k])


def _metric_of(fitted: Fit) -> tuple[str, ComposedRisk]:
    """The metric that members are chosen by: its name, and the risk that it is of decisions."""
    fairness = fitted.settings.fairness
    if fairness.risk not in RISKS:
        return "deo", RISKS["deo"]
    return "risk" if fairness.risk_classes is not None else fairness.risk, RISKS[fairness.risk].over(
        fairness.risk_classes
    )


def _standard_error(
    risk: ComposedRisk, decided: np.ndarray, cells: np.ndarray, resamples: int = 200
) -> float:
    """Of a risk of decisions (rows,) under imputed cells (rows, y, a), by the bootstrap over rows."""
    rows, classes, groups = cells.shape
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    one_hot = np.eye(classes)[decided]
    mass = (drawn @ cells.reshape(rows, -1)).reshape(resamples, classes, groups)
    decisions = (cells[..., None] * one_hot[:, None, None]).reshape(rows, -1)
    predicted = (drawn @ decisions).reshape(resamples, classes, groups, classes)
    return float(risk(CellSums(torch.from_numpy(mass), torch.from_numpy(predicted))).value.std())


def metrics_on_test(fitted: Fit, test: Complete) -> list[dict[str, float]]:
    """Metrics of each member's decisions, and ``deo_floor``, the DEO of chance alone."""
    decided = fitted.decide(torch.from_numpy(test.x)).numpy()
    classes = len(test.classes)
    cells = np.zeros((test.rows, classes, len(test.groups)))
    cells[np.arange(test.rows), test.y, test.a] = 1
    return [
        evaluate(test.y, row, test.a, classes)
        | _over_chosen_classes(fitted, row, cells)
        | {"deo_floor": fair_floor(test.y, row, test.a, classes)}
        for row in decided
    ]


def _over_chosen_classes(fitted: Fit, decided: np.ndarray, cells: np.ndarray) -> dict[str, float]:
    """``risk``, that of decisions over the classes S_y where the user chose some; cells (rows, y, a)."""
    risk = fitted.settings.fairness.chosen()
    if fitted.settings.fairness.risk_classes is None or not isinstance(risk, ComposedRisk):
        return {}
    one_hot = np.eye(cells.shape[1])[decided]
    sums = cells.sum(0), np.einsum("rc,ryg->ygc", one_hot, cells)
    return {"risk": float(risk(CellSums(*map(torch.from_numpy, sums))).value)}


def score_imputers(fitted: Fit, truth: Complete, table: Observed, member: int) -> dict[str, Any]:
    """Scores of a member's imputations where ``table``, what is written down of ``truth``, says ∅.

    Of groups by each imputer that gives probabilities, and of labels, whose imputer is the head P_g.
    """
    found: dict[str, Any] = {}
    for imputer in PROBABILITIES:
        cells = imputed_cells(fitted, table, imputer)[member].double().numpy()
        for what, of_value, known, observed, attributes in (
            ("group", cells.sum(1), truth.a, table.a_obs, table.group_attributes),
            ("label", cells.sum(2), truth.y, table.y_obs, table.label_attributes),
        ):
            hidden = ~attributes.stated[observed.numpy()]
            if hidden.any() and (what, imputer) != ("label", "rounded"):  # which rounds groups alone
                found.setdefault(what, {})[imputer] = imputation_scores(of_value[hidden], known[hidden])
    return found


def imputed_cells(fitted: Fit, table: Observed, imputer_name: str | None = None) -> Tensor:
    """P(y, a | row), (members, rows, classes, groups), on the CPU, by the last epoch.

    Its imputer has been calibrated along the scores of the classifier that decides. It is the one that the
    fit was trained with, unless another is named; labels are imputed by the head P_g, also where the fit took
    a Gaussian field, which is one of training rows.
    """
    imputer = imputer_name or fitted.settings.fairness.imputer
    stated = fitted.program.guide.channel_a.stated
    pieces = [
        impute(beliefs(encoding, stated(batch.a_obs)), imputer).cpu()
        for batch, encoding in fitted.program.encode(table.to(fitted.device, fitted.dtype))
    ]
    return torch.cat(pieces, dim=1)


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
    table = load(config.data.dataset, config.data.group, data_dir)
    if config.data.rows is not None:
        table = table.take(config.data.rows, config.seed)
    config.settings.fairness.check(len(table.classes), len(table.groups))
    return split(table, config.data.missingness(), config.seed)


def _validation_metrics(fitted: Fit, parts: Splits, judge: ComposedRisk) -> list[dict[str, float]]:
    """Expected metrics of decisions under the imputations, and the standard error of what ``judge`` finds."""
    table = parts.validation.to(fitted.device, fitted.dtype)
    imputer = fitted.settings.fairness.imputer
    # Rates need masses that are not negative.
    whole = STANDS_IN[imputer] if imputer == "anchored" else imputer
    imputed = imputed_cells(fitted, table, whole).double().numpy()
    decided = fitted.decide(table.x).numpy()
    y_obs = table.y_obs.expand(len(decided), table.rows).cpu().numpy()
    return [
        evaluate_expected(stated, labels, cells, table.classes)
        | _over_chosen_classes(fitted, labels, cells)
        | {"standard_error": _standard_error(judge, labels, cells)}
        for stated, labels, cells in zip(y_obs, decided, imputed, strict=True)
    ]


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
