"""Levels of a number: ranges side by side, which stand for it where it is withheld."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pyro_fairvae.base.errors import require
from pyro_fairvae.schema.arrays import Floats, Integers

FEWEST_STATED = 50  # numbers, from which levels are made
FEWEST_IN_LEVEL = 10
FEWEST_LEVELS, MOST_LEVELS = 3, 64


@dataclass(frozen=True)
class Levels:
    """Ranges of a number, from the lowest to the highest; the outer ones are open.

    Parameters
    ----------
    edges : tuple of float
        Where a level ends and the next one begins; an edge belongs to the level above it.
    centres : tuple of float
        The mean of the stated numbers in each level.

    Examples
    --------
    >>> import numpy as np
    >>> levels = Levels.of(np.arange(100.0), 4)
    >>> levels.names, levels.code(np.array([-5.0, 25.0, 1e6])).tolist()
    (('below 25', '25 to 50', '50 to 75', '75 and above'), [0, 1, 3])
    """

    edges: tuple[float, ...]
    centres: tuple[float, ...]

    def __post_init__(self) -> None:
        require(
            len(self.centres) == len(self.edges) + 1 >= 2
            and bool(np.all(np.diff(self.edges) > 0))
            and bool((self.code(np.array(self.centres)) == np.arange(len(self.centres))).all()),
            f"levels need increasing edges with a centre in each level, got the edges "
            f"{list(self.edges)} and the centres {list(self.centres)}.",
        )

    @staticmethod
    def of(stated: Floats, most: int) -> Levels:
        """At most ``most`` levels of the numbers that rows state.

        Half of them by quantiles, so that many people are told apart, and half by value, so that no level is
        too wide where people are few; a level has at least ten people.
        """
        ordered = np.sort(stated)
        low, high = np.quantile(ordered, [0.01, 0.99])
        # The share of levels below a number: the mean of its share of people and of the range.
        along = np.unique(ordered)
        people = np.searchsorted(ordered, along, side="left") / len(ordered)
        share = (people + np.clip((along - low) / max(high - low, 1e-300), 0, 1)) / 2
        edges: list[float] = []
        below = 0
        for place, number in zip(share, along, strict=True):
            start = int(np.searchsorted(ordered, number, side="left"))
            if (
                place >= (len(edges) + 1) / most
                and len(edges) < most - 1
                and start - below >= FEWEST_IN_LEVEL
                and len(ordered) - start >= FEWEST_IN_LEVEL
            ):
                edges.append(float(number))
                below = start
        require(
            len(edges) >= 2,
            f"the {len(ordered)} numbers that rows state cannot be cut into three levels of "
            f"{FEWEST_IN_LEVEL} rows or more, since most of them are the same; leave group_levels out, so "
            "that values are groups.",
        )
        codes = np.searchsorted(edges, ordered, side="right")
        centres = [float(ordered[codes == level].mean()) for level in range(len(edges) + 1)]
        return Levels(tuple(edges), tuple(centres))

    def code(self, numbers: Floats) -> Integers:
        """The level of each number."""
        return np.searchsorted(np.array(self.edges), numbers, side="right").astype(np.int64)

    def merged(self, most: int) -> Levels:
        """At most ``most`` levels, each made of as many neighbouring ones as the others, or one more."""
        of = np.arange(len(self.centres)) * min(most, len(self.centres)) // len(self.centres)
        edges = [edge for edge, below, above in zip(self.edges, of, of[1:], strict=False) if below < above]
        centres = [float(np.array(self.centres)[of == level].mean()) for level in range(of[-1] + 1)]
        return Levels(tuple(edges), tuple(centres))

    @property
    def names(self) -> tuple[str, ...]:
        """The levels in words."""
        edges = [f"{edge:g}" for edge in self.edges]
        if len(set(edges)) < len(edges):
            edges = [repr(edge) for edge in self.edges]
        between = (f"{low} to {high}" for low, high in pairwise(edges))
        return (f"below {edges[0]}", *between, f"{edges[-1]} and above")

    @property
    def place(self) -> Floats:
        """The centres from 0, the lowest, to 1."""
        centres = np.array(self.centres)
        return np.asarray((centres - centres[0]) / (centres[-1] - centres[0]))

    @cached_property
    def bends(self) -> Floats:
        """The bends of a function on levels, as a matrix, (levels − 2, levels).

        A bend is the change of slope at an inner level over the root of its distance from its neighbours,
        with the range from the lowest centre to the highest as the unit, so that bends of one standard
        deviation are as smooth however finely the range is cut.
        """
        step = np.diff(self.place)
        identity = np.eye(len(step) + 1)
        slopes = np.diff(identity, axis=0) / step[:, None]
        return np.asarray(np.diff(slopes, axis=0) / np.sqrt((step[1:] + step[:-1]) / 2)[:, None])
