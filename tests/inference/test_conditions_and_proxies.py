"""Fits in which withholding depends on more than the group, and fits with proxies of the group."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.objective import FairELBO, beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.refinement import refine_channels
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit, held_out_scores, skip_validation
from pyro_fairvae.risks import RiskLoss, impute
from pyro_fairvae.risks.imputers import PROBABILITIES
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings

NAMES = ("x1", "c", "label")
U_COLUMNS = Columns(1, (2,), ("surname", "place"))


def with_proxies(table: Observed, seed: int = 0) -> Observed:
    draw = torch.Generator().manual_seed(seed)
    place = torch.eye(2)[torch.randint(2, table.y_obs.shape, generator=draw)]
    u = torch.cat([torch.randn(*table.y_obs.shape, 1, generator=draw), place], dim=-1)
    return replace(table, u=u, u_columns=U_COLUMNS)


@pytest.fixture
def tables() -> Splits:
    parts = split(synthetic(rows=300, seed=3), Missingness(), seed=5)
    return replace(parts, train=with_proxies(parts.train), validation=with_proxies(parts.validation))


def train(tables: Splits, lambdas: tuple[float, ...] = (0.0, 1.0), seeds: Any = 4, **options: Any) -> Fit:
    options = {"epochs": 3, "channel_steps": 20, "decision_steps": 20} | options
    callbacks = {name: options.pop(name) for name in ("after_epoch", "state") if name in options}
    settings = small_settings(**{"withholding_depends_on": NAMES} | options)
    return fit(tables.train, tables.validation, lambdas, settings, seeds, dtype=torch.float64, **callbacks)


@pytest.mark.parametrize("sites", ["dirichlet", "map"])
def test_going_on_equals_an_unbroken_run(tables: Splits, sites: str) -> None:
    states: list[dict[str, Any]] = []
    whole = train(tables, sites=sites, after_epoch=lambda done: states.append(done.state()))
    again = train(tables, sites=sites, state=states[0])
    assert again.history == whole.history
    for first, second in ((whole.program.state(), again.program.state()), (whole.chosen, again.chosen)):
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert {"guide.sites.withholding_a", "model.conditions.low", "model.log_scale_u"} <= whole.chosen.keys()


def test_members_equal_single_runs_and_each_other(tables: Splits) -> None:
    lambdas = (0.5, 0.0, 0.5)
    together = train(tables, lambdas, [4, 4, 4])
    alone = train(tables, (0.5,), [4])
    for states, single in (
        (together.program.state(), alone.program.state()),
        (together.chosen, alone.chosen),
    ):
        for name, value in states.items():
            torch.testing.assert_close(value[0], value[2], rtol=0, atol=1e-12, msg=name)
            torch.testing.assert_close(value[0], single[name][0], rtol=0, atol=1e-8, msg=name)


def test_members_with_rows_of_their_own_equal_single_runs() -> None:
    own = [split(synthetic(rows=300, seed=k), Missingness((0.2 + 0.2 * k, 0.3)), seed=k) for k in range(2)]
    own = [
        replace(parts, train=with_proxies(parts.train, k), validation=with_proxies(parts.validation, k))
        for k, parts in enumerate(own)
    ]
    stacked = Splits(
        Observed.stack([parts.train for parts in own]),
        Observed.stack([parts.validation for parts in own]),
        own[0].test,
    )
    together = train(stacked, (0.0, 0.7), [5, 6])
    for k, weight in enumerate((0.0, 0.7)):
        alone = train(own[k], (weight,), [5 + k])
        for name, value in together.chosen.items():
            torch.testing.assert_close(value[k], alone.chosen[name][0], rtol=0, atol=1e-8, msg=name)


def test_every_parameter_moves(tables: Splits) -> None:
    start: dict[str, torch.Tensor] = {}
    ended = train(
        tables, (0.5,), after_epoch=lambda done: start.update(done.state()["parameters"])
        if done.epoch == 1 else None,
    ).program.state()  # fmt: skip
    still = {name for name, value in ended.items() if torch.equal(value, start[name])}
    assert still == {
        *(f"guide.encoder.trunk/0/{edge}" for edge in ("low", "width")),
        *(f"model.conditions.{buffer}" for buffer in ("low", "span", "mean", "shares")),
    }


def test_proxies_change_no_prediction(tables: Splits) -> None:
    """Other proxies, and none, give the same probabilities and decisions, bit by bit."""
    fitted = train(tables, thresholds=(0.4, 0.6))
    probabilities, decided = fitted.predict_proba(tables.train.x), fitted.decide(tables.train.x)
    guide = fitted.program.guide
    for table in (tables.train, with_proxies(tables.train, 9), replace(tables.train, u=None, u_columns=None)):
        batches = list(fitted.program.encode(table.to("cpu", torch.float64)))
        heads = batches[0][1].heads
        assert torch.equal(heads.class_logits.softmax(-1), probabilities)
        alone, of_x = heads.without_proxies(), guide.heads(table.x.double())
        for mine, other in zip(alone, of_x, strict=True):
            assert (mine is None and other is None) or torch.equal(mine, other)
        assert fitted.impute(table).shape == (2, tables.train.rows, 2, 2)
    assert decided.shape == (2, tables.train.rows)
    first, second = (fitted.impute(with_proxies(tables.train, seed)) for seed in (0, 9))
    assert not torch.allclose(first, second)  # what is believed of groups does use them


def test_no_gradient_of_the_classifier_depends_on_proxies(tables: Splits) -> None:
    """Of labels, decisions and the risk; and what decides has no gradient in u."""
    settings = small_settings(withholding_depends_on=NAMES)
    program = Program(tables.train.to("cpu", torch.float64), settings, [0]).to(
        torch.device("cpu"), torch.float64
    )
    batch = tables.train.to("cpu", torch.float64).batch(torch.arange(20))
    assert batch.u is not None
    u = batch.u.clone().requires_grad_()
    channels = [program.guide.channel_mean(of) for of in (program.guide.channel_a, program.guide.channel_y)]
    encoding = program.guide.encode(replace(batch, u=u), *channels, program.guide.withholding_mean())
    heads = encoding.heads
    decide = (
        heads.class_logits,
        heads.label_logits,
        heads.group_logits_of_x,
        heads.group_logits_by_label_of_x,
    )
    for output in (*decide, heads.z_loc, heads.z_scale, encoding.log_joint_y, encoding.log_channel_a):
        assert torch.autograd.grad(output.sum(), u, allow_unused=True, retain_graph=True)[0] is None
    (seen,) = torch.autograd.grad(heads.group_logits[..., 0].sum(), u)
    assert seen.abs().sum() > 0


@pytest.mark.parametrize("names", [("x1", "c"), NAMES])
def test_posterior_of_groups_where_h_is_known(names: tuple[str, ...]) -> None:
    """Bayes' rule: q(a|x,ã=∅) ∝ h(a|x) σ(logit P(∅|a) + w·v), with the label in v a mean over q(y|x,ỹ)."""
    table = split(synthetic(rows=200, seed=3), Missingness(), seed=5).train.to("cpu", torch.float64)
    settings = small_settings(withholding_depends_on=names)
    program = Program(table, settings, [0, 1]).to(torch.device("cpu"), torch.float64)
    torch.nn.init.normal_(program.guide.sites.withholding_a)
    guide, conditions = program.guide, program.conditions
    assert conditions is not None
    ((_, encoding),) = program.encode(table)
    p = guide.channel_mean(guide.channel_a)[..., -1]  # (members, groups)
    w = guide.withholding_mean()
    assert w is not None
    features, classes = conditions.features(table.x), conditions.classes
    logit = p.logit()[:, None, None] + (features @ w[:, 0, : conditions.width - classes, None]).unsqueeze(-1)
    if classes:
        effect = w[:, 0, -classes:]
        shares = torch.stack([(table.y_obs == y).sum() for y in range(2)]) / (table.y_obs < 2).sum()
        logit = logit + (effect - (effect * shares).sum(-1, keepdim=True))[:, None, :, None]
    withheld = logit.sigmoid()  # (members, rows, 1 or classes, groups)
    h = encoding.heads.group_logits.softmax(-1)
    q_y = encoding.log_joint_y.softmax(-1).unsqueeze(-1) if classes else torch.ones(1, dtype=torch.float64)
    marginal = (q_y * withheld).sum(-2)
    unavailable = table.a_obs == 2
    expected = h * marginal / (h * marginal).sum(-1, keepdim=True)
    torch.testing.assert_close(encoding.log_joint_a.softmax(-1)[:, unavailable], expected[:, unavailable])
    stated = encoding.log_joint_a.softmax(-1)[:, ~unavailable]
    assert torch.equal(stated.argmax(-1)[0], table.a_obs[~unavailable])
    # What is written down of all rows, in held-out scores.
    own = (h * (1 - marginal)).gather(-1, table.a_obs.clamp(max=1).expand(2, -1).unsqueeze(-1)).squeeze(-1)
    evidence = torch.where(unavailable, (h * marginal).sum(-1), own).log()
    torch.testing.assert_close(held_out_scores(program, table)["log_group"], evidence.mean(-1))
    # Imputation by outcome: P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a,v,y).
    held = beliefs(encoding, ~unavailable)
    r = encoding.heads.group_logits_by_label.softmax(-1)
    label = held.label.exp().unsqueeze(-1)
    joint = (label * r * withheld)[:, unavailable]
    torch.testing.assert_close(
        impute(held, "outcome")[:, unavailable], joint / joint.sum((-1, -2), keepdim=True)
    )
    for imputer in PROBABILITIES:
        torch.testing.assert_close(impute(held, imputer).sum((-1, -2)), torch.ones_like(evidence))


