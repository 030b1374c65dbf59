"""Rows crossed with a column or with the label: simulations with known rates, and the plain channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax

from pyro_fairvae import FairSSVAEClassifier
from pyro_fairvae.channels.channel import Crossed
from pyro_fairvae.channels.priors import channel
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.posterior.calibration import Calibrated, calibrate
from pyro_fairvae.posterior.scored_rows import ScoredRows
from pyro_fairvae.posterior.second_stage import FIRST_DEVIATION, SHIFT, STRETCH, SecondStage
from pyro_fairvae.schema.attributes import UNAVAILABLE, Attributes
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings
from tests.support.user_tables import tiny

ROWS = 4000
COLUMNS = Columns(2, (3,), ("x0", "x1", "c"), (("r", "s", "t"),))
BY_LABEL = np.array([[0.7, 0.3], [0.2, 0.5]])  # P(∅|a,y)
BY_COLUMN = np.array([[0.7, 0.2, 0.5], [0.1, 0.5, 0.3]])  # P(∅|a,c)


def simulated(by: str, seed: int = 0) -> tuple[Observed, np.ndarray]:
    """A table in which the group depends on label and column, and P(∅|a) of its people."""
    draw = np.random.default_rng(seed)
    a = (draw.random(ROWS) < 0.45).astype(int)
    y = (draw.random(ROWS) < 0.35 + 0.3 * a).astype(int)
    c = np.array([draw.choice(3, p=[0.5, 0.3, 0.2] if g == 0 else [0.2, 0.3, 0.5]) for g in a])
    x = np.c_[draw.normal(size=ROWS) + 2.2 * a, draw.normal(size=ROWS) + 1.5 * y, np.eye(3)[c]]
    rate = BY_LABEL[a, y] if by == "label" else BY_COLUMN[a, c]
    a_obs = np.where(draw.random(ROWS) < rate, 2, a)
    y_obs = np.where(draw.random(ROWS) < 0.2, 2, y)
    tensors = (torch.from_numpy(column) for column in (x.astype(np.float32), y_obs, a_obs))
    table = Observed(
        *tensors, COLUMNS, 2, 2, Attributes.single(("White", "Black")), ("no", "yes")
    )  # fmt: skip
    return table, np.array([rate[a == g].mean() for g in range(2)])


def calibrated(table: Observed, prior: str, names: tuple[str, ...] = ()) -> Calibrated:
    settings = small_settings(prior_a=prior, withholding_depends_on=names, hidden=16, batch=256)
    channels = channel_of_groups(table, settings), channel("y", table.label_attributes)
    return calibrate(table, channels, settings, [0], draws=100)["a"]


@pytest.mark.parametrize("by", ["label", "c"])
def test_rates_by_cell_are_recovered(by: str) -> None:
    table, population = simulated(by)
    found = calibrated(table, f"{{given: {by}}}")
    truth = BY_LABEL if by == "label" else BY_COLUMN
    values = table.class_names if by == "label" else COLUMNS.values[0]
    rows = found.draws.channel.rows
    assert [row.label for row in rows] == [
        f"{group}, {by} = {value}" for group in ("White", "Black") for value in values
    ]
    held = 0
    for r, rate in enumerate(truth.flatten()):
        draws = found.draws.of(r, UNAVAILABLE)
        low, high = np.quantile(draws, (0.01, 0.99))
        held += low <= rate <= high
        assert draws.mean() == pytest.approx(rate, abs=0.08)
    assert held >= len(rows) - 1
    assert found.effects is None
    for group, rate in zip(("White", "Black"), population, strict=True):
        low, high = np.quantile(found.over_cells[group], (0.01, 0.99))
        assert low <= rate <= high
    (check,) = found.checks
    assert not check.rejected
    assert by not in {column.name for column in check.columns}
    (plain,) = calibrated(table, "truthful").checks
    assert plain.rejected


@pytest.mark.parametrize("by_label", [False, True])
def test_the_density_is_that_of_a_loop_over_rows(by_label: bool) -> None:
    """Rows by cell, with a coefficient for one column of v and none for those of the cells."""
    draw = np.random.default_rng(3)
    scores, observed = draw.dirichlet(np.ones(2), size=(1, 6)), draw.integers(0, 3, size=(1, 6))
    v, labels = draw.normal(size=(1, 6, 2)), draw.dirichlet(np.ones(2), size=(1, 6))
    label_columns = np.array([[[0.6, -0.6], [-0.4, 0.4]]])
    place = draw.integers(0, 2, size=(1, 6))
    cell = np.broadcast_to(np.arange(2), (1, 6, 2)) if by_label else place
    tensors = [torch.from_numpy(np.array(part)) for part in (v, labels, label_columns, cell)]
    rows = ScoredRows.make(torch.from_numpy(scores), torch.from_numpy(observed), 3, *tensors)
    column = Crossed("label", ("0", "1"), None if by_label else 0)
    made = channel("a", Attributes.single(("0", "1")), {"preset": "flat", "given": ["label"]}, [column])
    scale = np.array([0.7, 1e-2, 1e-2, 0.5])
    stage = SecondStage(made, rows, scale.tolist())
    q = draw.normal(size=(3, 1, sum(stage.sizes))) / 2
    found = stage.log_density(torch.from_numpy(q)).numpy()
    for n in range(3):
        b_c, d, ratios, w, delta = np.split(q[n, 0], np.cumsum(stage.sizes)[:-1])
        delta = delta.reshape(2, 4)
        p = [softmax(np.r_[part, 0.0]) for part in ratios.reshape(4, 2)]  # of (a, cell)
        expected = sum(np.log(row).sum() for row in p)
        expected -= ((b_c - [0, 1]) ** 2 / 2 / np.array([SHIFT, STRETCH]) ** 2).sum()
        expected -= (d**2).sum() / 2 / FIRST_DEVIATION**2 + (w**2 / scale**2).sum() / 2
        expected -= (delta**2 / np.minimum(scale, FIRST_DEVIATION) ** 2).sum() / 2
        shares = np.zeros(2)
        for i in range(6):
            total, s = 0.0, np.log(scores[0, i, 0] / scores[0, i, 1])
            for y in range(2):
                design = np.r_[v[0, i], label_columns[0, y]]
                h = softmax(np.r_[b_c @ [1.0, s] + d @ design, 0.0])
                shares += labels[0, i, y] * h / 6
                for a in range(2):
                    row = p[2 * a + (y if by_label else place[0, i])]
                    row = row * np.exp(np.r_[0.0, 0.0, (w + delta[a]) @ design])
                    total += labels[0, i, y] * h[a] * row[observed[0, i]] / row.sum()
            expected += np.log(total)
        expected += np.log(shares).sum()  # one person of each group
        assert found[n, 0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", ["[c]", "[label, c]"])
def test_a_model_keeps_its_crossed_rows(given: str, tmp_path: Path) -> None:
    """Fitted, refined, saved and loaded."""
    table, _ = simulated("c")
    x, a, y = (part.numpy() for part in (table.x, table.a_obs, table.y_obs))
    frame = pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "c": np.array(["r", "s", "t"])[x[:, 2:].argmax(1)]})
    options = {"prior_a": f"{{preset: truthful, given: {given}}}", "channel_steps": 20}
    model = tiny(lambdas=(0.0,), epochs=1, hidden=16, options=options)
    groups = np.array(["White", "Black", None], dtype=object)[a]
    model.fit(frame, np.array(["no", "yes", None], dtype=object)[y], sensitive_features=groups)
    model.save(tmp_path / "model")
    loaded = FairSSVAEClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    made = model.fit_.program.guide.channel_a
    assert loaded.fit_.program.guide.channel_a == made
    assert len(made.rows) == (6 if given == "[c]" else 12)
