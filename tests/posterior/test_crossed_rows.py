"""Rows crossed with a column or with the label: simulations with known rates, and the plain channel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.channels.priors import channel
from pyro_fairvae.inference.program import channel_of_groups
from pyro_fairvae.posterior.summaries import Calibrated, calibrate
from pyro_fairvae.schema.attributes import UNAVAILABLE, Attributes
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings

ROWS = 6000
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
    table, _ = simulated(by)
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
    (check,) = found.checks
    assert not check.rejected
    assert by not in {column.name for column in check.columns}
    (plain,) = calibrated(table, "truthful").checks
    assert plain.rejected
