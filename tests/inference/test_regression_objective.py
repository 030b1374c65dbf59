"""The objective of an outcome that is a number, against integrals and sums written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.inference.objective import beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import ObjectiveWeights, Settings
from pyro_fairvae.inference.training import fit, objective_of
from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.nn.members import Members
from pyro_fairvae.schema.observed import Batch, Observed
from tests.support.numbers import number_table
from tests.support.small import small_settings

ROWS, LAMBDAS = 9, (0.0, 2.0)


def make(**options: Any) -> tuple[Program, Observed, Batch, Settings]:
    table = number_table(120, levels=5).observed.to("cpu", torch.float64)
    settings = small_settings(**{"risk": "mean_gap"} | options)
    program = Program(table, settings, [0, 1]).to(torch.device("cpu"), torch.float64)
    with torch.no_grad():  # no parameter is at a point where errors could cancel
        generator = torch.Generator().manual_seed(0)
        for parameter in (*program.model.parameters(), *program.guide.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return program, table, table.batch(torch.arange(ROWS)), settings


def weights_of(members: Members, k: int) -> dict[str, np.ndarray]:
    return {name: getattr(members, name.replace(".", "/"))[k].detach().numpy() for name in members.names}


class ByHand:
    """The parts of the objective for one member, from what its encoder and its sites hold."""

    def __init__(self, program: Program, table: Observed, batch: Batch, run: Any, k: int) -> None:
        self.program, self.table, self.k = program, table, k
        number = table.number
        assert number is not None
        self.edges = np.concatenate([[-40.0], number.edges, [40.0]])  # of no mass beyond
        self.centres = number.centres
        self.heads = [None if part is None else part[k].detach().numpy() for part in run.encoding.heads]
        nodes = run.guide_trace.nodes
        self.z, self.y = (nodes[site]["value"][k].detach().numpy() for site in ("z", "y"))
        channel_a = [nodes[f"channel_a_{g}"]["value"][k, 0].detach().numpy() for g in range(2)]
        levels = range(len(self.centres))
        channel_y = [nodes[f"channel_y_{c}"]["value"][k, 0].detach().numpy() for c in levels]
        self.withheld_a, self.withheld_y = (np.array([row[1] for row in ch]) for ch in (channel_a, channel_y))
        self.batch = batch

    def mixture(self, parameters: np.ndarray) -> Any:
        """The density of a number, a function, from the parameters of a row."""
        logits, loc, spread = np.split(parameters, 3)
        weight, scale = special.softmax(logits), np.logaddexp(0, spread) + 0.01
        return lambda y: float(weight @ stats.norm.pdf(y, loc, scale))

    def over_levels(self, function: Any) -> np.ndarray:
        """Integrals of a function over each level."""
        return np.array(
            [
                integrate.quad(function, low, high, epsabs=1e-13, epsrel=1e-12, limit=400, points=points)[0]
                for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)
                for points in [np.linspace(max(low, -8), min(high, 8), 12)[1:-1] if low < 8 else None]
            ]
        )

    def level(self, y: float) -> int:
        return int(np.searchsorted(self.edges[1:-1], y, side="right"))

    def row(self, i: int, kappa: float, s: float) -> dict[str, float]:
        """The parts of one row, as they enter the loss."""
        h, density = special.softmax(self.heads[3][i]), self.mixture(self.heads[-1][i])
        y, a_obs = float(self.batch.outcome[i]), int(self.batch.a_obs[i])
        stated = int(self.batch.y_obs[i]) < len(self.centres)
        states = self.states(a_obs)
        groups, q_a = np.log(h @ states), h * states / (h @ states)
        if stated:
            withheld_y = np.log(1 - self.withheld_y[self.level(y)])
            labels, log_q = np.log(density(y)) + withheld_y, 0.0
            assert self.y[i] == y
        else:
            tilted = lambda v: density(v) * self.withheld_y[self.level(v)]  # noqa: E731
            mass = self.over_levels(tilted).sum()
            mean = self.over_levels(lambda v: v * tilted(v)).sum() / mass
            scale = np.sqrt(self.over_levels(lambda v: (v - mean) ** 2 * tilted(v)).sum() / mass)
            labels, log_q = np.log(mass), stats.norm.logpdf(self.y[i], mean, scale)
            share = np.diff(stats.norm.cdf(self.edges, mean, scale))
            withheld_y = share @ np.log(self.withheld_y)
        elbo = 0.0
        for a in range(2):
            if q_a[a] > 0:
                terms = self.log_x(i, a) + self.log_prior(a, self.y[i]) + np.log(states[a]) - np.log(q_a[a])
                elbo += q_a[a] * terms
        return {
            "elbo": -kappa * (elbo - log_q),
            "y_obs": -kappa * withheld_y,
            "groups": -s * groups,
            "labels": -s * labels,
        }

    def states(self, a_obs: int) -> np.ndarray:
        """P(ã | a) for each group a."""
        if a_obs == 2:
            return self.withheld_a
        return (1 - self.withheld_a) * (np.arange(2) == a_obs)

    def log_prior(self, a: int, y: float) -> float:
        model, nodes = self.program.model, self.pi
        loc, log_scale = (
            p[self.k, 0, a % p.shape[-1]].item() for p in (model.outcome_loc, model.outcome_log_scale)
        )
        return float(np.log(nodes[a]) + stats.norm.logpdf(y, loc, np.exp(log_scale)))

    def log_x(self, i: int, a: int) -> float:
        model, k = self.program.model, self.k
        state = weights_of(model.decoder, k)
        inner = (
            state["from_z.weight"] @ self.z[i] + state["from_z.bias"] + state["from_a.weight"][a]
            + state["from_y.linear.weight"][:, 0] * self.y[i] + state["from_y.linear.bias"]
        )  # fmt: skip
        out = state["columns.weight"] @ np.maximum(inner, 0) + state["columns.bias"]
        scale = model.log_scale[k, 0].detach().exp().numpy()
        return float(stats.norm.logpdf(self.batch.x[i].numpy(), out, scale).sum())


@pytest.mark.parametrize("sites", ["dirichlet", "map"])
@pytest.mark.parametrize("prevalence", ["joint", "independent"])
def test_every_part_is_as_written_out(sites: str, prevalence: str) -> None:
    program, table, batch, settings = make(sites=sites, prevalence=prevalence)
    objective = objective_of(table, LAMBDAS, settings)
    torch.manual_seed(0)
    run = objective.run(program.model, program.guide, batch)
    found = objective.evaluate_run(run, program.model, batch).measured.parts
    assert {bool(c < table.classes) for c in batch.y_obs} == {True, False}
    assert set(batch.a_obs.tolist()) == {0, 1, 2}
    weights = settings.objective_weights
    for k in range(2):
        by_hand = ByHand(program, table, batch, run, k)
        by_hand.pi = run.guide_trace.nodes["pi_a"]["value"][k, 0].detach().numpy()
        rows = [by_hand.row(i, weights.kappa, weights.s) for i in range(ROWS)]
        expected = {name: np.mean([row[name] for row in rows]) for name in rows[0]}
        elbo = sum(float(found[name][k]) for name in ("x", "a_obs", "kl_y", "kl_a"))
        assert elbo == pytest.approx(expected["elbo"], rel=1e-7)
        for name in ("y_obs", "groups", "labels"):
            assert float(found[name][k]) == pytest.approx(expected[name], rel=1e-7), name


def test_the_enumerated_loss_is_the_sum_of_its_parts() -> None:
    program, table, batch, settings = make()
    objective = objective_of(table, LAMBDAS, settings)
    evaluation = objective.evaluate(program.model, program.guide, batch)
    total = sum(part.sum() for part in evaluation.measured.parts.values())
    assert float(total) == pytest.approx(evaluation.loss.item(), rel=1e-9)


def test_imputed_levels_and_groups_and_the_error_of_predictions() -> None:
    """P_g by masses of its density, r by its formula, and the squared error over what is imputed."""
    program, table, batch, settings = make()
    objective = objective_of(table, LAMBDAS, settings)
    run = objective.run(program.model, program.guide, batch)
    found = objective.evaluate_run(run, program.model, batch).measured.parts
    for k in range(2):
        hand = ByHand(program, table, batch, run, k)
        state = weights_of(program.guide.encoder, k)
        learned, errors = [], []
        for i in range(ROWS):
            features, density = hand.heads[4][i], hand.mixture(hand.heads[-1][i])
            label = hand.mixture(state["labeller.linear.weight"] @ features + state["labeller.linear.bias"])
            mass, own = hand.over_levels(label), hand.over_levels(density)
            log_h = special.log_softmax(hand.heads[3][i])
            t, predicted = hand.centres, own @ hand.centres
            r = []
            for level in range(len(t)):
                scores = [*log_h, t[level], t[level] ** 2, predicted, predicted**2, predicted * t[level]]
                r.append(special.softmax(log_h + state["grouper.weight"] @ scores + state["grouper.bias"]))
            a_obs, stated = int(batch.a_obs[i]), int(batch.y_obs[i]) < table.classes
            says = hand.states(a_obs)
            own_level = np.arange(len(t)) == int(batch.y_obs[i])
            tells = (1 - hand.withheld_y) * own_level if stated else hand.withheld_y
            learned.append(np.log((mass * tells) @ (np.array(r) @ says)))
            mean = hand.over_levels(lambda v, p=density: v * p(v)).sum()
            share = mass * tells / (mass @ tells)
            errors.append((mean - float(batch.outcome[i])) ** 2 if stated else share @ (mean - t) ** 2)
        assert float(found["imputer"][k]) == pytest.approx(-np.mean(learned), rel=1e-7)
        assert float(found["decisions"][k]) == pytest.approx(np.mean(errors), rel=1e-7)


def test_gradients_are_those_of_finite_differences() -> None:
    """With points as posteriors of the sites and noise that is the same, all but the imputer is smooth."""
    program, table, batch, settings = make(sites="map", memory=1.0)
    objective = objective_of(table, (0.0, 0.0), settings)

    def loss() -> Tensor:
        pyro.clear_param_store()
        return objective.evaluate(program.model, program.guide, batch, noise=MemberNoise([0, 1])).loss

    def smooth() -> float:
        pyro.clear_param_store()
        measured = objective.evaluate(program.model, program.guide, batch, noise=MemberNoise([0, 1])).measured
        return float(measured.loss - measured.parts["imputer"].sum() - measured.parts["decisions"].sum())

    guide, model = program.guide, program.model
    objective.weights = ObjectiveWeights(elbo_weight=0.5, decision_weight=0.0)
    # Heads of the imputer alone have another gradient; those below have none of it.
    tried = {
        "outcome head": guide.encoder.get_parameter("classifier/linear/bias"),
        "group head": guide.encoder.get_parameter("group/bias"),
        "scale of z": guide.encoder.get_parameter("z_scale/bias"),
        "outcome given the group": model.outcome_loc,
        "its scale": model.outcome_log_scale,
        "decoder of y": model.decoder.get_parameter("from_y/linear/weight"),
        "P(∅|y)": guide.sites.get_parameter("channel_y_1"),
        "P(∅|a)": guide.sites.get_parameter("channel_a_0"),
    }
    grads = torch.autograd.grad(loss(), list(tried.values()))
    for (name, parameter), grad in zip(tried.items(), grads, strict=True):
        place = (0,) * parameter.dim()
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter[place] += step
            values.append(smooth())
            with torch.no_grad():
                parameter[place] -= step
        difference = (values[0] - values[1]) / 2e-5
        if name != "P(∅|a)":  # in which the imputer's likelihood has no gradient, either
            assert abs(difference) > 1e-6, name
        assert float(grad[place]) == pytest.approx(difference, rel=1e-4, abs=1e-8), name


RISKY = ("mean_gap", "mean_gap_given_y", "correlation_ratio", "correlation_ratio_given_y", "wasserstein",
         "kolmogorov_smirnov")  # fmt: skip


@pytest.mark.parametrize("risk", RISKY)
def test_risk_reaches_the_outcome_head_and_never_what_is_imputed(risk: str) -> None:
    program, table, _, settings = make(risk=risk)
    objective = objective_of(table, (1.0, 1.0), settings)
    batch = table.batch(torch.arange(table.rows))
    encoding = objective.run(program.model, program.guide, batch).encoding
    held = beliefs(encoding, batch.a_obs != table.groups)
    predicted = Mixture.of(encoding.heads.density).mean
    stated = batch.y_obs < table.classes
    for part in (
        objective.risk(predicted, held, objective.lambdas).penalty,
        objective.risk.squared_error(predicted, held, batch.outcome, stated),
    ):
        parameters = dict(program.guide.named_parameters())
        grads = torch.autograd.grad(
            part.sum(), list(parameters.values()), allow_unused=True, retain_graph=True
        )
        touched = {
            n
            for n, grad in zip(parameters, grads, strict=True)
            if grad is not None and bool((grad != 0).any())
        }
        assert {"encoder.classifier/linear/weight", "encoder.trunk/1/weight"} <= touched
        assert {name.split("/")[0] for name in touched} <= {"encoder.classifier", "encoder.trunk"}


def test_a_planted_dependence_is_removed_and_withholding_is_found() -> None:
    made = number_table(2600, levels=8)
    train, validation = (made.observed.take(torch.arange(a, b)) for a, b in ((0, 2200), (2200, 2600)))
    settings = small_settings(
        risk="mean_gap", epochs=8, batch=220, hidden=24, lr=0.01, decoder_hidden=16, channel_steps=100
    )
    fitted = fit(train, validation, (0.0, 10.0), settings)
    assert made.observed.number is not None
    predicted = made.observed.number.restored(fitted.predict_numbers(made.observed.x).numpy())
    gaps = [row[made.a == 1].mean() - row[made.a == 0].mean() for row in predicted]
    error = np.sqrt(np.mean((predicted[0] - made.y) ** 2))
    assert error < 1.45  # √((1 + 2.25) / 2) = 1.27 at best
    assert gaps[0] == pytest.approx(3.0, abs=0.4)
    assert abs(gaps[1]) < gaps[0] / 3
    guide = fitted.at_chosen_epoch().guide
    withheld = guide.channel_mean(guide.channel_a)[0, :, -1].detach()
    assert withheld.tolist() == pytest.approx([0.7, 0.4], abs=0.08)
    by_level = guide.channel_mean(guide.channel_y)[0, :, -1].detach()
    assert float(by_level[0]) < 0.22
    assert float(by_level[-1]) > 0.38


def test_members_do_not_depend_on_others() -> None:
    observed = number_table(150).observed
    settings = small_settings(risk="mean_gap", epochs=2)
    alone = fit(observed, observed, (1.0,), settings).predict_numbers(observed.x)
    beside = fit(observed, observed, (0.0, 1.0), settings).predict_numbers(observed.x)
    torch.testing.assert_close(alone[0], beside[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk": "deo"}, "needs classes, but the outcome is a number; choose one of mean_gap"),
        ({"risk": "mean_gap", "thresholds": (0.3,)}, "thresholds is (0.3,), but the outcome is a number"),
        ({"risk": "mean_gap", "imputation": "cross_fitted"}, "for labels with classes"),
        ({"risk": "mean_gap", "withholding_depends_on": ("label",)}, "not on an outcome that is a number"),
        ({"risk": "mean_gap", "objective": "paper"}, "there is no objective 'paper'"),
    ],
)
def test_what_needs_classes_is_refused(options: dict[str, Any], words: str) -> None:
    observed = number_table(150).observed
    with pytest.raises(InputError) as raised:
        fit(observed, observed, (1.0,), small_settings(**options))
    assert words in str(raised.value)