def test_parts_sum_to_the_loss(tables: Splits) -> None:
    table = tables.train.to("cpu", torch.float64)
    settings = small_settings(withholding_depends_on=NAMES)
    program = Program(table, settings, [0, 1]).to(torch.device("cpu"), torch.float64)
    lambdas = torch.tensor([0.0, 2.0], dtype=torch.float64)
    fair = FairELBO(table.rows, lambdas, RiskLoss(settings.fairness))
    evaluation = fair.evaluate(program.model, program.guide, table.batch(torch.arange(30)))
    parts = evaluation.measured.parts
    assert "u" in parts
    assert sum(part.sum().item() for part in parts.values()) == pytest.approx(evaluation.loss.item())


def test_bad_input(tables: Splits) -> None:
    with pytest.raises(InputError, match="withholding_scale must be positive and finite, got 0"):
        Settings(withholding_scale=0.0)
    with pytest.raises(InputError, match="'surname' is a proxy"):
        train(tables, withholding_depends_on="x1, surname")
    with pytest.raises(InputError, match="validation must have the columns, proxies"):
        train(replace(tables, validation=replace(tables.validation, u=None, u_columns=None)))
    with pytest.raises(InputError, match="must be a list of names of features, or of 'label', got 'age'"):
        Settings(withholding_depends_on="age")  # type: ignore[arg-type]
    assert small_settings(withholding_depends_on=" month,age ").withholding_depends_on == ("month", "age")
    assert small_settings(withholding_depends_on="").withholding_depends_on == ()


