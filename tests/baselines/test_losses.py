"""Objectives of the methods, each against an independent computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from torch.nn import functional

from pyro_fairvae.baselines.fairda import reverse
from pyro_fairvae.baselines.fairrf import correlation, simplex_weights
from pyro_fairvae.baselines.guesses import best_threshold, cells_of
from pyro_fairvae.baselines.learning import cross_entropy
from pyro_fairvae.baselines.mfd import squared_mmd
from pyro_fairvae.baselines.penalised import decision_error
from pyro_fairvae.baselines.reductions import RandomisedClassifiers
from pyro_fairvae.baselines.reweighting import balancing
from pyro_fairvae.risks import RiskLoss, RiskSettings

GENERATOR = np.random.default_rng(0)


def test_cross_entropy_is_scikit_learns() -> None:
    logits = torch.randn(2, 30, 3, dtype=torch.float64)
    target, weight = torch.randint(3, (30,)), torch.rand(30, dtype=torch.float64)
    found = cross_entropy(logits, target, weight)
    for k in range(2):
        expected = log_loss(target, logits[k].softmax(-1), sample_weight=weight, labels=[0, 1, 2])
        assert found[k].item() == pytest.approx(expected)
    assert cross_entropy(logits, target)[0].item() == pytest.approx(log_loss(target, logits[0].softmax(-1)))


def test_mmd_by_loops() -> None:
    rows, width = 17, 4
    taught = torch.randn(rows, width, dtype=torch.float64)
    features = torch.randn(2, rows, width, dtype=torch.float64)
    y, a = torch.randint(2, (rows,)), torch.randint(3, (rows,))
    found = squared_mmd(taught, features, cells_of(y, a, 2, 3, torch.float64))
    for k in range(2):
        distances = [float(((s - t) ** 2).sum()) for s in features[k] for t in taught]
        variance = np.mean(distances)

        def kernel(u: torch.Tensor, v: torch.Tensor, variance: float = variance) -> float:
            return float(torch.exp(-((u - v) ** 2).sum() / (2 * variance)))

        for c in range(2):
            for g in range(3):
                ours = [i for i in range(rows) if y[i] == c and a[i] == g]
                theirs = [i for i in range(rows) if y[i] == c]
                if not ours:
                    assert found[k, c, g] == 0
                    continue
                expected = (
                    np.mean([kernel(features[k, i], features[k, j]) for i in ours for j in ours])
                    + np.mean([kernel(taught[i], taught[j]) for i in theirs for j in theirs])
                    - 2 * np.mean([kernel(features[k, i], taught[j]) for i in ours for j in theirs])
                )
                assert found[k, c, g].item() == pytest.approx(expected, abs=1e-12)


def test_mmd_is_none_between_equal_features() -> None:
    taught = torch.randn(8, 3, dtype=torch.float64)
    cells = cells_of(torch.zeros(8, dtype=torch.long), torch.zeros(8, dtype=torch.long), 2, 2, torch.float64)
    assert squared_mmd(taught, taught[None], cells).abs().max() < 1e-12


def test_correlation_is_numpys() -> None:
    columns, predicted = GENERATOR.normal(size=(40, 3)), GENERATOR.random(size=(2, 40))
    found = correlation(torch.from_numpy(columns), torch.from_numpy(predicted))
    for k in range(2):
        for j in range(3):
            expected = abs(np.corrcoef(columns[:, j], predicted[k])[0, 1])
            assert found[k, j].item() == pytest.approx(expected)
    constant = correlation(torch.ones(40, 1), torch.rand(1, 40))
    assert constant.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("beta", [0.05, 0.5, 5.0])
def test_weights_of_related_features_are_the_minimiser(beta: float) -> None:
    costs = GENERATOR.random(4)
    found = simplex_weights(torch.from_numpy(costs), beta).numpy()
    best = minimize(
        lambda mu: mu @ costs + beta * mu @ mu,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda mu: mu.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert found == pytest.approx(best.x, abs=1e-4)


def test_one_related_feature_has_all_the_weight() -> None:
    assert simplex_weights(torch.tensor([[0.7]]), 0.5).item() == pytest.approx(1)


def test_the_reversed_gradient_is_that_of_the_game() -> None:
    """Features descend on −λ CE while the adversary descends on CE, by finite differences."""
    features = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    critic = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    target, weight = torch.randint(2, (5,)), torch.tensor([0.5, 2.0], dtype=torch.float64)

    def told(features: torch.Tensor, critic: torch.Tensor) -> torch.Tensor:
        return cross_entropy(features @ critic, target)

    cross_entropy(reverse(features, weight) @ critic, target).sum().backward()
    assert torch.equal(reverse(features, weight), features)
    step = 1e-6
    for k in range(2):
        nudged = features.detach().clone()
        nudged[k, 1, 2] += step
        slope = (told(nudged, critic)[k] - told(features, critic)[k]).item() / step
        assert features.grad is not None
        assert features.grad[k, 1, 2].item() == pytest.approx(-weight[k].item() * slope, abs=1e-5)
    nudged = critic.detach().clone()
    nudged[0, 1] += step
    slope = (told(features, nudged).sum() - told(features, critic).sum()).item() / step
    assert critic.grad is not None
    assert critic.grad[0, 1].item() == pytest.approx(slope, abs=1e-5)


def test_balanced_rows_have_independent_label_and_group() -> None:
    joint = torch.from_numpy(GENERATOR.dirichlet(np.ones(6)).reshape(2, 3))
    balanced = balancing(joint) * joint
    torch.testing.assert_close(balanced, joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True))
    assert balancing(torch.tensor([[0.5, 0.0], [0.0, 0.5]]))[0, 1] == 1


def test_the_threshold_of_confidence_by_brute_force() -> None:
    for digits in (1, 9) * 20:  # with ties and without
        confidence = torch.from_numpy(GENERATOR.random(12).round(digits))
        right = torch.from_numpy(GENERATOR.random(12) < confidence.numpy())
        found = best_threshold(confidence, right)
        scores = [accuracy_score(right, confidence > t) for t in [0.0, *confidence.tolist()]]
        assert accuracy_score(right, confidence > found) == pytest.approx(max(scores))


def test_error_of_softened_decisions_is_that_of_drawn_labels() -> None:
    term = RiskLoss(RiskSettings())
    logits, labels = torch.randn(1, 50, 2), torch.rand(50, 2)
    labels = labels / labels.sum(-1, keepdim=True)
    labels[:10] = 0  # of which nothing is known
    drawn = torch.multinomial(labels[10:], 20_000, replacement=True)
    decided = term.estimator.relax(logits)[0, 10:, 0]
    right = torch.gather(decided, 1, drawn)
    assert decision_error(term, logits, labels).item() == pytest.approx(1 - right.mean().item(), abs=0.003)


@pytest.mark.filterwarnings("ignore:Setting an? ")
def test_randomised_classifiers_are_fairlearns() -> None:
    x = GENERATOR.normal(size=(300, 3))
    a = (x[:, 0] > 0).astype(int)
    y = (x[:, 1] + 0.8 * a + 0.5 * GENERATOR.normal(size=300) > 0.4).astype(int)
    peer = ExponentiatedGradient(LogisticRegression(), EqualizedOdds(difference_bound=0.02), max_iter=10)
    peer.fit(x, y, sensitive_features=a)
    chances = peer.weights_[peer.weights_ > 0]
    ours = RandomisedClassifiers([([peer.predictors_[t] for t in chances.index], chances.to_numpy())], seed=0)
    found = ours.predict_proba(torch.from_numpy(x))
    torch.testing.assert_close(found[0], torch.from_numpy(peer._pmf_predict(x)))
    assert torch.equal(ours.decide(torch.from_numpy(x)), ours.decide(torch.from_numpy(x)))
    spread = float((found[0, :, 1] * (1 - found[0, :, 1])).sum()) ** 0.5
    count = float(ours.decide(torch.from_numpy(x)).sum())
    assert count == pytest.approx(float(found[0, :, 1].sum()), abs=4 * spread + 1e-9)


def test_cells_leave_out_what_is_not_stated() -> None:
    y, a = torch.tensor([0, 1, 2, 1]), torch.tensor([1, 2, 0, 0])
    cells = cells_of(y, a, 2, 2, torch.float64)
    assert cells.sum((1, 2)).tolist() == [1, 0, 0, 1]
    assert functional.one_hot(torch.tensor(1), 4).view(2, 2).double().equal(cells[0])
