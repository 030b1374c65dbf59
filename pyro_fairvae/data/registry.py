"""The data sets by name, and their split into what is trained on, selected on and tested on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data import adult, celeba
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.missingness import Missingness, hide
from pyro_fairvae.data.synthetic import synthetic
from pyro_fairvae.data.tables import Complete, Table
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Observed

LARGEST_TEST = 5000  # images


AnyTable = Table | ImageTable


@dataclass(frozen=True)
class Dataset:
    """How a data set is read, by what is to be predicted and the group to be fair to."""

    labels: tuple[str, ...]
    groups: tuple[str, ...]
    read: Callable[[str, str, int, str | Path | None], AnyTable]  # label, group, side of images, folder
    attributes: Callable[[str], Attributes]
    classes: Callable[[str], tuple[str, ...]]
    most_rows: int | None = None  # unless more are asked for
    images: bool = False
    suits: Mapping[str, Any] = field(default_factory=dict)  # options that suit it better than the defaults

    def group(self, group: str | None) -> str:
        """The group by name, the first unless given."""
        return self.groups[0] if group is None else group

    def label(self, label: str | None) -> str:
        return self.labels[0] if label is None else label


SYNTHETIC = {
    "group": Attributes.single(("0", "1")),
    "first+second": Attributes(("first", "second"), (("0", "1"), ("0", "1"))),
}
# Pixels are many and tell much the same, so κ is small, or the trunk would serve the reconstruction alone.
# The KL of z weighs more, or z would say what a and y are there for, and switching them would change no face.
FOR_IMAGES = {
    "elbo_weight": 1e-4, "kl_weight": 5.0, "latent": 16, "decoder_hidden": 32, "epochs": 20, "batch": 64,
    "lr": 2e-3, "weight_decay": 0.3,
}  # fmt: skip
DATASETS = {
    "adult": Dataset(
        ("income",),
        adult.ADULT_GROUPS,
        lambda label, group, side, folder: adult.read_adult(group, folder),
        adult.adult_attributes,
        lambda label: adult.INCOMES,
    ),
    **{
        name: Dataset(
            (label, *(other for other in celeba.ATTRIBUTE_NAMES if other != label)),
            (group, *(other for other in celeba.ATTRIBUTE_NAMES if other != group)),
            lambda label, group, side, folder: celeba.read_celeba(label, group, folder, side),
            celeba.celeba_attributes,
            celeba.classes_of,
            most_rows=50_000,  # the paper's 45k + 5k
            images=True,
            suits=FOR_IMAGES,
        )
        for name, (label, group) in celeba.TASKS.items()
    },
    "synthetic": Dataset(
        ("class",),
        tuple(SYNTHETIC),
        lambda label, group, side, folder: replace(
            synthetic(groups=SYNTHETIC[group].groups), attributes=SYNTHETIC[group]
        ),
        lambda group: SYNTHETIC[group],
        lambda label: ("0", "1"),
    ),
}


@dataclass(frozen=True)
class Splits:
    """Training and validation as they were written down, and a test part with its truth.

    Attributes
    ----------
    train, validation : Observed
        Rows with what was stated of label and group.
    test : Complete
        Rows with their true label and group, for the final test alone.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> parts.train.rows, parts.validation.rows, parts.test.rows
    (70, 10, 20)
    >>> hasattr(parts.train, "a"), hasattr(parts.test, "a")
    (False, True)
    """

    train: Observed
    validation: Observed
    test: Complete


def load(
    dataset: str,
    group: str | None = None,
    folder: str | Path | None = None,
    label: str | None = None,
    side: int = 32,
) -> AnyTable:
    """The whole of a data set, with the first of its groups and labels unless others are named.

    Parameters
    ----------
    dataset : str
        ``"adult"``, ``"synthetic"``, or one of CelebA's tasks.
    group : str, optional
        The attribute, or attributes joined by ``+``, to be fair to, such as ``"gender"`` or ``"race"``.
    folder : path, optional
        Where its files are; ``$FAIRVAE_DATA``, the cache, or fetched unless given.
    label : str, optional
        What is to be predicted.
    side : int
        Images are so many pixels high and wide.

    Returns
    -------
    Table or ImageTable
        With the true class and group of every row.

    Raises
    ------
    InputError
        If there is no such data set, label or group, or its files cannot be had.

    Examples
    --------
    >>> from pyro_fairvae import load_dataset
    >>> table = load_dataset("synthetic")
    >>> table.rows, table.classes, table.groups
    (4000, ('0', '1'), ('0', '1'))
    """
    entry = DATASETS[choose("data set", dataset, DATASETS)]
    chosen = (
        choose(f"label of {dataset}", entry.label(label), entry.labels),
        choose(f"group of {dataset}", entry.group(group), entry.groups),
    )
    return entry.read(*chosen, side, folder)


def split_complete(table: AnyTable, seed: int) -> dict[str, Complete]:
    """Parts at random, with their truth: 20 % test, 10 % validation, the rest for training.

    Images: at most 5,000 of them for the test, as in the paper; a person, where it is known who is in an
    image, is in one part alone.
    """
    require(table.rows >= 20, f"a table of {table.rows} rows is too small to split; give at least 20.")
    draw = np.random.default_rng(_split_seeds(seed)[0])
    order, ends = _order(table.rows, table.people if isinstance(table, ImageTable) else None, draw)
    targets = np.array([round(0.7 * table.rows), round(0.8 * table.rows)])
    if isinstance(table, ImageTable):
        targets += max(0, table.rows - LARGEST_TEST - targets[1])
    first, second = (int(ends[np.abs(ends - target).argmin()]) for target in targets)
    rows = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
    return table.encode(rows, standard="train")


def _order(rows: int, people: Integers | None, draw: np.random.Generator) -> tuple[Integers, Integers]:
    """Rows in random order, person by person where they are known, and where a part may end."""
    if people is None:
        return draw.permutation(rows), np.arange(rows + 1)
    _, person = np.unique(people, return_inverse=True)
    place = draw.permutation(person.max() + 1)[person]
    order = np.argsort(place, kind="stable")
    return order, np.array([0, *(np.flatnonzero(np.diff(place[order])) + 1), rows])


def split(table: AnyTable, missingness: Missingness, seed: int) -> Splits:
    """Parts of a table at random, 70 % training, 10 % validation, 20 % test; in the first two some is hidden.

    Of images at most 5,000 are for the test, and a person, where it is known who is in an image, is in one
    part alone. Numbers are standardised by the training part.

    Parameters
    ----------
    table : Table or ImageTable
        Rows with their truth, at least 20.
    missingness : Missingness
        Rates at which groups and labels are withheld.
    seed : int
        Of the order of rows and of what is hidden.

    Returns
    -------
    Splits
        ``train`` and ``validation`` as written down, ``test`` with its truth.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(unavailable=(0.8, 0.4)), seed=0)
    >>> tuple(parts.train.x.shape), tuple(parts.test.x.shape)
    ((70, 12), (20, 12))
    """
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
