"""
Who withholds, and why
======================

Withholding may depend on more than the group: here on the month in which people were asked. The check of the
assumption says so; once the month is named, rates and what makes people withhold come out.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from pyro_fairvae import FairDecisions, synthetic

ROWS = 6000

# %%
# The odds of withholding are 2.5 times as high in the second half of the year, for both groups.

table = synthetic(ROWS, seed=0, group_strength=2.5)
draw = np.random.default_rng(0)
X = table.numbers.assign(late=draw.integers(0, 2, ROWS))
odds = np.where(table.a == 1, 1.5, 0.4) * np.where(X["late"] == 1, 2.5, 1.0)
stated = np.where(draw.random(ROWS) < odds / (1 + odds), np.nan, table.a)
truth = [float((odds / (1 + odds))[table.a == group].mean()) for group in (0, 1)]

# %%

models = {}
for depends_on in ((), ("late",)):
    model = FairDecisions(targets=(0.1,), withholding_depends_on=depends_on, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the check is printed below
        models[depends_on] = model.fit(X, table.y, sensitive_features=stated)
    print(f"depends on {depends_on or 'the group alone'}: p = {model.withholding_check_.p_value:.3g}")
    print(model.channels_.query("what == 'group'").round(3), "\n")
print("truth:", [round(rate, 3) for rate in truth])

# %%
# What the second model says makes people withhold; log 2.5 is 0.916.

print(models[("late",)].posterior_["effects"])

figure, axes = plt.subplots(figsize=(5, 3))
for shift, (depends_on, model) in zip((-0.1, 0.1), models.items(), strict=True):
    rates = model.channels_.query("what == 'group'")
    ends = np.abs(rates[["low", "high"]].sub(rates["withheld"], axis=0)).T
    label = f"depends on {depends_on or 'the group alone'}"
    axes.errorbar(np.arange(2) + shift, rates["withheld"], yerr=ends, fmt="o", label=label)
axes.plot([0, 1], truth, "k_", markersize=30, label="truth")
axes.set(xticks=[0, 1], xlabel="group", ylabel="P(∅ given group)")
axes.legend()
figure.tight_layout()
