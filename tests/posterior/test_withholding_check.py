"""The check of the assumption on withholding: uniform where it holds, small where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit, logit

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.posterior import checking
from pyro_fairvae.posterior.checking import check_withholding
from pyro_fairvae.posterior.withholding_check import SCORES, WithholdingCheck
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Columns, Observed

RATES = np.array([0.6, 0.3])
TWO = Attributes.single(("0", "1"))


def checked(
    seed: int,
    rows: int = 2000,
    by_label: float = 0.0,
    by_x: float = 0.0,
    by_u: float = 0.0,
    depends_on: tuple[str, ...] = (),
) -> WithholdingCheck:
    """The check of a simulated table, with odds from the moments of the scores, as a posterior has them."""
    draw = np.random.default_rng(seed)
    a = (draw.random(rows) < 0.4).astype(int)
    y = (draw.random(rows) < 0.3 + 0.2 * a).astype(int)
    x = draw.normal(size=(rows, 3))
    x[:, 0] += 1.2 * a + 0.5 * y
    x[:, 1] += 0.5 * y
    u = (draw.random(rows) < np.where(a == 1, 0.8, 0.3)).astype(int)
    category = draw.integers(0, 4, rows)
    tilt = by_label * (y - 0.4) + by_x * x[:, 1] + by_u * u
    a_obs = np.where(draw.random(rows) < expit(logit(RATES)[a] + tilt), 2, a)
    y_obs = np.where(draw.random(rows) < 0.25, 2, y)
    score = expit(1.2 * x[:, 0] - 0.9 + np.log(0.4 / 0.6) + 0.3 * draw.normal(size=rows))
    scores = np.stack([1 - score, score], 1)
    train = Observed(
        torch.from_numpy(np.c_[x, np.eye(4)[category]]),
        torch.from_numpy(y_obs),
        torch.from_numpy(a_obs),
        Columns(3, (4,), ("x0", "x1", "x2", "c"), (("k", "l", "m", "n"),)),
        2,
        2,
        u=torch.from_numpy(np.eye(2)[u]),
        u_columns=Columns(0, (2,), ("officer",)),
    )
    known: dict[str, Any] = {}
    if depends_on:
        conditions = Conditions.learn(train, depends_on, 1)
        known = {"conditions": conditions, "tilt": (by_x * (x[:, 1] - x[:, 1].mean()))[:, None, None]}
        theta = logit(RATES) + by_x * x[:, 1].mean()
        rates = expit(theta)
    else:
        stated = np.stack([a_obs == 0, a_obs == 1], 1).astype(float)
        odds = np.linalg.solve(scores.T @ stated, scores.T @ (a_obs == 2))
        rates = odds / (1 + odds)
    result = check_withholding(
        train, channel("a", TWO), scores, [np.array([1 - p, p]) for p in rates], **known
    )
    assert result is not None
    return result


def test_columns_are_checked_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are checked together: otherwise memory would grow with the square of columns."""
    together = checked(0, depends_on=("x1",), by_x=0.5)
    monkeypatch.setattr(checking, "COLUMNS_AT_ONCE", 1)
    alone = checked(0, depends_on=("x1",), by_x=0.5)
    assert [column.name for column in alone.columns] == [column.name for column in together.columns]
    for one, other in zip(alone.columns, together.columns, strict=True):
        assert one.statistic == pytest.approx(other.statistic, rel=1e-8)
        assert one.p_value == pytest.approx(other.p_value, rel=1e-8)


def test_p_values_are_uniform_where_the_assumption_holds() -> None:
    checks = [checked(seed) for seed in range(200)]
    overall = np.array([check.p_value for check in checks])
    assert 0.01 <= (overall < 0.05).mean() <= 0.1
    for name in (SCORES, "label", "x1", "c", "officer (proxy)"):
        of_column = [column.p_value for check in checks for column in check.columns if column.name == name]
        assert stats.kstest(of_column, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("world", "culprit"),
    [({"by_label": np.log(2)}, "label"), ({"by_x": 0.4}, "x1"), ({"by_u": 1.0}, "officer (proxy)")],
)
def test_a_broken_assumption_is_rejected_and_its_column_named(world: dict[str, float], culprit: str) -> None:
    checks = [checked(seed, rows=6000, **world) for seed in range(10)]
    assert sum(check.rejected for check in checks) >= 9
    rejected = next(check for check in checks if check.rejected)
    assert rejected.against()[0].name == culprit
    assert culprit in rejected.in_words()
    assert "REJECTED" in rejected.in_words()
    assert (culprit in rejected.suggestions()) == (culprit != "officer (proxy)")