@pytest.mark.parametrize("names", [("x1", "c"), ("c", "label")])
def test_refined_channels_are_at_the_optimum_that_scipy_finds(names: tuple[str, ...]) -> None:
    """The maximum a posteriori of P(∅|a) and w given h, q(y|x,ỹ) and v; the prior of a rate is flat."""
    table = split(synthetic(rows=500, seed=3), Missingness((0.5, 0.2)), seed=5).train.to("cpu", torch.float64)
    settings = small_settings(withholding_depends_on=names, withholding_scale=0.7, sites="map")
    program = Program(table, settings, [0]).to(torch.device("cpu"), torch.float64)
    guide, conditions = program.guide, program.conditions
    assert conditions is not None
    refine_channels(program, table, MemberNoise([0]), steps=800)
    ((_, encoding),) = program.encode(table)
    h = encoding.heads.group_logits.softmax(-1)[0].numpy()
    features = conditions.features(table.x)[0].numpy()
    q_y = encoding.log_joint_y.softmax(-1)[0].numpy() if conditions.classes else np.ones((table.rows, 1))
    labels = conditions.labels[0].numpy() if conditions.classes else np.zeros((1, 0))
    a_obs = table.a_obs.numpy()

    def loss(at: np.ndarray) -> float:
        tilt = (features @ at[2 : 2 + features.shape[1]])[:, None] + labels @ at[2 + features.shape[1] :]
        withheld = 1 / (1 + np.exp(-(at[:2] + tilt[..., None])))  # (rows, classes, groups)
        marginal = np.einsum("ry,rya->ra", q_y, withheld)
        own = (h * (1 - marginal))[np.arange(len(h)), a_obs.clip(max=1)]
        evidence = np.where(a_obs == 2, (h * marginal).sum(-1), own)
        return float(-np.log(evidence).sum() + (at[2:] ** 2).sum() / 2 / 0.7**2)

    w = guide.withholding_mean()
    assert w is not None
    p = guide.channel_mean(guide.channel_a)[0, :, -1].detach()
    found = np.concatenate([p.logit().numpy(), w[0, 0].detach().numpy()])
    best = minimize(loss, np.zeros(len(found)), method="BFGS")
    assert loss(found) - best.fun < 3e-3
    np.testing.assert_allclose(found, best.x, atol=0.02)
    assert np.abs(best.x[2:]).max() > 0.1


