"""A generator whose truth is known, for tests and studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.dataset import Dataset
from pyro_fairvae.data.tables import Table
from pyro_fairvae.schema.attributes import Attributes

GROUPS = {
    "group": Attributes.single(("0", "1")),
    "first+second": Attributes(("first", "second"), (("0", "1"), ("0", "1"))),
}


def synthetic(
    rows: int = 4000,
    seed: int = 0,
    groups: int = 2,
    classes: int = 2,
    group_prevalence: Sequence[float] | None = None,
    class_prevalence: Sequence[float] | None = None,
    group_strength: float = 2.0,
    class_strength: float = 2.0,
    dependence: float = 0.5,
    numbers: int = 8,
    categories: int = 4,
) -> Table:
    """Rows drawn from a ~ π_a, y | a, x | a, y, so that the truth is known.

    Numbers are Normal with unit variance, and one category depends on the group, with weight
    1 − exp(−``group_strength``); at strength 0, x depends on a only through y. Groups are hidden by
    :func:`split` at rates of your choice.

    Parameters
    ----------
    rows, seed : int
        Number of rows, and the seed of their draws.
    groups, classes : int
        Number of groups and of classes.
    group_prevalence, class_prevalence : sequence of float, optional
        π_a, and the distribution of classes that do not depend on the group; uniform unless given.
    group_strength, class_strength : float
        Distance between the centres of two groups, and of two classes: how well x predicts a and y.
    dependence : float
        Share of rows, within [0, 1], whose class is the group modulo ``classes``.
    numbers, categories : int
        Number columns, and values of the category.

    Returns
    -------
    Table
        With the true class and group of every row.

    Raises
    ------
    InputError
        If sizes, shares or strengths are invalid.

    Examples
    --------
    >>> from pyro_fairvae import synthetic
    >>> table = synthetic(rows=200, groups=3)
    >>> table.rows, table.groups, table.numbers.shape
    (200, ('0', '1', '2'), (200, 8))
    """
    require(
        rows >= 1 and numbers >= groups + classes,
        f"rows must be ≥ 1 and numbers ≥ groups + classes, got {rows} rows and {numbers} numbers.",
    )
    require(groups >= 2 and classes >= 2, f"groups and classes must be ≥ 2, got {groups}, {classes}.")
    require(0 <= dependence <= 1, f"dependence must be within [0, 1], got {dependence}.")
    pi_a = _prevalence("group_prevalence", group_prevalence, groups)
    pi_y = _prevalence("class_prevalence", class_prevalence, classes)
    # The world (directions) is the same for every seed of the rows, so that data sets are comparable.
    world = np.random.default_rng([groups, classes, numbers, categories])
    draw = np.random.default_rng(seed)
    a = draw.choice(groups, size=rows, p=pi_a)
    y = np.where(draw.random(rows) < dependence, a % classes, draw.choice(classes, size=rows, p=pi_y))
    basis = np.linalg.qr(world.normal(size=(numbers, numbers)))[0]
    mean = group_strength / np.sqrt(2) * basis[a] + class_strength / np.sqrt(2) * basis[groups + y]
    x = mean + draw.normal(size=(rows, numbers))
    lean = 1 - np.exp(-group_strength)
    leaning = lean * world.dirichlet(np.ones(categories), size=groups) + (1 - lean) / categories
    category = (draw.random((rows, 1)) >= leaning.cumsum(axis=1)[a, :-1]).sum(axis=1)
    return Table(
        pd.DataFrame(x, columns=[f"x{j}" for j in range(numbers)]),
        pd.DataFrame({"c": pd.Categorical(category, categories=range(categories))}),
        y.astype(np.int64),
        a.astype(np.int64),
        tuple(str(c) for c in range(classes)),
        Attributes.single(tuple(str(g) for g in range(groups))),
    )


def _prevalence(name: str, given: Sequence[float] | None, size: int) -> np.ndarray:
    if given is None:
        return np.full(size, 1 / size)
    shares = np.asarray(given, dtype=float)
    require(
        shares.shape == (size,) and bool((shares > 0).all()) and abs(shares.sum() - 1) < 1e-6,
        f"{name} must be {size} positive shares that sum to 1, got {list(given)}.",
    )
    return shares / shares.sum()


def _drawn(rows: int, seed: int, group: str) -> Table:
    attributes = GROUPS[group]
    return replace(synthetic(rows, seed, groups=attributes.groups), attributes=attributes)


DATASET = Dataset(
    "synthetic",
    ("class",),
    tuple(GROUPS),
    lambda label, group, side, folder: _drawn(4000, 0, group),
    lambda group: GROUPS[group],
    lambda label: ("0", "1"),
    draw=_drawn,
    suits_priors={"hidden": 32, "layers": 2, "latent": 4, "decoder_hidden": 16, "pieces": 0, "lr": 3e-3},
)
