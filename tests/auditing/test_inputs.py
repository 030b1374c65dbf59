"""What an audit takes, in which forms, and what it says of input that it cannot use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.auditing import audit
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.schema.attributes import Attributes
from tests.support.audited import draw_people, stating

ROWS = 200
PEOPLE = draw_people(ROWS, seed=0)
SAID = stating(PEOPLE, [0.5, 0.7])
TABLE = pd.DataFrame({"x": PEOPLE.score})
GAPS = np.where(np.arange(ROWS) == 3, np.nan, PEOPLE.decided)


class Knows:
    """A model that knows the probabilities of groups."""

    attributes_ = Attributes.single(("0", "1", "2"), "sex")

    def predict_groups_proba(self, X: pd.DataFrame) -> np.ndarray:
        return np.column_stack([PEOPLE.proba, np.zeros(ROWS)])[: len(X)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_pred": GAPS}, "y_pred has gaps; every row needs a decision"),
        ({"y_pred": PEOPLE.decided[:-1]}, "have 200, 199 and 200 rows; they must have the same number"),
        ({"y_true": PEOPLE.y[:-2]}, "have 198, 200 and 200 rows"),
        ({"sensitive_features": SAID[:-5]}, "have 200, 200 and 195 rows"),
        ({"depends_on": "groups"}, "unknown assumption 'groups'.*Did you mean 'group'"),
        ({"depends_on": None}, "unknown assumption None; expected one of group, group and label"),
        ({"confidence": 90}, r"confidence must be within \[0.5, 1\), got 90"),
        ({"confidence": 1.0}, "confidence must be within .* got 1.0"),
        ({"confidence": float("nan")}, "confidence must be within .* got nan"),
        ({"sensitive_features": [None] * ROWS}, "nobody states 'group' of sensitive_features.*200 values"),
        ({"sensitive_features": ["f"] * ROWS}, "has one value, 'f'; at least two must be stated"),
        ({"y_true": np.ones(ROWS), "y_pred": np.ones(ROWS)}, r"one value, \[1.0\]; expected two or more"),
        ({"X": TABLE, "model": object()}, "model, a object, has no predict_groups_proba; give X alone"),
        ({"model": Knows()}, "model imputes groups from X: give X with it"),
        ({"X": TABLE, "groups_proba": PEOPLE.proba}, "give X or groups_proba, not both"),
        ({"groups_proba": PEOPLE.proba[:, :1]}, r"shape \(200, 1\); .* 200 rows and the groups 0, 1"),
        ({"groups_proba": PEOPLE.proba[:-1]}, r"shape \(199, 2\); expected a number for each of 200 rows"),
        ({"groups_proba": np.where(PEOPLE.proba < 0.5, np.nan, 1)}, "200 values that are NaN or infinite"),
        ({"groups_proba": PEOPLE.proba * 100}, r"groups_proba is outside of \[0, 1\] in row 0 and 199 more"),
        ({"groups_proba": PEOPLE.proba - 0.5}, r"groups_proba is outside of \[0, 1\] in row"),
        ({"groups_proba": [["a", "b"]] * ROWS}, "groups_proba is not all numbers; expected"),
        ({"X": TABLE[:-1]}, "X has 199 rows, but y_true and y_pred have 200; give the same rows"),
        ({"X": PEOPLE.score}, r"X has the shape \(200,\).*[Rr]eshape"),
        ({"X": TABLE[:-1], "model": Knows()}, r"shape \(199, 3\); .* 200 rows and the groups 0, 1, 2"),
        ({"y_pred": PEOPLE.score}, "y_pred has 200 values, .* y_true 2; give decisions, not scores"),
        ({"y_pred": PEOPLE.score[:8].repeat(25)}, "y_pred has 8 values, .*not scores"),
        ({"y_pred": np.arange(ROWS)}, "y_pred has 200 values, .*not scores"),
        ({"y_pred": PEOPLE.decided + 7}, "no value in common: '0', '1' and '7', '8'. Give both in the same"),
        (
            {"groups_proba": pd.DataFrame(PEOPLE.proba, columns=["0", "2"])},
            "groups_proba has the columns '0', '2'; expected .* groups 0, 1, with these names",
        ),
        ({"pos_label": 2}, "unknown pos_label '2'; expected one of 0, 1"),
        ({"y_true": np.array(["no", "yes"])[PEOPLE.y]}, "such as 'no' and y_pred such as 0; give both"),
        ({"y_true": ["no", 1] * (ROWS // 2)}, "y_true mixes values of the kinds int, str"),
        ({"y_true": [np.nan] * ROWS, "depends_on": "group and label"}, "no row has a label and states"),
    ],
)  # fmt: skip
def test_errors_say_what_was_given_and_what_to_do(changes: dict[str, Any], words: str) -> None:
    given = {"y_true": PEOPLE.y, "y_pred": PEOPLE.decided, "sensitive_features": SAID} | changes
    with pytest.raises(InputError, match=words):
        audit(**given)


def test_no_row_that_states_all_its_attributes() -> None:
    halves = pd.DataFrame({"sex": ["f", None, "m", None] * 50, "old": [None, "yes", None, "no"] * 50})
    with pytest.raises(InputError, match="no row states its group in full"):
        audit(PEOPLE.y, PEOPLE.decided, halves)


def test_too_few_rows_with_labels_for_an_audit_by_label() -> None:
    stated = np.array([each is not None for each in SAID])
    with pytest.raises(InputError, match=r"no row has a label and states its group.*depends_on='group'"):
        audit(np.where(stated, np.nan, PEOPLE.y), PEOPLE.decided, SAID, depends_on="group and label")


@pytest.mark.parametrize(
    ("y", "decided", "said"),
    [
        (PEOPLE.y.astype(float), PEOPLE.decided, SAID),
        (PEOPLE.y.tolist(), PEOPLE.decided.tolist(), SAID.tolist()),
        (pd.Series(PEOPLE.y, index=np.arange(ROWS) + 9), PEOPLE.decided, pd.Series(SAID).to_frame("sex")),
        (PEOPLE.y.astype(bool), PEOPLE.decided.astype(bool), SAID),
        (PEOPLE.y.astype(bool), PEOPLE.decided, SAID),
        (pd.Series(PEOPLE.y).astype("Int64"), pd.Series(PEOPLE.decided).astype("category"), SAID),
        (PEOPLE.y.astype(str), PEOPLE.decided.astype(str), pd.Series(SAID).astype(float)),
    ],
    ids=["floats", "lists", "series", "truth values", "truth values and numbers", "pandas types", "words"],
)  # fmt: skip
def test_the_same_in_other_forms_is_the_same(y: Any, decided: Any, said: Any) -> None:
    found, plain = audit(y, decided, said), audit(PEOPLE.y, PEOPLE.decided, SAID)
    pd.testing.assert_frame_equal(found.metrics, plain.metrics)
    pd.testing.assert_frame_equal(found.groups, plain.groups)


def test_an_audit_puts_rows_together_by_their_index() -> None:
    names = pd.Index([f"person {n}" for n in range(ROWS)])
    y, decided, said = (pd.Series(values, index=names) for values in (PEOPLE.y, PEOPLE.decided, SAID))
    proba = pd.DataFrame(PEOPLE.proba, columns=["0", "1"], index=names)
    plain = audit(PEOPLE.y, PEOPLE.decided, SAID, groups_proba=PEOPLE.proba)
    shuffled = [part.sample(frac=1, random_state=k) for k, part in enumerate((decided, said, proba))]
    found = audit(y, shuffled[0], shuffled[1], groups_proba=shuffled[2])
    pd.testing.assert_frame_equal(found.metrics, plain.metrics)
    pd.testing.assert_frame_equal(found.rates, plain.rates)
    with pytest.raises(InputError, match="y_pred and y_true have different indexes"):
        audit(y, decided.rename(index=str.upper), said)


def test_missing_values_are_not_a_group() -> None:
    said = np.where(SAID == None, "rather not", SAID)  # noqa: E711
    found = audit(PEOPLE.y, PEOPLE.decided, said, missing_values=["rather not"])
    pd.testing.assert_frame_equal(found.metrics, audit(PEOPLE.y, PEOPLE.decided, SAID).metrics)


def test_several_attributes_are_audited_as_their_combinations() -> None:
    old = np.random.default_rng(1).choice(["no", "yes"], size=ROWS)
    both = np.where(SAID == None, None, np.char.add(SAID.astype(str), np.char.add(", ", old)))  # noqa: E711
    found = audit(PEOPLE.y, PEOPLE.decided, pd.DataFrame({"sex": SAID, "old": old}))
    assert found.rows["stated"] == sum(each is not None for each in both)
    pd.testing.assert_frame_equal(found.metrics, audit(PEOPLE.y, PEOPLE.decided, both).metrics)


def test_a_model_is_asked_for_the_groups_that_it_knows() -> None:
    """Its third group is stated by nobody, and is said to be left out."""
    found = audit(PEOPLE.y, PEOPLE.decided, SAID, X=TABLE, model=Knows())
    assert found.groups.index.tolist() == ["0", "1", "2"]
    assert found.groups.loc["2", "stated"] == 0
    assert any("no row of 2 with label 0 states its group" in words for words in found.notes)
    plain = audit(PEOPLE.y, PEOPLE.decided, SAID, groups_proba=PEOPLE.proba)
    for column in ("stated_estimate", "stated_low", "stated_high"):
        assert found.metrics[column].to_dict() == pytest.approx(plain.metrics[column].to_dict())


def test_without_labels_parity_alone_is_audited() -> None:
    found = audit(np.full(ROWS, np.nan), PEOPLE.decided, SAID).metrics
    rate = pd.Series(PEOPLE.decided).groupby(SAID).mean()
    assert found.loc["ddp", "stated_estimate"] == pytest.approx(np.ptp(rate))
    assert found.loc[["deo", "deopp"]].isna().all().all()


def test_truth_values_are_decisions_about_0_and_1() -> None:
    found = audit(PEOPLE.y, PEOPLE.decided.astype(bool), SAID)
    pd.testing.assert_frame_equal(found.metrics, audit(PEOPLE.y, PEOPLE.decided, SAID).metrics)


def test_a_label_that_is_never_decided_is_told() -> None:
    found = audit(PEOPLE.y, np.zeros(ROWS, dtype=int), SAID)
    assert "no row has the decision 1." in found.notes


def test_probabilities_are_of_the_groups_by_name() -> None:
    """Also of a group whose name a prior reserves, and which the library therefore quotes."""
    names = np.array(["x", "other"], dtype=object)
    said = [None if each is None else names[int(each)] for each in SAID]
    given = pd.DataFrame(PEOPLE.proba, columns=names)
    by_name = [
        audit(PEOPLE.y, PEOPLE.decided, said, groups_proba=each) for each in (given, given[["other", "x"]])
    ]
    by_place = audit(PEOPLE.y, PEOPLE.decided, said, groups_proba=given[["other", "x"]].to_numpy())
    for found in by_name:
        pd.testing.assert_frame_equal(found.metrics, by_place.metrics)
    assert by_place.groups.index.tolist() == ["'other'", "x"]


def test_those_who_withhold_are_shared_out_among_the_groups() -> None:
    found = audit(PEOPLE.y, PEOPLE.decided, SAID, groups_proba=PEOPLE.proba)
    assert found.groups["withheld"].sum() == pytest.approx(found.rows["withheld"])


def test_a_model_says_what_means_not_stated_and_whether_it_knows_groups() -> None:
    class Told(Knows):
        missing_values = ("?",)

    said = np.where([each is None for each in SAID], "?", SAID)
    found = audit(PEOPLE.y, PEOPLE.decided, said, X=TABLE, model=Told())
    expected = audit(PEOPLE.y, PEOPLE.decided, SAID, X=TABLE, model=Knows())
    pd.testing.assert_frame_equal(found.metrics, expected.metrics)

    class Knows0(Knows):
        knows_groups_ = False

        def predict_groups_proba(self, X: pd.DataFrame) -> np.ndarray:
            raise InputError("fitted without groups")

    with pytest.raises(InputError, match="fitted without groups"):
        audit(PEOPLE.y, PEOPLE.decided, ["f", "m"] * (ROWS // 2), X=TABLE, model=Knows0())