def test_a_warning_where_nothing_identifies_the_channel(tables: Splits) -> None:
    alone = replace(
        tables,
        train=replace(tables.train, u=None, u_columns=None),
        validation=replace(tables.validation, u=None, u_columns=None),
    )
    every = tables.train.columns.names
    with pytest.warns(UserWarning, match="names every feature, and there are no proxies"):
        train(alone, epochs=1, withholding_depends_on=every)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tables, epochs=1, withholding_depends_on=every)
        train(alone, epochs=1, withholding_depends_on=every[1:])


def simulated(rows: int, seed: int) -> tuple[Observed, np.ndarray, np.ndarray]:
    """Rows with their P(∅|a,v), of the logit −.5 + 2.5·(month 0) + 1.5·age; both tell of the group, too."""
    draw = np.random.default_rng(seed)
    a = draw.integers(0, 2, rows)
    y = (draw.random(rows) < 0.3 + 0.3 * a).astype(int)
    month = np.where(draw.random(rows) < 0.15 + 0.5 * a, 0, draw.integers(1, 3, rows))
    age = draw.normal(size=rows) + 0.5 * a
    tell = 1.5 * a[:, None] + draw.normal(size=(rows, 2))
    withheld = 1 / (1 + np.exp(-(-0.5 + 2.5 * (month == 0) + 1.5 * age)))
    a_obs = np.where(draw.random(rows) < withheld, 2, a)
    x = np.concatenate(
        [age[:, None], tell, y[:, None] + draw.normal(size=(rows, 1)), np.eye(3)[month]], axis=1
    )
    columns = Columns(4, (3,), ("age", "first", "second", "third", "month"))
    table = Observed(torch.from_numpy(x).float(), torch.from_numpy(y), torch.from_numpy(a_obs), columns, 2, 2)
    return table, withheld, a


