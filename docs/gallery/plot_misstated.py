"""
People who name another group
=============================

Some people do not withhold their group but name another one. A prior that allows it learns how often, if it
says which is more common: the data alone cannot tell two groups from the same two with names exchanged.
"""

import matplotlib.pyplot as plt
import numpy as np

from pyro_fairvae import Missingness, Settings, calibrate_fit, fit, split, synthetic

ROWS, EPOCHS = 3000, 12
HONEST_MOSTLY = "{rows: {every: {own: 8, other: 1, unavailable: 4}}}"
AS_LIKELY = "{rows: {every: {own: 1, other: 1, unavailable: 1}}}"

# %%
# One in ten names the other group; three and five in ten say nothing.

truth = np.array([[0.6, 0.1, 0.3], [0.1, 0.4, 0.5]])
misstated = Missingness(unavailable=(0.3, 0.5), misstated=(0.1, 0.1))
parts = split(synthetic(ROWS, seed=0, group_strength=3.0), misstated, seed=0)

# %%

figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
for prior, title, each in zip((HONEST_MOSTLY, AS_LIKELY), ("mostly honest", "as likely"), axes, strict=True):
    settings = Settings(epochs=EPOCHS, hidden=16, layers=1, prior_a=prior)
    fitted = fit(parts.train, parts.validation, lambdas=(0.0,), settings=settings)
    posterior = calibrate_fit(fitted, parts.train, seeds=[0])["a"].draws
    for group, colour in ((0, "C0"), (1, "C1")):
        rates = [posterior.of(group, outcome).mean() for outcome in ("0", "1", "unavailable")]
        each.plot(rates, "o-", color=colour, label=f"group {group}")
        each.plot(truth[group], "x--", color=colour, alpha=0.6)
        print(title, group, np.round(rates, 2))
    each.set(title=title, xticks=range(3), xticklabels=["states 0", "states 1", "states none"])
axes[0].legend()
figure.tight_layout()
