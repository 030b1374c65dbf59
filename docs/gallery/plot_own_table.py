"""
A table of your own
===================

Applicants with numbers, words and gaps, of whom many did not state their sex: a frontier from the most
accurate decisions to the fairest, who withholds, and an audit of new people.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from pyro_fairvae import FairSSVAEClassifier, audit

ROWS, EPOCHS = 4000, 6

# %%
# Women have fewer years of experience here. Of them 60 % do not state their sex, of the men 30 %.

draw = np.random.default_rng(0)
women = draw.random(ROWS) < 0.45
years, score = draw.gamma(3, 3, ROWS) + 2 * ~women, draw.normal(size=ROWS)
X = pd.DataFrame({"years": years, "score": score, "height": 168 + 12 * ~women + 6 * draw.normal(size=ROWS)})
X["field"] = np.where(draw.random(ROWS) < 0.3 + 0.4 * women, "care", "trades")
X.loc[draw.random(ROWS) < 0.1, "score"] = np.nan
y = np.where(draw.random(ROWS) < 1 / (1 + np.exp(3 - 0.3 * years - score)), "yes", "no")
sex = pd.Series(np.where(women, "woman", "man")).mask(draw.random(ROWS) < np.where(women, 0.6, 0.3))
old, new = slice(0, ROWS * 3 // 4), slice(ROWS * 3 // 4, ROWS)

# %%
# Every member of the frontier is held to a target: the largest difference between groups that is allowed.

model = FairSSVAEClassifier(targets=(0.2, 0.1, 0.05), epochs=EPOCHS, random_state=0)
model.fit(X[old], y[old], sensitive_features=sex[old])
print(model.frontier_.round(3), model.channels_.round(3), sep="\n\n")

# %%
# New people are decided about without their sex; the audit uses it where it was stated.

model.select(max_disparity=0.1)
print(audit(y[new], model.predict(X[new]), sex[new], X=X[new], model=model))

# %%

frontier = model.frontier_
figure, axes = plt.subplots(figsize=(5, 3))
axes.errorbar(
    frontier["error"], frontier["disparity"],
    yerr=np.abs(frontier[["low", "high"]].sub(frontier["disparity"], axis=0)).T, fmt="o",
)  # fmt: skip
axes.set(xlabel="error", ylabel="DEO, with its 90 % interval")
figure.tight_layout()
