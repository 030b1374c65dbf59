"""Measures of unfairness: a risk for training, and its twin, a metric of decisions.

A row of the table holds everything that the library needs to know about a measure. Risk and twin are
computed by independent code: a risk from sums over cells in PyTorch (:mod:`pyro_fairvae.risks.gaps`), its
twin by Fairlearn, scikit-learn and SciPy (:mod:`.metrics`). The library's own risks are rows of
:data:`~pyro_fairvae.risks.RISKS`, and each also has a row here; a new row may define a new risk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.evaluation import dependence, metrics
from pyro_fairvae.evaluation.metrics import METRICS, Metric
from pyro_fairvae.risks.gaps import RISKS, CellSums, ComposedRisk, add_risk

AUDITED_RATES, AUDITED_CLASSES = ("odds", "parity"), ("all", "positive")


@dataclass(frozen=True)
class Audited:
    """How an audit reports a measure: as the largest difference of a rate over groups and classes.

    ``rates`` is ``odds``, P(Ŷ = y | Y = y, A), or ``parity``, P(Ŷ = c | A); ``classes`` is ``all``, or
    ``positive`` for the label that matters alone. ``means`` is a description in words.
    """

    rates: str
    classes: str
    means: str

    def __post_init__(self) -> None:
        choose("rate of an audit", self.rates, AUDITED_RATES)
        choose("classes of an audit", self.classes, AUDITED_CLASSES)


@dataclass(frozen=True)
class Measure:
    """A risk, its twin, and how they are reported."""

    risk: ComposedRisk
    metric: Metric
    title: str  # in reports
    audited: Audited | None = None  # None: audits omit it, as they have no interval for it
    compared: bool = False  # whether methods are compared by it, as in the paper

    @property
    def name(self) -> str:
        return self.risk.name


def unit_of(name: str) -> str:
    """The unit in which values of a measure are shown."""
    return RISKS[name].unit if name in RISKS else "%"


def in_unit(name: str, value: float) -> str:
    """A value of a measure as it is shown, without its unit."""
    if np.isnan(value):
        return "–"
    return f"{100 * value:.2f}" if unit_of(name) == "%" else f"{value:.4f}"


def titled(name: str) -> str:
    """The name of a measure with its unit, as a title of a column."""
    return f"{name.replace('_', ' ')} {unit_of(name)}".rstrip()


MEASURES: dict[str, Measure] = {}
AUDITED: dict[str, Audited] = {}  # those of MEASURES that audits report


def register(measure: Measure) -> Measure:
    """Make a measure available by the name of its risk, after checking that its twin agrees on decisions.

    Training, selection, evaluation, pages and (if ``audited`` is set) audits can then use it.
    """
    name = measure.name
    require(
        name not in RISKS and name not in METRICS,
        f"the measure {name!r} exists already; choose another name.",
    )
    require(
        callable(measure.metric),
        f"the risk {name!r} has no metric, by which members are chosen; give it a function of Decisions.",
    )
    _check_twin(measure)
    add_risk(measure.risk)
    return _join(measure)


def _join(measure: Measure) -> Measure:
    MEASURES[measure.name] = measure
    METRICS[measure.name] = measure.metric
    if measure.audited is not None:
        AUDITED[measure.name] = measure.audited
    return measure


def _check_twin(measure: Measure, rows: int = 120) -> None:
    """Raise unless risk and metric agree on some decisions of two classes and groups."""
    generator = np.random.default_rng(0)
    y, decided, a = (generator.integers(2, size=rows) for _ in range(3))
    cells = np.zeros((2, 2, 2))
    np.add.at(cells, (y, a, decided), 1.0)
    predicted = torch.from_numpy(cells)
    trained = float(measure.risk(CellSums(predicted.sum(-1), predicted)).value)
    judged = float(measure.metric(metrics.decisions(y, decided, a, 2)))
    require(
        bool(np.isclose(trained, judged, rtol=1e-4, atol=1e-6)),
        f"on some decisions the risk {measure.name!r} is {trained:.6g}, but its metric is {judged:.6g}; both "
        "must compute the same measure.",
    )


# fmt: off
for _row in (
    Measure(RISKS["deo"], metrics.deo, "DEO", compared=True, audited=Audited(
        "odds", "all", "largest difference between groups of P(Ŷ = y | Y = y, A), over labels y")),
    Measure(RISKS["mean_odds"], metrics.mean_odds, "mean odds"),
    Measure(RISKS["deopp"], metrics.deopp, "DEOPP", compared=True, audited=Audited(
        "odds", "positive", "difference between groups of P(Ŷ = y | Y = y, A) for the label that matters")),
    Measure(RISKS["predictive_equality"], metrics.predictive_equality, "predictive equality"),
    Measure(RISKS["tpr"], metrics.deo, "tpr"),
    Measure(RISKS["tpr_printed"], metrics.tpr_printed, "tpr printed"),
    Measure(RISKS["ddp"], metrics.ddp, "DDP", audited=Audited(
        "parity", "all", "largest difference between groups of P(Ŷ = c | A), over decisions c")),
    Measure(RISKS["ddp_overall"], metrics.ddp_overall, "ddp overall"),
    Measure(RISKS["mean_difference"], metrics.mean_difference, "mean difference"),
    Measure(RISKS["disparate_impact"], metrics.disparate_impact, "disparate impact"),
    Measure(RISKS["chi2"], metrics.chi2, "chi2"),
    Measure(RISKS["mutual_information"], metrics.mutual_information, "mutual information"),
    Measure(RISKS["chi2_given_label"], metrics.chi2_given_label, "chi2 given label"),
    Measure(RISKS["mutual_information_given_label"], metrics.mutual_information_given_label,
            "mutual information given label"),
    # Decisions are judged by what critics bound from below.
    Measure(RISKS["mine"], metrics.mutual_information, "MINE"),
    Measure(RISKS["infonce"], metrics.mutual_information, "InfoNCE"),
    Measure(RISKS["hgr"], dependence.maximal_correlation, "HGR"),
    Measure(RISKS["mine_given_label"], metrics.mutual_information_given_label, "MINE given label"),
    Measure(RISKS["infonce_given_label"], metrics.mutual_information_given_label, "InfoNCE given label"),
    Measure(RISKS["hgr_given_label"], dependence.maximal_correlation_given_label, "HGR given label"),
):
    _join(_row)
# fmt: on
if _lacking := RISKS.keys() - MEASURES.keys():
    raise ImportError(f"risks without a metric of decisions: {sorted(_lacking)}; give each a row here.")
