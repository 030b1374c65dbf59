"""Every method on the same splits: the paper's Figure 2 and similar ones as a grid of jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch

from pyro_fairvae import __version__
from pyro_fairvae.base.devices import resolve_device
from pyro_fairvae.base.documents import damage_in
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_frame, write_json
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.options import build, flatten, option
from pyro_fairvae.base.reports import Report
from pyro_fairvae.baselines import METHODS, Method, Task
from pyro_fairvae.baselines.guesses import cells_of
from pyro_fairvae.boosting.scores import BoostedScores, for_trunk
from pyro_fairvae.data import DATASETS, DEFAULT_DATASET, LEVELS, Splits, split, split_complete
from pyro_fairvae.data.registry import names_help, studied_help
from pyro_fairvae.evaluation.measures import MEASURES
from pyro_fairvae.evaluation.members import judge
from pyro_fairvae.evaluation.selection import Decider, select
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import skip_validation
from pyro_fairvae.posterior.calibration import calibrate_fit
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.studies.comparison import OURS, WITHOUT_RISK
from pyro_fairvae.studies.config import ENVIRONMENT, DataConfig, check_simulated, environment
from pyro_fairvae.studies.faces import Faces, look_at_faces
from pyro_fairvae.studies.jobs import Left, Outcome, duration, kept_outcomes, run_jobs
from pyro_fairvae.studies.joint_fits import JointFit, point_rates, rates
from pyro_fairvae.studies.pools import BACKENDS, Cluster, Job
from pyro_fairvae.studies.resplits import OVERLAP
from pyro_fairvae.studies.results_file import Tables, about

COMPARED = tuple(name for name, measure in MEASURES.items() if measure.compared)

BESIDE_OTHERS = 1.5  # time of a job while all cores are busy, relative to its time alone
# Trunks that methods are compared with, as options of tables and of images.
TRUNK_KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "paper": ({"trunk": "mlp", "layers": 3, "pieces": 0}, {"trunk": "wrn28_2"}),
    "best": ({"trunk": "boosted"}, {"trunk": "cnn"}),
}
AS_PRINTED = "ss_vae_as_printed"  # which estimates the rates of Table 1 as the paper does
LEVEL_OF_ALL = "dense"  # level of the validation part for methods whose training rows hide nothing


@dataclass(frozen=True)
class ReproduceConfig:
    """The panels, the methods, and how long they are trained."""

    dataset: str = option(DEFAULT_DATASET, names_help)
    label: str | None = option(None, "what to predict, as in training (default: that of the data set)")
    groups: tuple[str, ...] | None = option(None, studied_help)
    levels: tuple[str, ...] = option(
        tuple(LEVELS), f"levels of missingness: {', '.join(LEVELS)}, separated by commas"
    )
    metrics: tuple[str, ...] = option(
        COMPARED, f"metrics of fairness: {', '.join(COMPARED)}, separated by commas"
    )
    methods: tuple[str, ...] | None = option(
        None, "methods, separated by commas (default: all that suit the data)"
    )
    seeds: int = option(5, "seeds 0 to N − 1, of split, missingness, weights and noise")
    weights: int = option(
        5, "number of weights of each method, the first of its trade-off; those of Fair-SS-VAE are λ"
    )
    epochs: int | None = option(None, "passes over the training rows (default: that of the data set)")
    batch: int | None = option(None, "rows in a step (default: that of the data set)")
    rows: int | None = option(
        None, "use only this many rows, drawn at random (default: all; for celeba at most 50,000)"
    )
    trunk: str | None = option(None, "the encoder's trunk, as in training: wrn28_2 for the paper's images")
    trunks: tuple[str, ...] = option(
        ("default",),
        f"kinds of trunks that every method but trees is given: {', '.join(TRUNK_KINDS)} (default: that of "
        "trunk), separated by commas; panels are within one kind",
    )
    others_at: tuple[str, ...] | None = option(
        None,
        "levels at which methods that are not among the main ones are compared, and trunks after the first, "
        "without ablations (default: all levels)",
    )
    ours: str = option(OURS, "the method that the others are compared with")
    side: int = option(32, "pixels in height and in width to which images are reduced")

    def __post_init__(self) -> None:
        check_simulated(self.dataset)
        dataset = DATASETS[choose("data set", self.dataset, DATASETS)]
        suited = [name for name, method in METHODS.items() if not (dataset.images and method.not_for_images)]
        given = {
            "groups": dataset.studied_groups,
            "methods": tuple(suited),
            **{name: getattr(self.settings(), name) for name in ("epochs", "batch")},
        }
        for name, value in given.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for what, names, table in (
            (f"group of {self.dataset}", self.all_groups, dataset.groups),
            ("level", self.levels, LEVELS),
            ("metric", self.metrics, COMPARED),
            ("method", self.all_methods, METHODS),
            ("kind of trunk", self.trunks, TRUNK_KINDS),
            ("level of other methods", self.levels_of_others, self.levels),
        ):
            require(len(names) > 0, f"no {what} was given; name at least one.")
            for name in names:
                choose(what, name, table)
        choose("method", self.ours, METHODS)
        for name in self.all_methods:
            reason = METHODS[name].not_for_images
            require(
                name in suited, f"{METHODS[name].label} is not for images such as {self.dataset}: {reason}."
            )
        for name in ("seeds", "weights"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        require(self.rows is None or self.rows >= 100, f"rows must be at least 100, got {self.rows}.")
        for group in self.all_groups:
            self.data(group, self.levels[0])

    @property
    def all_groups(self) -> tuple[str, ...]:
        return self.groups or ()

    @property
    def all_methods(self) -> tuple[str, ...]:
        return self.methods or ()

    @property
    def levels_of_others(self) -> tuple[str, ...]:
        return self.levels if self.others_at is None else self.others_at

    def data(self, group: str, level: str) -> DataConfig:
        return DataConfig(self.dataset, self.label, group, self.rows, self.side, level)

    def settings(self, metric: str = COMPARED[0], trunk: str | None = "default") -> Settings:
        """Settings with a kind of trunk; None is for methods that do not take the chosen one."""
        options = {name: getattr(self, name) for name in ("epochs", "batch", "trunk")}
        given = {name: value for name, value in options.items() if value is not None}
        dataset = DATASETS[self.dataset]
        if trunk is None and not dataset.images:
            given.pop("trunk", None)
        kind = TRUNK_KINDS[trunk or "default"][dataset.images]
        return build(Settings, {**dataset.suits, **given, **kind, "risk": metric})


MAIN_OF_IMAGES = ",".join(
    name for name, method in METHODS.items() if method.main and not method.not_for_images
)
GRID_PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"levels": "sparse", "metrics": "deo", "seeds": 1, "weights": 2, "epochs": 4,
              "batch": 128, "rows": 1500},
    "quick": {"levels": "sparse", "metrics": "deo", "seeds": 3, "weights": 4, "epochs": 10},
    "paper": {"trunks": "best,paper", "others_at": "sparse", "ours": "fair_ssvae_settled"},
    "celeba": {"dataset": "celeba", "methods": MAIN_OF_IMAGES, "seeds": 3, "rows": 10_000},
}  # fmt: skip


def preset(name: str, dataset: str) -> dict[str, Any]:
    """The options of a preset for a data set; smoke has only the first group."""
    options = GRID_PRESETS[choose("preset", name, GRID_PRESETS)]
    dataset = options.get("dataset", dataset) if dataset == DEFAULT_DATASET else dataset
    if name == "paper" and DATASETS[choose("data set", dataset, DATASETS)].images:
        return options | {"trunks": "best", "ours": OURS}
    first = DATASETS[choose("data set", dataset, DATASETS)].groups[0]
    return {"groups": first, **options} if name == "smoke" else options


@dataclass(frozen=True)
class Reproduction:
    """The results of a grid."""

    config: ReproduceConfig
    environment: dict[str, str | int]  # versions and machine
    results: pd.DataFrame  # a line for each panel, method, seed and weight
    recovery: pd.DataFrame  # as in :mod:`.recovery`
    printed: pd.DataFrame  # the same rates by the method as printed, points without intervals
    faces: dict[str, Faces]  # for images, by group, from the first job of the group that has some
    failures: list[dict[str, str]]

    @property
    def tables(self) -> Tables:
        """Results, failures, settings and versions as :func:`.store_tables` takes them."""
        dataset = self.config.dataset
        found = {
            "results": self.results,
            "recovery": self.recovery,
            "printed": self.printed,
            "failures": pd.DataFrame([{"dataset": dataset} | line for line in self.failures]),
            "about": about(dataset, asdict(self.config) | self.environment),
        }
        return {name: table for name, table in found.items() if len(table)}


def reproduce(
    config: ReproduceConfig,
    out: Path,
    device: str = "cpu",
    data_dir: Path | None = None,
    backend: str = "local",
    workers: int | None = None,
    cluster: Cluster | None = None,
    report: Report | None = None,
    progress: Callable[[Outcome, Left], None] | None = None,
) -> Reproduction:
    """Run the jobs of a grid that are not done yet, and gather the results of all jobs.

    ``out`` receives config.json, results.csv, recovery.csv and the folder of jobs. ``report`` is called
    with the number of jobs and an estimate of their time, and with each job that failed. On a ``cluster`` the
    device is that of each node: ``auto`` is a GPU where the job was given one; such jobs are not estimated.
    """
    choose("backend", backend, BACKENDS)
    at_once = joblib.cpu_count() if workers is None else workers
    require(at_once >= 1, f"workers must be at least 1, got {at_once}.")
    say = report or (lambda words: None)
    with alone_in(out):
        if report is not None and (cluster is None or device == "cpu"):
            say(plan(config, at_once, out, device, data_dir).in_words)
        outcomes = run_jobs(
            all_jobs(config),
            partial(run_job, device=device, data_dir=data_dir),
            out,
            version=__version__,
            backend=backend,
            workers=workers,
            cluster=cluster,
            report=report,
            progress=progress,
        )
        with damage_in(out / "jobs", "Delete that folder and start again."):
            reproduction = gather(config, outcomes, device)
        for failure in reproduction.failures:
            say(f"failed: {failure['job']}: {failure['reason'].strip().splitlines()[0]}")
        require(len(reproduction.results) > 0, f"every job failed; the reasons are in {out / 'jobs'}.")
        write_json(out / "config.json", asdict(config) | {ENVIRONMENT: reproduction.environment})
        write_frame(out / "results.csv", reproduction.results)
        if len(reproduction.recovery):
            write_frame(out / "recovery.csv", reproduction.recovery)
    return reproduction


def gather(config: ReproduceConfig, outcomes: Sequence[Outcome], device: str = "cpu") -> Reproduction:
    """The tables of a grid from the outcomes of its jobs; a panel is included if all of its jobs are done."""
    by_key = {outcome.job.key: outcome for outcome in outcomes}
    lines: list[dict[str, Any]] = []
    for panel in panels_of(config):
        jobs = jobs_of(config, panel)
        of_panel = [by_key[job.key] for job in jobs]
        records = [outcome.record for outcome in of_panel if outcome.record is not None]
        if len(records) == len(jobs):
            lines += result_lines(config, panel, records, sum(outcome.seconds for outcome in of_panel))
    first = {
        job.key
        for panel in panels_of(config)
        if panel[5] == config.trunks[0]
        for job in jobs_of(config, panel)
    }
    recovered, printed = (
        [
            {"dataset": config.dataset} | line
            for outcome in outcomes
            if outcome.record
            and outcome.job.key in first
            and (outcome.job.config["method"] == AS_PRINTED) == as_printed
            for line in outcome.record["recovery"]
        ]
        for as_printed in (False, True)
    )
    failures = [
        {"job": outcome.job.name, "reason": outcome.error}
        for outcome in outcomes
        if outcome.error is not None
    ]
    faces = {
        outcome.job.config["group"]: Faces.from_record(outcome.record["faces"])
        for outcome in reversed(outcomes)
        if outcome.record is not None and outcome.record["faces"]
    }
    versions = environment(device)
    return Reproduction(
        config, versions, pd.DataFrame(lines), pd.DataFrame(recovered), pd.DataFrame(printed), faces, failures
    )


Panel = tuple[str, str, str, str, int, str]  # group, level, metric, method, seed, kind of trunk


def panels_of(config: ReproduceConfig) -> list[Panel]:
    """Each method's part of each panel: main methods everywhere with the first trunk, else at some levels."""
    every = product(
        config.all_groups,
        config.levels,
        config.metrics,
        config.all_methods,
        range(config.seeds),
        config.trunks,
    )
    return [panel for panel in every if _compared(config, METHODS[panel[3]], panel[1], panel[5])]


