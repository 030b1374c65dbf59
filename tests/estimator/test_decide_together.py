"""Decisions about a whole new table, by every model that knows groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, InputError, load
from pyro_fairvae.decisions.joint_objective import DecisionProblem
from pyro_fairvae.evaluation.joint_decisions import JointRule
from pyro_fairvae.risks import RISKS
from tests.support.brute_force import least
from tests.support.user_tables import Made, made_table, tiny

Model = FairSSVAEClassifier | FairDecisions


@pytest.fixture(scope="module")
def new() -> Made:
    return made_table(150, seed=5)


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    """A network with λ, the same without its groups, one settled to targets, and boosted trees."""
    made = made_table(400)
    given = {"sensitive_features": made.a_obs}
    return {
        "lambda": tiny().fit(made.X, made.y_obs, **given).select(lambda_=1.0),
        "target": tiny(lambdas=None, targets=(0.1, 0.05)).fit(made.X, made.y_obs, **given).select(0.1),
        "trees": FairDecisions(targets=(0.1, 0.05)).fit(made.X, made.y_obs, **given).select(0.05),
    }


@pytest.mark.parametrize("kind", ["lambda", "target", "trees"])
def test_objective_falls_and_is_that_of_the_decisions(kind: str, models: dict[str, Model], new: Made) -> None:
    model = models[kind]
    found = model.decide_together(new.X, new.a_obs, starts=2)
    np.testing.assert_array_equal(found.alone, model.predict(new.X))
    assert (found.decisions != found.alone).sum() == found.changed > 0
    before, after = found.summary.loc["before"], found.summary.loc["after"]
    assert after["objective"] < before["objective"]
    for line in (before, after):
        beyond = max(line["risk"] - found.target, 0.0)
        assert line["objective"] == pytest.approx(line["error"] + found.lambda_ * beyond)
    assert (found.lambda_, found.target) == (1.0, {"lambda": 0.0, "target": 0.1, "trees": 0.05}[kind])


@pytest.mark.parametrize("kind", ["lambda", "target", "trees"])
def test_no_decisions_about_twelve_people_are_better(kind: str, models: dict[str, Model], new: Made) -> None:
    model = models[kind]
    for start in range(0, 48, 12):
        some = slice(start, start + 12)
        found = model.decide_together(new.X[some], new.a_obs[some], draws=20, decision_lambda=0.3)
        p = model._joint(new.X[some], new.a_obs[some], JointRule(decision_lambda=0.3))
        log_q = p.rows.probability.clamp(min=1e-12).log()
        problem = DecisionProblem(log_q, p.rows.imputed, RISKS["deo"], 0.3, 20, 0, p.rows.alone, loss="error")
        assert found.best
        assert found.summary["objective"]["after"] == pytest.approx(least(problem, "deo"), abs=1e-9)


def test_rates_are_expected_shares(models: dict[str, Model], new: Made) -> None:
    found = models["lambda"].decide_together(new.X, new.a_obs, rule="thresholds")
    cells = models["lambda"]._joint(new.X, new.a_obs, JointRule()).rows.imputed.numpy()
    for (group, label), line in found.rates.iterrows():
        g, c = ["f", "m"].index(group), ["no", "yes"].index(label)
        for when, decided in (("before", found.alone), ("after", found.decisions)):
            chosen = decided == label
            assert line[f"decided {when}"] == pytest.approx(np.average(chosen, weights=cells[:, :, g].sum(1)))
            assert line[f"right {when}"] == pytest.approx(np.average(chosen, weights=cells[:, c, g]))


@pytest.mark.parametrize("kind", ["lambda", "target", "trees"])
def test_stated_groups_are_certain_and_withholding_tells_by_the_channel(
    kind: str, models: dict[str, Model], new: Made
) -> None:
    """P(y, a|x, ∅) ∝ P(y, a|x) P(∅|a): their ratio has the same odds between groups in all rows."""
    asked, plain = (
        models[kind]._joint(new.X, groups, JointRule()).rows.imputed.numpy() for groups in (new.a_obs, None)
    )
    for g, group in enumerate(("f", "m")):
        np.testing.assert_allclose(asked[new.a_obs == group].sum(1)[:, g], 1.0, atol=1e-5)
    withheld = new.a_obs.isna().to_numpy() & (plain.min((1, 2)) > 1e-4)
    ratio = np.log(asked[withheld] / plain[withheld])
    odds = ratio[:, :, 0] - ratio[:, :, 1]
    np.testing.assert_allclose(odds, odds.mean(), atol=5e-3)
    if kind == "trees":
        rates = models[kind].channels_.set_index(["what", "of"])["withheld"]["group"]
        assert odds.mean() == pytest.approx(np.log(rates["f"] / rates["m"]), abs=1e-6)
    assert odds.mean() > 0.2  # women withhold more


def test_a_loaded_model_decides_alike(models: dict[str, Model], new: Made, tmp_path: Path) -> None:
    for kind, model in models.items():
        folder = tmp_path / kind
        model.save(folder)
        expected = model.decide_together(new.X, new.a_obs, rule="thresholds+descent", seed=3)
        opened: list[Any] = [type(model).load(folder)]
        opened += [load(folder)] if kind != "trees" else []
        for loaded in opened:
            found = loaded.decide_together(new.X, new.a_obs, rule="thresholds+descent", seed=3)
            np.testing.assert_array_equal(found.decisions, expected.decisions)
            pd.testing.assert_frame_equal(found.summary, expected.summary)
    with pytest.raises(InputError, match=r"open it by FairDecisions\.load"):
        load(tmp_path / "trees").decide_together(new.X)


def test_a_seed_fixes_decisions_whatever_was_drawn_before(models: dict[str, Model], new: Made) -> None:
    state = torch.get_rng_state()
    first = models["lambda"].decide_together(new.X, new.a_obs, starts=4, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    again = models["lambda"].decide_together(new.X, new.a_obs, starts=4, seed=1)
    np.testing.assert_array_equal(first.decisions, again.decisions)
    other = models["lambda"].decide_together(new.X, new.a_obs, starts=4, seed=2)
    assert first.summary["risk"]["before"] != other.summary["risk"]["before"]


def test_decisions_are_fairer_in_truth() -> None:
    """Of new people whose groups are mostly withheld; decisions about each alone are not made fair."""
    made, new = made_table(3000), made_table(3000, seed=9)
    model = FairDecisions(LogisticRegression(max_iter=500), risk="ddp", targets=(0.5,))
    numbers = [name for name in made.X if pd.api.types.is_numeric_dtype(made.X[name])]
    model.fit(made.X[numbers], made.y_obs, sensitive_features=made.a_obs)
    model.selected_ = 0

    def difference(decided: np.ndarray) -> float:
        return abs((decided[new.a == "f"] == "yes").mean() - (decided[new.a == "m"] == "yes").mean())

    for rule in ("thresholds", "descent"):
        found = model.decide_together(
            new.X[numbers], new.a_obs, rule=rule, decision_lambda=1.0, starts=1, draws=30
        )
        assert difference(found.alone) > 0.15
        assert difference(found.decisions) < 0.4 * difference(found.alone)
        error = (found.decisions != new.y).mean()
        assert abs(error - found.summary["error"]["after"]) < 0.04


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"rule": "descnt"}, "unknown rule 'descnt'.*Did you mean 'descent'"),
        ({"decision_lambda": -0.1}, "decision_lambda must be finite and not negative, got -0.1"),
        ({"decision_lambda": float("nan")}, "decision_lambda must be finite and not negative"),
        ({"decision_risk": "deos"}, "unknown decision_risk 'deos'.*Did you mean 'deo'"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"draws": 2.5}, "option draws expects a whole number"),
        ({"starts": 0}, "starts must be from 1 to 1000, got 0"),
        ({"loss": "errors"}, "unknown loss 'errors'"),
        ({"lambda_": 1.0}, "unknown option 'lambda_'"),
        ({"sensitive_features": ["f", "m"]}, "(?i)sensitive_features.* 2"),
        ({"sensitive_features": ["x"] * 150}, "groups that the model does not know: 'x'; it knows 'f', 'm'"),
    ],
)
def test_what_cannot_be_used_is_refused(
    given: dict[str, Any], complaint: str, models: dict[str, Model], new: Made
) -> None:
    for model in (models["lambda"], models["trees"]):
        with pytest.raises(InputError, match=re.compile(complaint)):
            model.decide_together(new.X, **given)


def test_an_empty_table_is_refused(models: dict[str, Model], new: Made, tmp_path: Path) -> None:
    for model in models.values():
        with pytest.raises(InputError, match="0 rows"):
            model.decide_together(new.X[:0])
    models["lambda"].save(tmp_path / "model")
    with pytest.raises(InputError, match="0 rows"):
        load(tmp_path / "model").decide_together(new.X[:0])


def test_models_that_cannot_say_what_to_do(models: dict[str, Model], new: Made) -> None:
    """Without groups; settled to no target; and with a risk of one's own, for which another can be given."""
    with pytest.warns(UserWarning, match="no sensitive_features"):
        groupless = tiny().fit(new.X, new.y_obs)
    with pytest.raises(InputError, match="fitted without sensitive_features"):
        groupless.decide_together(new.X)
    none = models["target"]._as_fitted()
    none.selected_ = 0
    with pytest.raises(InputError, match=r"neither a λ nor a target.*give decision_lambda"):
        none.decide_together(new.X)
    assert none.decide_together(new.X, rule="rounding").changed == 0
    assert none.decide_together(new.X, rule="thresholds", decision_lambda=0.5).lambda_ == 0.5


def test_a_risk_of_draws_is_refused_unless_another_is_given(models: dict[str, Model], new: Made) -> None:
    from dataclasses import replace

    own = models["lambda"]._as_fitted()
    fairness = replace(own.fit_.settings.fairness, risk="my_risk:gap")
    own.fit_ = replace(own.fit_, settings=replace(own.fit_.settings, fairness=fairness))
    with pytest.raises(InputError, match=r"'my_risk:gap' of the model is a function of draws.*decision_risk"):
        own.decide_together(new.X)
    assert own.decide_together(new.X, rule="thresholds", decision_risk="ddp").risk == "ddp"
