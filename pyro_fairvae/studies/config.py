"""The full description of a run, from which it can be repeated."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyro_fairvae import __version__
from pyro_fairvae.base.documents import check_document, read_document, read_text, read_yaml
from pyro_fairvae.base.errors import InputError, choose, require
from pyro_fairvae.base.messages import one_line
from pyro_fairvae.base.options import flatten, nested, option
from pyro_fairvae.base.seeds import check_seed
from pyro_fairvae.baselines.as_printed import as_printed
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.channels.priors import channel, sketched_channel
from pyro_fairvae.data import DATASETS, DEFAULT_DATASET, LEVELS, AnyTable, Dataset, Missingness, Splits, load
from pyro_fairvae.data.dataset import GROUP_LEVELS, Number
from pyro_fairvae.data.number_groups import check_levels
from pyro_fairvae.data.registry import groups_help, labels_help, names_help, rows_help
from pyro_fairvae.data.tables import Table
from pyro_fairvae.decisions.targets import check_targets, default_targets
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.settling import check_refined
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.risks import RISKS
from pyro_fairvae.risks.gaps import RISK_OF_NUMBERS
from pyro_fairvae.schema.attributes import Attributes

ENVIRONMENT = "environment"
PACKAGES = ("fairlearn", "numpy", "pandas", "pyro-ppl", "scikit-learn", "scipy", "torch")


HIDDEN_LABELS = 0.25
DEFAULT_LEVEL = next(iter(LEVELS))
RATES = ("level", "alpha", "beta", "truth", "misstated")  # of hidden groups
OF_GROUPS = RATES[1:]  # which numbers do not have


def label_missing_help() -> str:
    real = ", ".join(name for name, row in DATASETS.items() if row.recorded)
    return f"share of labels that are hidden (default: {HIDDEN_LABELS}; 0 for {real})"


def proxies_help() -> str:
    known = "; ".join(row.in_words(row.proxies) for row in DATASETS.values() if row.proxies)
    return f"columns that tell of the group but must not decide, separated by commas: {known}"


@dataclass(frozen=True)
class DataConfig:
    """The rows, the label, the group, and how values are hidden."""

    dataset: str = option(DEFAULT_DATASET, names_help)
    label: str | None = option(None, labels_help)
    group: str | None = option(None, groups_help)
    rows: int | None = option(None, rows_help)
    side: int = option(32, "pixels in height and in width to which images are reduced")
    level: str | None = option(
        None, f"how much is withheld: sparse, medium or dense, as in the paper (default: {DEFAULT_LEVEL})"
    )
    alpha: float | None = option(
        None, "P(∅|a=1) instead of that of the level; with several groups, of the last"
    )
    beta: float | None = option(
        None, "P(∅|a=0) instead of that of the level; groups between the first and the last get rates between"
    )
    truth: str | None = option(
        None,
        "the whole P(ã|a) by which groups are hidden, instead of level, alpha, beta and misstated: the means "
        "of a prior, written as for prior_a",
    )
    misstated: float = option(0.0, "rate at which people state a group that is not theirs")
    label_missing: float | None = option(None, label_missing_help)
    proxies: tuple[str, ...] = option((), proxies_help)
    group_levels: int | None = option(
        None, f"levels, at most, of a group that is a number, such as age (default: {GROUP_LEVELS})"
    )

    def __post_init__(self) -> None:
        dataset = DATASETS[choose("data set", self.dataset, DATASETS)]
        self._take_defaults(dataset)
        self._check_number(dataset)
        if self.group is not None:
            choose(f"group of {self.dataset}", self.group, dataset.groups)
        if self.label is not None:
            choose(f"label of {self.dataset}", self.label, dataset.labels)
        require(
            dataset.label(self.label) != dataset.group(self.group),
            f"{dataset.label(self.label)} cannot be both the label and the group; change one of them.",
        )
        require(8 <= self.side <= 256, f"side must be within [8, 256], got {self.side}.")
        require(self.rows is None or self.rows >= 20, f"rows must be at least 20, got {self.rows}.")
        for name in ("alpha", "beta"):
            rate = getattr(self, name)
            require(rate is None or 0 <= rate <= 1, f"{name} must be within [0, 1], got {rate}.")
        require(
            not self.proxies or bool(dataset.proxies),
            f"proxies {list(self.proxies)} were given, but {self.dataset} has no columns that may "
            "be proxies; leave them out.",
            "proxies",
        )
        for name in self.proxies:
            choose(f"proxy of {self.dataset}", name, dataset.proxies)
        self.missingness()

    def _take_defaults(self, dataset: Dataset) -> None:
        """Fill in what was not given; rates for a data set whose withholding is real are refused."""
        if dataset.recorded:
            unused = [name for name in RATES if getattr(self, name) != getattr(DataConfig, name)]
            require(
                not unused,
                f"{' and '.join(unused)} cannot be given for {self.dataset}: who withholds is recorded in "
                "this data set, and no groups are hidden in it. Leave it out, or choose another data set.",
                *unused,
            )
        else:
            level = choose("level", DEFAULT_LEVEL if self.level is None else self.level, LEVELS)
            object.__setattr__(self, "level", level)
        if self.label_missing is None:
            object.__setattr__(self, "label_missing", 0.0 if dataset.recorded else HIDDEN_LABELS)

    def _check_number(self, dataset: Dataset) -> None:
        """Refuse what does not go with a group that is a number, or with one that is not."""
        check_levels(self.group_levels)
        name = dataset.group(self.group)
        require(
            self.group_levels is None or name in dataset.numbers,
            f"group_levels is for a group that is a number, but {name!r} of {self.dataset} is not; leave it "
            f"out{self._numbers(dataset)}.",
            "group_levels",
        )
        unused = [name for name in OF_GROUPS if getattr(self, name) != getattr(DataConfig, name)]
        require(
            not (unused and name in dataset.numbers),
            f"{' and '.join(unused)} cannot be given for {name!r}, a number: it is withheld along a curve, "
            "which level shifts, and nobody misstates it. Leave it out.",
            *unused,
        )

    @staticmethod
    def _numbers(dataset: Dataset) -> str:
        return f", or choose the group {' or '.join(dataset.numbers)}" if dataset.numbers else ""

    @property
    def number(self) -> Number | None:
        """The group, if it is a number."""
        dataset = DATASETS[self.dataset]
        return dataset.numbers.get(dataset.group(self.group))

    @property
    def attributes(self) -> Attributes:
        dataset = DATASETS[self.dataset]
        if self.number is not None:
            return self.number.attributes(self.group_levels or GROUP_LEVELS)
        return dataset.attributes(dataset.group(self.group))

    @property
    def label_name(self) -> str:
        """The name of the label."""
        return DATASETS[self.dataset].label(self.label)

    @property
    def classes(self) -> tuple[str, ...]:
        dataset = DATASETS[self.dataset]
        return dataset.classes(dataset.label(self.label))

    def table(self, seed: int, data_dir: str | Path | None = None) -> AnyTable:
        """All rows that are used; if they are a part of the data set, ``seed`` draws them."""
        table = load(self.dataset, self.group, data_dir, self.label, self.side)
        if self.number is not None and isinstance(table, Table):
            table = table.with_levels(self.attributes)
        most = DATASETS[self.dataset].most_rows
        rows = min(table.rows, most) if self.rows is None and most is not None else self.rows
        return table if rows is None else table.take(rows, seed)

    def truth_by_channel(self) -> dict[str, np.ndarray]:
        """The P(ã|a) and P(ỹ|y) by which values are hidden; without the former where groups are not.

        Nor where the group is a number: the rates of its levels are those of the people in them.
        """
        missing = self.missingness()
        labels = {"y": missing.label_channel()}
        if DATASETS[self.dataset].recorded or self.number is not None:
            return labels
        return {"a": missing.group_channel(), **labels}

    def truth_of(self, parts: Splits) -> dict[str, np.ndarray]:
        """The same for split data; of a number with the rates of its levels."""
        return self.truth_by_channel() | ({} if parts.truth is None else {"a": parts.truth})

    def missingness(self) -> Missingness:
        """How groups and labels are hidden; several attributes independently, at the rates of the level.

        Where withholding is real, only that of labels is of use.
        """
        assert self.label_missing is not None
        if self.level is None:
            return Missingness(label_unavailable=(self.label_missing,) * len(self.classes))
        if self.number is not None:
            return Missingness(
                label_unavailable=(self.label_missing,) * len(self.classes),
                withheld=partial(self.number.withheld, self.level),
            )
        beta, alpha = LEVELS[self.level]
        beta = beta if self.beta is None else self.beta
        alpha = alpha if self.alpha is None else self.alpha
        labels = (self.label_missing, self.label_missing)
        attributes = self.attributes
        if self.truth is not None:
            given = channel("a", attributes, self.truth)
            return Missingness(label_unavailable=labels, channel=_nested(given.mean_matrix()))
        by_attribute = [
            Missingness(
                tuple(np.linspace(beta, alpha, len(values)).tolist()), (self.misstated,) * len(values), labels
            )
            for values in attributes.values
        ]
        if len(by_attribute) == 1:
            return by_attribute[0]
        return Missingness(
            label_unavailable=labels,
            channel=_nested(reduce(np.kron, [missing.group_channel() for missing in by_attribute])),
        )


def check_simulated(dataset: str) -> None:
    """Refuse a data set whose withholding is real, for a study that hides groups at known rates."""
    simulated = [name for name, row in DATASETS.items() if not row.recorded]
    require(
        dataset in simulated or dataset not in DATASETS,
        f"this study hides groups at rates that it knows, but who withholds is recorded in {dataset}; choose "
        f"another data set: {', '.join(simulated)}.",
        "dataset",
    )


def _nested(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


# Options of ``fairvae train --preset``, for tables or for images.
TRAIN_PRESETS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "default": lambda images: {},
    "as_printed": lambda images: as_printed(images),
    "as_printed_vanilla": lambda images: as_printed(images, vanilla=True),
}


def preset_of_training(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a preset of ``fairvae train`` for the data set among the given options."""
    dataset = DATASETS.get(given.get("dataset", DEFAULT_DATASET))
    return TRAIN_PRESETS[choose("preset", name, TRAIN_PRESETS)](dataset is not None and dataset.images)