def _compared(config: ReproduceConfig, method: Method, level: str, trunk: str) -> bool:
    if trunk != config.trunks[0]:
        return level in config.levels_of_others and not method.ablation
    return method.main or level in config.levels_of_others


def jobs_of(config: ReproduceConfig, panel: Panel) -> list[Job]:
    """The jobs of a method's part of a panel: its own, and the one that it shares at weight 0."""
    group, level, metric, name, seed, trunk = panel
    plain = METHODS[name].plain
    own = [job_of(config, *panel)] if own_weights(config, METHODS[name]) else []
    return own if plain is None else [job_of(config, group, level, metric, plain, seed, trunk), *own]


def all_jobs(config: ReproduceConfig) -> list[Job]:
    """The jobs of all panels, each once."""
    jobs = [job for panel in panels_of(config) for job in jobs_of(config, panel)]
    return list({job.key: job for job in jobs}.values())


def own_weights(config: ReproduceConfig, method: Method) -> list[float]:
    """The weights of a method's own job."""
    weights = method.weights[: config.weights]
    return [weight for weight in weights if weight > 0 or method.plain is None]


def job_of(
    config: ReproduceConfig,
    group: str,
    level: str,
    metric: str,
    name: str,
    seed: int,
    trunk: str = "default",
) -> Job:
    """The job of a method in a panel; panels that do not change its results share one job."""
    method = METHODS[name]
    kind = trunk if method.by_trunk else None
    metrics = [metric] if method.by_metric else list(COMPARED)
    weights = own_weights(config, method)
    job = {
        "dataset": config.dataset,
        "label": config.label,
        "side": config.side,
        "group": group,
        "level": level if method.by_level else None,
        "metrics": metrics,
        "method": name,
        "seed": seed,
        "weights": weights,
        "rows": config.rows,
        "settings": dict(_flat_settings(config, metrics[0], kind)),
    }
    where = [group, *([level] if method.by_level else []), *([metric] if method.by_metric else [])]
    where += [f"trunk {trunk}"] if method.by_trunk and len(config.trunks) > 1 else []
    return Job(
        f"{name} {' '.join(where)} seed {seed}", job, cost_of(method, len(weights)) * epochs_of(config)
    )


