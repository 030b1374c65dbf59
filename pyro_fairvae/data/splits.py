"""Splits of a table into training, validation and test parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.dataset import AnyTable
from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.missingness import Missingness, hide, rates_by_level
from pyro_fairvae.data.tables import Complete
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.observed import Observed

LARGEST_TEST = 5000  # images


@dataclass(frozen=True)
class Splits:
    """Training and validation parts as observed, and a test part with its truth.

    Attributes
    ----------
    train, validation : Observed
        Rows with observed label and group.
    test : Complete
        Rows with their true label and group, for the final test alone.
    yardstick : ndarray, optional
        Where withholding is real, P(ã|a) as counted on training rows, a being the table's yardstick of the
        group, (groups, outcomes). Nothing is trained on it.
    truth : ndarray, optional
        Where the group is a number, P(ã|a) of its levels by which it was hidden, as means over the people of
        the training rows, (groups, outcomes). Nothing is trained on it.

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
    yardstick: np.ndarray | None = None
    truth: np.ndarray | None = None


def split_complete(table: AnyTable, seed: int, proxies: Sequence[str] = ()) -> dict[str, Complete]:
    """Random parts with their truth: 20 % test, 10 % validation, the rest for training.

    Of images at most 5,000 are for the test, as in the paper; if the persons in images are known, all images
    of a person are in one part.
    """
    require(table.rows >= 20, f"a table of {table.rows} rows is too small to split; give at least 20.")
    draw = np.random.default_rng(_split_seeds(seed)[0])
    order, ends = _order(table.rows, table.people if isinstance(table, ImageTable) else None, draw)
    targets = np.array([round(0.7 * table.rows), round(0.8 * table.rows)])
    if isinstance(table, ImageTable):
        targets += max(0, table.rows - LARGEST_TEST - targets[1])
    first, second = (int(ends[np.abs(ends - target).argmin()]) for target in targets)
    rows = {"train": order[:first], "validation": order[first:second], "test": order[second:]}
    return table.encode(rows, "train", proxies)


def _order(rows: int, people: Integers | None, draw: np.random.Generator) -> tuple[Integers, Integers]:
    """Rows in random order, grouped by person if known, and the positions at which a part may end."""
    if people is None:
        return draw.permutation(rows), np.arange(rows + 1)
    _, person = np.unique(people, return_inverse=True)
    place = draw.permutation(person.max() + 1)[person]
    order = np.argsort(place, kind="stable")
    return order, np.array([0, *(np.flatnonzero(np.diff(place[order])) + 1), rows])


def split(table: AnyTable, missingness: Missingness, seed: int, proxies: Sequence[str] = ()) -> Splits:
    """Split a table at random: 70 % training and 10 % validation, with values hidden, and 20 % test.

    Of images at most 5,000 are for the test, and if the persons in images are known, all images of a person
    are in one part. Numbers are standardised by the training part.

    Parameters
    ----------
    table : Table or ImageTable
        Rows with their truth, at least 20.
    missingness : Missingness
        Rates at which groups and labels are withheld. Where withholding is real, groups are as recorded, and
        only the rates of labels are used.
    seed : int
        Seed of the order of rows and of the hidden values.
    proxies : sequence of str
        Columns among ``table.proxies`` that become ``u``: they tell of the group but must not decide.

    Returns
    -------
    Splits
        ``train`` and ``validation`` as observed, ``test`` with its truth.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(unavailable=(0.8, 0.4)), seed=0)
    >>> tuple(parts.train.x.shape), tuple(parts.test.x.shape)
    ((70, 12), (20, 12))
    """
    parts = split_complete(table, seed, proxies)
    _, train_seed, validation_seed = _split_seeds(seed)
    return Splits(
        hide(parts["train"], missingness, train_seed),
        hide(parts["validation"], missingness, validation_seed),
        parts["test"],
        parts["train"].yardstick(),
        rates_by_level(parts["train"], missingness),
    )


def _split_seeds(seed: int) -> list[int]:
    """Seeds of the order of rows, and of the values hidden in training and in validation."""
    return [int(state) for state in np.random.SeedSequence(seed).generate_state(3)]


def random_share(rows: int, share: float, seed: int) -> np.ndarray:
    """Mask of a share of the rows, drawn at random; those of a user table that are only audited."""
    chosen = np.zeros(rows, dtype=bool)
    chosen[np.random.default_rng([seed, 1]).permutation(rows)[: round(share * rows)]] = True
    return chosen


def stratified_share(y_obs: Integers, a_obs: Integers, share: float, seed: int) -> np.ndarray:
    """Mask of a share of the rows, stratified by stated values; at least two rows are on either side."""
    draw = np.random.default_rng(seed)
    # Sort by stated values, at random within equal ones, and take rows at regular distances.
    order = np.lexsort((draw.random(len(y_obs)), a_obs, y_obs))
    wanted = min(max(round(share * len(order)), 2), len(order) - 2)
    place = ((np.arange(wanted) + draw.random()) * len(order) / wanted).astype(int)
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[np.minimum(place, len(order) - 1)]] = True
    return chosen
