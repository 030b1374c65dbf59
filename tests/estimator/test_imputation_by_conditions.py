"""Imputations where withholding depends on more than the group, against Bayes' rule; and proxies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from pyro_fairvae.base.options import build
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.estimator.imputation import TreeImputer
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.conditions import Conditions
from pyro_fairvae.posterior.row_channel import RowChannel
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.observed import Columns, Observed

V = ("evening", "label")
ROWS = 3000


@dataclass(frozen=True)
class Simulated:
    """Rows, what is true of them, and P(y, a|x, ỹ, ã) by Bayes' rule, (rows, classes, groups)."""

    table: Observed
    y: np.ndarray
    a: np.ndarray
    joint: np.ndarray
    stated: np.ndarray  # P(stated|a, v, y), (rows, classes, groups)


def simulated(seed: int, rows: int = ROWS) -> Simulated:
    """Groups differ in how often they withhold, much more in the evening, and more with one label."""
    draw = np.random.default_rng(seed)
    place, skill = draw.normal(size=(2, rows))
    place = place + np.where(draw.random(rows) < 0.5, -1.2, 1.2)
    chance = expit(1.5 * place)
    a = (draw.random(rows) < chance).astype(int)
    of_evening = np.array([0.35, 0.65])  # P(evening|a)
    evening = draw.random(rows) < of_evening[a]
    group = np.stack([1 - chance, chance], axis=1)
    group = group * np.where(evening[:, None], of_evening, 1 - of_evening)
    yes = expit(1.5 * skill[:, None] - 0.8 + np.array([0, 1.4]))  # P(y = 1|x, a), (rows, groups)
    cells = group[:, None] * np.stack([1 - yes, yes], axis=1)
    rates = np.array([0.2, -1.6]) + 2.5 * (evening[:, None, None] - 0.5) + np.array([[-0.7], [0.7]])
    withheld = expit(rates)
    y = (draw.random(rows) < yes[np.arange(rows), a]).astype(int)
    hidden = draw.random(rows) < 0.15
    silent = draw.random(rows) < withheld[np.arange(rows), y, a]
    y_obs, a_obs = np.where(hidden, 2, y), np.where(silent, 2, a)
    says = np.where(silent[:, None, None], withheld, (1 - withheld) * (np.arange(2) == a[:, None])[:, None])
    joint = cells * says * np.where(hidden[:, None], 1, np.arange(2) == y[:, None])[..., None]
    x = np.column_stack([skill, place, ~evening, evening]).astype(np.float32)
    columns = Columns(2, (2,), ("skill", "place", "evening"), (("no", "yes"),))
    table = Observed(torch.from_numpy(x), torch.from_numpy(y_obs), torch.from_numpy(a_obs), columns, 2, 2)
    return Simulated(table, y, a, joint / joint.sum((1, 2), keepdims=True), 1 - withheld)


def settings(depends_on: tuple[str, ...]) -> Settings:
    return build(Settings, {"imputation": "cross_fitted", "withholding_depends_on": depends_on})


def learned(table: Observed, depends_on: tuple[str, ...]) -> TreeImputer:
    found = TreeImputer.learn(table, folds_of(table, 0), settings(depends_on), seed=0)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def people() -> Simulated:
    return simulated(seed=1)


@pytest.fixture(scope="module")
def imputers(people: Simulated) -> dict[tuple[str, ...], TreeImputer]:
    """Those that know what withholding depends on, and that do not."""
    return {names: learned(people.table, names) for names in (V, ())}


