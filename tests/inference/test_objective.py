"""The objective against sums written out by hand."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.infer import SVI
from scipy import special
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.data.possible_pairs import PairsOfRows
from pyro_fairvae.inference.objective import FairELBO, GuidedRun, Measured, beliefs
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import ObjectiveWeights, Settings
from pyro_fairvae.inference.svi import MeasuredSVI
from pyro_fairvae.nn.members import Members
from pyro_fairvae.risks import RiskLoss
from pyro_fairvae.schema.attributes import Attributes
from pyro_fairvae.schema.levels import Levels
from pyro_fairvae.schema.observed import Batch, Columns, Observed
from tests.support.small import SMALL, small_settings, three_groups


def make(
    settings: Settings, groups: int, members: int = 2, proxies: bool = False
) -> tuple[Program, Observed, Batch]:
    table = three_groups() if groups == 3 else _two_groups()
    table = table.to("cpu", torch.float64)
    if proxies:
        table = with_proxies(table)
    program = Program(table, settings, range(members)).to(torch.device("cpu"), torch.float64)
    return program, table, table.batch(torch.arange(11))


def _two_groups() -> Observed:
    from pyro_fairvae.data import Missingness, split, synthetic

    return split(synthetic(rows=90), Missingness(), 0).train


def objective(table: Observed, settings: Settings, members: int, weights: ObjectiveWeights) -> FairELBO:
    lambdas = torch.linspace(0.0, 2.0, members, dtype=torch.float64)
    return FairELBO(table.rows, lambdas, RiskLoss(settings.fairness), weights)


def dirichlet_kl(p: Tensor, q: Tensor) -> Tensor:
    total = p.sum(-1, keepdim=True)
    return (
        torch.lgamma(p.sum(-1)) - torch.lgamma(p).sum(-1) - torch.lgamma(q.sum(-1)) + torch.lgamma(q).sum(-1)
        + ((p - q) * (torch.digamma(p) - torch.digamma(total))).sum(-1)
    )  # fmt: skip


def dirichlet_log_density(x: Tensor, c: Tensor) -> Tensor:
    return torch.lgamma(c.sum(-1)) - torch.lgamma(c).sum(-1) + ((c - 1) * x.log()).sum(-1)


def by_hand(
    program: Program, table: Observed, batch: Batch, run: GuidedRun, weights: ObjectiveWeights
) -> Tensor:
    """The objective without its risk: loops over members, rows, classes and groups."""
    nothing = torch.tensor(0.0, dtype=torch.float64)
    guide, model = program.guide, program.model
    traced = run.guide_trace.nodes
    point = "Point" in type(guide.sites).__name__
    total = torch.zeros((), dtype=torch.float64)
    seen = weights.elbo_rows(batch.rows)

    def site(name: str, k: int) -> Tensor:
        return guide.sites.mean(name)[k, 0] if point else traced[name]["value"][k, 0].detach()

    def channel(ch: Channel, k: int) -> list[dict[int, Tensor]]:
        supports = [np.flatnonzero(possible).tolist() for possible in ch.possible[: ch.values]]
        names = np.reshape(ch.sites, (ch.values, -1))  # the cells of a value follow each other
        return [
            {o: site(name, k)[j] for j, o in enumerate(support)}
            for c in range(names.shape[1])
            for name, support in zip(names[:, c], supports, strict=True)
        ]

    def cell(x: Tensor, y: int) -> int:
        """The first group's place among all rows: of the value of c, and of the label, if crossed."""
        found = 0
        for column in model.channel_a.crossed:
            size = table.classes if column.name == "label" else table.columns.blocks[0]
            found = found * size + (y if column.name == "label" else int(x[-size:].argmax()))
        return found * table.groups

    def global_kl(name: str, k: int, prior: Tensor) -> Tensor:
        if point:
            return -dirichlet_log_density(site(name, k), prior)
        return dirichlet_kl(getattr(guide.sites, name)[k, 0].exp(), prior)

    encoder = {name: getattr(guide.encoder, name.replace(".", "/")) for name in guide.encoder.names}

    def linear(state: dict[str, Tensor], name: str, k: int, x: Tensor) -> Tensor:
        return state[f"{name}.weight"][k] @ x + state[f"{name}.bias"][k]

    edges = np.array(
        [
            np.quantile(np.unique(table.x[:, j].numpy()), np.linspace(0, 1, SMALL["pieces"] + 1))
            for j in range(table.columns.numbers)
        ]
    )

    def in_pieces(x: Tensor) -> Tensor:
        filled = [
            np.interp(float(x[j]), edges[j, t : t + 2], [0.0, 1.0])
            for j in range(len(edges))
            for t in range(SMALL["pieces"])
        ]
        return torch.tensor(filled, dtype=torch.float64)

    names = program.settings.withholding_depends_on
    design = conditions_by_hand(table, names)

    def coefficients(k: int) -> tuple[Tensor, Tensor]:
        """w, and its KL from the prior."""
        loc, prior = guide.sites.withholding_a[k, 0, 0], program.settings.withholding_scale
        if point:
            return loc, (0.5 * (loc / prior) ** 2 + math.log(prior) + 0.5 * math.log(2 * math.pi)).sum()
        scale = guide.sites.withholding_a_log_scale[k, 0, 0].exp()
        noise = ((traced["withholding_a"]["value"][k, 0, 0] - loc) / scale).detach()
        kl = (scale / prior) ** 2 / 2 + (loc / prior) ** 2 / 2 - 0.5 - (scale / prior).log()
        return loc + scale * noise, kl.sum()

    def log_columns(x: Tensor, out: Tensor, columns: Columns, log_scale: Tensor) -> Tensor:
        n, sd = columns.numbers, log_scale.exp()
        log_x = (-0.5 * ((x[:n] - out[:n]) / sd) ** 2 - sd.log() - 0.5 * math.log(2 * math.pi)).sum()
        start = n
        for size in columns.blocks:
            log_x = log_x + (x[start : start + size] * out[start : start + size].log_softmax(-1)).sum()
            start += size
        return log_x

    def decoded(of: Members, k: int, a: int, y: int, z: Tensor) -> Tensor:
        state = {name: getattr(of, name.replace(".", "/")) for name in of.names}
        inner = linear(state, "from_z", k, z) + state["from_a.weight"][k, a] + state["from_y.weight"][k, y]
        return linear(state, "columns", k, torch.relu(inner))

    for k in range(guide.encoder.count):
        if names:
            w, kl_w = coefficients(k)
            total = total + (weights.kappa + weights.s) / table.rows * kl_w
        channel_a, channel_y = channel(model.channel_a, k), channel(model.channel_y, k)
        if model.prevalence == "joint":
            pi = site("pi", k).reshape(table.classes, table.groups)
        else:
            pi = site("pi_y", k).unsqueeze(-1) * site("pi_a", k)
        for i in range(batch.rows):
            x, a_obs, y_obs = batch.x[i], int(batch.a_obs[i]), int(batch.y_obs[i])
            hidden = torch.cat([x, in_pieces(x)])
            for layer in range(SMALL["layers"]):
                hidden = torch.relu(linear(encoder, f"trunk.{1 + 2 * layer}", k, hidden))
            loc = linear(encoder, "z_loc", k, hidden)
            scale = torch.log1p(linear(encoder, "z_scale", k, hidden).exp()) + 1e-3
            z_seen = traced["z"]["value"][k, min(i, seen - 1)].detach()
            noise = (z_seen - loc.detach()) / scale.detach()
            z = loc + scale * noise
            group = linear(encoder, "group", k, hidden)
            if batch.u is not None:
                bent = torch.relu(linear(encoder, "from_u.bent.0", k, batch.u[i]))
                group = group + linear(encoder, "from_u.straight", k, batch.u[i])
                group = group + linear(encoder, "from_u.bent.2", k, bent)
            h = group.softmax(-1)
            g = linear(encoder, "classifier", k, hidden).softmax(-1)
            label = linear(encoder, "labeller", k, hidden.detach()).softmax(-1)
            joint_y = torch.stack([g[y] * channel_y[y].get(y_obs, nothing) for y in range(table.classes)])
            q_y = joint_y / joint_y.sum()
            stating = torch.stack(
                [
                    torch.stack(
                        [
                            states(channel_a[cell(x, y) + a], a_obs, table.groups, tilt)
                            for a in range(table.groups)
                        ]
                    )
                    for y, tilt in enumerate(design[i] @ w if names else torch.zeros(table.classes))
                ]
            )
            joint_a = h * (q_y.detach() @ stating)
            scores = torch.cat([h, g]).detach().log()
            by_label = linear(encoder, "grouper", k, scores).reshape(table.classes, table.groups).softmax(-1)
            label_states = torch.stack([of.get(y_obs, nothing) for of in channel_y])
            known = (label_states.unsqueeze(-1) * stating).detach()
            learned = (label.unsqueeze(-1) * by_label * known).sum().log()
            if batch.u is not None:
                h_x = linear(encoder, "group_of_x", k, hidden.detach()).softmax(-1)
                scores = torch.cat([h_x, g]).detach().log()
                r_x = linear(encoder, "grouper_of_x", k, scores).reshape(table.classes, -1).softmax(-1)
                learned = learned + (h_x * (q_y @ stating).detach()).sum().log()
                learned = learned + (label.detach().unsqueeze(-1) * r_x * known).sum().log()
            elbo = torch.zeros((), dtype=torch.float64)
            for y in range(table.classes):
                q_a = h * stating[y] / (h * stating[y]).sum()
                for a in range(table.groups):
                    if q_a[a] == 0 or q_y[y] == 0:
                        continue
                    out = decoded(model.decoder, k, a, y, z)
                    log_x = log_columns(x, out, table.columns, model.log_scale[k, 0])
                    if batch.u is not None:
                        out = decoded(model.decoder_u, k, a, y, z)
                        log_x = log_x + log_columns(batch.u[i], out, table.u_columns, model.log_scale_u[k, 0])
                    term = (
                        weights.reconstruction_weight * log_x
                        + stating[y, a].log() + channel_y[y][y_obs].log()
                        + pi[y, a].log() - q_a[a].log() - q_y[y].log()
                    )  # fmt: skip
                    elbo = elbo + q_a[a] * q_y[y] * term
            kl_z = (0.5 * (scale**2 + loc**2 - 1) - scale.log()).sum()
            elbo = elbo - weights.kl_weight * kl_z
            elbo = elbo if i < seen else torch.zeros(())  # the first rows count for all
            keep_a = weights.objective == "consistent" or a_obs < table.groups
            keep_y = weights.objective == "consistent" or y_obs < table.classes
            conditional = keep_a * joint_a.sum().log() + keep_y * joint_y.sum().log()
            total = total - (weights.s * conditional + learned) / batch.rows
            total = total - weights.kappa * elbo / seen
        for ch in (model.channel_a, model.channel_y):
            for v in range(len(ch.sites)):
                prior = ch.concentration(v, total)
                total = total + (weights.kappa + weights.s) / table.rows * global_kl(ch.sites[v], k, prior)
        for name, size in model.prevalence_sites.items():
            prior = torch.full((size,), program.settings.prior_pi, dtype=torch.float64)
            total = total + weights.kappa / table.rows * global_kl(name, k, prior)
    return total


