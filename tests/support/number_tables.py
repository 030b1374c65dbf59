"""Tables in which a number, an age, is the sensitive feature, and is withheld along a known curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit


class Aged(NamedTuple):
    """What is known of people; ``stated`` is the age with gaps, ``y`` the label."""

    X: pd.DataFrame
    y: np.ndarray
    age: np.ndarray
    stated: pd.Series


def withheld_at(age: np.ndarray) -> np.ndarray:
    """P(∅|age)."""
    return 0.2 + 0.5 * expit((age - 45) / 8)


def aged(rows: int, seed: int = 0) -> Aged:
    """People whose features tell of their age and label, and whose label depends on age."""
    draw = np.random.default_rng([seed, 20])
    age = draw.uniform(18, 80, size=rows).round()
    z = (age - 49) / 18
    skill = draw.normal(size=rows)
    y = np.where(draw.random(rows) < expit(0.8 * z + 1.5 * skill - 0.5), "yes", "no")
    X = pd.DataFrame(
        {
            "tenure": z + 0.4 * draw.normal(size=rows),
            "skill": skill + 0.3 * draw.normal(size=rows),
            "town": draw.choice(["north", "south"], size=rows),
        }
    )
    withheld = draw.random(rows) < withheld_at(age)
    return Aged(X, y, age, pd.Series(age, name="age").mask(withheld))
