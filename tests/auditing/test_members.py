"""The members of a frontier side by side: as an audit finds them, as counted, and as a simulation knows."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.control_variates import AuditedRows
from pyro_fairvae.auditing.judged_rows import JudgedRows
from pyro_fairvae.auditing.members import judge_members, judge_number_members, unfair_member, with_members
from pyro_fairvae.schema.documents import MemberRate, MembersDocument

WORDS, GROUPS = ("no", "yes"), ("f", "m")


def people(rows: int, seed: int, withheld: float = 0.4) -> tuple[AuditedRows, np.ndarray, np.ndarray]:
    """Rows of which some withhold, decisions of three members, and all groups."""
    draw = np.random.default_rng(seed)
    a = draw.integers(2, size=rows)
    x = draw.normal(size=rows) + 0.8 * a
    y = (draw.random(rows) < 1 / (1 + np.exp(-x))).astype(int)
    decided = np.stack([(x > 0.4), (x > 0.4 - 0.3 * (a == 0)), (x > 0.4 + 0.5 * (a == 1))]).astype(int)
    group = np.where(draw.random(rows) < withheld * (1 + (a == 0)) / 2, 2, a)
    return AuditedRows(y, decided[0], group, 2, 2), decided, a


def by_name(lines: list[MemberRate]) -> dict[tuple[str, str], MemberRate]:
    return {(line.rate, line.group): line for line in lines}


def judged_of(rows: AuditedRows, decided: np.ndarray) -> MembersDocument:
    found = judge_members(JudgedRows(rows, None, decided, None), WORDS, GROUPS, 0)
    assert found is not None
    return found


def test_where_all_state_their_group_rates_gains_and_losses_are_counts() -> None:
    rows, decided, a = people(700, 0, withheld=0.0)
    rows = replace(rows, y=np.where(np.arange(700) % 5 == 0, 2, rows.y))  # some are not labelled
    found = judged_of(rows, decided)
    labelled = rows.y < 2
    for member, own in zip(found.members, decided, strict=True):
        assert member.error == pytest.approx((own != rows.y)[labelled].mean())
        assert member.decided == {"no": int((own == 0).sum()), "yes": int((own == 1).sum())}
        rates, changes = by_name(member.rates), by_name(member.changes)
        for g, group in enumerate(GROUPS):
            of = a == g
            assert rates["decided yes", group].estimate == pytest.approx(own[of].mean())
            for label, words in ((1, "labelled yes"), (0, "labelled otherwise")):
                line = rates[f"decided yes of those {words}", group]
                inside = of & (rows.y == label)
                assert line.estimate == pytest.approx(own[inside].mean())
                assert line.stated_rows == inside.sum()
            table = pd.crosstab(decided[0][of], own[of], normalize=True).reindex(
                index=[0, 1], columns=[0, 1], fill_value=0.0
            )
            assert changes["gain the decision yes", group].estimate == pytest.approx(table.loc[0, 1])
            assert changes["lose the decision yes", group].estimate == pytest.approx(table.loc[1, 0])
    assert (found.rows.rows, found.rows.withheld, found.rows.unlabelled) == (700, 0, 140)


def audited(rows: AuditedRows, decided: np.ndarray) -> Audit:
    words, groups = np.array([*WORDS, None], dtype=object), np.array([*GROUPS, None], dtype=object)
    return audit(words[rows.y], words[decided], groups[rows.group])


def test_the_member_that_an_audit_is_of_has_its_figures() -> None:
    rows, decided, _ = people(600, 1)
    words = np.array(WORDS)
    for selected in range(3):
        found = with_members(audited(rows, decided[selected]), words[decided], 0, selected)
        assert found.members is not None
        assert found.members.audited == selected
        member = found.members.members[selected]
        for line in member.measures:
            expected = found.metrics.loc[line.measure, ["estimate", "low", "high"]].to_numpy(float)
            assert [line.estimate, line.low, line.high] == pytest.approx(expected.tolist())
        rates = by_name(member.rates)
        for line in found.rates.to_dict("records"):
            own, flip = {
                "P(Ŷ = yes)": ("decided yes", False),
                "P(Ŷ = yes | Y = yes)": ("decided yes of those labelled yes", False),
                "P(Ŷ = no | Y = no)": ("decided yes of those labelled otherwise", True),
            }.get(line["rate"], (None, False))
            if own is not None:
                expected = [line["estimate"], line["low"], line["high"]]
                same = rates[own, line["group"]]
                if flip:
                    expected = [1 - expected[0], 1 - expected[2], 1 - expected[1]]
                assert [same.estimate, same.low, same.high] == pytest.approx(expected, abs=1e-6)
    other = audited(rows, decided[0])
    assert with_members(other, np.array(["maybe", "yes"])[decided], 0, 0) is other


def test_intervals_of_gains_and_losses_hold_what_all_people_gain_and_lose() -> None:
    """The truth is that of very many people; groups are withheld at different rates."""
    _, many, a = people(200_000, 99)
    truth = {
        (kind, group): float((change & (a == g)).sum() / (a == g).sum())
        for kind, change in (
            ("gain the decision yes", (many[1] == 1) & (many[0] == 0)),
            ("lose the decision yes", (many[2] == 0) & (many[0] == 1)),
        )
        for g, group in enumerate(GROUPS)
    }
    held = []
    for seed in range(24):
        rows, decided, _ = people(500, seed)
        members = judged_of(rows, decided).members
        found = by_name(members[1].changes) | {
            key: line for key, line in by_name(members[2].changes).items() if key[0].startswith("lose")
        }
        for key, value in truth.items():
            if value > 0:
                line = found[key]
                assert line.low is not None
                assert line.high is not None
                held.append(line.low <= value <= line.high)
    assert np.mean(held) >= 0.78


def test_several_classes_have_rates_of_each_and_many_those_of_the_last() -> None:
    draw = np.random.default_rng(0)
    for classes, shown in ((3, 3), (9, 1)):
        words = [str(c) for c in range(classes)]
        y, a = draw.integers(classes, size=400), draw.integers(2, size=400)
        rows = AuditedRows(y, y, a, classes, 2)
        found = judge_members(
            JudgedRows(rows, None, np.stack([y, (y + 1) % classes]), None), words, GROUPS, 0
        )
        assert found is not None
        assert len(found.members[0].rates) == 3 * 2 * shown
        assert {line.estimate for line in found.members[0].changes} == {0.0}
        assert found.members[1].error == 1


def test_where_nobody_states_a_group_there_is_nothing_to_compare() -> None:
    rows, decided, _ = people(50, 0)
    nobody = replace(rows, group=np.full(50, 2))
    assert judge_members(JudgedRows(nobody, None, decided, None), WORDS, GROUPS, 0) is None
    assert judge_number_members(np.ones((2, 50)), np.ones(50), np.full(50, 2), GROUPS, 0) is None


def test_means_of_predicted_numbers_and_how_they_change() -> None:
    draw = np.random.default_rng(0)
    a = draw.integers(3, size=300)  # 2: withheld
    y = np.where(draw.random(300) < 0.2, np.nan, draw.normal(size=300))
    predicted = np.stack([draw.normal(size=300) + a, draw.normal(size=300)])
    found = judge_number_members(predicted, y, a, GROUPS, 0, audited=1)
    assert found is not None
    known = ~np.isnan(y)
    for member, own in zip(found.members, predicted, strict=True):
        assert member.error == pytest.approx(np.sqrt(np.nanmean((own - y) ** 2)))
        rates, changes = by_name(member.rates), by_name(member.changes)
        for g, group in enumerate(GROUPS):
            assert rates["mean prediction", group].estimate == pytest.approx(own[a == g].mean())
            inside = (a == g) & known
            expected = np.abs(own - y)[inside].mean()
            assert rates["mean absolute error", group].estimate == pytest.approx(expected)
            change = changes["mean change of the prediction", group]
            assert change.estimate == pytest.approx((own - predicted[0])[a == g].mean())
    assert (found.audited, found.against, found.rows.withheld) == (1, 0, int((a == 2).sum()))


@pytest.mark.parametrize(
    ("lines", "member"),
    [
        ({"target": [np.nan, 0.1, 0.05]}, 0),
        ({"target": [0.1, np.nan]}, 1),
        ({"target": [0.1, 0.3]}, 1),
        ({"lambda": [1.0, 0.0, 2.0]}, 1),
        ({"lambda": [4.0, 2.0]}, 1),
    ],
)
def test_changes_are_against_the_member_without_fairness(lines: dict[str, list[float]], member: int) -> None:
    assert unfair_member(pd.DataFrame(lines)) == member


def test_documents_whose_members_differ_are_refused() -> None:
    rows, decided, _ = people(80, 0)
    content = msgspec.to_builtins(judged_of(rows, decided))
    assert msgspec.convert(content, MembersDocument).against == 0
    for change in (
        {"against": 3},
        {"audited": 3},
        {"members": []},
        {"members": [content["members"][0], content["members"][1] | {"rates": []}]},
        {"members": [content["members"][0], content["members"][1] | {"measures": []}]},
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(content | change, MembersDocument)