def states(row: dict[int, Tensor], a_obs: int, unavailable: int, tilt: Tensor) -> Tensor:
    """P(ã|a,v,y) from the plain row of a."""
    odds, p = tilt.exp(), row[unavailable]
    plain = row.get(a_obs, torch.zeros_like(p))
    return plain * (odds if a_obs == unavailable else 1.0) / (1 - p + p * odds)


def conditions_by_hand(table: Observed, names: tuple[str, ...]) -> Tensor:
    """v of every row and label, (rows, classes, columns): numbers in four pieces, one-hot, and label."""
    found = []
    for name in sorted(set(names) - {"label"}, key=lambda name: name == "c"):
        columns = table.x[:, table.columns.of(name)].numpy()
        if name != "c":
            edges = np.quantile(np.unique(columns), np.linspace(0, 1, 5))
            columns = np.stack(
                [np.interp(columns[:, 0], edges[t : t + 2], [0.0, 1.0]) for t in range(4)], axis=1
            )
        found.append(np.repeat((columns - columns.mean(0))[:, None], table.classes, axis=1))
    if "label" in names:
        stated = table.y_obs[table.y_obs < table.classes].numpy()
        shares = np.bincount(stated, minlength=table.classes) / len(stated)
        found.append(np.repeat((np.eye(table.classes) - shares)[None], table.rows, axis=0))
    return torch.from_numpy(np.concatenate(found, axis=-1)) if found else torch.zeros(0)


