"""Fits of rows on disk are those of rows in memory, and larger tables go through all steps in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data import block_orders, streamed_table
from pyro_fairvae.estimator import classifier, network_estimator
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.inference import refinement, training
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.studies import streamed_fit
from pyro_fairvae.studies.streamed_fit import streams
from pyro_fairvae.studies.user_fit import FittedTable, fit_table
from tests.support.parquet import FEATURES, people, write_people
from tests.support.user_tables import tiny

ROWS = 700
TARGETS: dict[str, Any] = {"lambdas": None, "targets": (0.1,), "intervals": "calibrated"}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FAIRVAE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_people(tmp_path / "people.parquet", ROWS)
    return tmp_path / "people.parquet"


def fitted(path: Path, streaming: str, model: Any, **options: Any) -> FittedTable:
    out = path.parent / f"model-{streaming}"
    return fit_table(path, "hired", ["sex"], out, model=model, streaming=streaming, drop=["age"], **options)


@pytest.mark.parametrize(
    "changes",
    [{}, TARGETS, {"trunk": "mlp", "withholding_depends_on": ("town", "n"), "intervals": "calibrated"}],
    ids=["lambdas", "targets", "conditions"],
)
def test_a_table_that_fits_into_memory_gives_the_same_model(changes: dict[str, Any], path: Path) -> None:
    one, other = (fitted(path, streaming, tiny(**changes)) for streaming in ("always", "never"))
    pd.testing.assert_frame_equal(one.frontier, other.frontier, rtol=1e-6)
    assert one.audited_rows == other.audited_rows
    assert one.audit is not None
    assert other.audit is not None
    pd.testing.assert_frame_equal(one.audit.metrics, other.audit.metrics)  # type: ignore[union-attr]
    features = people(50, seed=9)[list(FEATURES)]
    assert isinstance(one.model, FairSSVAEClassifier)
    np.testing.assert_allclose(
        one.model.predict_proba(features), other.model.predict_proba(features), rtol=1e-5
    )
    assert one.model.summary_ == other.model.summary_
    rates = [found.model.posterior_["a"]["f"]["unavailable"] for found in (one, other)]
    assert rates[0]["mean"] == pytest.approx(rates[1]["mean"], rel=1e-5)
    assert rates[0]["q95"] == pytest.approx(rates[1]["q95"], rel=1e-5)
    assert one.model.source_ == other.model.source_
    assert list(one.model.feature_names_in_) == list(other.model.feature_names_in_)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All limits are far below the rows of the table."""
    monkeypatch.setattr(block_orders, "BLOCK", 8)
    monkeypatch.setattr(block_orders, "WINDOW", 128)
    monkeypatch.setattr(streamed_table, "BLOCK_ROWS", 64)
    monkeypatch.setattr(streamed_table, "VALIDATED", 60)
    monkeypatch.setattr(streamed_fit, "AUDITED", 80)
    monkeypatch.setattr(refinement, "ROWS", 150)
    for module in (training, classifier, network_estimator, streamed_fit):
        monkeypatch.setattr(module, "SAMPLED", 300)
    monkeypatch.setattr(Observed.sampled, "__defaults__", (300,))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("changes", [TARGETS, {"trunk": "mlp", "intervals": "calibrated"}, {}])
def test_more_rows_than_memory_go_through_every_step(
    changes: dict[str, Any], path: Path, own_cache: Path
) -> None:
    said: list[str] = []
    found = fitted(path, "always", tiny(**changes), report=said.append)
    assert found.audited_rows == 80
    summary = found.model.summary_
    assert (summary["rows"], summary["held_out_rows"], summary["training_rows"]) == (620, 60, 560)
    assert said == [
        "620 rows stay on disk; networks see all of them, and boosted trees, imputations and who withholds "
        "are learned from 300 of them at most."
    ]
    assert found.frontier["error"].between(0, 0.6).all()
    withheld = {group: of["unavailable"]["mean"] for group, of in found.model.posterior_["a"].items()}
    assert withheld["f"] > withheld["m"]
    assert not list(own_cache.glob("**/*.u8"))
    assert not list((own_cache / "scratch").glob("*"))


@pytest.mark.usefixtures("little_memory")
def test_an_interrupted_fit_goes_on_to_the_same_numbers(path: Path) -> None:
    calls: list[int] = []

    def interrupt(done: Any) -> None:
        calls.append(done.epoch)
        if len(calls) == 2:
            raise KeyboardInterrupt

    whole = fitted(path, "always", tiny(epochs=3))
    out = path.parent / "again"
    arguments: dict[str, Any] = {"streaming": "always", "drop": ["age"]}
    with pytest.raises(KeyboardInterrupt):
        fit_table(path, "hired", ["sex"], out, model=tiny(epochs=3, callback=interrupt), **arguments)
    resumed = fit_table(path, "hired", ["sex"], out, model=tiny(epochs=3), **arguments)
    pd.testing.assert_frame_equal(whole.frontier, resumed.frontier)
    one, other = (found.model.fit_.program.state() for found in (whole, resumed))  # type: ignore[union-attr]
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.usefixtures("little_memory")
def test_boosting_sees_a_sample_that_is_told(path: Path) -> None:
    said: list[str] = []
    found = fitted(path, "always", FairDecisions(targets=(0.1,)), report=said.append)
    assert said == ["Boosted trees are grown on 207 evenly spaced rows of 620."]
    assert found.model.summary_["rows"] == 207


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (FairSSVAERegressor(), "labels that are numbers need all rows in memory"),
        (tiny(proxies=("town",)), "proxies need all rows in memory"),
    ],
)
def test_what_needs_rows_in_memory_is_refused(model: Any, words: str, path: Path) -> None:
    with pytest.raises(InputError, match=f"{words}, which streaming='always' excludes"):
        fitted(path, "always", model)
    assert not streams(path, "auto", model, None, print)


def test_rows_are_streamed_where_they_would_take_much_memory(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not streams(path, "auto", tiny(), None, print)
    monkeypatch.setattr(streamed_fit, "IN_MEMORY", 1e6)
    assert streams(path, "auto", tiny(), None, print)
    assert not streams(path, "never", tiny(), None, print)
    said: list[str] = []
    assert not streams(path, "auto", FairSSVAERegressor(), None, said.append)
    assert said == [f"labels that are numbers need all {ROWS} rows in memory, about 0 GB."]
    csv = tmp_path / "people.csv"
    people(20).to_csv(csv)
    assert not streams(csv, "auto", tiny(), None, print)
    with pytest.raises(InputError, match=r"is text of .* Convert it, for example by pyarrow\.csv"):
        streams(csv, "always", tiny(), None, print)
    monkeypatch.setattr(streamed_fit, "LARGEST_TEXT", 100)
    with pytest.raises(InputError, match="which has to be read into memory"):
        streams(csv, "auto", tiny(), None, print)
    with pytest.raises(InputError, match="streaming"):
        streams(path, "sometimes", tiny(), None, print)
