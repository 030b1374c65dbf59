"""Sensitivity to the model of withholding, against brute force, worst-case bounds and simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.bounds import worst_case
from pyro_fairvae.auditing.control_variates import ControlVariates
from pyro_fairvae.auditing.mechanisms import Counts, Outcome
from pyro_fairvae.auditing.sensitivity import GAMMAS, LargestDifference, fieller
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.schema.attributes import Attributes
from tests.support.audited import People, draw_people, rows_of, stating

Z = stats.norm.ppf(0.95)


def counts_of(groups: int, seed: int) -> Counts:
    """A table of few rows, whose model adds up to the rows that withhold."""
    draw = np.random.default_rng(seed)
    h, m = draw.integers(3, 12, size=(2, groups)).astype(float)
    odds = draw.uniform(0.4, 1.5, size=groups)
    x, z = h * odds, m * odds
    return Counts(h, m, x, z, float(x.sum()), float(z.sum()))


def shares_of(modelled: np.ndarray, total: float, gamma: float, steps: int) -> list[np.ndarray]:
    """All ways to share a total among groups, each within Γ of what is modelled, on a grid."""
    grids = [np.linspace(each / gamma, each * gamma, steps) for each in modelled]
    found = []
    for last in range(len(modelled)):  # the last takes what the others leave, so that ends are on the grid
        others = [grid for g, grid in enumerate(grids) if g != last]
        for chosen in product(*others):
            left = total - sum(chosen)
            if modelled[last] / gamma - 1e-9 <= left <= modelled[last] * gamma + 1e-9:
                found.append(np.insert(np.array(chosen), last, left))
    return found


@pytest.mark.parametrize("gamma", [1.3, 2.0, 4.0])
@pytest.mark.parametrize("groups", [2, 3])
def test_no_way_to_withhold_within_gamma_goes_further(groups: int, gamma: float) -> None:
    for seed in range(3):
        counts = counts_of(groups, seed)
        high, low = counts.extremes(gamma)
        taken = np.array(shares_of(counts.x, counts.hits, gamma, 15))
        lacking = np.array(shares_of(counts.z, counts.misses, gamma, 15))
        having = counts.h + taken[:, None, :]
        rates = having / (having + counts.m + lacking[None, :, :])
        for a, b in permutations(range(groups), 2):
            furthest = (rates[..., a] - rates[..., b]).max()
            found = high[a, b] - low[a, b]
            assert furthest <= found + 1e-9
            # The grid holds every mechanism with all groups but one at an end, of which the extreme is one.
            assert found == pytest.approx(furthest, abs=1e-9)


def test_gamma_1_is_the_model_and_any_gamma_the_worst_case() -> None:
    for seed, groups in product(range(5), (2, 3, 5)):
        counts = counts_of(groups, seed)
        rate = (counts.h + counts.x) / (counts.h + counts.x + counts.m + counts.z)
        high, low = counts.extremes(1.0)
        off = ~np.eye(groups, dtype=bool)
        np.testing.assert_allclose((high - low)[off], (rate[:, None] - rate)[off], atol=1e-12)
        least, most = worst_case(counts.h, counts.m, (counts.hits, counts.misses))  # type: ignore[arg-type]
        high, low = counts.extremes(np.inf)
        difference = high - low
        assert difference[off].max() == pytest.approx(most)
        assert max(0, (-difference)[off].max()) == pytest.approx(least)
        high, low = counts.extremes(1e7)
        assert (high - low)[off].max() == pytest.approx(most, abs=1e-4)


def test_ends_of_a_ratio_are_where_its_contrast_is_z_errors_from_0() -> None:
    top, bottom, covariance = 0.3, 0.5, np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    ends = fieller(
        np.array(top), np.array(bottom), np.array(covariance[0, 0]), np.array(covariance[1, 1]),
        np.array(covariance[0, 1]), Z,
    )  # fmt: skip
    for c in ends:
        weights = np.array([1, -float(c)])
        assert abs(top - c * bottom) == pytest.approx(Z * np.sqrt(weights @ covariance @ weights))
    unbounded = fieller(np.array(top), np.array(0.01), *(np.array(v) for v in (4e-4, 9e-4, 0.0)), Z)
    assert [float(end) for end in unbounded] == [0, np.inf]


@pytest.mark.parametrize("groups", [2, 3])
def test_an_audit_goes_from_its_interval_to_its_bounds(groups: int) -> None:
    people = draw_people(1500, groups=groups, seed=groups)
    found = audit(people.y, people.decided, stating(people, [0.4, 0.7, 0.5][:groups]))
    result = found.sensitivity(gammas=(2, 1.5))
    assert found.figures is not None
    expected = {**found.metrics.T, **found.figures.disparities.T}
    for measure, lines in result.curves.groupby("measure"):
        lines = lines.set_index("gamma")
        assert lines.index.tolist() == [1, 1.5, 2, np.inf]
        assert lines.loc[1, ["low", "high"]].tolist() == pytest.approx(
            expected[str(measure)][["low", "high"]].tolist()
        )
        assert lines.loc[1, "least"] == pytest.approx(expected[str(measure)]["estimate"])
        assert (lines[["least", "low"]].diff().dropna() <= 1e-12).all().all()
        assert (lines[["most", "high"]].diff().dropna() >= -1e-12).all().all()
        assert (lines["low"] <= lines["least"]).all()
        assert (lines["high"] >= lines["most"]).all()
        if measure in found.metrics.index:
            bounds = found.metrics.loc[str(measure), ["bound_low", "bound_high"]]
            assert lines.loc[np.inf, ["least", "most"]].tolist() == pytest.approx(list(bounds), abs=1e-6)


def test_where_nobody_withholds_no_gamma_matters() -> None:
    people = draw_people(800, seed=3)
    found = audit(people.y, people.decided, people.group)
    result = found.sensitivity(tolerance=0.02)
    ends = result.curves.groupby("measure")[["least", "most", "low", "high"]].agg(np.ptp)
    assert ends.to_numpy().max() < 1e-6  # derivatives are numerical
    decided = result.findings.dropna(subset="overturns")
    assert np.isinf(decided["overturns"]).all()
    assert len(decided) > 1


def test_a_finding_turns_at_the_gamma_at_which_its_interval_does() -> None:
    people = draw_people(4000, seed=4)
    found = audit(people.y, people.decided, stating(people, [0.6, 0.8]))
    result = found.sensitivity(tolerance=0.1)
    line = result.findings.set_index("measure").loc["deo"]
    assert line["finding"] == "more than 0.1 apart"
    turn = line["overturns"]
    around = found.sensitivity(gammas=(turn - 1e-3, turn + 1e-3)).curves
    low = around[around["measure"] == "deo"].set_index("gamma")["low"]
    assert low[turn - 1e-3] > 0.1 >= low[turn + 1e-3]
    # A limit within the interval decides nothing; one above it is turned by the upper end.
    wide = found.sensitivity(tolerance=float(found.metrics.loc["deo", "estimate"])).findings
    assert "undecided" in wide.set_index("measure").loc["deo", "finding"]
    above = found.sensitivity(tolerance=0.6).findings.set_index("measure").loc["deo"]
    assert (above["finding"], np.isinf(above["overturns"])) == ("at most 0.6 apart", True)


def withheld_by_decision(people: People, odds: float, seed: int) -> np.ndarray:
    """Groups where odds of withholding are 1, and ``odds`` times that for those decided for in group 1."""
    chance = np.where((people.group == 1) & (people.decided == 1), odds / (1 + odds), 0.5)
    withheld = np.random.default_rng([seed, 2]).random(len(chance)) < chance
    return np.where(withheld, None, people.group.astype(str).astype(object))


def test_intervals_hold_where_withholding_depends_on_the_decision_within_gamma() -> None:
    plain, within = [], []
    for seed in range(100):
        people = draw_people(2500, seed=100 + seed)
        rows = rows_of(people, withheld_by_decision(people, 2.0, seed))
        estimates = ControlVariates(rows)
        selected = Outcome(
            estimates, np.ones(len(rows), dtype=bool), rows.decided == 1, estimates.parity(), 1
        )
        for gamma, held in ((1.0, plain), (2.0, within)):
            low, high = LargestDifference([selected]).at(gamma, Z)[2:]
            held.append(low <= people.truth["ddp"] <= high)
    assert np.mean(plain) < 0.5
    assert np.mean(within) >= 0.9


def test_sensitivity_survives_json_and_needs_rows_and_a_gamma_of_1(tmp_path: Path) -> None:
    people = draw_people(600, seed=6)
    found = audit(people.y, people.decided, stating(people, [0.4, 0.7]))
    found = replace(found, by_gamma=found.sensitivity())
    assert found.by_gamma is not None
    assert sorted(found.by_gamma.curves["gamma"].unique()) == [*GAMMAS, np.inf]
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(found.to_dict(), allow_nan=False))
    again = Audit.read(path)
    assert str(again) == str(found)
    assert "overturned from" in str(found)
    with pytest.raises(InputError, match="holds no rows"):
        again.sensitivity()
    for gammas in ((0.5, 2), (), (float("nan"),)):
        with pytest.raises(InputError, match="odds ratios of 1 or more"):
            found.sensitivity(gammas=gammas)
    with pytest.raises(InputError, match="tolerance must be within"):
        found.sensitivity(tolerance=1)

    class Knows:
        """A model of three groups, of which one alone is stated."""

        attributes_ = Attributes.single(("0", "1", "2"))

        def predict_groups_proba(self, X: np.ndarray) -> np.ndarray:
            return np.full((len(X), 3), 1 / 3)

    said = np.where(people.group == 0, "0", None)
    alone = audit(people.y, people.decided, said, X=people.score[:, None], model=Knows())
    with pytest.raises(InputError, match="no two groups"):
        alone.sensitivity()
