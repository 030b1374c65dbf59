"""Audits of weighted and clustered rows, against rows that are repeated, and against known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyro_fairvae import InputError, audit, monitor
from pyro_fairvae.auditing import Audit
from pyro_fairvae.auditing.survey_design import SurveyDesign
from tests.support.audited import People, draw_people, stating

ROWS = 600
TIMES = np.random.default_rng(5).integers(1, 4, ROWS)  # how often each row is repeated


def asked(people: People, said: np.ndarray, some: Any = slice(None), **how: Any) -> Audit:
    score = np.clip(0.2 + 0.5 * people.decided + people.score / 20, 0, 1)
    own = {"cost": lambda y, decided, _: (2.0 * (decided == 1), np.ones(len(decided)))}
    return audit(
        people.y[some], people.decided[some], said[some], groups_proba=people.proba[some],
        scores=score[some], own_rates=own, **how,
    )  # fmt: skip


def numbers_of(found: Audit) -> np.ndarray:
    """All estimates and ends, but of the calibration error, whose bins have equally many rows."""
    assert found.figures is not None
    by_group = found.figures.by_group
    by_group = by_group[by_group["measure"] != "calibration error"]
    tables = [found.metrics, found.rates, found.groups, by_group, found.figures.disparities]
    parts = [
        table.drop(columns=["stated_rows", "stated", "withheld"], errors="ignore").select_dtypes("number")
        for table in tables
    ]
    return np.concatenate([part.to_numpy(float).ravel() for part in parts])


@pytest.fixture(scope="module")
def drawn() -> tuple[People, np.ndarray]:
    people = draw_people(ROWS, seed=3)
    return people, stating(people, [0.4, 0.7])


@pytest.mark.parametrize("depends_on", ["group", "group and label"])
def test_integer_weights_are_repeated_rows_in_clusters_of_their_own(
    drawn: tuple[People, np.ndarray], depends_on: str
) -> None:
    origin = np.repeat(np.arange(ROWS), TIMES)
    weighted = asked(*drawn, sample_weight=TIMES, clusters=np.arange(ROWS), depends_on=depends_on)
    repeated = asked(*drawn, origin, clusters=origin, depends_on=depends_on)
    # Ends of intervals of disparities are found by bisection.
    assert numbers_of(weighted) == pytest.approx(numbers_of(repeated), abs=2e-4, nan_ok=True)
    for table in ("metrics", "rates", "groups"):
        columns = [
            name for name in getattr(weighted, table) if name.endswith("estimate") or "withhold" in name
        ]
        columns += ["low", "high", "stated_low", "stated_high"] if table == "rates" else []
        one, other = (getattr(found, table)[columns].to_numpy(float) for found in (weighted, repeated))
        assert one == pytest.approx(other, abs=1e-9, nan_ok=True)
    assert weighted.groups["withheld"].to_numpy() * TIMES.mean() == pytest.approx(
        repeated.groups["withheld"].to_numpy()
    )
    assert weighted.sensitivity((2.0,)).curves["most"].to_numpy() == pytest.approx(
        repeated.sensitivity((2.0,)).curves["most"].to_numpy(), abs=1e-6
    )


def test_of_stating_rows_alone_estimates_are_those_of_repeated_rows(
    drawn: tuple[People, np.ndarray],
) -> None:
    """Control variates, learned on folds of rows, differ by chance; what stating rows say does not."""
    origin = np.repeat(np.arange(ROWS), TIMES)
    weighted, repeated = asked(*drawn, sample_weight=TIMES), asked(*drawn, origin)
    for table in ("metrics", "rates"):
        one, other = getattr(weighted, table), getattr(repeated, table)
        assert one["stated_estimate"].to_numpy() == pytest.approx(other["stated_estimate"].to_numpy())
        half = (one["high"] - one["low"]) / 2
        assert (abs(one["estimate"] - other["estimate"]) < 0.25 * half).all()
    bounds = ["bound_low", "bound_high"]
    assert weighted.metrics[bounds].to_numpy() == pytest.approx(repeated.metrics[bounds].to_numpy())


@pytest.mark.parametrize("weight", [np.ones(ROWS), np.full(ROWS, 7.5), 2.0])
def test_equal_weights_change_nothing(drawn: tuple[People, np.ndarray], weight: Any) -> None:
    plain, weighted = asked(*drawn), asked(*drawn, sample_weight=weight)
    assert np.array_equal(numbers_of(plain), numbers_of(weighted), equal_nan=True)
    assert str(plain) == str(weighted)
    assert weighted.design is None


def test_rows_without_weight_are_absent(drawn: tuple[People, np.ndarray]) -> None:
    weight = np.where(np.arange(ROWS) % 3 == 0, 0, TIMES)
    kept = np.flatnonzero(weight)
    zeros, absent = asked(*drawn, sample_weight=weight), asked(*drawn, kept, sample_weight=weight[kept])
    assert np.array_equal(numbers_of(zeros), numbers_of(absent), equal_nan=True)
    assert zeros.rows["rows"] == len(kept)


def test_weights_undo_an_uneven_sample() -> None:
    """People decided against are sampled a third as often: only weighted rates are those of everybody."""
    people = draw_people(24_000, seed=4)
    chance = np.where(people.decided == 1, 0.9, 0.3)
    kept = np.random.default_rng(1).random(len(chance)) < chance
    said = stating(people, [0.4, 0.7])
    weighted = audit(people.y[kept], people.decided[kept], said[kept], sample_weight=1 / chance[kept])
    plain = audit(people.y[kept], people.decided[kept], said[kept])
    off, bias = (abs(found.rates["estimate"] - people.true_rates).max() for found in (weighted, plain))
    assert off < 0.035
    assert bias > 0.1


def test_the_variance_of_a_weighted_share_is_that_of_the_sandwich() -> None:
    draw = np.random.default_rng(0)
    group, hit = draw.integers(2, size=400), draw.integers(2, size=400)
    weight = draw.gamma(2, size=400)
    found = audit(draw.integers(2, size=400), hit, group, sample_weight=weight)
    line = found.rates.set_index(["rate", "group"]).loc[("P(Ŷ = 1)", "1")]
    own = weight[group == 1]
    share = np.average(hit[group == 1], weights=own)
    error = np.sqrt(np.square(own * (hit[group == 1] - share)).sum()) / own.sum()
    assert line["estimate"] == pytest.approx(share)
    half = stats.norm.ppf(0.95) * error
    assert line["high"] - share == pytest.approx(half, rel=0.03)


def test_clusters_widen_intervals_where_their_rows_are_alike() -> None:
    draw = np.random.default_rng(2)
    cluster = np.repeat(np.arange(60), 10)
    of_cluster = draw.integers(2, size=(3, 60))
    y, decided, group = of_cluster[:, cluster]
    said = np.where(draw.random(600) < 0.2, None, group)
    alone, together = audit(y, decided, said), audit(y, decided, said, clusters=cluster)
    width = [(found.rates["stated_high"] - found.rates["stated_low"]).mean() for found in (alone, together)]
    assert 2 < width[1] / width[0] < 4.5  # the square root of 10
    assert together.design == {"effective_rows": 600.0, "clusters": 60}
    assert "60 clusters" in str(together)


def test_local_law_tables_weigh_rates_and_count_rows(drawn: tuple[People, np.ndarray]) -> None:
    people, said = drawn
    lines = asked(people, said, sample_weight=TIMES).local_law_144().tables["group"].lines
    for line in lines.to_dict("records"):
        own = said == line["category"]
        assert line["applicants"] == own.sum()
        assert line["rate"] == pytest.approx(np.average(people.decided[own], weights=TIMES[own]))


def test_a_weighted_audit_is_stored_and_read(drawn: tuple[People, np.ndarray], tmp_path: Any) -> None:
    from pyro_fairvae.base.documents import write_sealed

    found = asked(*drawn, sample_weight=TIMES)
    write_sealed(tmp_path / "audit.json", found.to_dict())
    assert str(Audit.read(tmp_path / "audit.json")) == str(found)
    assert f"{TIMES.sum() ** 2 / np.square(TIMES).sum():.0f} of equal weight" in str(found)
    with pytest.raises(InputError, match="weights or clusters"):
        monitor([("May", found)])


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (np.r_[np.nan, np.ones(ROWS - 1)], "1 values that are NaN or infinite, the first in row 0"),
        (np.r_[1.0, np.inf, np.ones(ROWS - 2)], "NaN or infinite, the first in row 1"),
        (np.r_[-1.0, np.ones(ROWS - 1)], "1 negative values, the first, -1, in row 0"),
        (np.zeros(ROWS), "is zero in all 600 rows"),
        (np.ones(ROWS - 1), r"shape \(599,\); expected one weight for each of 600 rows"),
        (np.ones((ROWS, 2)), r"shape \(600, 2\)"),
        (["heavy"] * ROWS, "is not all numbers"),
    ],
)
def test_bad_weights_are_refused(drawn: tuple[People, np.ndarray], weight: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        asked(*drawn, sample_weight=weight)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("clusters", "says"),
    [
        (np.arange(ROWS) % 4, "clusters has 4 different values"),
        (np.arange(ROWS - 1), "clusters has 599 values"),
        (pd.Series(np.arange(float(ROWS))).mask(np.arange(ROWS) < 2), "clusters has 2 gaps"),
    ],
)
def test_bad_clusters_are_refused(drawn: tuple[People, np.ndarray], clusters: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        asked(*drawn, clusters=clusters)


def test_effective_numbers() -> None:
    chosen = np.array([True, True, True, False])
    design = SurveyDesign(np.array([2.0, 0.5, 0.5, 1.0]))
    assert design.people(chosen) == pytest.approx(9 / 4.5)
    assert SurveyDesign(cluster=np.array([0, 0, 1, 1])).people(chosen) == pytest.approx(9 / 5)
    assert SurveyDesign().hits(np.array([True, False, True, True]), chosen) == (2, 3)