@lru_cache
def _flat_settings(config: ReproduceConfig, metric: str, trunk: str | None) -> dict[str, Any]:
    return flatten(asdict(config.settings(metric, trunk)))


def epochs_of(config: ReproduceConfig) -> int:
    return int(_flat_settings(config, COMPARED[0], "default")["epochs"])


def cost_of(method: Method, weights: int) -> float:
    return method.cost * (1 + weights)


def run_job(job: dict[str, Any], device: str = "cpu", data_dir: Path | None = None) -> dict[str, Any]:
    """Train a method on a split, then evaluate it; the test part is read only after training."""
    return run_method(METHODS[job["method"]], job, device, data_dir)


def run_method(
    method: Method, job: dict[str, Any], device: str = "cpu", data_dir: Path | None = None
) -> dict[str, Any]:
    """The same for a method that need not be in the registry."""
    skip_validation()
    device = str(resolve_device(device))
    names = ("dataset", "label", "group", "rows", "side")
    data = DataConfig(**{name: job[name] for name in names}, level=job["level"] or LEVEL_OF_ALL)
    table = data.table(job["seed"], data_dir)
    settings = build(Settings, job["settings"])
    recorded = split(table, data.missingness(), job["seed"])
    truth = split_complete(table, job["seed"])["train"] if method.informed else None
    if method.complete and truth is not None:
        y, a = torch.from_numpy(truth.y), torch.from_numpy(truth.a)
        recorded = replace(recorded, train=replace(recorded.train, y_obs=y, a_obs=a))
    drawn = (*(job[name] for name in (*names, "level", "seed")), method.complete)
    parts, scores = for_trunk(recorded, settings, job["seed"], partial(_grown, drawn))
    fitted = method.fit(
        Task(parts.train, parts.validation, settings, job["seed"], device, truth, scores), job["weights"]
    )
    recovery: list[dict[str, Any]] = []
    faces = None
    if job["method"] == WITHOUT_RISK and isinstance(fitted, Fit):  # estimates the rates of Table 1
        faces = look_at_faces(fitted, parts.test)
        calibrated = calibrate_fit(fitted, parts.train, [job["seed"]])
        common = {name: job[name] for name in ("group", "level", "seed")}
        recovery = rates(JointFit(fitted, calibrated, 0.0, 0.0), 0, data.truth_by_channel(), common)
    if job["method"] == AS_PRINTED and isinstance(fitted, Fit):
        common = {name: job[name] for name in ("group", "level", "seed")}
        recovery = point_rates(fitted, data.truth_by_channel(), common)
    return {
        "judged": {metric: _judge(fitted, job["weights"], metric, parts) for metric in job["metrics"]},
        "constant_error": float(1 - np.bincount(parts.test.y).max() / parts.test.rows),
        "overlap": parts.test.rows / parts.train.rows,
        "recovery": recovery,
        "faces": {} if faces is None else faces.record(),
    }


