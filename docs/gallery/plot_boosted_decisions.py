"""
Fair decisions of any classifier
================================

A classifier of scikit-learn's, wrapped: it is cross-fitted, groups are imputed with the withholding that is
learned, and decisions are settled to targets. At prediction no group is needed.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from pyro_fairvae import FairDecisions, evaluate, synthetic

ROWS = 4000

# %%
# Labels depend on the group, and seven in ten of group 1 do not state it.

table = synthetic(ROWS, seed=1, class_strength=1.5, dependence=0.3)
X, silent = table.numbers, np.random.default_rng(0).random(ROWS) < np.where(table.a == 1, 0.7, 0.2)
stated = np.where(silent, np.nan, table.a)
old, new = slice(0, ROWS // 2), slice(ROWS // 2, ROWS)

# %%

trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)
model = FairDecisions(trees, targets=(0.2, 0.1, 0.05), random_state=0)
model.fit(X[old], table.y[old], sensitive_features=stated[old])
print(model.frontier_.round(3), model.channels_.round(3), sep="\n\n")

# %%
# On new people, whose groups the model does not see:

points = {}
for target in (None, 0.2, 0.1, 0.05):
    decided = (model if target is None else model.select(max_disparity=target)).predict(X[new])
    if target is None:
        decided = trees.fit(X[old], table.y[old]).predict(X[new])
    points[target] = evaluate(table.y[new], decided, table.a[new], 2)
    print(target, {name: round(float(points[target][name]), 3) for name in ("error", "deo")})

figure, axes = plt.subplots(figsize=(5, 3))
for target, at in points.items():
    axes.plot(at["error"], at["deo"], "o")
    axes.annotate("trees alone" if target is None else f"target {target}", (at["error"], at["deo"]))
axes.set(xlabel="error on new people", ylabel="DEO")
figure.tight_layout()
