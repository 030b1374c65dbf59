"""What each part is worth: from the paper's method as printed to the default, one change at a time.

A rung has the options of the one before but for those that its change names, which get their defaults; the
last two add boosted trees to the trunk, and settle decisions to targets in place of λ. Beside the last one
stands the ELBO's own share, κ from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from pyro_fairvae import __version__
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_frame, write_json
from pyro_fairvae.base.folders import alone_in
from pyro_fairvae.base.options import build, flatten, option
from pyro_fairvae.base.reports import Report
from pyro_fairvae.baselines import RISK, TARGETS, Method
from pyro_fairvae.baselines.as_printed import as_printed
from pyro_fairvae.baselines.library import fit_library, fit_settled
from pyro_fairvae.data import DATASETS, DEFAULT_DATASET, LEVELS
from pyro_fairvae.data.registry import names_help, studied_help
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.studies.comparison import hypervolumes, overlap_of
from pyro_fairvae.studies.config import DataConfig, check_simulated
from pyro_fairvae.studies.jobs import Left, Outcome, run_jobs
from pyro_fairvae.studies.pools import Job
from pyro_fairvae.studies.reproduction import COMPARED, measured_lines, run_method
from pyro_fairvae.studies.resplits import half_width, holm, paired_test

# Name, what is changed, and the options that get their defaults.
CHANGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("bracket", "likelihoods over all rows, ∅ included", ("objective",)),
    ("weights", "evidence counts once: κ = .02, s = 1 − κ", ("elbo_weight", "supervision_weight")),
    ("posterior", "posteriors of channels, not points", ("sites",)),
    ("prevalence", "joint p(a, y)", ("prevalence",)),
    ("likelihood", "Categorical for one-hot blocks", ("likelihood",)),
    ("pieces", "numbers in 16 pieces", ("pieces",)),
    ("imputer", "r(a|x,y) and a head P_g", ("imputer", "labeller")),
    ("estimator", "expected cell sums, rounded off at 0", ("risk_estimator",)),
    ("memory", "remembered cell sums", ("memory",)),
    ("ramp", "λ and the KL rise", ("risk_from", "risk_full", "kl_full")),
    ("softened", "softened decisions in the risk", ("temperature",)),
    ("decision_term", "error of decisions, ω = 1", ("decision_weight",)),
    ("refined", "refined decisions", ("refine_decisions",)),
)
FIRST, TREES, LAST = "as_printed", "trees", "targets"
KAPPAS = (0.0, 0.1, 0.3, 1.0)  # beside the default


@dataclass(frozen=True)
class Rung:
    """A method of the ladder: its options, and whether decisions are settled to targets."""

    name: str
    label: str
    options: dict[str, Any]
    settled: bool = False

    @property
    def method(self) -> Method:
        """The rung in the interface of methods."""
        fit, weights = (fit_settled(), TARGETS) if self.settled else (fit_library(), RISK)
        return Method(self.name, self.label, fit, weights, cost=5 if self.settled else 4)


def rungs(images: bool = False) -> dict[str, Rung]:
    """The ladder by name, from the first rung up; those of κ last."""
    options = as_printed(images)
    found = [Rung(FIRST, "as printed", options)]
    for name, label, changed in CHANGES:
        options = {key: value for key, value in options.items() if key not in changed}
        found.append(Rung(name, label, options))
    trees = {key: value for key, value in options.items() if key != "imputation"}
    if not images:
        trees["trunk"] = "boosted"
        found.append(Rung(TREES, "scores of boosted trees in the trunk", trees))
    found.append(Rung(LAST, "decisions settled to targets", trees, settled=True))
    found += [
        Rung(f"kappa_{kappa:g}", f"κ = {kappa:g}", trees | {"elbo_weight": kappa}, settled=True)
        for kappa in KAPPAS
    ]
    return {rung.name: rung for rung in found}


@dataclass(frozen=True)
class LadderConfig:
    """The data, the rungs, and how long they are trained."""

    dataset: str = option(DEFAULT_DATASET, names_help)
    label: str | None = option(None, "what to predict, as in training (default: that of the data set)")
    groups: tuple[str, ...] | None = option(None, studied_help)
    level: str = option("sparse", "how much is withheld: sparse, medium or dense, as in the paper")
    metric: str = option(COMPARED[0], f"metric of fairness: {', '.join(COMPARED)}")
    rungs: tuple[str, ...] | None = option(
        None, lambda: f"rungs, separated by commas: {', '.join(rungs())} (default: all)"
    )
    seeds: int = option(5, "seeds 0 to N − 1, of split, missingness, weights and noise")
    weights: int = option(5, "number of weights of each rung, λ or 1/target")
    epochs: int | None = option(None, "passes over the training rows (default: that of the data set)")
    batch: int | None = option(None, "rows in a step (default: that of the data set)")
    rows: int | None = option(None, "use only this many rows, drawn at random (default: all)")

    def __post_init__(self) -> None:
        check_simulated(self.dataset)
        dataset = DATASETS[choose("data set", self.dataset, DATASETS)]
        if self.groups is None:
            object.__setattr__(self, "groups", dataset.studied_groups)
        known = rungs(dataset.images)
        if self.rungs is None:
            object.__setattr__(self, "rungs", tuple(known))
        for what, names, table in (
            (f"group of {self.dataset}", self.groups or (), dataset.groups),
            ("level", (self.level,), LEVELS),
            ("metric", (self.metric,), COMPARED),
            ("rung", self.rungs or (), known),
        ):
            require(len(names) > 0, f"no {what} was given; name at least one.")
            for name in names:
                choose(what, name, table)
        for name in ("seeds", "weights"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        require(self.rows is None or self.rows >= 100, f"rows must be at least 100, got {self.rows}.")
        for group in self.groups or ():
            DataConfig(self.dataset, self.label, group, self.rows, level=self.level)

    def settings(self, rung: Rung) -> Settings:
        given = {name: getattr(self, name) for name in ("epochs", "batch")}
        given = {name: value for name, value in given.items() if value is not None}
        return build(Settings, {**DATASETS[self.dataset].suits, **rung.options, **given, "risk": self.metric})

    @property
    def chosen(self) -> dict[str, Rung]:
        """The rungs that were asked for, in the order of the ladder."""
        known = rungs(DATASETS[self.dataset].images)
        return {name: rung for name, rung in known.items() if name in (self.rungs or ())}


def ladder_jobs(config: LadderConfig) -> list[Job]:
    """A job for each group, rung and seed."""
    jobs = []
    for group, rung, seed in product(config.groups or (), config.chosen.values(), range(config.seeds)):
        settings = config.settings(rung)
        method = rung.method
        weights = list(method.weights[: config.weights])
        job = {
            "dataset": config.dataset,
            "label": config.label,
            "side": DataConfig.side,
            "group": group,
            "level": config.level,
            "metrics": [config.metric],
            "method": rung.name,
            "seed": seed,
            "weights": weights,
            "rows": config.rows,
            "settings": flatten(asdict(settings)),
        }
        cost = method.cost * (1 + len(weights)) * settings.epochs
        jobs.append(Job(f"{rung.name} {group} seed {seed}", job, cost))
    return jobs


def run_rung(job: dict[str, Any], device: str = "cpu", data_dir: Path | None = None) -> dict[str, Any]:
    """Train a rung on a split and evaluate it."""
    rung = rungs(DATASETS[job["dataset"]].images)[job["method"]]
    return run_method(rung.method, job, device, data_dir)


def climb(
    config: LadderConfig,
    out: Path,
    device: str = "cpu",
    data_dir: Path | None = None,
    backend: str = "local",
    workers: int | None = None,
    report: Report | None = None,
    progress: Callable[[Outcome, Left], None] | None = None,
) -> pd.DataFrame:
    """Run the jobs that are not done yet; a line for each group, rung, seed and weight."""
    say = report or (lambda words: None)
    with alone_in(out):
        jobs = ladder_jobs(config)
        say(f"{len(jobs)} jobs")
        work = partial(run_rung, device=device, data_dir=data_dir)
        outcomes = run_jobs(
            jobs, work, out, version=__version__, backend=backend, workers=workers, report=report,
            progress=progress,
        )  # fmt: skip
        lines: list[dict[str, Any]] = []
        for outcome in outcomes:
            if outcome.record is None:
                say(f"failed: {outcome.job.name}: {(outcome.error or '').strip().splitlines()[0]}")
                continue
            job = outcome.job.config
            common = {name: job[name] for name in ("dataset", "group", "level", "method", "seed")} | {
                "metric": config.metric,
                "trunk": "default",
                "label": config.chosen[job["method"]].label,
                "informed": False,
            }
            lines += measured_lines(common, [outcome.record], config.metric, outcome.seconds)
        require(len(lines) > 0, f"every job failed; the reasons are in {out / 'jobs'}.")
        found = pd.DataFrame(lines)
        write_json(out / "config.json", asdict(config))
        write_frame(out / "ladder.csv", found)
    return found


def ladder_table(lines: pd.DataFrame, disparity_limit: float = 0.2) -> pd.DataFrame:
    """Hypervolume of each rung over seeds, and its difference from the rung before, or κ's from the last
    rung.

    ``p`` is corrected by Holm for the rungs of a group.
    """
    volumes = hypervolumes(lines, disparity_limit)
    tables = []
    for (dataset, group), own in volumes.groupby(["dataset", "group"], sort=False):
        by_rung = {
            name: of.set_index("seed")["hypervolume"] for name, of in own.groupby("method", sort=False)
        }
        names = [name for name in _order(by_rung) if name in by_rung]
        found, before = [], None
        for name in names:
            beside = LAST if name.startswith("kappa_") else before
            test = None
            if beside in by_rung and beside is not None:
                test = paired_test(by_rung[name], by_rung[beside], overlap_of(own))
            label = own[own["method"] == name]["label"].iloc[0]
            found.append(
                {
                    "dataset": dataset,
                    "group": group,
                    "method": name,
                    "label": label,
                    "seeds": int(by_rung[name].notna().sum()),
                    "mean": float(by_rung[name].mean()),
                    "half_width": half_width(by_rung[name], overlap_of(own)),
                    "difference": float("nan") if test is None else test.difference,
                    "difference_half_width": float("nan") if test is None else test.half_width,
                    "p": float("nan") if test is None else test.p,
                }
            )
            before = before if name.startswith("kappa_") else name
        table = pd.DataFrame(found)
        tables.append(table.assign(p=holm(table["p"])))
    return pd.concat(tables, ignore_index=True)


def _order(names: Sequence[str] | dict[str, Any]) -> list[str]:
    """Names in the order of the ladder."""
    known = list(rungs())
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))