_GROWN: dict[tuple[Any, ...], BoostedScores] = {}  # of this process, by what the rows were drawn by
MOST_GROWN = 64


def _grown(drawn: tuple[Any, ...], table: Observed, fold: np.ndarray, seed: int) -> BoostedScores:
    """The trees of a table, grown once for all methods whose jobs this process does."""
    if drawn not in _GROWN:
        while len(_GROWN) >= MOST_GROWN:
            _GROWN.pop(next(iter(_GROWN)))
        _GROWN[drawn] = BoostedScores.learn(table, fold, seed)
    return _GROWN[drawn]


def _judge(fitted: Decider, weights: Sequence[float], metric: str, parts: Splits) -> dict[str, Any]:
    """Evaluate any method in the same way: on validation rows that state both, not on its imputations."""
    table = parts.validation
    cells = cells_of(table.y_obs, table.a_obs, table.classes, table.groups, torch.float64)
    fairness = build(Settings, {"risk": metric}).fairness
    return {**judge(fitted, weights, fairness, parts, cells.expand(len(weights), -1, -1, -1))}


def result_lines(
    config: ReproduceConfig, panel: Panel, records: Sequence[dict[str, Any]], seconds: float
) -> list[dict[str, Any]]:
    """A line for each weight of a method's part of a panel."""
    group, level, metric, name, seed, trunk = panel
    method = METHODS[name]
    common = {
        "dataset": config.dataset,
        "group": group,
        "level": level,
        "metric": metric,
        "trunk": trunk,
        "method": name,
        "label": method.label,
        "informed": method.informed,
        "paper": method.paper,
        "main": method.main,
        "seed": seed,
    }
    return measured_lines(common, records, metric, seconds)


