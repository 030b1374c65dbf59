"""When a model is said not to be fair, or to give everybody one class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace as changed

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.estimator.state import stored_model
from pyro_fairvae.report.verdicts import one_class, unfairness, verdicts
from pyro_fairvae.schema.documents import MembersDocument
from pyro_fairvae.storage.stored_model import StoredModel
from tests.support.user_tables import made_table, tiny

NAN = float("nan")


@pytest.fixture(scope="module")
def fitted() -> StoredModel:
    made = made_table(90)
    model = tiny(lambdas=(0.0, 1.0, 4.0)).fit(made.X, made.y_obs, made.a_obs)
    return stored_model(model, model.fit_)


@pytest.fixture(scope="module")
def found() -> Audit:
    draw = np.random.default_rng(0)
    sex = draw.choice(["f", "m"], 2000)
    y = draw.integers(2, size=2000)
    decided = np.where((sex == "f") & (draw.random(2000) < 0.5), 0, y)
    return audit(y, decided, np.where(draw.random(2000) < 0.3, None, sex))


def frontier(**columns: Any) -> pd.DataFrame:
    """Three members with a disparity of .2, .1 and .02, and intervals of these."""
    lines = {"lambda": [0.0, 1.0, 4.0], "error": [0.1, 0.11, 0.12], "disparity": [0.2, 0.1, 0.02],
             "standard_error": [0.02] * 3, "low": [0.15, 0.06, 0.0], "high": [0.25, 0.14, 0.055]}  # fmt: skip
    lines |= columns
    if "target" in lines:
        del lines["lambda"]
    return pd.DataFrame(lines)


@pytest.mark.parametrize(
    ("columns", "chosen", "metric", "fair"),
    [
        ({}, 0, "deo", False),  # more than five points
        ({}, 1, "deo", False),
        ({}, 2, "deo", True),
        ({"low": [0.04, 0.04, 0.0]}, 0, "deo", True),  # may be chance
        ({"target": [NAN, 0.15, 0.01]}, 0, "deo", False),
        ({"target": [NAN, 0.15, 0.01]}, 1, "deo", True),  # within its target
        ({"target": [NAN, 0.05, 0.01]}, 1, "deo", False),
        ({"target": [NAN, 0.05, 0.01]}, 2, "deo", True),
        ({"target": [NAN, 0.05, 0.01], "low": [0.1, 0.06, 0.015]}, 2, "deo", False),
        ({"low": [NAN] * 3, "high": [NAN] * 3}, 1, "deo", False),  # .1 − 1.645 × .02
        ({"low": [NAN] * 3, "high": [NAN] * 3, "standard_error": [0.1] * 3}, 1, "deo", True),
        ({}, 0, "mutual_information", False),  # .15 > 2 × .055
        ({}, 1, "mutual_information", True),
        ({"disparity": [NAN] * 3, "standard_error": [NAN] * 3, "low": [NAN] * 3, "high": [NAN] * 3}, 0, "deo",
         True),
    ],
)  # fmt: skip
def test_a_member_is_not_fair_where_its_interval_is_above_what_is_allowed(
    columns: dict[str, list[float]], chosen: int, metric: str, fair: bool, fitted: StoredModel
) -> None:
    model = replace(fitted, frontier=frontier(**columns), selected=chosen, metric=metric, parameters={})
    assert (not unfairness(model)) == fair
    assert unfairness(model) == unfairness(model, None, chosen)
    words = [line for line in verdicts(model) if line.startswith("Not fair")]
    assert len(words) == (not fair)


def test_the_line_names_the_member_its_interval_and_a_fairer_one(fitted: StoredModel) -> None:
    model = replace(fitted, frontier=frontier(), selected=0, metric="deo")
    (line,) = (words for words in verdicts(model) if words.startswith("Not fair"))
    assert line == (
        "Not fair: the member that decides (λ = 0) has a deo of 20.00 %, 90 % interval 15.00 to 25.00 %, "
        f"on {model.summary['held_out_rows']} rows held out of training; at most 5.00 % counts as fair. "
        "Fairer is λ = 4, at an error of 12.00 %."
    )


def test_a_disparity_that_was_asked_for_is_a_target(fitted: StoredModel) -> None:
    for limit, fair in ((0.2, True), (0.1, False)):
        asked = {"max_disparity": limit}
        model = replace(fitted, frontier=frontier(), selected=0, metric="deo", parameters=asked)
        assert (not unfairness(model)) == fair


def test_an_audit_says_so_too(fitted: StoredModel, found: Audit) -> None:
    model = replace(fitted, frontier=frontier(), selected=2, metric="deo")
    assert unfairness(model) == []
    (verdict,) = unfairness(model, found)
    assert verdict.rows == "the 2000 rows of the audit"
    assert (verdict.estimate, verdict.low) == tuple(found.metrics.loc["deo", ["estimate", "low"]])
    assert unfairness(replace(model, knows_groups=False), found) == []


def with_decisions(model: StoredModel, *counts: dict[str, int]) -> MembersDocument:
    assert model.members is not None
    figures = model.members.members[0]
    return changed(model.members, members=[changed(figures, decided=count) for count in counts])


def test_everybody_in_one_class_is_said(fitted: StoredModel, found: Audit) -> None:
    alike, mixed = {"no": 40, "yes": 0}, {"no": 39, "yes": 1}
    model = replace(fitted, selected=1, members=with_decisions(fitted, mixed, alike, mixed))
    (line,) = one_class(model)
    assert line == (
        "Everybody gets one class: the member that decides (λ = 1) decides no for all 40 rows that it was "
        "judged on."
    )
    assert line in verdicts(model)
    assert one_class(replace(model, selected=0)) == []
    audited = replace(found, members=with_decisions(fitted, mixed, mixed, mixed))
    assert one_class(model, audited) == []  # some are decided otherwise there
    assert one_class(replace(model, members=None)) == []