def suiting(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options that suit the data set and the group better than the defaults, unless they are given.

    Of a number the risk is a measure of dependence, settled to targets; with λ it is weighed as it is, since
    it needs no smoothing at 0.
    """
    dataset = DATASETS.get(given.get("dataset", DEFAULT_DATASET))
    if dataset is None:
        return {}
    found = dict(dataset.suits)
    if given.get("group", dataset.groups[0]) in dataset.numbers:
        risk = given.get("risk", RISK_OF_NUMBERS)
        found |= {"risk": risk}
        if "lambdas" in given:
            found |= {"risk_estimator": "expected"} if risk in RISKS and RISKS[risk].dependence else {}
        elif "targets" not in given:
            found |= {"targets": default_targets(RISKS.get(risk))}
    return {name: value for name, value in found.items() if name not in given}


WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0)  # λ unless given


@dataclass(frozen=True)
class TrainConfig:
    """Everything that determines the results of a run."""

    data: DataConfig = nested(DataConfig)
    lambdas: tuple[float, ...] = option(
        WEIGHTS,
        "λ, weights of the risk, separated by commas; each trains a member",
    )
    targets: tuple[float, ...] = option(
        (),
        "in place of λ: largest differences between groups that the risk may find, separated by commas; "
        "decisions are settled to each",
    )
    seed: int = option(0, "seed of split, missingness, initial weights and noise")
    settings: Settings = nested(Settings)

    def __post_init__(self) -> None:
        check_lambdas(self.lambdas)
        object.__setattr__(self, "targets", check_targets(self.targets))
        require(
            not self.targets or self.lambdas == WEIGHTS,
            "targets and lambdas were both given; a member has a target or a λ.",
            "targets",
            "lambdas",
        )
        if self.targets:
            check_refined(self.settings.fairness)
        check_seed(self.seed)
        self.channels()

    def channels(self) -> tuple[Channel, Channel]:
        """P(ã|a) and P(ỹ|y) with their priors, before any table is read."""
        labels = Attributes.single(self.data.classes, "label")
        return (
            sketched_channel(self.data.attributes, self.settings.prior_a),
            channel("y", labels, self.settings.prior_y),
        )

    def flat(self) -> dict[str, Any]:
        """All options by name, as JSON types."""
        return flatten(dataclasses.asdict(self))


def environment(device: torch.device | str) -> dict[str, str | int]:
    """Device, threads and versions, on which the results of a run may depend besides its config."""
    versions: dict[str, str | int] = {
        "device": str(device),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "pyro_fairvae": __version__,
    }
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    return versions


def read_options(path: Path) -> dict[str, Any]:
    """Options of a YAML or JSON file, or of a run's ``config.json``."""
    what = "a config file with options by name"
    if path.suffix == ".json":
        content = read_document(path, dict[str, Any], what)
    else:
        try:
            text = read_text(path)
        except (OSError, ValueError) as reason:
            raise InputError(f"cannot read {path}, {what}: {one_line(reason)}.") from reason
        content = check_document(read_yaml(text, f"{path}, {what},"), dict[str, Any], str(path), what)
    content.pop(ENVIRONMENT, None)
    return content
