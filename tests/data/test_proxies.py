"""Given probabilities of groups: their checks, their columns, and their calibration against simulations."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.proxies import (
    KNOWN,
    LEAST,
    _among_stated,
    calibration,
    check_probabilities,
    proxy_table,
    warn_if_miscalibrated,
)
from pyro_fairvae.schema.attributes import Attributes

GROUPS = Attributes.single(("f", "m", "x"))
PROBA = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [np.nan] * 3, [0.1, 0.1, 0.8]])


def simulated(rows: int, seed: int, s: tuple[float, ...] = (0.3, 0.6, 0.9)) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities, and codes of the groups, which a share ``s`` of each group states."""
    draw = np.random.default_rng(seed)
    p = draw.dirichlet([1.0, 0.7, 0.4], size=rows)
    a = (draw.random(rows)[:, None] > p.cumsum(1)).sum(1)
    return p, np.where(draw.random(rows) < np.array(s)[a], a, 3)


def test_probabilities_are_taken_by_the_names_of_groups_or_by_place() -> None:
    by_place = check_probabilities(PROBA, 4, GROUPS)
    named = pd.DataFrame(PROBA, columns=["f", "m", "x"], index=[7, 7, 8, 9])[["x", "f", "m"]]
    for given in (named, named.astype("Float64"), named.astype(object).where(named.notna(), None)):
        np.testing.assert_array_equal(check_probabilities(given, 4, GROUPS), by_place)
    np.testing.assert_array_equal(by_place, PROBA)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({(1, 0): np.nan}, "a gap in row 1; give the probabilities of all groups, or of none"),
        ({(1, 0): 0.61}, "sums to 1.01 in row 1; expected 1 over the groups f, m, x"),
        ({(0, 0): 0.3, (3, 0): 0.5}, "sums to 1.1 in row 0 and 1 more"),
        ({(3, 1): -0.1, (3, 0): 0.3}, r"outside of \[0, 1\] in row 3; give probabilities"),
        ({(3, 1): np.inf}, r"outside of \[0, 1\] in row 3"),
    ],
)
def test_impossible_probabilities_name_their_row(changed: dict[tuple[int, int], float], message: str) -> None:
    given = PROBA.copy()
    for place, value in changed.items():
        given[place] = value
    with pytest.raises(InputError, match=f"proxy_proba .*{message}"):
        check_probabilities(given, 4, GROUPS)
    names = [f"n{row}" for row in range(4)]
    message = re.sub(r"row (\d)", r"row n\1", message)
    with pytest.raises(InputError, match=f"proxy_proba .*{message}"):
        check_probabilities(pd.DataFrame(given, columns=["f", "m", "x"], index=names), 4, GROUPS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (PROBA[:3], r"shape \(3, 3\); expected a number for each of 4 rows and the groups f, m, x"),
        (PROBA[:, :2], r"shape \(4, 2\)"),
        (pd.DataFrame(PROBA, columns=["f", "m", "y"]), "columns 'f', 'm', 'y'; .* f, m, x, with these names"),
        ([["a", "b", "c"]] * 4, "not all numbers"),
        (np.full((4, 3), np.nan), "missing in all rows"),
    ],
)
def test_probabilities_of_other_groups_or_rows_are_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=f"proxy_proba .*{message}"):
        check_probabilities(given, 4, GROUPS)


def test_rounded_probabilities_are_accepted() -> None:
    check_probabilities(np.full((4, 3), 0.333), 4, GROUPS)


