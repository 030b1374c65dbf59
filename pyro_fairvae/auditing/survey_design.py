r"""How audited rows were sampled: weights and clusters, and what they do to estimates and to their errors.

A row with weight w, the inverse of its chance to be in the sample, stands for w people: wherever rows are
counted or averaged, it counts w times. Weights are scaled to the mean 1. Errors are those of the design (the
sandwich): if :math:`\psi_i` is the influence of a row on an estimate,

.. math:: \mathrm{Var} = \frac{1}{n^2} \sum_i (w_i \psi_i)^2, \qquad
          \mathrm{Var} = \frac{1}{n^2} \frac{m}{m - 3} \sum_{c=1}^m \Big( \sum_{i \in c} w_i \psi_i \Big)^2

without and with m clusters, such as households, that were sampled as a whole (Binder 1983). The factor is the
variance of Student's t with m − 1 degrees of freedom, times m / (m − 1).

An integer weight k is the same as the row k times in a cluster of its own, in estimates and in errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import as_column, is_missing
from pyro_fairvae.schema.arrays import Integers

FEWEST_CLUSTERS = 10


@dataclass(frozen=True)
class SurveyDesign:
    """Weights of rows, with the mean 1, and codes of their clusters, from 0; (rows,) each, or None."""

    weight: np.ndarray | None = None
    cluster: Integers | None = None

    @property
    def plain(self) -> bool:
        """Whether every row counts as one, by itself."""
        return self.weight is None and self.cluster is None

    def some(self, kept: np.ndarray) -> SurveyDesign:
        """That of some rows."""
        weight = None if self.weight is None else self.weight[kept]
        cluster = None
        if self.cluster is not None:
            _, cluster = np.unique(self.cluster[kept], return_inverse=True)
        return SurveyDesign(None if weight is None else weight / weight.mean(), cluster)

    def weighed(self, values: np.ndarray) -> np.ndarray:
        """Values (rows, …) times the weight of their row."""
        if self.weight is None:
            return values
        return np.asarray(values * self.weight.reshape(-1, *(1,) * (values.ndim - 1)))

    def mean(self, values: np.ndarray) -> Any:
        """The weighted mean of values (rows, …) over rows."""
        return self.weighed(values).mean(0)

    def centred(self, weighed: np.ndarray) -> np.ndarray:
        """Values (rows, …) that were weighed, less their mean times the weights."""
        mean = weighed.mean(0)
        return weighed - (mean if self.weight is None else np.multiply.outer(self.weight, mean))

    def total(self, chosen: np.ndarray) -> float:
        """How many people some rows, a mask, stand for, of as many as there are rows."""
        return float(self.weighed(chosen).sum())

    def counts(self, codes: Integers, size: int) -> np.ndarray:
        """How many people have each code, (size,)."""
        return np.bincount(codes, self.weight, minlength=size)

    def by_unit(self, influence: np.ndarray) -> np.ndarray:
        """Influences of weighed rows, (rows, …), as those of what was sampled, rows or clusters, (units, …).

        In either case the variance is their sum of squares by the squared number of units.
        """
        if self.cluster is None:
            return influence
        m = int(self.cluster.max()) + 1
        sums = np.zeros((m, *influence.shape[1:]))
        np.add.at(sums, self.cluster, influence)
        return np.asarray(sums * (m / len(influence) * np.sqrt(m / max(m - 3, 1))))

    def units(self, chosen: np.ndarray) -> int:
        """In how many rows, or clusters, some rows are."""
        if self.cluster is None:
            return int(chosen.sum())
        return len(np.unique(self.cluster[chosen]))

    def people(self, chosen: np.ndarray) -> float:
        r"""How many independent people tell as much as some rows, :math:`(\sum_u w_u)^2 / \sum_u w_u^2`.

        The sums are over what was sampled (Kish 1965).
        """
        if self.plain:
            return int(chosen.sum())
        mass = self.weighed(chosen.astype(float))
        if self.cluster is not None:
            mass = np.bincount(self.cluster, mass)
        return float(mass.sum() ** 2 / max(float(np.square(mass).sum()), 1e-300))

    def hits(self, hit: np.ndarray, chosen: np.ndarray) -> tuple[float, float]:
        r"""How many people of how many tell as much of the share of some rows that are hits.

        By the variance V of the share p under the design, :math:`p (1 - p) / V` (Korn and Graubard 1998), or
        Kish's number where all or none are hits.
        """
        hit = hit & chosen
        if self.plain:
            return int(hit.sum()), int(chosen.sum())
        mass = self.weighed(chosen.astype(float))
        share = float(mass[hit].sum() / mass.sum())
        size = self.people(chosen)
        variance = np.square(self.by_unit(mass * (hit - share))).sum() / self._size(mass) ** 2
        if 0 < share < 1 and variance > 0:
            size = float(share * (1 - share) / variance * (mass.sum() / len(mass)) ** 2)
        return share * size, size

    def _size(self, rows: np.ndarray) -> int:
        """The number of units."""
        return len(rows) if self.cluster is None else int(self.cluster.max()) + 1

    def folds(self, rows: int, folds: int) -> Integers:
        """A random fold of each row; those of a cluster are in one."""
        draw = np.random.default_rng(0)
        if self.cluster is None:
            return np.asarray(draw.permutation(rows) % folds)
        return np.asarray((draw.permutation(int(self.cluster.max()) + 1) % folds)[self.cluster])

    def summary(self, rows: int) -> dict[str, float | int | None] | None:
        """Its ``effective_rows`` and ``clusters``; None if it is plain."""
        if self.plain:
            return None
        of_rows = SurveyDesign(self.weight).people(np.ones(rows, dtype=bool))
        clusters = None if self.cluster is None else int(self.cluster.max()) + 1
        return {"effective_rows": float(of_rows), "clusters": clusters}


def code_clusters(clusters: Any, rows: int) -> Integers | None:
    """Codes of clusters, one for each of ``rows`` rows."""
    if clusters is None:
        return None
    column = as_column(clusters, "clusters")
    require(
        len(column) == rows,
        f"clusters has {len(column)} values, but there are {rows} rows; give one for each.",
    )
    gaps = int(is_missing(column).sum())
    require(gaps == 0, f"clusters has {gaps} gaps; every row must be in a cluster, if only in its own.")
    codes, _ = pd.factorize(column)
    count = int(codes.max()) + 1
    require(
        count >= FEWEST_CLUSTERS,
        f"clusters has {count} different values; intervals from clusters need {FEWEST_CLUSTERS} or more. "
        "Leave clusters out, or name smaller units.",
    )
    return np.asarray(codes, dtype=np.int64)


def design_in_words(design: dict[str, Any], rows: int) -> str:
    """The sentence about a :meth:`SurveyDesign.summary` in an audit of so many rows."""
    effective, clusters = design["effective_rows"], design["clusters"]
    words = f"Rows are weighted: they tell as much as {effective:.0f} of equal weight"
    if round(effective) == rows:
        words = "Rows count alike"
    if clusters is not None:
        words += f", and were sampled in {clusters} clusters"
    return f"{words}. Rates are of the people they stand for, with errors of this design."
