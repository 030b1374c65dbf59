"""
A number in place of groups
===========================

Age is a sensitive number that the old state less often. Who withholds comes out as a curve with a band, and
decisions are settled to how much they tell of the age among people of one label.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from pyro_fairvae import FairDecisions

ROWS, LEVELS = 5000, 8

# %%
# P(∅ given age) rises from .1 to .8 around 55.

draw = np.random.default_rng(0)
age = draw.uniform(20, 80, ROWS)
X = pd.DataFrame({"tenure": age / 2 + draw.normal(0, 4, ROWS), "grey": age / 10 + draw.normal(size=ROWS)})
X["skill"] = draw.normal(size=ROWS)
y = (X["skill"] - (age - 50) / 40 + 0.5 * draw.normal(size=ROWS) > 0).astype(int)


def withheld(years):
    return 0.1 + 0.7 / (1 + np.exp(-(years - 55) / 6))


stated = np.where(draw.random(ROWS) < withheld(age), np.nan, age)

# %%

model = FairDecisions(group_levels=LEVELS, random_state=0).fit(X, y, sensitive_features=stated)
print(model.frontier_.round(4))
print(model.withholding_curve_.round(3))

# %%

curve = model.withholding_curve_
figure, axes = plt.subplots(figsize=(5, 3))
axes.fill_between(curve["centre"], curve["low"], curve["high"], alpha=0.3, label="90 % band")
axes.plot(curve["centre"], curve["withheld"], "o-", label="found")
axes.plot(np.linspace(20, 80), withheld(np.linspace(20, 80)), "k--", label="truth")
axes.set(xlabel="age", ylabel="P(∅ given age)")
axes.legend()
figure.tight_layout()
