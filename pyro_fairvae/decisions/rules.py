"""Rules by which a whole table is labelled at once, to a low classification and fairness risk together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.decisions.descent import STARTS, best_labels, descend, finished
from pyro_fairvae.decisions.group_thresholds import labels_by_thresholds
from pyro_fairvae.decisions.joint_objective import DecisionProblem


@dataclass(frozen=True)
class Decision:
    """Labels, (rows,), and J of rounding (``before``) and of the labels (``after``).

    ``best`` is whether no labels at all have a lower J, which is known of small tables.
    """

    labels: Tensor
    before: float
    after: float
    best: bool = False


def by_rounding(problem: DecisionProblem, report: Report = silent, starts: int = STARTS) -> Decision:
    """The likeliest class of each row, or the decision about it alone."""
    labels = problem.rounded()
    value = problem.objective(labels)
    return Decision(labels, value, value)


def by_group_thresholds(problem: DecisionProblem, report: Report = silent, starts: int = STARTS) -> Decision:
    """A threshold on q(y=1|x) for each group of argmax q(A|x,ã), tuned to J; rounding, if that is better."""
    return _judged(problem, labels_by_thresholds(problem, report))


def by_descent(problem: DecisionProblem, report: Report = silent, starts: int = STARTS) -> Decision:
    """Coordinate descent on the labels from several starts (:func:`.best_labels`)."""
    return _judged(problem, *best_labels(problem, starts, report))


def by_thresholds_and_descent(
    problem: DecisionProblem, report: Report = silent, starts: int = STARTS
) -> Decision:
    """The paper's order: group thresholds first, then coordinate descent from there, and no other start."""
    start = by_group_thresholds(problem, report).labels
    labels, value = descend(problem, start)
    report(f"descent from thresholds: objective {value:.6f}")
    return _judged(problem, *finished(problem, labels))


def _judged(problem: DecisionProblem, labels: Tensor, best: bool = False) -> Decision:
    before, after = problem.objective(problem.rounded()), problem.objective(labels)
    if after < before:
        return Decision(labels, before, after, best)
    return Decision(problem.rounded(), before, before, best)


RULES: dict[str, Callable[[DecisionProblem, Report, int], Decision]] = {
    "rounding": by_rounding,
    "thresholds": by_group_thresholds,
    "descent": by_descent,
    "thresholds+descent": by_thresholds_and_descent,
}