def with_proxies(table: Observed) -> Observed:
    """A number and a category that are no features."""
    generator = torch.Generator().manual_seed(5)
    numbers = torch.randn(table.rows, 1, generator=generator, dtype=table.x.dtype)
    codes = torch.randint(3, (table.rows,), generator=generator)
    u = torch.cat([numbers, torch.eye(3, dtype=table.x.dtype)[codes]], dim=-1)
    return replace(table, u=u, u_columns=Columns(1, (3,), ("surname", "place")))


@pytest.mark.parametrize(
    ("sites", "prevalence", "prior", "bracket", "names", "proxies"),
    [
        ("map", "joint", "truthful", "consistent", (), False),
        ("map", "independent", "paper", "paper", (), False),
        ("dirichlet", "joint", "paper", "consistent", (), False),
        ("dirichlet", "independent", "truthful", "paper", (), False),
        ("map", "joint", "paper", "consistent", ("x1", "c"), False),
        ("dirichlet", "joint", "truthful", "consistent", ("c", "label", "x1"), False),
        ("map", "joint", "paper", "paper", ("label",), False),
        ("map", "joint", "truthful", "consistent", (), True),
        ("dirichlet", "joint", "paper", "consistent", ("x0", "label"), True),
        ("map", "joint", "{preset: paper, given: c}", "consistent", (), False),
        ("dirichlet", "joint", "{given: label}", "consistent", (), False),
        ("map", "independent", "{given: [label, c]}", "paper", ("x1",), False),
        ("map", "joint", "{preset: flat, given: c}", "consistent", ("label",), True),
        ("dirichlet", "joint", "{preset: paper, given: label}", "consistent", ("c", "x0"), False),
    ],
)
@pytest.mark.parametrize("groups", [2, 3])
def test_objective_and_gradients_equal_brute_force(
    groups: int, sites: str, prevalence: str, prior: str, bracket: str, names: tuple[str, ...], proxies: bool
) -> None:
    settings = small_settings(
        sites=sites, prevalence=prevalence, prior_pi=1.7,
        prior_a=prior, prior_y="paper" if "given" in prior else prior,
        withholding_depends_on=names, withholding_scale=0.6,
    )  # fmt: skip
    weights = ObjectiveWeights(
        bracket, elbo_weight=0.3, supervision_weight=0.9, reconstruction_weight=0.5, kl_weight=0.7
    )
    program, table, batch = make(settings, groups, proxies=proxies)
    if names:
        torch.nn.init.normal_(program.guide.sites.withholding_a)
    for name in program.guide.channel_a.sites:
        torch.nn.init.normal_(getattr(program.guide.sites, name))
    fair = objective(table, settings, 2, weights)
    # The risk has a test of its own; here its weight is 0.
    fair.lambdas = torch.zeros(2, dtype=torch.float64)
    run = fair.run(program.model, program.guide, batch)
    loss = fair.evaluate_run(run, program.model, batch).loss
    expected = by_hand(program, table, batch, run, weights)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-8)

    named = [
        (name, parameter)
        for module in (program.model, program.guide)
        for name, parameter in module.named_parameters()
        # The implicit gradient of a Dirichlet draw has no hand-written rival here.
        if sites == "map" or not name.startswith("sites.") or "withholding" in name
    ]
    parameters = [parameter for _, parameter in named]
    ours = torch.autograd.grad(loss, parameters, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    for (name, _), mine, other in zip(named, ours, theirs, strict=True):
        assert mine is not None, name
        assert other is not None, name
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(
    ("prior", "names", "proxies", "share"),
    [
        ("truthful", (), False, 1.0),
        ("truthful", ("c", "x0"), True, 0.5),
        ("truthful", ("label",), False, 1.0),
        ("{preset: truthful, given: label}", (), False, 0.7),
        ("{rows: {0: {own: 3, unavailable: 2}, 1: {own: 3, other: 1, unavailable: 2}}}", (), False, 1.0),
    ],
)
@pytest.mark.parametrize("groups", [2, 3])
def test_decoding_possible_pairs_alone_changes_nothing(
    groups: int, prior: str, names: tuple[str, ...], proxies: bool, share: float
) -> None:
    """Loss, gradients and all parts; the decoder is computed for fewer (y, a)."""
    settings = small_settings(
        prior_a=prior, withholding_depends_on=names, elbo_share=share, elbo_weight=0.3, epochs=1
    )
    program, table, batch = make(settings, groups, proxies=proxies)
    pairs = PairsOfRows(table, program.model.channel_a, program.model.channel_y)
    elbo_rows = settings.objective_weights.elbo_rows
    (possible,) = pairs.of([torch.arange(11)], elbo_rows)
    assert pairs.some_impossible
    assert len(possible.rows) < elbo_rows(11) * table.classes * table.groups
    fair = objective(table, settings, 2, settings.objective_weights)
    parameters = [*program.guide.parameters(), *program.model.parameters()]
    found = []
    for given in (None, possible):
        torch.manual_seed(0)
        with pyro.get_param_store().scope():
            evaluation = fair.evaluate(program.model, program.guide, replace(batch, possible=given))
        fair.risk.estimator.load_state(
            objective(table, settings, 2, settings.objective_weights).risk.estimator.state()
        )
        gradients = torch.autograd.grad(evaluation.loss, parameters, allow_unused=True)
        found.append((evaluation.measured.parts, evaluation.loss, gradients))
    (parts, loss, gradients), (parts_of_pairs, loss_of_pairs, gradients_of_pairs) = found
    torch.testing.assert_close(loss_of_pairs, loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(parts_of_pairs, parts, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients_of_pairs, gradients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sites", ["map", "dirichlet"])
def test_the_bends_of_a_number_count_as_much_as_its_rows(sites: str) -> None:
    """By quadrature where rows are random, and by the model's own factor where they are points."""
    settings = small_settings(sites=sites, prior_a="{preset: truthful, bend: 1.3}")
    levels = Levels((1.0, 2.0), (0.5, 1.5, 4.0))
    table = replace(three_groups(), attributes=Attributes.of_number(levels, "age")).to("cpu", torch.float64)
    program = Program(table, settings, range(2)).to(torch.device("cpu"), torch.float64)
    for name in program.guide.channel_a.sites:
        torch.nn.init.normal_(getattr(program.guide.sites, name), mean=1.0, std=0.5)
    batch, weights = table.batch(torch.arange(11)), ObjectiveWeights(elbo_weight=0.3, supervision_weight=0.9)
    fair = objective(table, settings, 2, weights)
    fair.lambdas = torch.zeros(2, dtype=torch.float64)
    run = fair.run(program.model, program.guide, batch)
    penalty = 0.0
    for k in range(2):
        moments = []
        for name in program.guide.channel_a.sites:
            parameters = getattr(program.guide.sites, name)[k, 0].detach().numpy()
            if sites == "map":
                moments.append((float(parameters[1] - parameters[0]), 0.0))
                continue
            stating, withholding = np.exp(parameters)
            grid = np.linspace(-200, 200, 400_001)  # logits, far beyond what has any density
            density = np.exp(withholding * special.log_expit(grid) + stating * special.log_expit(-grid))
            mean = np.average(grid, weights=density)
            moments.append((mean, np.average((grid - mean) ** 2, weights=density)))
        (r0, v0), (r1, v1), (r2, v2) = moments
        left, right = 1 / 3.5, 2.5 / 3.5  # distances of neighbouring centres, of their range
        bend = (r2 - r1) / right - (r1 - r0) / left
        variance = v0 / left**2 + v1 * (1 / left + 1 / right) ** 2 + v2 / right**2
        penalty += (bend**2 + variance) / 0.5 / (2 * 1.3**2)  # a bend is over the root of 1/2
    loss = fair.evaluate_run(run, program.model, batch).loss
    expected = by_hand(program, table, batch, run, weights)
    expected = expected + (weights.kappa + weights.s) / table.rows * penalty
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-6)
    if sites == "map":
        factor = run.model_trace.nodes["smoothness_a"]["unscaled_log_prob"]
        assert float(-factor.sum().detach()) == pytest.approx(penalty, abs=1e-9)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.inf, math.nan])
