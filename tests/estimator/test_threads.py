"""Many threads on one model, and fits in several threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pyro
import pytest
import torch
from pyro.poutine.runtime import _DIM_ALLOCATOR, _PYRO_STACK
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, audit, synthetic
from pyro_fairvae.base.seeds import SeededDraws

TABLE = synthetic(rows=160)
GAPS = np.random.default_rng(0).random((2, 160)) < 0.3
GROUPS = np.where(GAPS[0], None, np.array(["f", "m"], dtype=object)[TABLE.a])
LABELS = np.where(GAPS[1], np.nan, TABLE.y.astype(float))
SMALL: dict[str, Any] = {"epochs": 1, "hidden": 4, "layers": 1, "trunk": "mlp", "intervals": "given_h"}


def network(**given: Any) -> FairSSVAEClassifier:
    return FairSSVAEClassifier(**{"lambdas": (0.0, 1.0), **SMALL, **given})


@pytest.fixture(scope="module")
def models() -> list[FairSSVAEClassifier | FairDecisions]:
    return [model.fit(TABLE.frame, LABELS, GROUPS) for model in (network(), FairDecisions(targets=(0.1,)))]


def answers(model: FairSSVAEClassifier | FairDecisions) -> list[Callable[[], np.ndarray]]:
    """Every way to ask a model about people."""
    X = TABLE.frame
    asked: list[Callable[[], Any]] = [
        lambda: model.predict(X),
        lambda: model.predict_proba(X),
        lambda: model.decision_function(X),
        lambda: model.predict_groups_proba(X),
        lambda: audit(LABELS, TABLE.y.astype(float), GROUPS, X=X, model=model).metrics.to_numpy(float),
    ]
    if isinstance(model, FairSSVAEClassifier):
        asked.append(lambda: model.predict_groups_proba(X, GROUPS))
    return asked


def test_answers_of_concurrent_calls_are_those_of_serial_calls_while_others_fit(
    models: list[FairSSVAEClassifier | FairDecisions],
) -> None:
    asked = [ask for model in models for ask in answers(model)]
    other = network(random_state=1)
    asked.append(lambda: clone(other).fit(TABLE.frame, LABELS, GROUPS).decision_function(TABLE.frame))
    serial = [ask() for ask in asked]
    state, filters = torch.get_rng_state(), list(warnings.filters)
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(asked)), 3))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: asked[number](), order))
    for number, answer in zip(order, found, strict=True):
        np.testing.assert_array_equal(answer, serial[number])
    for ask, answer in zip(asked, serial, strict=True):
        np.testing.assert_array_equal(ask(), answer)
    assert torch.equal(torch.get_rng_state(), state)  # the caller's generator is as it was
    assert warnings.filters == filters


def test_a_search_over_threads_finds_what_a_serial_one_finds() -> None:
    found = []
    for backend in ("sequential", "threading"):
        search = GridSearchCV(network(), {"lambdas": [(0.0,), (1.0,)]}, cv=2, n_jobs=2, error_score="raise")
        with joblib.parallel_backend(backend):
            search.fit(TABLE.frame, TABLE.y, sensitive_features=GROUPS)
        found.append(np.c_[search.cv_results_["split0_test_score"], search.cv_results_["split1_test_score"]])
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("reason", [RuntimeError, KeyboardInterrupt])
def test_a_fit_that_fails_leaves_the_model_and_later_fits_as_they_were(
    reason: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network().fit(TABLE.frame, LABELS, GROUPS)
    before, attributes = model.decision_function(TABLE.frame), set(vars(model))
    pyro.param("of_the_user", torch.ones(1))

    def fail(*_: Any) -> None:
        _PYRO_STACK.append(pyro.poutine.trace())  # as an interrupt leaves it within __enter__
        _DIM_ALLOCATOR.allocate("members", -2)
        raise reason("in the middle of a step")

    with monkeypatch.context() as patched:
        patched.setattr("pyro_fairvae.inference.optimizer.MembersAdamW.__call__", fail)
        with pytest.raises(reason):
            model.set_params(random_state=3).fit(TABLE.frame[:100], 1 - LABELS[:100], GROUPS[:100])
    assert not _PYRO_STACK
    assert list(pyro.get_param_store()) == ["of_the_user"]
    assert set(vars(model)) == attributes
    np.testing.assert_array_equal(model.decision_function(TABLE.frame), before)
    model.set_params(random_state=0).fit(TABLE.frame, LABELS, GROUPS)
    np.testing.assert_array_equal(model.decision_function(TABLE.frame), before)


def test_a_failed_refit_of_fair_decisions_leaves_them_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FairDecisions(targets=(0.1,)).fit(TABLE.frame, LABELS, GROUPS)
    before = model.decision_function(TABLE.frame)

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(FairDecisions, "_judge", fail)
    with pytest.raises(MemoryError):
        model.fit(TABLE.frame.iloc[:, :2][:100], 1 - LABELS[:100], GROUPS[:100])
    np.testing.assert_array_equal(model.decision_function(TABLE.frame), before)


def test_predictions_during_a_refit_are_those_before_it() -> None:
    model, during = network().fit(TABLE.frame, LABELS, GROUPS), []
    before = model.decision_function(TABLE.frame)
    model.set_params(callback=lambda _: during.append(model.decision_function(TABLE.frame)), random_state=5)
    model.fit(TABLE.frame, LABELS, GROUPS)
    np.testing.assert_array_equal(during, [before])
    assert not np.array_equal(model.decision_function(TABLE.frame), before)


def test_threads_that_seed_at_once_draw_what_each_would_alone() -> None:
    def drawn(seed: int) -> torch.Tensor:
        draws = SeededDraws(seed)
        pieces = []
        for _ in range(20):
            with draws.held():
                pieces.append(torch.randn(3))
        return torch.cat(pieces)

    generators = [torch.Generator().manual_seed(seed) for seed in range(8)]
    expected = [torch.cat([torch.randn(3, generator=one) for _ in range(20)]) for one in generators]
    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda seed: (barrier.wait(), drawn(seed))[1], range(8)))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