def gaps(joint: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """Differences between groups of P(Ŷ = y|Y = y, A), (classes,)."""
    right = np.eye(2)[decided][..., None] * joint
    rates = right.sum(0) / joint.sum(0)
    return np.asarray(rates[:, 1] - rates[:, 0])


def test_joint_probabilities_are_those_of_bayes_rule(
    people: Simulated, imputers: dict[tuple[str, ...], TreeImputer]
) -> None:
    errors = {
        names: np.abs(imputer.learned.joint.numpy() - people.joint).mean()
        for names, imputer in imputers.items()
    }
    assert errors[V] < 0.025
    assert errors[V] < 0.6 * errors[()]
    torch.testing.assert_close(imputers[V].learned.joint.sum((1, 2)), torch.ones(ROWS).double())


def test_gaps_are_biased_only_where_v_is_ignored(
    people: Simulated, imputers: dict[tuple[str, ...], TreeImputer]
) -> None:
    decided = people.table.x.numpy()[:, 3].astype(int)  # by the evening
    truth = gaps(people.joint, decided)
    off = {names: gaps(one.learned.joint.numpy(), decided) - truth for names, one in imputers.items()}
    assert np.abs(off[V]).max() < 0.015
    assert np.abs(off[()]).max() > 0.05


def test_rates_of_rows_are_those_of_the_simulation(
    people: Simulated, imputers: dict[tuple[str, ...], TreeImputer]
) -> None:
    by_row = imputers[V].groups.withholding.by_row
    assert by_row is not None
    assert np.abs(by_row.stated(people.table) - people.stated).mean() < 0.05


def test_other_rows_are_imputed_as_well(imputers: dict[tuple[str, ...], TreeImputer]) -> None:
    other = simulated(seed=2, rows=5000)
    errors = [np.abs(one.joint(other.table).numpy() - other.joint).mean() for one in imputers.values()]
    assert errors[0] < 0.025
    assert errors[0] < 0.6 * errors[1]


def test_the_channel_of_a_row_is_a_logistic_regression() -> None:
    """P(∅|a,v,y) = σ(logit P(∅|a) + (w + δ_a)·v), v with pieces, categories and the label."""
    table = simulated(seed=0, rows=200).table
    conditions = Conditions.learn(table, ("skill", *V), 1).double()
    draw = np.random.default_rng(0)
    rates, effects = np.array([0.3, 0.6]), draw.normal(size=(2, conditions.width))
    of = channel("a", Attributes.single(("0", "1")))
    matrix = torch.tensor([[[0.7, 0, 0.3], [0, 0.4, 0.6]]]).double()
    by_row = RowChannel(of, conditions, matrix, torch.from_numpy(effects)[None])
    v = conditions.features(table.x.double())[0].numpy()
    v = np.concatenate(
        [np.repeat(v[:, None], 2, 1), np.tile(conditions.labels[0].numpy(), (200, 1, 1))], axis=2
    )
    withheld = expit(logit(rates) + v @ effects.T)  # (rows, classes, groups)
    a_obs = table.a_obs.numpy()
    own = (1 - withheld) * (np.arange(2) == a_obs[:, None])[:, None]
    expected = np.where((a_obs == 2)[:, None, None], withheld, own)
    np.testing.assert_allclose(by_row.likelihood(table), expected, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(by_row.stated(table), 1 - withheld, rtol=1e-5)


def with_proxies(people: Simulated) -> Observed:
    """The rows with a proxy that tells more of the group than the features do."""
    u = 1.5 * people.a + np.random.default_rng(5).normal(size=ROWS)
    u_columns = Columns(1, (), ("district",))
    return replace(people.table, u=torch.from_numpy(u).float()[:, None], u_columns=u_columns)


@pytest.fixture(scope="module")
def with_u(people: Simulated) -> TreeImputer:
    return learned(with_proxies(people), ())


def test_proxies_impute_and_do_not_decide(people: Simulated, with_u: TreeImputer) -> None:
    """They bring training rows nearer to the truth; trees by which decisions are made do not have them."""
    table = with_proxies(people)
    truth = np.eye(4)[2 * people.y + people.a].reshape(-1, 2, 2)
    with_and_without = (table, replace(table, u=None, u_columns=None))
    losses = [np.square(with_u.joint(one).numpy() - truth).mean() for one in with_and_without]
    assert losses[0] < 0.9 * losses[1]
    columns = [of.boosters[0].num_feature() for of in (with_u.groups.trees, with_u.groups.with_proxies) if of]
    assert columns == [5, 6]  # three features, P(y|x) and y, and the proxy


def test_no_row_is_judged_by_trees_grown_on_it(people: Simulated, with_u: TreeImputer) -> None:
    """Rows of a fold state the other group, and trees still say the same of them."""
    table = with_proxies(people)
    fold = folds_of(table, 0)
    inside = torch.from_numpy(fold == 0)
    exchanged = torch.where(inside & (table.a_obs < 2), 1 - table.a_obs, table.a_obs)
    other = TreeImputer.learn(replace(table, a_obs=exchanged), fold, settings(()), seed=0)
    assert other is not None
    label = with_u.learned.label.numpy()
    before, after = (one.groups.believed(table, label, fold)[..., 1] for one in (with_u, other))
    likeness = [np.corrcoef(before[fold == k].ravel(), after[fold == k].ravel())[0, 1] for k in (0, 1)]
    assert likeness[0] > 0.95
    assert likeness[1] < 0.95  # trees of other folds have learned from them
