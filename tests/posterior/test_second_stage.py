"""The posterior of a channel given cross-fitted scores, against closed forms, scipy and known truth."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit, softmax

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.posterior.scored_rows import FARTHEST, ScoredRows, log_odds
from pyro_fairvae.posterior.second_stage import FIRST_DEVIATION, SHIFT, STRETCH, SecondStage
from pyro_fairvae.posterior.stage_draws import by_chains, by_importance, channel_posterior, sample
from pyro_fairvae.schema.attributes import Attributes

TWO = Attributes.single(("0", "1"))


def small_stage(labels: bool) -> tuple[SecondStage, dict[str, np.ndarray]]:
    draw = np.random.default_rng(3)
    attributes = Attributes.single(("0", "1", "2"))
    made = {
        "scores": draw.dirichlet(np.ones(3), size=(2, 5)),
        "observed": draw.integers(0, 4, size=(2, 5)),
        "v": draw.normal(size=(2, 5, 2)),
        "labels": draw.dirichlet(np.ones(2), size=(2, 5)),
        "label_columns": draw.normal(size=(2, 2, 2)),
    }
    tensors = {name: torch.from_numpy(value) for name, value in made.items()}
    rows = ScoredRows.make(
        tensors["scores"],
        tensors["observed"],
        4,
        tensors["v"],
        tensors["labels"] if labels else None,
        tensors["label_columns"] if labels else None,
    )
    return SecondStage(channel("a", attributes, "flat"), rows, scale=0.7), made


@pytest.mark.parametrize("labels", [False, True])
def test_the_density_is_that_of_a_loop_over_rows(labels: bool) -> None:
    stage, made = small_stage(labels)
    q = np.random.default_rng(4).normal(size=(2, sum(stage.sizes))) / 2
    found = stage.log_density(torch.from_numpy(q)).numpy()
    columns = 4 if labels else 2
    for t in range(2):
        b_c, d, ratios, w, delta = np.split(q[t], np.cumsum(stage.sizes)[:-1])
        b_c, d, w, delta = b_c.reshape(2, 3), d.reshape(2, columns), w, delta.reshape(3, columns)
        rows = [softmax(np.r_[part, 0.0]) for part in ratios.reshape(3, 3)]
        expected = sum(np.log(row).sum() for row in rows)  # Dir(1, 1, 1) and the Jacobian of softmax
        centre = np.c_[np.zeros(2), np.eye(2)]
        expected -= ((b_c - centre) ** 2 / 2 / np.array([SHIFT, STRETCH, STRETCH]) ** 2).sum()
        expected -= ((d**2).sum() + (delta**2).sum()) / 2 / FIRST_DEVIATION**2 + (w**2).sum() / 2 / 0.7**2
        shares = np.zeros(3)
        for i in range(5):
            log_h = np.log(made["scores"][t, i])
            s = np.clip(log_h[:2] - log_h[2], -FARTHEST, FARTHEST)
            total = 0.0
            for y in range(2 if labels else 1):
                v = np.r_[made["v"][t, i], made["label_columns"][t, y]] if labels else made["v"][t, i]
                h = softmax(np.r_[b_c @ np.r_[1.0, s] + d @ v, 0.0])
                shares += (made["labels"][t, i, y] if labels else 1.0) * h / 5
                for a in range(3):
                    tilted = rows[a] * np.exp(np.r_[0.0, 0.0, 0.0, (w + delta[a]) @ v])
                    probability = (tilted / tilted.sum())[made["observed"][t, i]]
                    total += (made["labels"][t, i, y] if labels else 1.0) * h[a] * probability
            expected += np.log(total)
        expected += np.log(shares).sum()  # one person of each group
        assert found[t] == pytest.approx(expected, rel=1e-9)


def test_the_information_is_the_expected_curvature() -> None:
    """By brute force: minus the second derivatives, averaged over what could have been recorded."""
    stage, _ = small_stage(labels=True)
    q = torch.from_numpy(np.random.default_rng(5).normal(size=(2, sum(stage.sizes))) / 2)
    found = stage.information(q)
    expected = torch.zeros_like(found)

    def log_likelihood(one: torch.Tensor, t: int, i: int, outcome: int) -> torch.Tensor:
        whole = torch.stack([one if k == t else q[k] for k in range(2)])
        observed = torch.full_like(stage.rows.observed, outcome)
        return stage.row_log_likelihood(stage.predictors(whole), stage.split(whole).ratios, observed)[t, i]

    for t, i, outcome in product(range(2), range(5), range(4)):
        of_row = partial(log_likelihood, t=t, i=i, outcome=outcome)
        curvature = torch.autograd.functional.hessian(of_row, q[t])
        expected[t] -= of_row(q[t]).exp() * curvature
    prior = torch.diag_embed(stage.precision + stage._row_precision(stage.split(q).ratios))
    assert torch.allclose(found - prior, expected, atol=1e-6)


def test_with_certain_scores_the_posterior_is_beta() -> None:
    draw = np.random.default_rng(0)
    a = draw.integers(0, 2, size=4000)
    observed = np.where(draw.random(4000) < np.array([0.7, 0.2])[a], 2, a)
    scores = np.where(a[:, None] == np.arange(2), 1 - 1e-9, 1e-9)
    rows = ScoredRows.make(torch.from_numpy(scores)[None], torch.from_numpy(observed)[None], 3)
    stage = SecondStage(channel("a", TWO, "truthful"), rows)
    posterior = channel_posterior(stage, sample(stage, *stage.maximise(), draws=400, chains=4, seed=1))
    for g in range(2):
        withheld = int((observed[a == g] == 2).sum())
        exact = stats.beta(1 + withheld, 1 + (a == g).sum() - withheld)
        drawn = posterior.rows[g][..., 1].numpy()
        # Scores are clamped, so the last bit of certainty is missing.
        assert drawn.mean() == pytest.approx(exact.mean(), abs=0.003)
        assert drawn.std() == pytest.approx(exact.std(), rel=0.15)


def test_nothing_withheld_gives_a_rate_near_0() -> None:
    observed = torch.arange(2).repeat(300)[None]
    scores = torch.full((1, 600, 2), 0.5, dtype=torch.float64)
    stage = SecondStage(channel("a", TWO, "truthful"), ScoredRows.make(scores, observed, 3))
    posterior = channel_posterior(stage, sample(stage, *stage.maximise(), draws=300, chains=4, seed=1))
    assert all(float(row[..., 1].quantile(0.95)) < 0.03 for row in posterior.rows)


def simulate(tables: int, rows: int, seed: int) -> tuple[np.ndarray, ...]:
    """Two groups, withholding that depends on the group and on v, and scores that are wrong in scale."""
    draw = np.random.default_rng(seed)
    a = (draw.random((tables, rows)) < 0.4).astype(int)
    v = draw.normal(size=(tables, rows, 2))
    v[..., 0] += 0.7 * a
    x = draw.normal(size=(tables, rows)) + 1.4 * a
    logit = np.where(a == 1, -1.0, 0.0) + v @ np.array([0.8, -0.5])
    observed = np.where(draw.random((tables, rows)) < expit(logit), 2, a)
    true = 1.4 * x - 0.98 + 0.7 * v[..., 0] - 0.245 + np.log(0.4 / 0.6)
    score = expit(1.7 * true + 0.3 * draw.normal(size=true.shape) + 0.4)
    return np.stack([1 - score, score], -1), observed, v - v.mean(1, keepdims=True)


def test_intervals_hold_the_truth_where_withholding_depends_on_more() -> None:
    scores, observed, v = simulate(tables=8, rows=1200, seed=1)
    tensors = [torch.from_numpy(part) for part in (scores, observed, v)]
    stage = SecondStage(channel("a", TWO, "truthful"), ScoredRows.make(tensors[0], tensors[1], 3, tensors[2]))
    posterior = channel_posterior(stage, sample(stage, *stage.maximise(), draws=100, chains=2, seed=1))
    many = np.random.default_rng(9).normal(size=(400_000, 2))
    effects = posterior.effects[..., 0, :].flatten(0, 1).mean(0).numpy()
    assert effects.mean(0) == pytest.approx([0.8, -0.5], abs=0.1)
    held = 0
    for g in range(2):
        truth = expit(-g + (many + np.array([0.7 * g, 0])) @ np.array([0.8, -0.5])).mean()
        drawn = posterior.rows[g][..., 1].flatten(0, 1).numpy()
        low, high = np.quantile(drawn, (0.05, 0.95), axis=0)
        held += int(((low <= truth) & (truth <= high)).sum())
        assert drawn.mean() == pytest.approx(truth, abs=0.03)
    assert held >= 11  # of 16; 14.4 are expected
    plain = SecondStage(channel("a", TWO, "truthful"), ScoredRows.make(tensors[0], tensors[1], 3))
    rates = plain.row_draws(plain.split(plain.maximise()[0]).ratios)
    assert abs(float(rates[0][:, 1].mean()) - expit(many @ np.array([0.8, -0.5])).mean()) > 0.05


def test_known_labels_are_conditions_like_others() -> None:
    """The density with certain labels is that of labels as a sum over classes."""
    draw = np.random.default_rng(6)
    labels = torch.eye(2, dtype=torch.float64)[draw.integers(0, 2, size=(2, 5))]
    _, made = small_stage(labels=True)
    tensors = {name: torch.from_numpy(value) for name, value in made.items()}
    scores, observed, v, columns = (tensors[name] for name in ("scores", "observed", "v", "label_columns"))
    folded = ScoredRows.make(scores, observed, 4, v, labels, columns)
    assert folded.conditions.shape[-1] == 4
    assert folded.labels.shape[-1] == 1
    ones = torch.ones(2, 5, dtype=torch.float64)
    summed = ScoredRows(log_odds(scores), observed, ones, v, labels, columns)
    made_channel = channel("a", Attributes.single(("0", "1", "2")), "flat")
    stages = [SecondStage(made_channel, rows) for rows in (folded, summed)]
    q = torch.from_numpy(draw.normal(size=(2, sum(stages[0].sizes))) / 2)
    torch.testing.assert_close(stages[0].log_density(q), stages[1].log_density(q))
    torch.testing.assert_close(stages[0].information(q), stages[1].information(q))


def test_two_attributes_have_effects_of_their_own_values() -> None:
    """What is added to the logit of ∅ of each attribute, against a loop over groups."""
    attributes = Attributes(("sex", "age"), (("f", "m"), ("young", "middle", "old")))
    draw = np.random.default_rng(7)
    scores = torch.from_numpy(draw.dirichlet(np.ones(6), size=(1, 4)))
    v = torch.from_numpy(draw.normal(size=(1, 4, 3)))
    rows = ScoredRows.make(scores, torch.zeros(1, 4, dtype=torch.long), 12, v)
    stage = SecondStage(channel("a", attributes), rows)
    q = torch.from_numpy(draw.normal(size=(1, sum(stage.sizes))))
    parts = stage.split(q)
    tilt = stage.tilt(stage.predictors(q))
    assert tilt is not None
    for i, g in product(range(4), range(6)):
        sex, age = divmod(g, 3)
        for j, value in ((0, sex), (1, 2 + age)):
            expected = (parts.effects[0, j] + parts.differences[0, value]) @ v[0, i]
            torch.testing.assert_close(tilt[0, i, 0, j, g], expected)


def test_effects_may_differ_between_groups() -> None:
    """Where v moves one group only, rates of the other are right, and those of equal effects are not."""
    draw = np.random.default_rng(8)
    tables, rows = 8, 3000
    a = (draw.random((tables, rows)) < 0.4).astype(int)
    v = draw.normal(size=(tables, rows, 1)) + 0.8 * a[..., None]
    x = draw.normal(size=(tables, rows)) + 1.8 * a
    rate = expit(np.where(a == 1, -1.0, 0.2 + 1.2 * (v[..., 0] - 0.32)))
    observed = torch.from_numpy(np.where(draw.random((tables, rows)) < rate, 2, a))
    score = expit(1.8 * x - 1.62 + 0.8 * v[..., 0] - 0.32 + np.log(0.4 / 0.6))
    scores = torch.from_numpy(np.stack([1 - score, score], -1))
    made = ScoredRows.make(scores, observed, 3, torch.from_numpy(v - v.mean(1, keepdims=True)))
    stage, alike = (SecondStage(channel("a", TWO), made) for _ in range(2))
    alike.deviations[:, 2] = 1e-4
    alike._change_of_deviations = lambda q, information: torch.zeros_like(alike.deviations)  # type: ignore
    alike._within_bounds = lambda deviations: deviations  # type: ignore[method-assign]
    found, same = (channel_posterior(of, of.maximise()[0].expand(1, 1, -1, -1)) for of in (stage, alike))
    assert float(found.rows[1][..., 1].mean()) == pytest.approx(expit(-1), abs=0.02)
    assert abs(float(same.rows[1][..., 1].mean()) - expit(-1)) > 0.04
    assert float(found.effects.mean()) == pytest.approx(0.6 * 1.2, abs=0.1)


def test_importance_and_hamiltonian_draws_agree() -> None:
    scores, observed, v = simulate(tables=2, rows=400, seed=3)
    tensors = [torch.from_numpy(part) for part in (scores, observed, v)]
    stage = SecondStage(channel("a", TWO, "truthful"), ScoredRows.make(tensors[0], tensors[1], 3, tensors[2]))
    mode = stage.maximise()
    drawn, enough = by_importance(stage, *mode, draws=1000, seed=1)
    assert bool(enough.all())
    chains = by_chains(stage, *mode, draws=150, chains=4, seed=1, every=1).flatten(0, 1)
    deviation = chains.std(0)
    assert float(((drawn.mean(0) - chains.mean(0)) / deviation).abs().max()) < 0.3
    assert float((drawn.std(0) / deviation - 1).abs().max()) < 0.3
    one = stage.of_tables(torch.tensor([1]))
    assert torch.allclose(one.log_density(mode[0][[1]]), stage.log_density(mode[0])[[1]])