def test_a_condition_in_v_mends_it() -> None:
    """With the column in v and its effect known, nothing is left to reject."""
    overall = [checked(seed, rows=3000, by_x=0.4, depends_on=("x1",)).p_value for seed in range(60)]
    assert (np.array(overall) < 0.01).mean() <= 0.1


def test_effects_that_differ_between_groups_are_rejected_unless_they_may() -> None:
    """A column in v whose effect is one group's alone, at the true channel of either model."""
    p_values: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(40):
        draw = np.random.default_rng([seed, 5])
        a = (draw.random(3000) < 0.4).astype(int)
        x = draw.normal(size=(3000, 2))
        x[:, 0] += 1.5 * a
        category = draw.integers(0, 3, 3000)
        effect = np.array([[0.9, -0.9, 0.0], [-0.3, 0.3, 0.0]])
        a_obs = np.where(draw.random(3000) < expit(logit(RATES)[a] + effect[a, category]), 2, a)
        score = expit(1.5 * x[:, 0] - 1.125 + np.log(0.4 / 0.6))
        train = Observed(
            torch.from_numpy(np.c_[x, np.eye(3)[category]]),
            torch.from_numpy(draw.integers(0, 2, 3000)),
            torch.from_numpy(a_obs),
            Columns(2, (3,), ("x0", "x1", "c"), (("k", "l", "m"),)),
            2,
            2,
        )
        shares = np.stack([1 - score, score], 1)
        rows = [np.array([1 - p, p]) for p in RATES]
        common = effect.T @ [0.6, 0.4]
        for by_group, tilt in ((True, effect.T[category][:, None]), (False, common[category][:, None, None])):
            check = check_withholding(
                train, channel("a", TWO), shares, rows, Conditions.learn(train, ("c",), 1), tilt,
                by_group=by_group,
            )  # fmt: skip
            assert check is not None
            assert ("c" in {column.name for column in check.columns}) != by_group
            p_values[by_group].append(check.p_value)
    assert (np.array(p_values[True]) < 0.05).mean() <= 0.15
    assert (np.array(p_values[False]) < 0.01).mean() >= 0.9


def test_with_several_attributes_each_is_named() -> None:
    draw = np.random.default_rng(1)
    attributes = Attributes(("sex", "age"), (("f", "m"), ("young", "old")))
    sex, age = draw.integers(0, 2, (2, 6000))
    x = np.stack(
        [draw.normal(size=6000) + 2 * sex, draw.normal(size=6000) + 2 * age, draw.normal(size=6000)], 1
    )
    hidden = draw.random((2, 6000)) < np.stack([expit(-0.5 + 1.5 * x[:, 2]), np.full(6000, 0.3)])
    observed = 3 * np.where(hidden[0], 2, sex) + np.where(hidden[1], 2, age)
    of_sex, of_age = expit(2 * x[:, 0] - 2), expit(2 * x[:, 1] - 2)
    shares = np.stack(
        [(s if i else 1 - s) * (t if j else 1 - t) for i in range(2) for j in range(2)
         for s, t in [(of_sex, of_age)]], 1
    )  # fmt: skip
    train = Observed(
        torch.from_numpy(x), torch.from_numpy(draw.integers(0, 2, 6000)), torch.from_numpy(observed),
        Columns(3, (), ("x0", "x1", "x2")), 2, 4, attributes,
    )  # fmt: skip
    rate = float(hidden[0].mean())
    rows = [np.array([1 - p, p]) for p in (rate, rate, 0.3, 0.3)]
    check = check_withholding(train, channel("a", attributes), shares, rows)
    assert check is not None
    assert check.against()[0].words == "x2 (for sex)"
    assert all(column.attribute == "sex" for column in check.against())
    assert check.suggestions()[0] == "x2"
    assert WithholdingCheck.of(check.summary()) == check


def test_expected_shares_are_those_that_stated_groups_imply() -> None:
    """By hand: in a category, ∅ is expected as often as the odds of those who state their group."""
    check = checked(3, rows=4000)
    column = next(column for column in check.columns if column.name == "c")
    assert sum(category.rows for category in column.categories) == 4000
    for category in column.categories:
        assert category.observed == pytest.approx(category.expected, abs=5 * category.standard_error)
    assert column.degrees in (3, 4)


def test_channels_that_let_people_misstate_cannot_be_checked() -> None:
    train = Observed(torch.zeros(40, 1), torch.arange(40) % 3, torch.arange(40) % 3, Columns(1), 2, 2)
    rows = [np.ones(3) / 3] * 2
    assert check_withholding(train, channel("a", TWO, "flat"), np.full((40, 2), 0.5), rows) is None
