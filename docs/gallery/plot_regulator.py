"""
An audit for a regulator
========================

Decisions of somebody's classifier, scores, and a column of groups with gaps: impact ratios with intervals,
the tables of New York's Local Law 144, and how far withholding may depart from the model before the finding
turns.
"""

import matplotlib.pyplot as plt
import numpy as np

from pyro_fairvae import audit, synthetic

ROWS = 3000
GAMMAS = (1.0, 1.5, 2.0, 3.0, 5.0)

# %%
# The classifier looks at one feature. Of group 1 six in ten do not state it, of group 0 two in ten.

table = synthetic(ROWS, seed=3, class_strength=1.5, dependence=0.4)
draw = np.random.default_rng(0)
scores = 1 / (1 + np.exp(-(table.numbers.sum(axis=1) - table.numbers.sum(axis=1).mean())))
stated = np.where(draw.random(ROWS) < np.where(table.a == 1, 0.6, 0.2), None, np.array(["A", "B"])[table.a])

# %%

found = audit(table.y, (scores > 0.5).astype(int), stated, X=table.numbers, scores=scores)
print(found)

# %%

print(found.local_law_144())

# %%
# Γ is the odds ratio by which withholding may depend on decision and label beyond what is modelled.

sensitivity = found.sensitivity(gammas=GAMMAS, tolerance=0.1)
print(sensitivity.findings)
curve = sensitivity.curves.query("measure == 'ddp' and gamma <= 5")
figure, axes = plt.subplots(figsize=(5, 3))
axes.fill_between(curve["gamma"], curve["low"], curve["high"], alpha=0.3, label="interval")
axes.fill_between(curve["gamma"], curve["least"], curve["most"], alpha=0.5, label="range of the estimate")
axes.axhline(0.1, color="k", linewidth=1, label="counts as fair")
axes.set(xlabel="Γ", ylabel="DDP")
axes.legend()
figure.tight_layout()
