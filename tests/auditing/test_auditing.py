"""Audits, against Fairlearn, counting, and simulations with known truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from scipy import stats

from pyro_fairvae.auditing import AUDITED, DEPENDS_ON, Audit, audit
from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.auditing.group_imputation import impute_groups
from pyro_fairvae.evaluation.metrics import evaluate
from tests.support.audited import draw_people, rows_of, stating


@pytest.mark.parametrize("depends_on", DEPENDS_ON)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("groups", [2, 3])
def test_where_all_state_their_group_an_audit_counts(classes: int, groups: int, depends_on: str) -> None:
    people = draw_people(600, classes, groups, seed=classes)
    found = audit(people.y, people.decided, people.group, depends_on=depends_on)
    counted = evaluate(people.y, people.decided, people.group, classes)
    for prefix in ("estimate", "stated_estimate", "bound_low", "bound_high"):
        assert found.metrics[prefix].to_dict() == pytest.approx({name: counted[name] for name in AUDITED})
    table = pd.DataFrame({"y": people.y, "decided": people.decided, "group": people.group.astype(str)})
    rates = found.rates.set_index(["rate", "group"])["estimate"]
    for c in range(classes):
        given = (table.decided == c)[table.y == c].groupby(table.group).mean()
        overall = (table.decided == c).groupby(table.group).mean()
        assert rates[f"P(Ŷ = {c} | Y = {c})"].to_dict() == pytest.approx(given.to_dict())
        assert rates[f"P(Ŷ = {c})"].to_dict() == pytest.approx(overall.to_dict())
    assert (found.groups[["withhold", "withhold_low", "withhold_high", "withheld"]] == 0).all().all()
    assert found.groups["stated"].to_dict() == table.group.value_counts().to_dict()
    assert not any("withh" in words or "X is not used" in words for words in found.notes)


@pytest.mark.parametrize("depends_on", DEPENDS_ON)
def test_stated_rows_alone_are_those_of_fairlearn(depends_on: str) -> None:
    people = draw_people(800, seed=1)
    said = stating(people, [0.3, 0.7])
    found = audit(people.y, people.decided, said, groups_proba=people.proba, depends_on=depends_on).metrics
    kept = np.array([each is not None for each in said])
    y, decided, group = people.y[kept], people.decided[kept], people.group[kept]
    assert found.loc["deo", "stated_estimate"] == pytest.approx(
        equalized_odds_difference(y, decided, sensitive_features=group)
    )
    assert found.loc["ddp", "stated_estimate"] == pytest.approx(
        demographic_parity_difference(y, decided, sensitive_features=group)
    )


def test_the_variance_of_a_stated_rate_is_binomial() -> None:
    people = draw_people(2000, seed=2)
    found = audit(people.y, people.decided, stating(people, [0.3, 0.7])).rates
    rate, rows = found["stated_estimate"], found["stated_rows"]
    half = stats.norm.ppf(0.95) * np.sqrt(rate * (1 - rate) / rows)
    assert found["stated_high"].to_numpy() == pytest.approx((rate + half).clip(0, 1).to_numpy(), abs=0.005)
    assert found["stated_low"].to_numpy() == pytest.approx((rate - half).clip(0, 1).to_numpy(), abs=0.005)


def test_a_decision_that_is_never_a_label_is_left_out_of_odds() -> None:
    people = draw_people(600, seed=3)
    decided = np.where(np.arange(600) % 9 == 0, 2, people.decided)
    found = audit(people.y, decided, people.group, pos_label=1)
    counted = evaluate(people.y, decided, people.group, 3)
    for column in ("estimate", "bound_low", "bound_high"):
        assert found.metrics.loc["deo", column] == pytest.approx(counted["deo"])
    assert any("no row has the label 2" in words for words in found.notes)
    assert audit(people.y, decided, people.group).metrics.loc["deopp"].isna().all()


def test_pos_label_chooses_the_label_of_deopp() -> None:
    people = draw_people(600, seed=4)
    gaps = np.where(np.arange(600) < 20, np.nan, people.y)  # turns labels into floats
    kept = ~np.isnan(gaps)
    for label in (0, 1):
        found = audit(gaps, people.decided, people.group, pos_label=label)
        hit = pd.Series(people.decided == label)[kept & (people.y == label)].groupby(
            people.group[kept & (people.y == label)]
        )
        assert found.metrics.loc["deopp", "estimate"] == pytest.approx(np.ptp(hit.mean()))
    words = np.array(["no", "yes"])
    same = audit(words[people.y], words[people.decided], people.group, pos_label="no")
    assert same.metrics.loc["deopp", "estimate"] == pytest.approx(
        audit(people.y, people.decided, people.group, pos_label=0).metrics.loc["deopp", "estimate"]
    )


def test_stated_rows_are_scored_by_trees_that_did_not_see_them() -> None:
    """Every row has a number of its own and noise: whoever saw its group could remember it."""
    generator = np.random.default_rng(10)
    rows = 600
    group = np.where(generator.random(rows) < 0.4, 2, generator.integers(2, size=rows))
    table = pd.DataFrame({"id": generator.permutation(rows), "noise": generator.normal(size=rows)})
    labels = generator.integers(2, size=(2, rows))
    found = impute_groups(table, AuditedRows(labels[0], labels[1], group, 2, 2), seed=0)
    assert found is not None
    assert found.sum(1) == pytest.approx(np.ones(rows))
    stated = group < 2
    right = (found.argmax(1) == group)[stated]
    assert right.mean() < 0.5 + 3.3 * 0.5 / np.sqrt(stated.sum())
    telling = impute_groups(
        table.assign(tells=np.where(stated, group, 0.5)), AuditedRows(*labels, group, 2, 2), 0
    )
    assert telling is not None
    assert (telling.argmax(1) == group)[stated].mean() > 0.95


def test_too_few_stating_rows_are_not_learned_from() -> None:
    people = draw_people(300, seed=11)
    said = stating(people, [0.5, 0.5])
    ones = np.flatnonzero(said == "1")
    said[ones[9:]] = None
    table = pd.DataFrame({"x": people.proba[:, 0]})
    assert impute_groups(table, rows_of(people, said), seed=0) is None
    found = audit(people.y, people.decided, said, X=table)
    assert any("X is not used" in words for words in found.notes)
    few = min(int(((said == "1") & (people.y == c)).sum()) for c in range(2))
    few_of_1 = [words for words in found.notes if words.startswith("few rows of 1 with label")]
    assert any(f"({few})" in words for words in few_of_1)


def test_many_groups_of_few_rows_are_noted_once() -> None:
    draw = np.random.default_rng(20)
    y, decided = draw.integers(2, size=(2, 300))
    group = np.arange(300) % 60
    y[group == 0] = 1
    found = audit(y, decided, group)
    (words,) = [each for each in found.notes if "pairs of a group and a label" in each]
    counts = found.rates["stated_rows"][:120]
    assert "of 120 pairs" in words
    assert f"{(counts == 0).sum()} have no row" in words
    assert f"{((counts > 0) & (counts < 20)).sum()} have fewer than 20" in words
    assert not any("few rows of" in each for each in found.notes)
    assert found.metrics.loc["deo", "high"] == 1  # wide, as it must be


def test_features_narrow_intervals_by_what_trees_learn_of_them() -> None:
    people = draw_people(1500, seed=12)
    found = audit(
        people.y, people.decided, stating(people, [0.3, 0.5]), X=pd.DataFrame({"x": people.score})
    ).rates
    assert ((found["high"] - found["low"]) / (found["stated_high"] - found["stated_low"])).mean() < 0.9


def test_the_assumption_is_doubted_where_it_fails() -> None:
    people = draw_people(2500, seed=15)
    said = stating(people, [0.4, 0.6], of_label=[1.0, 0.4])
    doubt = "seems to depend on more than the group"
    (words,) = [
        each
        for each in audit(people.y, people.decided, said, groups_proba=people.proba).notes
        if doubt in each
    ]
    assert "depends_on='group and label'" in words
    by_label = audit(people.y, people.decided, said, groups_proba=people.proba, depends_on="group and label")
    assert not any(doubt in each for each in by_label.notes)
    # Of those who were decided wrongly few state their group: then neither assumption holds.
    wronged = np.where((people.y != people.decided) & (np.arange(2500) % 4 > 0), None, said)
    found = audit(people.y, people.decided, wronged, groups_proba=people.proba, depends_on="group and label")
    assert any("more than the group and label" in each and "bounds" in each for each in found.notes)


def test_an_audit_survives_json(tmp_path: Path) -> None:
    people = draw_people(300, groups=3, seed=13)
    found = audit(people.y, people.decided, stating(people, [0.4, 0.7, 0.6]), depends_on="group and label")
    assert found.metrics.isna().any().any()
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(found.to_dict(), allow_nan=False))
    again = Audit.read(path)
    for table in ("metrics", "rates", "groups"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(found, table))
    assert (again.rows, again.depends_on, again.confidence, again.notes) == (
        found.rows, found.depends_on, found.confidence, found.notes,
    )  # fmt: skip
    assert str(again) == str(found)


def test_the_text_says_what_was_found_and_assumed() -> None:
    people = draw_people(500, seed=14)
    said = stating(people, [0.4, 0.7])
    gaps = np.where(np.arange(500) < 30, np.nan, people.y)
    found = audit(
        gaps,
        people.decided,
        np.where(said == "1", "women", np.where(said == "0", "men", None)),
        confidence=0.8,
    )
    text = str(found)
    stated = int((said != None).sum())  # noqa: E711
    assert f"500 rows: {stated} state their group, {500 - stated} do not; 30 without a label" in text
    assert "depends on the group alone" in text
    assert "80 %" in text
    for name, line in found.metrics.iterrows():
        shown = next(each for each in text.splitlines() if each.startswith(f"{name} "))
        assert shown.split()[1] == f"{line['estimate']:.3f}"
        assert f"[{line['low']:.3f}, {line['high']:.3f}]" in shown
        assert f"[{line['bound_low']:.3f}, {line['bound_high']:.3f}]" in shown
    for words in ("men", "women", "P(Ŷ = 1 | Y = 1)", "withhold", "stated rows", *found.notes):
        assert words in text
