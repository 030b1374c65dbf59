"""The data sets by name, and their split into what is trained on, selected on and tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pyro_fairvae.attributes import Attributes
from pyro_fairvae.batch import Observed
from pyro_fairvae.data.adult import CLASSES, GROUPS, attributes_of, read_adult
from pyro_fairvae.data.missingness import Missingness, hide
from pyro_fairvae.data.synthetic import synthetic
from pyro_fairvae.data.tables import Complete, Table
from pyro_fairvae.errors import choose, require


@dataclass(frozen=True)
class Dataset:
    """How a data set is read, by the group to be fair to."""

    groups: tuple[str, ...]
    read: Callable[[str, str | Path | None], Table]
    attributes: Callable[[str], Attributes]
    classes: tuple[str, ...]

    def group(self, group: str | None) -> str:
        """The group by name, the first unless given."""
        return self.groups[0] if group is None else group


SYNTHETIC = {
    "group": Attributes.single(("0", "1")),
    "first+second": Attributes(("first", "second"), (("0", "1"), ("0", "1"))),
}
DATASETS = {
    "adult": Dataset(GROUPS, read_adult, attributes_of, CLASSES),
    "synthetic": Dataset(
        tuple(SYNTHETIC),
        lambda group, folder: replace(synthetic(groups=SYNTHETIC[group].groups), attributes=SYNTHETIC[group]),
        lambda group: SYNTHETIC[group],
        ("0", "1"),
    ),
}


@dataclass(frozen=True)
class Splits:
    """Training and validation as they were written down, and a test part with its truth."""

    train: Observed
    validation: Observed
    test: Complete


def load(dataset: str, group: str | None = None, folder: str | Path | None = None) -> Table:
    """The whole table of a data set, with the first of its groups unless ``group`` names another."""
    entry = DATASETS[choose("data set", dataset, DATASETS)]
    return entry.read(choose(f"group of {dataset}", entry.group(group), entry.groups), folder)


def split_complete(table: Table, seed: int) -> dict[str, Complete]:
    """70 % training, 10 % validation, 20 % test, at random, with their truth."""
    require(table.rows >= 20, f"a table of {table.rows} rows is too small to split; give at least 20.")
    order = np.random.default_rng(_split_seeds(seed)[0]).permutation(table.rows)
    first, second = round(0.7 * table.rows), round(0.8 * table.rows)
    rows = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
    return table.encode(rows, standard="train")


def split(table: Table, missingness: Missingness, seed: int) -> Splits:
    """The parts of :func:`split_complete`, the first two with values hidden."""
    parts = split_complete(table, seed)
    _, train_seed, validation_seed = _split_seeds(seed)
    return Splits(
        hide(parts["train"], missingness, train_seed),
        hide(parts["validation"], missingness, validation_seed),
        parts["test"],
    )


def _split_seeds(seed: int) -> list[int]:
    """Seeds of the order of rows, and of what is hidden in training and in validation."""
    return [int(each) for each in np.random.SeedSequence(seed).generate_state(3)]