def test_the_prior_of_pi_is_positive_and_finite(gamma: float) -> None:
    with pytest.raises(InputError, match="prior_pi must be positive and finite"):
        small_settings(prior_pi=gamma)


def test_parts_by_member_sum_to_the_loss() -> None:
    settings = small_settings()
    program, table, batch = make(settings, groups=3, members=3)
    fair = objective(table, settings, 3, ObjectiveWeights())
    evaluation = fair.evaluate(program.model, program.guide, batch)
    parts = evaluation.measured.parts
    assert all(part.shape == (3,) for part in parts.values())
    assert sum(part.sum().item() for part in parts.values()) == pytest.approx(
        evaluation.loss.item(), abs=1e-10
    )
    assert evaluation.measured.loss.item() == evaluation.loss.item()


@pytest.mark.parametrize("estimator", ["smoothed", "sampled"])
def test_a_step_returns_the_measurement_of_plain_svi_and_keeps_no_trace(
    monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    """Against pyro.infer.SVI on the same program; traces and their tensors die with the step."""
    settings = small_settings(risk_estimator=estimator)
    kept: list[weakref.ref[Any]] = []
    run = FairELBO.run

    def watched(self: FairELBO, *arguments: Any) -> GuidedRun:
        made = run(self, *arguments)
        nodes = (made.guide_trace.nodes["z"]["value"], made.model_trace.nodes["x"]["log_prob"])
        kept.extend(map(weakref.ref, (made.model_trace, made.guide_trace, made.encoding, *nodes)))
        return made

    monkeypatch.setattr(FairELBO, "run", watched)
    losses, states = [], []
    for kind in (SVI, MeasuredSVI):
        program, table, batch = make(settings, groups=2)
        fair = objective(table, settings, 2, ObjectiveWeights())
        with pyro.get_param_store().scope():
            svi = kind(program.model, program.guide, MembersAdamW(1e-3, 1e-3, 0.0, 1.0), fair)
            torch.manual_seed(3)
            for _ in range(3):
                stepped = svi.step(batch, progress=0.0)
        losses.append(stepped if kind is SVI else stepped.loss.item())
        states.append(program.state())
    assert losses[0] == losses[1]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert isinstance(stepped, Measured)
    for value in (stepped.loss, stepped.gap, stepped.gap_error, stepped.cells, *stepped.parts.values()):
        assert value.grad_fn is None
        assert not value.requires_grad
    gc.collect()
    assert len(kept) == 2 * 3 * 5
    assert not any(reference() is not None for reference in kept)


def test_looking_at_the_loss_changes_nothing() -> None:
    settings = small_settings()
    program, table, batch = make(settings, groups=2)
    fair = objective(table, settings, 2, ObjectiveWeights())
    svi = SVI(program.model, program.guide, MembersAdamW(1e-3, 1e-3, 0.0, 1.0), fair)
    svi.step(batch)
    before = {name: value.clone() for name, value in fair.risk.estimator.state().items()}
    assert math.isfinite(svi.evaluate_loss(batch))
    assert all(torch.equal(value, fair.risk.estimator.state()[name]) for name, value in before.items())


def test_encoder_sees_each_row_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_settings()
    program, table, batch = make(settings, groups=2)
    calls = []
    forward = program.guide.encoder.forward

    def counted(x: Tensor, **dims: Any) -> Any:
        calls.append(len(x))
        return forward(x, **dims)

    monkeypatch.setattr(program.guide.encoder, "forward", counted)
    objective(table, settings, 2, ObjectiveWeights()).loss_and_grads(program.model, program.guide, batch)
    assert calls == [batch.rows]


def test_default_weights_count_channel_evidence_once() -> None:
    assert ObjectiveWeights().kappa + ObjectiveWeights().s == 1
    assert (ObjectiveWeights("paper").kappa, ObjectiveWeights("paper").s) == (1, 1)


def test_without_the_elbo_the_likelihoods_of_what_was_written_down_remain() -> None:
    settings, weights = small_settings(prior_a="paper"), ObjectiveWeights(elbo_weight=0)
    program, table, batch = make(settings, groups=3)
    fair = objective(table, settings, 2, weights)
    fair.lambdas = torch.zeros(2, dtype=torch.float64)
    run = fair.run(program.model, program.guide, batch)
    loss = fair.evaluate_run(run, program.model, batch).loss
    torch.testing.assert_close(loss, by_hand(program, table, batch, run, weights), rtol=0, atol=1e-8)
    loss.backward()
    assert all(not parameter.grad.any() for parameter in program.model.parameters())
    assert all(
        parameter.grad.any() for name, parameter in program.guide.named_parameters() if "channel" in name
    )


def test_schedule_and_weights_of_risk_and_decisions() -> None:
    """Before λ is in full force both have the schedule's share; at λ = 0 there is neither."""
    settings = small_settings(memory=1.0)
    program, table, batch = make(settings, groups=2)
    fair = objective(table, settings, 2, ObjectiveWeights(decision_weight=0.7))  # λ = 0 and 2
    run = fair.run(program.model, program.guide, batch)
    parts = fair.evaluate_run(run, program.model, batch, progress=0.3).measured.parts
    encoding = run.encoding
    held = beliefs(encoding, batch.a_obs != 2)
    share = fair.schedule.risk(0.3)
    assert 0 < share < 1
    error = fair.risk.decision_error(encoding.heads.class_logits, held).detach()
    penalty = fair.risk(encoding.heads.class_logits, held, fair.lambdas).penalty.detach()
    torch.testing.assert_close(parts["decisions"], share * 0.7 * torch.tensor([0.0, 1.0]) * error)
    torch.testing.assert_close(parts["risk"], share * penalty)
    assert parts["risk"][0] == 0
    assert (ObjectiveWeights().omega, ObjectiveWeights("paper").omega) == (1.0, 0.0)
