"""
A fairness risk of your own
===========================

Any function of decisions, labels and groups that PyTorch can differentiate is a risk: it sees draws of what
nobody stated. Here: the worst group should get as many positive decisions as possible.
"""

import pandas as pd

from pyro_fairvae import (
    Missingness,
    RiskSettings,
    Settings,
    evaluate,
    fit,
    register_risk,
    split,
    synthetic,
)  # fmt: skip

ROWS, EPOCHS = 2500, 10


# %%
# ``predictions`` is P_f, (…, rows, classes), ``y`` and ``a`` are draws of labels and groups, (…, rows).


def worst_off(predictions, y, a):
    """The share of negative decisions in the group that gets most of them."""
    shares = [(predictions[..., 0] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return shares[0].maximum(shares[1])


register_risk("worst_off", worst_off)

# %%

parts = split(synthetic(ROWS, seed=0, class_strength=1.5), Missingness(unavailable=(0.3, 0.7)), seed=0)
fairness = RiskSettings(risk="worst_off", samples=20, refine_decisions=0)
settings = Settings(epochs=EPOCHS, hidden=16, layers=1, fairness=fairness)
fitted = fit(parts.train, parts.validation, lambdas=(0.0, 0.3, 1.0), settings=settings)

# %%

test, found = parts.test, []
for weight, decided in zip(fitted.lambdas, fitted.decide(test.features).numpy(), strict=True):
    rates = pd.Series(decided == 1).groupby(test.a).mean()
    error = evaluate(test.y, decided, test.a, 2)["error"]
    found.append({"λ": weight, "error": error, "positive, group 0": rates[0], "positive, group 1": rates[1]})
table = pd.DataFrame(found)
print(table.round(3))
axes = table.plot(x="λ", y=["positive, group 0", "positive, group 1", "error"], marker="o", figsize=(5, 3))
axes.figure.tight_layout()
