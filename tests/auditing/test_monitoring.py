"""Monitoring of periods: the evidence against Gaussian densities, alarms without change, and changes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.monitoring import SIZES, evidence, monitor
from pyro_fairvae.base.errors import InputError


def month(
    withheld: tuple[float, float], seed: int, rows: int = 1500, selected: tuple[float, float] = (0.5, 0.5)
) -> Audit:
    """The audit of a month in which two groups withhold, and are selected, at some rates."""
    draw = np.random.default_rng(seed)
    group, y = draw.integers(2, size=(2, rows))
    decided = (draw.random(rows) < np.array(selected)[group]).astype(int)
    said = np.where(draw.random(rows) < np.array(withheld)[group], None, group.astype(str))
    return audit(y, decided, said)


def test_the_evidence_is_a_mean_of_ratios_of_gaussian_densities() -> None:
    """Of estimates less their first, in which the common rate cancels, with and without a change."""
    draw = np.random.default_rng(0)
    estimates, errors = draw.normal(0.3, 0.03, 5), draw.uniform(0.01, 0.04, 5)
    contrasts = np.c_[-np.ones(4), np.eye(4)]
    covariance = contrasts @ np.diag(errors**2) @ contrasts.T
    plain = stats.multivariate_normal(np.zeros(4), covariance).pdf(contrasts @ estimates)
    total = 1 / 5
    for k in range(1, 5):
        shape = contrasts @ (np.arange(5) >= k)
        changed = [
            stats.multivariate_normal(np.zeros(4), covariance + size**2 * np.outer(shape, shape)).pdf(
                contrasts @ estimates
            )
            for size in SIZES
        ]
        total += np.mean(changed) / plain / (k * (k + 1))
    assert evidence(estimates, errors)[-1] == pytest.approx(total)
    assert evidence(estimates, errors)[0] == 1
    np.testing.assert_allclose(evidence(estimates, errors)[:3], evidence(estimates[:3], errors[:3]))


def test_over_24_periods_there_is_seldom_an_alarm_without_change() -> None:
    """Five rates of shares of 400 rows, in 200 series of 24 periods; and changes of .1 are found."""
    draw, alarms, found = np.random.default_rng(1), 0, 0
    for _ in range(200):
        rates = draw.uniform(0.1, 0.6, 5)
        for later, counted in ((0.0, "alarms"), (0.1, "found")):
            moved = np.where(np.arange(24)[:, None] < 12, rates, rates + later * (np.arange(5) == 0))
            share = draw.binomial(400, moved) / 400
            errors = np.sqrt(share * (1 - share) / 400)
            mean = np.mean([evidence(share[:, j], errors[:, j]) for j in range(5)], axis=0)
            if counted == "alarms":
                alarms += bool(mean.max() >= 20)
            else:
                found += bool(mean.max() >= 20)
    assert alarms <= 14  # 7 % of 200; at most 5 % are expected
    assert found >= 180


def test_a_change_of_withholding_is_found_and_named() -> None:
    months = [(f"month {t}", month((0.3, 0.3 + 0.25 * (t >= 4)), t)) for t in range(7)]
    result = monitor(months)
    assert result.alarm in ("month 4", "month 5")
    assert any(name in ("withholding of 1", "withholding of everyone") for name in result.changed())
    assert "A change was found" in str(result)
    early = monitor(months[:4])
    assert early.alarm is None
    assert "No change was found in 4 periods" in str(early)
    # What was seen before does not change when periods are added.
    np.testing.assert_allclose(result.periods["evidence"][:4], early.periods["evidence"])
    first = result.rates[result.rates["period"] == "month 0"].set_index(["rate", "group"])
    audited = months[0][1].groups.loc["0"]
    assert first.loc[("withholding", "0"), "estimate"] == audited["withhold"]
    assert result.disparities["measure"].nunique() == 7


def test_a_change_of_decisions_is_found() -> None:
    months = [(str(t), month((0.3, 0.5), t, selected=(0.5, 0.5 - 0.2 * (t >= 3)))) for t in range(6)]
    result = monitor(months)
    assert result.alarm in ("3", "4")
    assert "selection rate of 1" in result.changed()


def test_where_nobody_withholds_nothing_is_certain() -> None:
    """A rate of 0 has no variance by itself; that of one more period with a single ∅ is no change."""
    months = [("0", month((0.0, 0.0), 0, rows=300)), ("1", month((0.003, 0.003), 1, rows=300))]
    assert monitor(months).alarm is None
    with pytest.raises(InputError, match="same name"):
        monitor([months[0], months[0]])
    with pytest.raises(InputError, match="no period could be audited"):
        monitor([])
    with pytest.raises(InputError, match="alpha must be within"):
        monitor(months, alpha=0)
