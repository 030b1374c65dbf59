"""The posterior of who withholds a number, against a loop over rows and simulations with known curves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.posterior.calibration import calibrate_scores
from pyro_fairvae.posterior.ordered_stage import OrderedStage
from pyro_fairvae.posterior.scored_rows import ScoredRows
from pyro_fairvae.posterior.second_stage import SHIFT, STRETCH
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels

FOUR = Attributes.of_number(Levels((1.0, 2.0, 4.0), (0.0, 1.0, 3.0, 5.0)), "age")


def test_the_density_is_that_of_a_loop_over_rows() -> None:
    draw = np.random.default_rng(3)
    scores, observed, v = draw.dirichlet(np.ones(4), size=6), draw.integers(0, 5, size=6), draw.normal(size=6)
    given = [torch.from_numpy(part)[None] for part in (scores, observed, v[:, None])]
    rows = ScoredRows.make(given[0], given[1], 5, given[2])
    stage = OrderedStage(channel("a", FOUR, "{preset: truthful, bend: 2.5}"), rows, scale=0.7)
    q = draw.normal(size=sum(stage.sizes)) / 2
    shift, (power, along), of_v, ratios, w, delta = np.split(q, np.cumsum([3, 2, 3, 4, 1]))
    place = np.array([0.0, 0.2, 0.6, 1.0])
    contrast = (place - 1)[:3]
    slopes = np.diff(ratios) / np.diff(place)
    expected = -(np.diff(slopes) ** 2 / np.array([0.3, 0.4])).sum() / 2 / 2.5**2
    expected += (np.log(expit(ratios)) + np.log(expit(-ratios))).sum()
    expected -= (shift**2).sum() / 2 / SHIFT**2 + ((power - 1) ** 2 + along**2).item() / 2 / STRETCH**2
    expected -= (of_v**2).sum() / 2 / 0.1**2 + (w**2).sum() / 2 / 0.7**2 + (delta**2).sum() / 2 / 0.1**2
    shares = np.zeros(4)
    for i in range(6):
        s = np.log(scores[i, :3]) - np.log(scores[i, 3])
        mean = contrast @ s / (contrast**2).sum()
        h = softmax(np.r_[shift + power * s + along * contrast * mean + of_v * v[i], 0.0])
        shares += h / 6
        hidden = expit(-ratios + (w + delta) * v[i])
        a = observed[i]
        expected += np.log(h @ hidden if a == 4 else h[a] * (1 - hidden[a]))
    expected += np.log(shares).sum()
    assert stage.log_density(torch.from_numpy(q)[None]).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("curve", [lambda t: 0.1 + 0.6 * t, lambda t: 0.6 * np.exp(-((t - 0.5) ** 2) / 0.08)])
def test_curves_are_recovered_from_scores_that_are_too_sure(curve: object) -> None:
    """Smooth along levels: far closer than the same rows give with levels as groups of no order."""
    assert callable(curve)
    draw = np.random.default_rng(0)
    rows, levels = 6000, 10
    t = draw.random(rows)
    level = np.minimum((levels * t).astype(int), levels - 1)
    centres = (np.arange(levels) + 0.5) / levels
    seen = t + 0.15 * draw.normal(size=rows)  # what the features tell of the number
    h = softmax(-((seen[:, None] - centres) ** 2) / 2 / 0.15**2 * 1.6, axis=1)
    hidden = draw.random(rows) < curve(t)
    observed = np.where(hidden, levels, level)
    truth = np.array([curve(t[level == k]).mean() for k in range(levels)])
    errors = {}
    number = Attributes.of_number(Levels(tuple(centres[:-1] + 0.5 / levels), tuple(centres)))
    for name, attributes in {"number": number, "groups": Attributes.single(number.values[0])}.items():
        found = calibrate_scores(
            channel("a", attributes), torch.from_numpy(h)[None], torch.from_numpy(observed)[None], 100, seed=0
        )
        rates = [found.draws.of(k, "unavailable").ravel() for k in range(levels)]
        errors[name] = np.abs([rate.mean() for rate in rates] - truth).mean()
        if name == "number":
            low, high = np.quantile(rates, [0.01, 0.99], axis=1)
            assert ((low <= truth) & (truth <= high)).mean() >= 0.9
    assert errors["number"] < 0.03
    assert errors["number"] < errors["groups"] / 2
