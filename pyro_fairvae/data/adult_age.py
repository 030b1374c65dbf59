r"""Age in Adult as the sensitive number: its levels, and the curve along which it is withheld.

Withholding is simulated. The old withhold more than the young, smoothly,

.. math:: P(∅|\mathrm{age}) = \alpha + (\beta - \alpha)\, \sigma((\mathrm{age} - 45) / 8),

with α and β the rates of the paper's level: .4 and .8 if sparse, .2 and .4 if medium, .1 and .2 if dense.
Levels are made of the published shares of age in this census, not of the rows, some of whose ages are hidden.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from pyro_fairvae.data.missingness import LEVELS
from pyro_fairvae.schema.arrays import Floats
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels

AGE = "age"
MIDDLE, WIDTH = 45.0, 8.0  # years
# Ages of the people of this census: below each are 0, 5, 10, …, 95 % of them, then 98, 99, 99.5, 99.9, 100 %.
SHARES = (*np.arange(0, 1, 0.05), 0.98, 0.99, 0.995, 0.999, 1.0)
AGES = (17, 20, 22, 24, 26, 28, 30, 32, 34, 35, 37, 39, 41, 43, 45, 47, 50, 53, 57, 62, 68, 73, 76, 89, 90)


def age_attributes(most: int) -> Attributes:
    """Age, cut into at most ``most`` levels."""
    people = np.interp((np.arange(10_000) + 0.5) / 10_000, SHARES, AGES)
    return Attributes.of_number(Levels.of(np.floor(people), most), AGE)


def withheld_at_age(level: str, age: Floats) -> Floats:
    """P(∅|age) at a level of missingness."""
    old, young = LEVELS[level]
    return np.asarray(young + (old - young) * expit((age - MIDDLE) / WIDTH))
