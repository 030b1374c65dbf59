"""Shrunk rates of intersections, against closed forms and simulations with known truth."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyro_fairvae import audit
from pyro_fairvae.auditing import Audit
from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.auditing.intersections import _given, intersection_lines, shrunk_rates
from pyro_fairvae.base.documents import write_sealed
from pyro_fairvae.schema.attributes import Attributes

SEX, RACE = ("f", "m"), ("a", "b", "c", "d")
BOTH = Attributes(("sex", "race"), (SEX, RACE))
PARTS = BOTH.group_parts


def additive() -> np.ndarray:
    return np.array([0.25 + 0.15 * s + 0.08 * r for s, r in PARTS])


@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_given_the_spread_rates_are_those_of_bayes(spread: float) -> None:
    """Against the posterior of a normal model with a nearly flat prior of the additive part."""
    draw = np.random.default_rng(0)
    root = draw.normal(size=(8, 8))
    v = (root @ root.T / 8 + np.eye(8)) / 400
    r = additive() + draw.normal(size=8) / 20
    x = np.c_[np.ones(8), PARTS[:, 0], PARTS[:, 1][:, None] == [1, 2, 3]].astype(float)
    prior = 100 * x @ x.T + (spread**2 + 1e-12) * np.eye(8)
    gain = prior @ np.linalg.inv(prior + v)
    mean, variance = gain @ r, prior - gain @ prior
    _, found, variances, fit, _ = _given(spread, x, r, v, x, np.arange(8))
    assert found == pytest.approx(mean, abs=1e-4)
    assert variances == pytest.approx(np.diag(variance), abs=1e-5)
    if spread == 0:
        assert found == pytest.approx(fit)


def simulated(truth: np.ndarray, seed: int, rows: int = 260) -> ControlVariates:
    draw = np.random.default_rng(seed)
    share = np.array([0.3, 0.2, 0.05, 0.02] * 2)
    group = draw.choice(8, p=share / share.sum(), size=rows)
    decided = (draw.random(rows) < truth[group]).astype(int)
    return ControlVariates(AuditedRows(np.full(rows, 2), decided, group, 2, 8))


@pytest.mark.parametrize("deviation", [0.0, 0.08])
def test_shrunk_rates_are_nearer_to_the_truth_than_raw_ones_and_intervals_cover_it(deviation: float) -> None:
    errors, covered = [], []
    for seed in range(60):
        truth = additive() + deviation * np.random.default_rng([seed, 1]).normal(size=8)
        truth = truth.clip(0.02, 0.98)
        estimates = simulated(truth, seed)
        lines = intersection_lines(estimates, BOTH, ["0", "1"], 1, 0.9)
        lines = lines[lines["rate"] == "P(Ŷ = 1)"]
        known = lines["raw"].notna().to_numpy()
        raw, shrunk = (lines[name].to_numpy() for name in ("raw", "estimate"))
        errors.append([np.square(of - truth)[known].mean() for of in (raw, shrunk)])
        covered.append((lines["low"] <= truth) & (truth <= lines["high"]))
    of_raw, of_shrunk = np.mean(errors, axis=0)
    assert of_shrunk < (0.6 if deviation == 0 else 0.8) * of_raw
    assert np.mean(covered) > 0.85


def test_where_margins_are_not_all_rates_keep_their_own() -> None:
    truth = np.where(PARTS.sum(1) % 2, 0.8, 0.2)  # no additive part at all
    lines = intersection_lines(simulated(truth, 0, 2000), BOTH, ["0", "1"], 1, 0.9)
    large = lines["stated_rows"] > 200
    assert (lines["own"][large] > 0.9).all()
    assert (lines["estimate"] - lines["raw"])[large].abs().max() < 0.02


def test_a_cell_that_nobody_states_is_predicted_by_its_margins() -> None:
    values, people = additive(), np.full(8, 400.0)
    values[3], people[3] = np.nan, 0
    rates, errors, own = shrunk_rates(values, np.diag(np.full(8, 1 / 4000)), PARTS, people)
    assert rates[3] == pytest.approx(additive()[3], abs=0.01)
    assert own[3] == 0
    assert errors[3] > errors[[0, 1, 2, 4]].max()


def test_as_many_parameters_as_groups_leave_rates_as_they_are() -> None:
    values = np.array([0.2, np.nan, np.nan, np.nan, 0.6, np.nan, np.nan, np.nan])
    rates, errors, own = shrunk_rates(values, np.eye(8) / 100, PARTS, np.full(8, 10.0))
    assert np.array_equal(rates, values, equal_nan=True)
    assert errors[0] == 0.1
    assert own[0] == 1


def table(rows: int = 300) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    draw = np.random.default_rng(3)
    sex, race = draw.choice(SEX, rows), draw.choice(RACE, rows, p=[0.55, 0.35, 0.07, 0.03])
    decided = (draw.random(rows) < 0.3 + 0.2 * (sex == "m")).astype(int)
    said = pd.DataFrame({"sex": sex, "race": race}).mask(draw.random((rows, 2)) < 0.1)
    return draw.integers(2, size=rows), decided, said


def test_they_are_shown_kept_and_in_the_tables_of_local_law(tmp_path: Path) -> None:
    y, decided, said = table()
    found = audit(y, decided, said)
    lines = found.intersections
    assert list(lines["group"].unique()) == [f"{s}, {r}" for s, r in product(SEX, RACE)]
    assert "Small intersections" in str(found)
    law = found.local_law_144()
    titles, *cells = law.in_cells("sex × race")
    assert titles[-2] == "selection rate, shrunk"
    of_law = lines[lines["rate"] == "P(Ŷ = 1)"]["estimate"]
    assert [line[-2] for line in cells] == [f"{rate:.3f}" for rate in of_law]
    assert "drawn towards" in law.note("sex × race")
    assert "shrunk" not in " ".join(law.in_cells("sex")[0])
    write_sealed(tmp_path / "audit.json", found.to_dict())
    assert str(Audit.read(tmp_path / "audit.json")) == str(found)
    z = stats.norm.ppf(0.95)
    wide = audit(y, decided, said, confidence=0.99).intersections
    ratio = (wide["high"] - wide["low"]) / (lines["high"] - lines["low"])
    assert ratio.median() == pytest.approx(stats.norm.ppf(0.995) / z, rel=0.1)


def test_large_groups_and_single_columns_have_none() -> None:
    y, decided, said = table()
    assert audit(y, decided, said["sex"]).intersections.empty
    y, decided, said = table(40_000)
    found = audit(y, decided, said.where(said["race"].isin(["a", "b"])))
    assert found.intersections.empty
    assert "Small intersections" not in str(found)
