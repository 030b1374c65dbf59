"""
A prior that matters
====================

With few rows, or features that tell little of the group, the posterior of who withholds is near its prior.
Priors are presets or a few words of YAML; the same rows are seen here under three of them.
"""

import matplotlib.pyplot as plt

from pyro_fairvae import (
    Attributes,
    Missingness,
    Settings,
    calibrate_fit,
    channel,
    fit,
    prior_draws,
    split,
    synthetic,
)

ROWS, EPOCHS = 600, 8
PRIORS = {
    "truthful": "truthful",
    "leaning to .3": "{preset: informed, strength: 30, rows: {every: {unavailable: 0.3}}}",
    "sure of .3": "{preset: informed, strength: 1000, rows: {every: {unavailable: 0.3}}}",
}

# %%
# Of group 0 three in ten withhold it, of group 1 seven in ten.

parts = split(synthetic(ROWS, seed=0, group_strength=1.0), Missingness(unavailable=(0.3, 0.7)), seed=0)

# %%

figure, axes = plt.subplots(1, len(PRIORS), figsize=(9, 3), sharex=True)
for (title, prior), each in zip(PRIORS.items(), axes, strict=True):
    settings = Settings(epochs=EPOCHS, hidden=16, layers=1, prior_a=prior)
    fitted = fit(parts.train, parts.validation, lambdas=(0.0,), settings=settings)
    posterior = calibrate_fit(fitted, parts.train, seeds=[0])["a"].draws
    before = prior_draws(channel("a", Attributes.single(("0", "1"), "group"), prior), 2000, seed=0)
    for group in (0, 1):
        after = posterior.of(group, "unavailable").ravel()
        each.hist(after, bins=30, density=True, alpha=0.5, color=f"C{group}", label=f"group {group}")
        prior_rates = before.of(group, "unavailable").ravel()
        each.hist(prior_rates, bins=30, density=True, histtype="step", color=f"C{group}")
        print(f"{title}: group {group} withholds {after.mean():.2f} ± {after.std():.2f}")
    each.set(title=title, xlabel="P(∅ given group)", xlim=(0, 1))
axes[0].legend()
figure.tight_layout()