def believed_rates(
    table: Observed, held_out: Observed, names: tuple[str, ...] = ()
) -> tuple[Fit, np.ndarray]:
    """A fit, and P(∅|a) of the population: a mean over rows, weighted by what is believed of them."""
    skip_validation()  # for speed
    options = {"epochs": 10, "batch": 200, "hidden": 32, "lr": 3e-3, "withholding_scale": 1.5,
               "channel_steps": 200}  # fmt: skip
    fitted = fit(table, held_out, (0.0,), small_settings(**options, withholding_depends_on=names))
    program = fitted.at_chosen_epoch()
    guide = program.guide
    plain = guide.channel_mean(guide.channel_a)
    encoded = [encoding for _, encoding in program.encode(table)]
    believed = torch.cat([encoding.log_joint_a.softmax(-1) for encoding in encoded], dim=1)[0]
    rates = plain[0, :, -1].expand_as(believed)
    w, conditions = guide.withholding_mean(), program.conditions
    if conditions is not None and w is not None:
        tilt = conditions.tilt(conditions.features(table.x), w)
        rates = guide.channel_a.tilted(plain, tilt)[0, ..., -1]
    found = (believed * rates).sum(0) / believed.sum(0)
    return fitted, found.detach().numpy()


def test_simulated_withholding_is_recovered_where_the_plain_channel_is_off() -> None:
    table, withheld, a = simulated(4000, seed=0)
    held_out, _, _ = simulated(1000, seed=1)
    truth = np.array([withheld[a == g].mean() for g in (0, 1)])
    fitted, found = believed_rates(table, held_out, ("age", "month"))
    _, plain = believed_rates(table, held_out)
    assert np.abs(found - truth).max() < 0.04, (found, truth)
    assert np.abs(plain - truth).max() > 0.2, (plain, truth)
    program = fitted.at_chosen_epoch()
    w, conditions = program.guide.withholding_mean(), program.conditions
    assert w is not None
    assert conditions is not None
    effect = dict(zip(conditions.columns, w[0, 0].tolist(), strict=True))
    assert effect["month = 0"] - effect["month = 1"] == pytest.approx(2.5, abs=0.4)
    assert effect["month = 1"] - effect["month = 2"] == pytest.approx(0.0, abs=0.4)
    # The slope over the two middle pieces, which hold half of the rows.
    rise = effect["age (piece 2)"] + effect["age (piece 3)"]
    assert rise / conditions.span[0, 0, 0, 1:3].sum().item() == pytest.approx(1.5, abs=0.3)


def test_proxies_tell_of_groups_that_features_hardly_tell() -> None:
    """The columns that tell of the group as proxies, not as features; decisions still use features alone."""
    (table, withheld, a), (held_out, _, _) = simulated(4000, seed=0), simulated(1000, seed=1)
    truth = np.array([withheld[a == g].mean() for g in (0, 1)])

    def with_moved_columns(table: Observed) -> Observed:
        x = table.x
        assert isinstance(x, torch.Tensor)
        return replace(
            table,
            x=torch.cat([x[:, :1], x[:, 3:]], dim=1), columns=Columns(2, (3,), ("age", "third", "month")),
            u=x[:, 1:3], u_columns=Columns(2, (), ("first", "second")),
        )  # fmt: skip

    table, held_out = map(with_moved_columns, (table, held_out))
    fitted, found = believed_rates(table, held_out, ("age", "month"))
    assert np.abs(found - truth).max() < 0.045, (found, truth)
    program = fitted.at_chosen_epoch()
    heads = next(program.encode(table))[1].heads
    with_u, of_x = (roc_auc_score(a, of.group_logits[0, :, 1] - of.group_logits[0, :, 0])
                    for of in (heads, heads.without_proxies()))  # fmt: skip
    assert with_u > 0.94
    # As well as age, month and the label's feature can: a logistic regression on the true groups.
    known = LogisticRegression(max_iter=500).fit(table.x.numpy(), a)
    assert of_x == pytest.approx(roc_auc_score(a, known.predict_proba(table.x.numpy())[:, 1]), abs=0.02)
