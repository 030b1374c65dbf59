"""Learned thresholds, against finite differences and a simulation whose best thresholds are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build, options_of
from pyro_fairvae.data import Splits
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.risks import RiskLoss, RiskSettings
from pyro_fairvae.risks.relaxations import relaxation, shift
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings, three_groups

WORDS = ("learned", "learned_by_group")


@pytest.mark.parametrize(("word", "count"), [("learned", 1), ("learned_by_group", 2)])
def test_the_gradient_of_a_threshold_is_that_of_finite_differences(
    splits: Splits, word: str, count: int
) -> None:
    """Of the whole objective, at a threshold that is not 0.5, for members with λ > 0."""
    settings = small_settings(thresholds=word, memory=1.0, risk_estimator="expected", temperature=0.5)
    table = splits.train.to("cpu", torch.float64)
    program = Program(table, settings, [0, 0, 0]).to(torch.device("cpu"), torch.float64)
    fair = FairELBO(
        table.rows, torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64), RiskLoss(settings.fairness)
    )
    batch = table.batch(torch.arange(100))
    parameter = program.guide.log_odds_thresholds
    assert parameter.shape == (3, count)
    with torch.no_grad():
        parameter += 0.3

    def loss() -> torch.Tensor:
        torch.manual_seed(0)
        return fair.evaluate(program.model, program.guide, batch).loss

    loss().backward()
    assert parameter.grad is not None
    assert (parameter.grad[0] == 0).all()
    for place in np.ndindex(*parameter.shape):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter[place] += step
                ends.append(float(loss()))
                parameter[place] -= step
        assert float(parameter.grad[place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)
    assert (parameter.grad[1:] != 0).all()


def test_each_member_is_shifted_by_its_own_thresholds() -> None:
    logits = torch.randn(3, 5, 2, dtype=torch.float64)
    log_odds = torch.tensor([[0.0, 1.0], [-0.5, 0.2], [2.0, 0.1]], dtype=torch.float64)
    found = relaxation("step", 0.4, ("learned_by_group",))(shift(logits, log_odds))
    assert found.shape == (3, 5, 2, 2)
    margin = logits[..., 1] - logits[..., 0]
    for k, g in np.ndindex(3, 2):
        torch.testing.assert_close(found[k, :, g, 1], torch.sigmoid((margin[k] - log_odds[k, g]) / 0.4))
        given = relaxation("step", 0.4, (float(log_odds[k, g].sigmoid()),))(logits)
        torch.testing.assert_close(found[k, :, g], given[k, :, 0])


RATES, SHIFTS = (0.3, 0.6), (-0.7, 0.7)  # P(y = 1|a); the mean of x given y is ±1, and moved by a


def people(rows: int, seed: int) -> tuple[Observed, np.ndarray, np.ndarray]:
    """x = s + d_a, where s is N(±1, 1) by y, so that scores are higher in a group than its labels say."""
    generator = np.random.default_rng(seed)
    a = generator.integers(2, size=rows)
    y = (generator.random(rows) < np.array(RATES)[a]).astype(np.int64)
    x = np.where(y == 1, 1.0, -1.0) + np.array(SHIFTS)[a] + generator.normal(size=rows)
    features = torch.from_numpy(np.stack([x, np.where(a == 1, 3.0, -3.0)], 1)).float()
    stated = np.where(generator.random(rows) < 0.1, 2, a)
    return Observed(features, torch.from_numpy(y), torch.from_numpy(stated), Columns(2), 2, 2), y, a


def best_log_odds() -> np.ndarray:
    """For deopp at 0: hit rates of both groups are equal, and the error is least, over cuts of s by group."""

    def cost(cut: float) -> float:  # the same cut of s in both groups has equal hit rates
        misses, alarms = norm.cdf(cut - 1), norm.sf(cut + 1)
        return float(sum(rate * misses + (1 - rate) * alarms for rate in RATES))

    cut = minimize_scalar(cost).x
    return np.array([2 * cut + math.log(rate / (1 - rate)) for rate in RATES])  # logit P(y = 1|s, a)


def test_thresholds_by_group_are_the_best_ones_where_these_are_known() -> None:
    """With calibrated scores, equal hit rates at the least error need other thresholds in each group."""
    train, *_ = people(3000, 0)
    validation, *_ = people(500, 1)
    settings = small_settings(
        epochs=12, batch=150, hidden=16, lr=0.01, sites_lr=0.05, risk="deopp", thresholds="learned_by_group",
        refine_decisions=0, decision_weight=0.002, temperature=0.5,
    )  # fmt: skip
    fitted = fit(train, validation, (0.0, 0.02), settings)
    learned = fitted.thresholds.logit().numpy()
    np.testing.assert_allclose(learned[0], 0, atol=1e-6)
    best = best_log_odds()
    np.testing.assert_allclose(learned[1], best, atol=0.4)
    assert learned[1, 1] - learned[1, 0] == pytest.approx(best[1] - best[0], abs=0.3)
    table, y, a = people(20_000, 2)
    hits = []
    for decided in fitted.decide(table.x).numpy():
        rates = [decided[(y == 1) & (a == g)].mean() for g in (0, 1)]
        hits.append(abs(rates[1] - rates[0]))
    assert hits[0] > 0.08
    assert hits[1] < 0.05


@pytest.mark.parametrize("word", WORDS)
def test_decisions_take_what_was_learned(splits: Splits, word: str, tmp_path: Path) -> None:
    settings = small_settings(epochs=3, thresholds=word, refine_decisions=0, sites_lr=0.2)
    fitted = fit(splits.train, splits.validation, (0.0, 1.0), settings)
    x = torch.from_numpy(splits.test.x)
    with torch.no_grad():
        group = fitted.program.guide.heads(x).group_logits.argmax(-1)
    tau = fitted.thresholds.expand(2, 2).gather(-1, group)
    assert (fitted.thresholds[1] != 0.5).all()
    assert torch.equal(fitted.decide(x), (fitted.predict_proba(x)[..., 1] > tau).long())


@pytest.mark.parametrize("word", WORDS)
def test_the_estimator_learns_and_keeps_thresholds(splits: Splits, word: str, tmp_path: Path) -> None:
    X, y = splits.test.x, splits.test.y
    model = FairSSVAEClassifier(
        lambdas=(0.0, 1.0), thresholds=word, trunk="mlp", epochs=4, hidden=8, layers=1, intervals="given_h",
        options={"refine_decisions": 0.0 if word == "learned" else 50.0, "sites_lr": 0.2, "pieces": 3},
    ).fit(X, y, sensitive_features=splits.test.a)  # fmt: skip
    model.select(lambda_=1.0)
    assert model.thresholds_.shape == ((1,) if word == "learned" else (2,))
    assert (model.thresholds_ != 0.5).all()
    model.save(tmp_path / "model")
    loaded = FairSSVAEClassifier.load(tmp_path / "model", device="cpu")
    assert loaded.thresholds == word
    np.testing.assert_array_equal(loaded.thresholds_, model.thresholds_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    tau = model.thresholds_[0 if word == "learned" else model.predict_groups_proba(X).argmax(1)]
    if word == "learned":
        np.testing.assert_array_equal(model.predict(X), model.predict_proba(X)[:, 1] > tau)


def test_given_thresholds_are_a_parameter_too(splits: Splits) -> None:
    X, y = splits.test.x, splits.test.y
    model = FairSSVAEClassifier(lambdas=(0.0,), thresholds=0.7, trunk="mlp", epochs=1, hidden=8, layers=1)
    model.fit(X, y, sensitive_features=splits.test.a)
    np.testing.assert_allclose(model.thresholds_, [0.7], rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X)[:, 1] > 0.7)


def test_words_and_numbers_are_read_alike_from_flags_and_files() -> None:
    declared = options_of(Settings)["thresholds"]
    assert declared.read("learned") == ("learned",) == declared.read(["learned"])
    assert declared.read(" learned_by_group ") == ("learned_by_group",)
    assert declared.read("0.4,0.6") == (0.4, 0.6) == declared.read([0.4, 0.6])
    assert build(Settings, {"thresholds": "learned"}).fairness.learns_thresholds
    with pytest.raises(InputError, match="thresholds expects a number, or learned, or learned_by_group, got"):
        declared.read("learnt")
    with pytest.raises(InputError, match="temperature expects a number, got 'learned'"):
        options_of(Settings)["temperature"].read("learned")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("learned", 0.5), "or learned or learned_by_group alone"),
        (("learned", "learned"), "or learned or learned_by_group alone"),
        ("learnt", "or learned or learned_by_group alone"),
    ],
)
def test_words_do_not_mix(given: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RiskSettings(thresholds=given)


def test_learned_thresholds_need_two_classes_and_weights(splits: Splits) -> None:
    with pytest.raises(InputError, match="learned for two classes, but there are 3"):
        fit(three_groups(), three_groups(), (1.0,), small_settings(thresholds="learned"))
    with pytest.raises(InputError, match="targets are trained without one; give lambdas"):
        FairSSVAEClassifier(thresholds="learned").fit(
            splits.test.x, splits.test.y, sensitive_features=splits.test.a
        )
    with pytest.raises(InputError, match="thresholds given in options, but is a parameter"):
        FairSSVAEClassifier(thresholds=0.4, options={"thresholds": 0.4}).fit(
            splits.test.x, splits.test.y, sensitive_features=splits.test.a
        )
    with pytest.raises(InputError, match="by the classifier of this library alone"):
        RiskLoss(RiskSettings(thresholds=("learned",))).estimator.relax(torch.zeros(1, 3, 2))
