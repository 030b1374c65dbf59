"""A risk and its twin are one row of one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyro_fairvae.auditing import audit
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.evaluation import MEASURES, Audited, Measure, measures, register
from pyro_fairvae.evaluation.metrics import METRICS, Decisions, evaluate
from pyro_fairvae.evaluation.selection import metric_of, own_metric, standard_error
from pyro_fairvae.report.comparison import metric_title
from pyro_fairvae.risks import RISKS, CellSums, ComposedRisk, RiskSettings, custom, gaps
from pyro_fairvae.risks.gaps import odds, spread


@pytest.fixture
def _restored() -> Iterator[None]:
    """The tables as they were, after a test that adds to them."""
    tables = (gaps._RISKS, MEASURES, METRICS, measures.AUDITED, custom.CUSTOM)
    before = [dict(each) for each in tables]
    yield
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)  # type: ignore[arg-type]


def drawn(rows: int = 300, classes: int = 2, groups: int = 2) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(4)
    return tuple(generator.integers(size, size=rows) for size in (classes, classes, groups))


def sums_of(y: np.ndarray, decided: np.ndarray, a: np.ndarray, classes: int, groups: int) -> CellSums:
    predicted = torch.zeros(classes, groups, classes, dtype=torch.float64)
    for row in zip(y, a, decided, strict=True):
        predicted[row] += 1
    return CellSums(predicted.sum(-1), predicted)


@pytest.mark.parametrize("name", list(RISKS))
def test_every_risk_agrees_with_its_twin_on_decisions(name: str) -> None:
    y, decided, a = drawn(classes=3, groups=3)
    trained = float(MEASURES[name].risk(sums_of(y, decided, a, 3, 3)).value)
    assert evaluate(y, decided, a, 3)[name] == pytest.approx(trained, rel=1e-5)


def test_tables_that_are_made_of_the_one_name_the_same() -> None:
    assert list(MEASURES) == list(RISKS)
    assert list(METRICS) == ["error", "positive_rate", *RISKS]
    assert [name for name, row in MEASURES.items() if row.audited] == list(measures.AUDITED)
    assert metric_title("deo") == "DEO"
    assert metric_title("deo_floor") == "deo floor"


def hits_of_first(of: Decisions) -> float:
    """The difference between two groups of P(Ŷ = 0 | Y = 0, A), by hand."""
    rates = [
        np.average(of.decided[cell] == 0, weights=of.weight[cell])
        for cell in ((of.y == 0) & (of.a == g) for g in np.unique(of.a))
    ]
    return float(max(rates) - min(rates))


MINE = Measure(ComposedRisk("my_own", odds, spread, classes=(0,)), hits_of_first, "my own")


@pytest.mark.usefixtures("_restored")
def test_a_registered_measure_is_known_everywhere() -> None:
    register(replace(MINE, audited=Audited("odds", "all", "in words")))
    y, decided, a = drawn()
    found = evaluate(y, decided, a, 2)
    assert found["my_own"] == pytest.approx(found["predictive_equality"])
    assert metric_of(RiskSettings(risk="my_own"))[0] == "my_own"
    assert metric_title("my_own") == "my own"
    audited = audit(y, decided, a).metrics
    assert audited.loc["my_own"].to_dict() == audited.loc["deo"].to_dict()


@pytest.mark.usefixtures("_restored")
def test_a_measure_without_its_twin_is_refused_at_registration() -> None:
    with pytest.raises(InputError, match="has no metric"):
        register(replace(MINE, metric=None))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must compute the same measure"):
        register(replace(MINE, metric=lambda of: 0.5))
    with pytest.raises(InputError, match="exists already"):
        register(MEASURES["deo"])
    assert "my_own" not in RISKS
    assert "my_own" not in METRICS
    with pytest.raises(TypeError):
        RISKS["my_own"] = MINE.risk  # type: ignore[index]


def parity_gap(p: torch.Tensor, y: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    rates = [(p[..., 1] * (a == g)).sum(-1) / (a == g).sum(-1).clamp(min=1) for g in (0, 1)]
    return (rates[1] - rates[0]).abs()


def parity_of_decisions(
    y: np.ndarray, decided: np.ndarray, a: np.ndarray, classes: int, weight: np.ndarray
) -> float:
    first, second = (np.average(decided[a == g], weights=weight[a == g]) for g in (0, 1))
    return float(abs(first - second))


@pytest.mark.usefixtures("_restored")
def test_a_users_own_risk_is_judged_by_its_metric_or_else_by_deo() -> None:
    custom.register("without", parity_gap)
    assert metric_of(RiskSettings(risk="without")) == ("deo", RISKS["deo"])
    custom.register("with", parity_gap, metric=parity_of_decisions)
    fairness = RiskSettings(risk="with")
    name, risk = metric_of(fairness)
    assert name == "with"
    generator = np.random.default_rng(5)
    cells = generator.dirichlet(np.ones(4), size=80).reshape(80, 2, 2)
    decided = generator.integers(2, size=80)
    # For two classes it is what DDP is.
    ddp = RISKS["ddp"]
    assert own_metric(fairness, decided, cells)["with"] == pytest.approx(
        float(ddp(sums_of_cells(decided, cells)).value)
    )
    assert standard_error(risk, decided, cells) == pytest.approx(standard_error(ddp, decided, cells))


def sums_of_cells(decided: np.ndarray, cells: np.ndarray) -> CellSums:
    predicted = torch.from_numpy(np.stack([cells[decided == c].sum(0) for c in (0, 1)], axis=-1))
    return CellSums(predicted.sum(-1), predicted)


@pytest.mark.parametrize(
    ("metric", "complaint"),
    [
        (0.5, "must be a function"),
        (lambda *given: "much", "must return a finite number"),
        (lambda *given: float("nan"), "must return a finite number"),
        (lambda y, decided: 0.0, "could not be evaluated"),
    ],
)
@pytest.mark.usefixtures("_restored")
def test_a_bad_metric_of_a_users_own_risk_is_refused(metric: object, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        custom.register("bad", parity_gap, metric=metric)  # type: ignore[arg-type]
    assert "bad" not in custom.CUSTOM