def measured_lines(
    common: dict[str, Any], records: Sequence[dict[str, Any]], metric: str, seconds: float
) -> list[dict[str, Any]]:
    """A line for each member of some jobs, with what is common to them."""
    members = [member for record in records for member in record["judged"][metric]["members"]]
    selected = select([member["lambda"] for member in members], [member["val"] for member in members], metric)
    return [
        common
        | {
            "weight": member["lambda"],
            "selected": k == selected,
            "val_error": member["val"]["error"],
            "val_disparity": member["val"][metric],
            "error": member["test"]["error"],
            "disparity": member["test"][metric],
            "floor": member["test"]["deo_floor"] if metric == "deo" else float("nan"),
            "positive_rate": member["test"]["positive_rate"],
            "constant_error": records[0]["constant_error"],
            "overlap": records[0].get("overlap", OVERLAP),
            "seconds": seconds,
        }
        for k, member in enumerate(members)
    ]


@dataclass(frozen=True)
class Plan:
    """What a grid has to do, and how long it may take.

    ``lines`` has for each method its jobs, how many are done, the seconds of a job, whether they are
    ``recorded`` in the folder or estimated, and the hours that remain, on one core.
    """

    lines: pd.DataFrame
    seconds: float  # that remain, with so many jobs at a time
    workers: int

    @property
    def in_words(self) -> str:
        """From the time of jobs that run alone to that of jobs on busy cores."""
        jobs, done = int(self.lines["jobs"].sum()), int(self.lines["done"].sum())
        longest = duration(BESIDE_OTHERS * self.seconds)
        before = f", {done} of them done" if done else ""
        return f"{jobs} jobs{before}, {duration(self.seconds)} to {longest} with {self.workers} at a time"


