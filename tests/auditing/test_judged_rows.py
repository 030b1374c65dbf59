"""Intervals of a frontier's disparities: those of an audit, and wide where imputed groups say nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from pyro_fairvae import FairDecisions, audit
from pyro_fairvae.auditing.judged_rows import JudgedRows
from pyro_fairvae.data.table_encoder import TableEncoder, as_frame
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.schema.observed import Observed


def people(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features that tell little of the group, labels that depend on it, and groups."""
    draw = np.random.default_rng(seed)
    a = (draw.random(rows) < 0.55).astype(int)
    x = draw.normal(size=(rows, 4))
    x[:, 0] += 0.6 * a
    y = (draw.random(rows) < expit(-0.8 + 1.1 * x[:, 0] + 0.9 * x[:, 1] + 0.3 * a)).astype(int)
    return x, y, a


def observed_rows(x: np.ndarray, y_obs: np.ndarray, a_obs: np.ndarray) -> Observed:
    encoder = TableEncoder.learn(as_frame(x))
    coded = torch.from_numpy(encoder.encode(as_frame(x)))
    return Observed(coded, torch.from_numpy(y_obs), torch.from_numpy(a_obs), encoder.columns, 2, 2)


@pytest.mark.parametrize("depends_on", [(), ("label",)])
def test_intervals_are_those_of_an_audit(depends_on: tuple[str, ...]) -> None:
    x, y, a = people(0, 600)
    draw = np.random.default_rng(1)
    y_obs = np.where(draw.random(600) < 0.2, 2, y)
    a_obs = np.where(draw.random(600) < np.array([0.6, 0.3])[a], 2, a)
    scores = np.c_[1 - expit(x[:, 0]), expit(x[:, 0])]
    decided = np.stack([(x[:, 0] + x[:, 1] > bound).astype(int) for bound in (0.5, 1.0, 0.5)])
    rows = JudgedRows.of(observed_rows(x, y_obs, a_obs), scores, decided, depends_on)
    for measure in ("deo", "deopp", "ddp"):
        ends = rows.intervals(measure, 0.8)
        for k in range(3):
            found = audit(
                np.where(y_obs < 2, y_obs, np.nan),
                decided[k],
                np.where(a_obs < 2, a_obs, np.nan),
                groups_proba=scores,
                withholding_depends_on=depends_on,
                confidence=0.8,
            )
            wanted = found.metrics.loc[measure, ["low", "high"]].to_numpy(float)
            np.testing.assert_allclose(ends[k], wanted, atol=1e-9)


def test_a_measure_without_intervals_and_rows_without_groups_have_none() -> None:
    x, y, a = people(0, 50)
    scores, decided = np.full((50, 2), 0.5), np.zeros((1, 50), dtype=int)
    assert np.isnan(JudgedRows.of(observed_rows(x, y, a), scores, decided).intervals("chi2")).all()
    nobody = observed_rows(x, y, np.full(50, 2))
    assert np.isnan(JudgedRows.of(nobody, scores, decided).intervals("deo")).all()


def test_intervals_hold_where_decisions_were_settled_by_the_imputation_that_judges_them() -> None:
    """Under the imputation settled decisions look fair; the truth on many other people is in the interval."""
    held, imputed = [], []
    for seed in range(3):
        x, y, a = people(seed, 21_200)
        draw = np.random.default_rng([seed, 1])
        said = np.where(draw.random(1_200) < np.array([0.8, 0.4])[a[:1_200]], np.nan, a[:1_200])
        model = FairDecisions(LogisticRegression(), targets=(0.02,), random_state=seed)
        model.fit(x[:1_200], y[:1_200], sensitive_features=said)
        for member, line in model.frontier_.iterrows():
            model.selected_ = member
            truth = evaluate(y[1_200:], model.predict(x[1_200:]).astype(int), a[1_200:], 2)["deo"]
            held.append(line["low"] <= truth <= line["high"])
            imputed.append(abs(truth - line["disparity"]) <= 1.645 * line["standard_error"])
    assert sum(held) >= 5  # of 6, at 90 %
    assert sum(imputed) < sum(held)