def test_the_table_of_proxies_has_logs_and_marks_what_is_unknown() -> None:
    columns = pd.DataFrame({"surname": ["a", "b", "a", "c"]}, index=[3, 1, 4, 1])
    table = proxy_table(columns, PROBA, GROUPS)
    assert table is not None
    assert list(table) == ["surname", "log P(f)", "log P(m)", "log P(x)", KNOWN]
    assert table[KNOWN].tolist() == ["yes", "yes", "no", "yes"]
    np.testing.assert_allclose(np.exp(table["log P(f)"]), [0.2, 0.6, 0.3, 0.1])
    np.testing.assert_allclose(np.exp(table["log P(x)"]), [0.5, LEAST, 1.3 / 3, 0.8])
    assert proxy_table(columns, None, GROUPS) is not None
    assert proxy_table(columns[[]], None, GROUPS) is None
    whole = proxy_table(columns[[]].iloc[:3], PROBA[[0, 1, 3]], GROUPS)
    assert whole is not None
    assert KNOWN not in whole


def test_shares_that_state_are_those_of_a_logistic_regression() -> None:
    """With two groups, log(s_1 / s_0) is the intercept of a logistic regression with logit p as offset."""
    draw = np.random.default_rng(0)
    p = draw.beta(2, 3, size=4000)
    a = (draw.random(4000) < p).astype(int)
    kept = draw.random(4000) < np.where(a == 1, 0.8, 0.3)
    p, a = p[kept].clip(2 * LEAST, 1 - 2 * LEAST), a[kept]
    intercept = brentq(lambda b: expit(logit(p) + b).sum() - a.sum(), -9, 9)  # its score is zero here
    found = _among_stated(np.column_stack([1 - p, p]), a)
    np.testing.assert_allclose(found[:, 1], expit(logit(p) + intercept), atol=1e-6)
    assert intercept == pytest.approx(np.log(0.8 / 0.3), abs=0.2)  # and these are the true shares


def test_p_values_of_calibrated_probabilities_are_uniform() -> None:
    """200 simulations with groups that state theirs at different rates; also rows without probabilities."""
    p_values, differences = [], []
    for seed in range(200):
        p, codes = simulated(4000, seed)
        p[::17] = np.nan
        for one in calibration(p, codes, GROUPS.group_names):
            p_values.append(one.p_value)
            differences.append(one.difference)
    assert 0.02 < np.mean(np.array(p_values) < 0.05) < 0.08
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.05)
    assert np.mean(differences) < 0.04


def test_calibrated_probabilities_are_accepted_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            p, codes = simulated(300, seed)
            warn_if_miscalibrated(p, codes, GROUPS.group_names)
        constant = np.tile([0.2, 0.3, 0.5], (300, 1))  # whatever is stated, factors explain it
        warn_if_miscalibrated(constant, codes, GROUPS.group_names)
        warn_if_miscalibrated(p, np.full(300, 3), GROUPS.group_names)  # nobody states a group
        warn_if_miscalibrated(p, np.where(codes == 1, 3, codes), GROUPS.group_names)  # nobody of the second


def test_overconfident_probabilities_are_named_with_the_size_of_the_error() -> None:
    p, codes = simulated(4000, 0, (0.5, 0.5, 0.5))
    sharp = p**4 / (p**4).sum(1, keepdims=True)
    found = {one.group: one for one in calibration(sharp, codes, GROUPS.group_names)}
    # The expected error where all groups state theirs alike is the mean of |given − true| within bins.
    assert found["f"].difference == pytest.approx(_mean_error(sharp[:, 0], p[:, 0]), abs=0.03)
    with pytest.warns(UserWarning, match=rf"not calibrated: .*f: by {found['f'].difference:.2f}"):
        warn_if_miscalibrated(sharp, codes, GROUPS.group_names)


def _mean_error(given: np.ndarray, true: np.ndarray) -> float:
    order = np.argsort(given)
    return float(np.mean([abs((given - true)[part].mean()) for part in np.array_split(order, 10)]))


def test_probabilities_of_other_groups_are_named() -> None:
    p, codes = simulated(1000, 0)
    with pytest.warns(UserWarning, match="not calibrated: .*m: by 0.[1-9].*x: by 0.[0-9]"):
        warn_if_miscalibrated(p[:, [0, 2, 1]], codes, GROUPS.group_names)