def plan(
    config: ReproduceConfig,
    workers: int,
    out: Path | None = None,
    device: str = "cpu",
    data_dir: Path | None = None,
) -> Plan:
    """The jobs of a grid by method, and their time.

    A method whose jobs ``out`` has records of takes as long as those; others take as long, for their cost, as
    all recorded ones, or as a short fit that is timed now where there are none.
    """
    jobs = all_jobs(config)
    kept = {} if out is None else kept_outcomes(jobs, out, __version__)
    rates_of: dict[str, float] = {}
    for name in {outcome.job.config["method"] for outcome in kept.values()}:
        own = [outcome for outcome in kept.values() if outcome.job.config["method"] == name]
        rates_of[name] = _rate(own)
    usual = _rate(list(kept.values())) if kept else seconds_of_cost(config, device, data_dir)
    lines = []
    for name in dict.fromkeys(job.config["method"] for job in jobs):
        own_jobs = [job for job in jobs if job.config["method"] == name]
        rate = rates_of.get(name, usual)
        waiting = sum(job.cost for job in own_jobs if job.key not in kept)
        lines.append(
            {
                "method": name,
                "label": METHODS[name].label,
                "jobs": len(own_jobs),
                "done": sum(job.key in kept for job in own_jobs),
                "seconds": rate * sum(job.cost for job in own_jobs) / len(own_jobs),
                "recorded": name in rates_of,
                "hours": rate * waiting / 3600,
            }
        )
    table = pd.DataFrame(lines)
    return Plan(table, 3600 * float(table["hours"].sum()) / workers, workers)


def _rate(outcomes: Sequence[Outcome]) -> float:
    """Seconds for a unit of cost."""
    return sum(outcome.seconds for outcome in outcomes) / sum(outcome.job.cost for outcome in outcomes)


def seconds_of_cost(config: ReproduceConfig, device: str = "cpu", data_dir: Path | None = None) -> float:
    """Seconds for a unit of a job's cost, from one and three epochs of Fair-SS-VAE on one thread."""
    method = METHODS[OURS if own_weights(config, METHODS[OURS]) else WITHOUT_RISK]

    def seconds(epochs: int) -> float:
        short = replace(config, epochs=epochs)
        panel = (config.all_groups[0], config.levels[0], config.metrics[0], method.name, 0, config.trunks[0])
        probe = job_of(short, *panel).config
        start = time.perf_counter()
        run_job(probe, device, data_dir)
        return time.perf_counter() - start

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first, third = seconds(1), seconds(3)
    finally:
        torch.set_num_threads(threads)
    epoch = max(0.0, third - first) / 2
    whole = first + (epochs_of(config) - 1) * epoch
    return whole / (cost_of(method, len(own_weights(config, method))) * epochs_of(config))
