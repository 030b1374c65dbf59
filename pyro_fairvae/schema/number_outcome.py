"""An outcome that is a number: its unit inside of a model, and the levels along which it is withheld."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyro_fairvae.base.errors import require
from pyro_fairvae.schema.arrays import Integers
from pyro_fairvae.schema.levels import FEWEST_IN_LEVEL, FEWEST_STATED, Levels

LEVELS = 16  # at most
FEWEST_LEVELS = 4
ROWS_OF_LEVEL = 40  # stated rows for each level, of a table with few rows
BINS = 5  # at most, of neighbouring levels, within which groups are compared given the outcome


@dataclass(frozen=True)
class NumberOutcome:
    """A number y that a model predicts.

    Inside of a model it is standardised, (y − mean) / deviation. Its levels are for what is not known of a
    single number: how often it is withheld, and of whom.

    Parameters
    ----------
    mean, deviation : float
        Mean and standard deviation of the stated numbers.
    levels : Levels
        Ranges of y, in which P(∅|y) is constant.
    bins : tuple of int
        The bin of each level: bins are neighbouring levels with about equally many people.

    Examples
    --------
    >>> import numpy as np
    >>> hours = NumberOutcome.of(np.arange(100.0))
    >>> hours.mean, len(hours.levels.names), sorted(set(hours.bins))
    (49.5, 4, [0, 1, 2, 3])
    >>> hours.restored(hours.standardised(np.array([40.0]))).tolist()
    [40.0]
    """

    mean: float
    deviation: float
    levels: Levels
    bins: tuple[int, ...]

    def __post_init__(self) -> None:
        require(
            np.isfinite(self.mean) and 0 < self.deviation < np.inf,
            f"an outcome needs a finite mean and a positive deviation, got {self.mean} and {self.deviation}.",
        )
        require(
            len(self.bins) == len(self.levels.centres)
            and self.bins[0] == 0
            and set(np.diff(self.bins).tolist()) <= {0, 1},
            f"bins are neighbouring levels, numbered from 0, but those of {len(self.levels.centres)} levels "
            f"are {list(self.bins)}.",
        )

    @staticmethod
    def of(stated: np.ndarray, most: int | None = None, bins: int = BINS) -> NumberOutcome:
        """The outcome of which these numbers, at least two of them different, are stated.

        Unless given, ``most``, the number of levels at most, is 16, or less in a table with few rows.
        """
        if most is None:
            most = min(LEVELS, max(FEWEST_LEVELS, len(stated) // ROWS_OF_LEVEL))
        ordered: np.ndarray = np.sort(np.asarray(stated, dtype=np.float64))
        fewest = max(1, min(FEWEST_IN_LEVEL, len(ordered) // 4))
        levels = _quantile_levels(ordered, most, fewest)
        if len(ordered) >= FEWEST_STATED and len(levels.centres) >= 4:
            levels = Levels.of(ordered, most)  # some by value, too, where people are few
        counts = np.bincount(levels.code(ordered), minlength=len(levels.centres))
        middle = (counts.cumsum() - counts / 2) / counts.sum()  # the share of people below a level's middle
        _, bin_of = np.unique((middle * bins).astype(int), return_inverse=True)
        return NumberOutcome(
            float(ordered.mean()), float(ordered.std()), levels, tuple(int(number) for number in bin_of)
        )

    def standardised(self, y: np.ndarray) -> np.ndarray:
        """In the unit of a model."""
        return np.asarray((y - self.mean) / self.deviation)

    def restored(self, standardised: np.ndarray) -> np.ndarray:
        """In the outcome's own unit."""
        return np.asarray(standardised * self.deviation + self.mean)

    @property
    def edges(self) -> np.ndarray:
        """The edges of levels, standardised."""
        return self.standardised(np.array(self.levels.edges))

    @property
    def centres(self) -> np.ndarray:
        """The centres of levels, standardised."""
        return self.standardised(np.array(self.levels.centres))

    def bin_codes(self, y: np.ndarray) -> Integers:
        """The bin of each number."""
        return np.array(self.bins)[self.levels.code(y)]

    @property
    def in_bins(self) -> np.ndarray:
        """Which levels make up which bin, (levels, bins)."""
        return np.eye(max(self.bins) + 1)[list(self.bins)]


def _quantile_levels(ordered: np.ndarray, most: int, fewest: int) -> Levels:
    """Levels of about equally many people, and of ``fewest`` at least where ties leave a choice."""
    firsts = np.flatnonzero(np.diff(ordered)) + 1  # where a new number begins
    edges: list[int] = []
    for share in np.arange(1, most) / most:
        place = int(firsts[np.abs(firsts - share * len(ordered)).argmin()])
        below = edges[-1] if edges else 0
        if place - below >= fewest and len(ordered) - place >= fewest:
            edges.append(place)
    if not edges:  # one number is nearly everybody's
        edges = [int(firsts[np.abs(firsts - len(ordered) / 2).argmin()])]
    centres = tuple(float(part.mean()) for part in np.split(ordered, edges))
    return Levels(tuple(float(ordered[edge]) for edge in edges), centres)
