"""Attributes, the groups they define, and the outcomes that can be observed for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from pyro_fairvae.base.errors import require
from pyro_fairvae.schema.levels import Levels

UNAVAILABLE = "unavailable"  # the name of ∅
OWN, OTHER, EVERY = "own", "other", "every"  # keywords by which priors refer to values
RESERVED = {UNAVAILABLE, OWN, OTHER, EVERY}


@dataclass(frozen=True)
class Attributes:
    """One or several attributes, each with its values and its own ∅.

    A group is a value of each attribute, an outcome a value or ∅ of each. Both are numbered in the order of
    ``itertools.product``, so a single attribute of G values has the groups 0 to G − 1 and the outcomes 0 to
    G, the last being ∅.

    Parameters
    ----------
    names : tuple of str
        Names of the attributes.
    values : tuple of tuple of str
        The values of each attribute, at least two.
    levels : Levels, optional
        Where the attribute is a number: the range that each of its values stands for.

    Raises
    ------
    InputError
        If names or values are not distinct, or a value has a reserved name (``unavailable``, ``own``, …).

    Examples
    --------
    >>> from pyro_fairvae import Attributes
    >>> sex = Attributes.single(("f", "m"), name="sex")
    >>> sex.groups, sex.outcome_names
    (2, ('f', 'm', 'unavailable'))
    >>> both = Attributes(("sex", "old"), (("f", "m"), ("no", "yes")))
    >>> both.group_names
    ('f, no', 'f, yes', 'm, no', 'm, yes')
    """

    names: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    levels: Levels | None = None

    def __post_init__(self) -> None:
        require(
            len(self.names) == len(self.values) > 0 and len(set(self.names)) == len(self.names),
            f"attributes {list(self.names)} must have distinct names, and values for each name.",
        )
        for name, values in zip(self.names, self.values, strict=True):
            require(
                len(set(values)) == len(values) >= 2 and not RESERVED & set(values),
                f"attribute {name!r} needs at least two distinct values, none of them named "
                f"{', '.join(sorted(RESERVED))}; got {list(values)}.",
            )

        require(
            self.levels is None or self.values == (self.levels.names,),
            f"levels are those of a single attribute, with values {self.levels and self.levels.names}, but "
            f"the attributes {list(self.names)} have {self.values}.",
        )

    @staticmethod
    def of_number(levels: Levels, name: str = "number") -> Attributes:
        """A number that is cut into levels."""
        return Attributes((name,), (levels.names,), levels)

    @staticmethod
    def single(values: tuple[str, ...], name: str = "group") -> Attributes:
        return Attributes((name,), (values,))

    @property
    def groups(self) -> int:
        return math.prod(len(values) for values in self.values)

    @property
    def outcomes(self) -> int:
        return math.prod(len(values) + 1 for values in self.values)

    @property
    def group_names(self) -> tuple[str, ...]:
        return tuple(", ".join(parts) for parts in product(*self.values))

    @property
    def group_parts(self) -> np.ndarray:
        """The value of each attribute in each group, (groups, attributes)."""
        return np.array(list(product(*(range(len(values)) for values in self.values))))

    @property
    def outcome_parts(self) -> np.ndarray:
        """The value of each attribute in each outcome, (outcomes, attributes); the number of values is ∅."""
        return np.array(list(product(*(range(len(values) + 1) for values in self.values))))

    @property
    def outcome_names(self) -> tuple[str, ...]:
        return tuple(", ".join(parts) for parts in product(*((*v, UNAVAILABLE) for v in self.values)))

    @property
    def stated(self) -> np.ndarray:
        """Whether an outcome names a value of every attribute, (outcomes,)."""
        sizes = np.array([len(values) for values in self.values])
        return np.all(self.outcome_parts < sizes, axis=1)
