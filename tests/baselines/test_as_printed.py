"""The paper's method as printed: what runs, and its objective written out by hand."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pyro_fairvae.base.options import build, changed
from pyro_fairvae.baselines import METHODS, Task
from pyro_fairvae.baselines.as_printed import AS_PRINTED, AS_PRINTED_VANILLA, as_printed
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.inference import training
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.risks import RiskLoss
from pyro_fairvae.schema.observed import Observed
from tests.support.command_line import SYNTHETIC, run
from tests.support.small import SMALL

TINY = {name: value for name, value in SMALL.items() if name not in ("pieces", "layers", "samples")}
PRINTED = build(Settings, TINY | as_printed() | {"epochs": 2})
WEIGHT = 2.0


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=300, seed=3), Missingness(), 0)


def tiny_table(parts: Splits) -> Observed:
    """Rows of every label and group, and rows that state one of them, or neither."""
    y_obs = torch.tensor([0, 0, 1, 1, 0, 2, 1, 2, 2, 0, 2])
    a_obs = torch.tensor([0, 1, 0, 1, 1, 0, 2, 2, 1, 2, 2])
    table = parts.train.take(torch.arange(len(y_obs)))
    return replace(table, y_obs=y_obs, a_obs=a_obs).to("cpu", torch.float64)


def test_the_objective_is_the_printed_one(parts: Splits) -> None:
    """−E[ELBO + both brackets over stated rows] + λE, E by enumeration of all labels and groups."""
    table = tiny_table(parts)
    many = changed(PRINTED, {"samples": 40_000})
    program = Program(table, many, [0, 0]).to(torch.device("cpu"), torch.float64)
    for name in (*program.guide.channel_a.sites, *program.guide.channel_y.sites, "pi_a", "pi_y"):
        torch.nn.init.normal_(getattr(program.guide.sites, name))
    lambdas = torch.tensor([0.0, WEIGHT], dtype=torch.float64)
    fair = FairELBO(table.rows, lambdas, RiskLoss(many.fairness), many.objective_weights, many.schedule)
    field = torch.rand(2, table.rows, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    field = field / field.sum(-1, keepdim=True)
    stated = table.y_obs < 2
    field[:, stated] = torch.eye(2, dtype=torch.float64)[table.y_obs[stated]]
    batch = replace(table.batch(torch.arange(table.rows)), propagated_labels=field)
    run = fair.run(program.model, program.guide, batch)
    found = fair.evaluate_run(run, program.model, batch, progress=0.0)
    parts_found = found.measured.parts
    assert not parts_found["decisions"].any()
    # Heads that impute where the field cannot have a likelihood of their own, outside of what is printed.
    of_objective = sum(part for name, part in parts_found.items() if name != "imputer")
    z = run.guide_trace.nodes["z"]["value"].detach()
    plain = printed_without_risk(program, table, z)
    expected = plain + lambdas.numpy() * np.array(
        [expected_risk(program, table, field[k], k) for k in (0, 1)]
    )
    error = WEIGHT * float(found.risk.standard_error[1])
    assert float(of_objective[0]) == pytest.approx(expected[0], abs=1e-9)
    assert float(of_objective[1]) == pytest.approx(expected[1], abs=4 * error)
    assert error < 2e-3


def channels(program: Program, k: int) -> tuple[np.ndarray, np.ndarray]:
    """P(ã|a) and P(ỹ|y) as points, (values, outcomes)."""
    found = []
    for of in (program.guide.channel_a, program.guide.channel_y):
        matrix = np.zeros((2, 3))
        for row, name in enumerate(of.sites):  # own value and ∅
            point = np.exp(getattr(program.guide.sites, name)[k, 0].detach().numpy())
            matrix[row, [row, 2]] = point / point.sum()
        found.append(matrix)
    return found[0], found[1]


def outputs(program: Program, table: Observed, k: int) -> dict[str, np.ndarray]:
    (heads,) = program.heads(table.x)
    return {name: getattr(heads, name)[k].detach().numpy() for name in ("z_loc", "z_scale")} | {
        "g": heads.class_logits[k].softmax(-1).detach().numpy(),
        "h": heads.group_logits[k].softmax(-1).detach().numpy(),
    }


def printed_without_risk(program: Program, table: Observed, z: Tensor) -> np.ndarray:
    """Minus the mean of ELBO and brackets, by loops, (members,)."""
    totals = []
    for k in range(2):
        of_a, of_y = channels(program, k)
        seen = outputs(program, table, k)
        sites = program.guide.sites
        pi_a, pi_y = (np.exp(getattr(sites, name)[k, 0].detach().numpy()) for name in ("pi_a", "pi_y"))
        pi_a, pi_y = pi_a / pi_a.sum(), pi_y / pi_y.sum()
        scale = program.model.log_scale[k, 0].exp().detach().numpy()
        decoder = program.model.decoder
        state = {name: getattr(decoder, name.replace(".", "/"))[k].detach().numpy() for name in decoder.names}
        total = 0.0
        for i in range(table.rows):
            x, a_obs, y_obs = table.x[i].numpy(), int(table.a_obs[i]), int(table.y_obs[i])
            g, h = seen["g"][i], seen["h"][i]
            joint_a, joint_y = h * of_a[:, a_obs], g * of_y[:, y_obs]
            q_a, q_y = joint_a / joint_a.sum(), joint_y / joint_y.sum()
            loc, sd, drawn = seen["z_loc"][i], seen["z_scale"][i], z[k, i].numpy()
            elbo = -(0.5 * (sd**2 + loc**2 - 1) - np.log(sd)).sum()
            elbo -= stats.entropy(q_a, pi_a) + stats.entropy(q_y, pi_y)
            for a, y in itertools.product(range(2), range(2)):
                if q_a[a] * q_y[y] == 0:
                    continue
                hidden = state["from_z.weight"] @ drawn + state["from_z.bias"]
                hidden = hidden + state["from_a.weight"][a] + state["from_y.weight"][y]
                mean = state["columns.weight"] @ hidden.clip(min=0) + state["columns.bias"]
                log_x = stats.norm.logpdf(x, mean, scale).sum()
                elbo += q_a[a] * q_y[y] * (log_x + np.log(of_a[a, a_obs]) + np.log(of_y[y, y_obs]))
            bracket = (a_obs < 2) * np.log(joint_a.sum()) + (y_obs < 2) * np.log(joint_y.sum())
            total -= (elbo + bracket) / table.rows
        totals.append(total)
    return np.array(totals)


def expected_risk(program: Program, table: Observed, field: Tensor, k: int) -> float:
    """E F_DEO over labels from the field and groups from q(a|x,ã), all of them enumerated."""
    of_a, _ = channels(program, k)
    seen = outputs(program, table, k)
    q_a = seen["h"] * of_a[:, table.a_obs.numpy()].T
    q_a = q_a / q_a.sum(1, keepdims=True)
    labels = [np.flatnonzero(row > 0) for row in field.numpy()]
    groups = [np.flatnonzero(row > 0) for row in q_a]
    rows = np.arange(table.rows)
    total = 0.0
    for y in itertools.product(*labels):
        for a in itertools.product(*groups):
            y_drawn, a_drawn = np.array(y), np.array(a)
            chance = field.numpy()[rows, y_drawn].prod() * q_a[rows, a_drawn].prod()
            gaps = []
            for label in range(2):
                means = [seen["g"][(y_drawn == label) & (a_drawn == g), 1].mean() for g in range(2)]
                gaps.append(abs(means[0] - means[1]))
            total += chance * max(gaps)
    return total


@pytest.mark.parametrize("name", ["as_printed", "as_printed_vanilla"])
def test_every_printed_piece_is_what_runs(name: str, parts: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: list[int] = []
    propagate = training.propagate_labels

    def watched(*arguments: object) -> Tensor:
        fields.append(len(fields))
        return propagate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "propagate_labels", watched)
    given = build(Settings, TINY | {"pieces": 7, "samples": 3, "epochs": 6})
    fitted = METHODS[name].fit(Task(parts.train, parts.validation, given, 0), (0.0, 1.0))
    settings = fitted.settings
    fairness, weights, schedule = settings.fairness, settings.objective_weights, settings.schedule
    assert (weights.objective, weights.kappa, weights.s, weights.omega) == ("paper", 1, 1, 0)
    assert (fairness.risk_estimator, fairness.samples) == ("sampled", 100)
    assert (settings.prevalence, settings.likelihood, settings.pieces, settings.layers) == (
        "independent", "normal", 0, 3,
    )  # fmt: skip
    assert fairness.imputer == "features"
    assert [schedule.risk(0.0), schedule.kl(0.0)] == [1, 1]
    risk = RiskLoss(fairness)
    logits = torch.randn(2, 5, 2)
    torch.testing.assert_close(risk.estimator.relax(logits).squeeze(-2), logits.softmax(-1))
    assert (risk.estimator.memory, risk.estimator.stiffness) == (1, None)
    x = torch.from_numpy(parts.test.x)
    assert fitted.adjustment is None
    assert torch.equal(fitted.decide(x), fitted.predict_proba(x).argmax(-1))
    assert (fairness.risk_gradient == "vanilla") == (name == "as_printed_vanilla")
    # A field for each member in the first epoch, and for each fifth from there; the ablation draws from g.
    assert len(fields) == (0 if fairness.risk_gradient == "vanilla" else 4)


def test_the_ablation_differs_in_its_gradient_alone() -> None:
    different = {name for name in AS_PRINTED_VANILLA if AS_PRINTED_VANILLA[name] != AS_PRINTED.get(name)}
    assert different == {"risk_gradient", "labeller"}


def test_the_preset_of_training_is_the_printed_method_but_for_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for word in SYNTHETIC if word != "--samples"]
    options.remove("5")
    assert run(*options, "--preset", "as_printed", "--lr", "0.01", "--out", tmp_path / "run") == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    expected = as_printed() | {"lr": 0.01, "thresholds": [0.5]}
    given = {word[2:].partition("=")[0].replace("-", "_") for word in options if word.startswith("--")}
    for name, value in expected.items():
        if name not in given:
            assert config[name] == value, name
    capsys.readouterr()
    assert run("train", "--preset", "printed", "--out", tmp_path / "other") == 2
    assert "unknown preset 'printed'" in capsys.readouterr().err
    assert as_printed(images=True)["reconstruction_weight"] < as_printed()["reconstruction_weight"]
