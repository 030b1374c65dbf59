"""A model that ``fairvae fit`` of 0.1.0 wrote opens, and decides as it did when it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.storage.stored_model import load_model

FOLDER = Path(__file__).parent / "version_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())  # written by 0.1.0 beside the model


@pytest.fixture
def model() -> FairSSVAEClassifier:
    return FairSSVAEClassifier.load(FOLDER, device="cpu")


@pytest.mark.parametrize("lambda_", [0.0, 1.0])
def test_decisions_are_those_of_the_version_that_wrote_it(model: FairSSVAEClassifier, lambda_: float) -> None:
    rows = pd.read_csv(FOLDER / "rows.csv")
    model.select(lambda_=lambda_)
    assert model.predict(rows).tolist() == EXPECTED["decisions"][str(lambda_)]


def test_groups_are_those_of_the_version_that_wrote_it(model: FairSSVAEClassifier) -> None:
    found = model.select(lambda_=1.0).predict_groups_proba(pd.read_csv(FOLDER / "rows.csv"))
    np.testing.assert_allclose(found, EXPECTED["groups"], atol=2e-6)


def test_rates_and_options_are_those_of_the_version_that_wrote_it(model: FairSSVAEClassifier) -> None:
    assert model.channels_.to_dict("list") == EXPECTED["channels"]
    assert model.lambdas == [0.0, 1.0]
    assert model.options["risk_estimator"] == "smoothed"
    assert model.options["refine_decisions"] == 40.0
    fairness = model.fit_.settings.fairness
    assert (fairness.risk_estimator, fairness.refinement_stiffness) == ("smoothed", 40.0)
    assert list(model.frontier_["lambda"]) == [0.0, 1.0]
    assert {row["lambda"] for row in model.fit_.history} == {0.0, 1.0}
    assert model.source_["label"] == "hired"


def test_it_is_written_again_in_the_format_of_today(model: FairSSVAEClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    document = json.loads((tmp_path / "model" / "model.json").read_text())
    assert document["version"] == 2
    again = load_model(tmp_path / "model")
    rows = pd.read_csv(FOLDER / "rows.csv")
    assert (
        FairSSVAEClassifier.load(tmp_path / "model", "cpu").predict(rows).tolist()
        == model.predict(rows).tolist()
    )
    assert again.posterior == model.posterior_
