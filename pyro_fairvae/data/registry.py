"""The registry of data sets by name, each defined in its own module."""

from __future__ import annotations

from pathlib import Path

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.data.adult import DATASET as ADULT
from pyro_fairvae.data.celeba import CELEBA_DATASETS as CELEBA
from pyro_fairvae.data.dataset import AnyTable, Dataset
from pyro_fairvae.data.stops import DATASET as STOPS
from pyro_fairvae.data.synthetic import DATASET as SYNTHETIC

DATASETS: dict[str, Dataset] = {}


def register(dataset: Dataset) -> Dataset:
    """Make a data set available by its name."""
    require(
        dataset.name not in DATASETS, f"the data set {dataset.name!r} exists already; choose another name."
    )
    DATASETS[dataset.name] = dataset
    return dataset


for _row in (ADULT, *CELEBA, SYNTHETIC, STOPS):
    register(_row)
DEFAULT_DATASET = next(name for name, row in DATASETS.items() if row.default)
DRAWN_DATASET = next(name for name, row in DATASETS.items() if row.draw)  # generated, so its truth is known


def load(
    dataset: str,
    group: str | None = None,
    folder: str | Path | None = None,
    label: str | None = None,
    side: int = 32,
) -> AnyTable:
    """Load a whole data set, with its first group and label unless others are given.

    Parameters
    ----------
    dataset : str
        ``"adult"``, ``"synthetic"``, ``"stops"``, or one of CelebA's tasks.
    group : str, optional
        The attribute, or attributes joined by ``+``, to be fair to, such as ``"gender"`` or ``"race"``.
    folder : path, optional
        Folder of its files; unless given, ``$FAIRVAE_DATA``, the cache, or a download.
    label : str, optional
        The label to predict.
    side : int
        Height and width of images in pixels.

    Returns
    -------
    Table or ImageTable
        With the true class and group of every row; for ``"stops"`` with the group that people stated or did
        not, and a yardstick in place of the true one.

    Raises
    ------
    InputError
        If there is no such data set, label or group, or its files cannot be obtained.

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


def names_help() -> str:
    return f"data set: {', '.join(DATASETS)}"


def labels_help() -> str:
    return f"what to predict: {'; '.join(row.in_words(row.labels) for row in DATASETS.values())}"


def groups_help() -> str:
    groups = "; ".join(row.in_words(row.groups) for row in DATASETS.values())
    return f"group to be fair to, where + joins two: {groups} (default: the first)"


def studied_help() -> str:
    named = [f"{','.join(row.studied)} for {row.name}" for row in DATASETS.values() if row.studied]
    return f"groups to be fair to, separated by commas (default: {'; '.join((*named, 'else the first'))})"


def rows_help() -> str:
    most = [f"of {row.name} at most {row.most_rows:,}" for row in DATASETS.values() if row.most_rows]
    return f"use only this many rows, drawn at random (default: {'; '.join(('all', *most))})"
