"""The classifier with targets: its members, choosing one, storing it, and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae import FairSSVAEClassifier
from pyro_fairvae.base.errors import InputError

SMALL = {"hidden": 16, "layers": 1, "epochs": 3, "batch": 128, "options": {"channel_steps": 20}}


def people(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Features with gaps, labels that a number and the group tell of, stated groups, and all groups."""
    draw = np.random.default_rng(seed)
    group = np.where(draw.random(rows) < 0.5, "f", "m")
    skill = draw.normal(size=rows) + 0.8 * (group == "m")
    town = np.where(draw.random(rows) < 0.6, np.where(group == "m", "x", "y"), "z")
    label = np.where(draw.random(rows) < 1 / (1 + np.exp(-2 * skill)), "yes", "no")
    X = pd.DataFrame({"skill": np.where(draw.random(rows) < 0.05, np.nan, skill), "town": town})
    withheld = draw.random(rows) < np.where(group == "f", 0.6, 0.3)
    return X, label, np.where(withheld, None, group), group


@pytest.fixture(scope="module")
def model() -> FairSSVAEClassifier:
    X, label, stated, _ = people(1500)
    return FairSSVAEClassifier(targets=(0.05, 0.2), **SMALL).fit(X, label, stated)


def test_members_have_targets_from_none_to_tight(model: FairSSVAEClassifier) -> None:
    assert list(model.frontier_) == ["target", "error", "disparity", "standard_error", "low", "high"]
    np.testing.assert_array_equal(model.frontier_["target"], [np.nan, 0.2, 0.05])
    assert model.frontier_["disparity"][2] < model.frontier_["disparity"][0]


def test_settled_decisions_are_fairer_on_new_rows(model: FairSSVAEClassifier) -> None:
    X, label, _, group = people(6000, seed=1)
    gaps = []
    for member in range(3):
        model.selected_ = member
        decided = model.predict(X)
        gaps.append(
            max(
                abs(np.subtract(*[(decided[(label == y) & (group == g)] == y).mean() for g in ("f", "m")]))
                for y in ("no", "yes")
            )
        )
    assert gaps[0] > 0.2
    assert gaps[1] < 0.3
    assert gaps[2] < gaps[0] / 2


def test_who_withholds_is_learned_beside(model: FairSSVAEClassifier) -> None:
    rates = model.channels_.set_index("of")["withheld"]
    assert rates["f"] == pytest.approx(0.6, abs=0.06)
    assert rates["m"] == pytest.approx(0.3, abs=0.06)


def test_a_member_is_selected_by_its_target(model: FairSSVAEClassifier) -> None:
    for limit, target in ((0.2, 0.2), (0.5, 0.2), (0.1, 0.05), (0.05, 0.05)):
        assert model.select(max_disparity=limit).frontier_["target"][model.selected_] == target
    with pytest.warns(UserWarning, match="the least target is 0.05"):
        model.select(max_disparity=0.01)
    with pytest.raises(InputError, match="targets and no λ"):
        model.select(lambda_=0.0)
    with pytest.raises(InputError, match="within"):
        model.select(max_disparity=2.0)


def test_a_stored_model_decides_as_before(model: FairSSVAEClassifier, tmp_path: Path) -> None:
    X = people(300, seed=2)[0]
    model.select(max_disparity=0.05)
    model.save(tmp_path)
    again = FairSSVAEClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    pd.testing.assert_frame_equal(again.frontier_, model.frontier_)
    assert again.select(max_disparity=0.2).frontier_["target"][again.selected_] == 0.2
    (tmp_path / "trees.json").write_text("{}")
    with pytest.raises(InputError, match="SHA-256"):
        FairSSVAEClassifier.load(tmp_path, device="cpu")


def test_networks_impute_where_trees_cannot() -> None:
    """With the label among what withholding depends on, and with proxies."""
    X, label, stated, _ = people(400)
    for more in ({"withholding_depends_on": ("label",)}, {"proxies": ("town",)}, {"trunk": "mlp"}):
        fitted = FairSSVAEClassifier(targets=(0.1,), intervals="given_h", **SMALL, **more)
        assert len(fitted.fit(X, label, stated).frontier_) == 2


def test_bad_targets_are_refused_before_training() -> None:
    X, label, stated, _ = people(100)
    for given, words in (
        ({"targets": (0.0,)}, "within"),
        ({"targets": (0.1, 0.1)}, "twice"),
        ({"targets": "a"}, "numbers"),
        ({"targets": (0.1,), "lambdas": (0.0,)}, "both given"),
        ({"trunk": "cnn"}, "trunk"),
        ({"options": {"refine_decisions": 0}}, "settled to targets by inferred groups; give lambdas"),
    ):
        with pytest.raises(InputError, match=words):
            FairSSVAEClassifier(**given).fit(X, label, stated)


def test_with_confidence_the_audit_of_held_out_rows_decides(
    model: FairSSVAEClassifier, tmp_path: Path
) -> None:
    model.select(0.9, confidence=0.9)
    assert model.selected_ == model.frontier_["error"].idxmin()
    with pytest.raises(InputError, match=r"no member's disparity is at most 0\.001 with 90 % confidence"):
        model.select(0.001, confidence=0.9)
    with pytest.raises(InputError, match="confidence is about max_disparity"):
        FairSSVAEClassifier.select(model, lambda_=0.0, confidence=0.9)
    model.save(tmp_path)
    with pytest.raises(InputError, match="has no rows to audit"):
        FairSSVAEClassifier.load(tmp_path).select(0.9, confidence=0.9)
