"""Decisions that cost, against the rule of Bayes and a search over pairs of thresholds."""

from __future__ import annotations

from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, InputError
from pyro_fairvae.decisions.targets import settle
from pyro_fairvae.risks import RISKS
from pyro_fairvae.risks.costs import bayes_threshold, check_costs, expected_cost, relative_costs
from tests.support.user_tables import SMALLEST, made_table, tiny

COSTS = (4.0, 1.0)


def settled_table(rows: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """P(1|x) and P(y, a|x) of rows whose group is known."""
    draw = np.random.default_rng(seed)
    group = np.arange(rows) % 2
    score = 1 / (1 + np.exp(-(1.2 * draw.normal(size=rows) + 1.2 * group - 0.4)))
    label = np.c_[1 - score, score]
    return label, label[:, :, None] * np.eye(2)[group][:, None]


def cheapest_pair(label: np.ndarray, group: np.ndarray, target: float) -> float:
    """The least cost over a threshold for each group where rates differ by at most the target."""
    best = np.inf
    options = []
    for g in range(2):
        own = label[group == g]
        cuts = np.concatenate([[0.0], np.sort(own[:, 1]), [1.0]])
        decided = own[:, 1][None] > cuts[:, None]
        cost = (decided * own[:, 0] * COSTS[0] + ~decided * own[:, 1] * COSTS[1]).sum(1)
        options.append((decided.mean(1), cost))
    for rate, cost in zip(*options[0], strict=True):
        within = abs(options[1][0] - rate) <= target
        if within.any():
            best = min(best, float((cost + options[1][1][within]).min()))
    return best / len(label)


@pytest.mark.parametrize("target", [0.02, 0.05, 0.1])
def test_settled_decisions_cost_no_more_than_the_best_pair_of_thresholds(target: float) -> None:
    label, cells = settled_table()
    group = cells.sum(1).argmax(1)
    relative = np.array(relative_costs(COSTS))
    parts = label * relative, cells, cells, label * relative
    found = settle(*map(torch.from_numpy, parts), RISKS["ddp"], torch.tensor([target]))
    nu = found.adjustment[0].numpy()
    decided = (label * relative + np.einsum("rya,cya->rc", cells, nu)).argmax(1)
    rates = [decided[group == g].mean() for g in range(2)]
    reached = abs(rates[0] - rates[1])
    assert reached <= target * 1.02 + 1e-9
    assert expected_cost(COSTS, decided, label) <= cheapest_pair(label, group, reached + 1e-9) + 0.002
    assert expected_cost(COSTS, decided, label) <= cheapest_pair(label, group, target) + 0.015


def test_costs_by_hand() -> None:
    label, decided = np.array([[0.2, 0.8], [0.7, 0.3]]), np.array([0, 1])
    assert expected_cost(COSTS, decided, label) == pytest.approx((0.8 * 1 + 0.7 * 4) / 2)
    assert relative_costs(COSTS) == (1.6, 0.4)
    assert bayes_threshold(COSTS) == 0.8


def given(rows: int = 300) -> tuple[pd.DataFrame, Any, Any]:
    table = made_table(rows)
    return table.X.select_dtypes("number"), table.y_obs, table.a_obs


def boosted(**changes: Any) -> FairDecisions:
    return FairDecisions(LogisticRegression(), targets=(0.1, 0.03), folds=3, **changes)


def network(**changes: Any) -> FairSSVAEClassifier:
    chosen = {"lambdas": None, "targets": (0.1, 0.03), "trunk": "mlp", "epochs": 6}
    return tiny(**chosen | {"options": SMALLEST | {"decision_steps": 10}} | changes)


@cache
def fitted(make: Any, costs: tuple[float, ...] | None) -> Any:
    X, y, sex = given()
    return make(costs=costs).fit(X, y, sensitive_features=sex)


@pytest.mark.parametrize("make", [boosted, network])
def test_without_a_target_decisions_are_those_of_bayes(make: Any) -> None:
    X = given()[0]
    model, plain = copy(fitted(make, COSTS)), fitted(make, None)
    model.selected_ = 0
    chance = model.predict_proba(X)[:, 1]
    assert np.array_equal(model.predict(X) == "yes", chance > 0.8)
    margin = model.decision_function(X)
    assert margin == pytest.approx(0.4 * chance - 1.6 * (1 - chance), abs=1e-5)
    assert (model.predict(X) == "yes").sum() < (plain.predict(X) == "yes").sum()


@pytest.mark.parametrize("make", [boosted, network])
def test_the_budget_of_the_member_that_decides_is_in_cost(make: Any) -> None:
    X, model = given()[0], fitted(make, COSTS)
    cost = model.frontier_["cost"]
    assert cost.notna().all()
    assert cost[model.selected_] <= cost[0] + 0.01 * 2.5
    larger = fitted(make, (400.0, 100.0))
    assert np.array_equal(larger.predict(X), model.predict(X))
    assert larger.frontier_["cost"].to_numpy() == pytest.approx(100 * cost.to_numpy())


@pytest.mark.parametrize("make", [boosted, network])
def test_equal_costs_change_nothing(make: Any) -> None:
    X, equal, plain = given()[0], fitted(make, (3.0, 3.0)), fitted(make, None)
    assert np.array_equal(equal.predict(X), plain.predict(X))
    assert equal.frontier_["error"].equals(plain.frontier_["error"])


@pytest.mark.parametrize("make", [network, lambda **how: FairDecisions(targets=(0.1,), folds=3, **how)])
def test_a_stored_model_decides_by_its_costs(make: Any, tmp_path: Path) -> None:
    X, y, sex = given(300)
    model = make(costs=COSTS).fit(X, y, sensitive_features=sex)
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.frontier_["cost"].equals(model.frontier_["cost"])
    with pytest.raises(InputError, match="rules for a whole table minimise the error"):
        again.decide_together(X)


@pytest.mark.parametrize("costs", [(1,), (1, 2, 3), (0, 1), (1, -1), (1, np.inf), "much", ("a", "b"), 3])
def test_bad_costs_are_refused(costs: Any) -> None:
    with pytest.raises(InputError, match="costs must be two positive numbers"):
        check_costs(costs)


def test_costs_need_two_classes_and_targets() -> None:
    X, y, sex = given(300)
    with pytest.raises(InputError, match=r"give targets, or with lambdas thresholds, of which 0.8 is"):
        tiny(costs=COSTS).fit(X, y, sensitive_features=sex)
    with pytest.raises(InputError, match="costs and thresholds"):
        network(costs=COSTS, thresholds=0.7).fit(X, y, sensitive_features=sex)
    three = pd.Series(np.arange(300) % 3)
    for make in (boosted, network):
        with pytest.raises(InputError, match="of two classes, but there are 3"):
            make(costs=COSTS).fit(X, three, sensitive_features=sex)
