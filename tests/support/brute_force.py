"""The joint objective of decisions written out in numpy, and its least value over all labelings."""

from __future__ import annotations

import itertools

import numpy as np

from pyro_fairvae.decisions.joint_objective import DecisionProblem


def counts_of(problem: DecisionProblem, labelings: np.ndarray) -> np.ndarray:
    """Rows of each draw with y, a and label c, (labelings, draws, classes, groups, classes)."""
    y, a = np.divmod(problem.cells.numpy().astype(int), problem.groups)
    cells = np.eye(problem.classes)[y][..., None] * np.eye(problem.groups)[a][..., None, :]
    return np.einsum("sryg,mrc->msygc", cells, np.eye(problem.classes)[labelings], optimize=True)


def rates_of(name: str, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rates to compare, (…, comparisons, groups), and how many rows each is of."""
    if name == "deo":  # P(ŷ = y | y, a)
        right = np.diagonal(counts, axis1=-3, axis2=-1).swapaxes(-1, -2)
        rows = counts.sum(-1)
    else:  # P(ŷ = c | a)
        right = counts.sum(-3).swapaxes(-1, -2)
        rows = np.broadcast_to(counts.sum((-3, -1))[..., None, :], right.shape)
    with np.errstate(invalid="ignore"):
        return right / rows, rows


def risk_of(name: str, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F of each draw; whether all rates are there; and whether any two can be compared."""
    rates, rows = rates_of(name, counts)
    high = np.where(rows > 0, rates, -np.inf).max(-1)
    low = np.where(rows > 0, rates, np.inf).min(-1)
    comparable = (rows > 0).sum(-1) > 1
    whole = (rows > 0).all((-1, -2))
    if name in ("deo", "ddp"):
        return np.where(comparable, high - low, 0).max(-1), whole, comparable.any(-1)
    if name == "disparate_impact":  # of the last class
        high, low = high[..., -1], low[..., -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.minimum(high / low - 1, (high - low) / (1e-6 * high))
        compared = comparable[..., -1]
        value = np.where(compared & (high > 0), ratio, 0)
        return value, (rows[..., -1, :] > 0).all(-1), compared
    assert name == "mutual_information"
    joint = counts.sum(-3) / counts.sum((-3, -2, -1), keepdims=True)[..., 0]
    apart = joint.sum(-1, keepdims=True) * joint.sum(-2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(joint > 0, joint * np.log(joint / apart), 0).sum((-1, -2))
    compared = comparable.any(-1)
    return np.where(compared, value, 0), whole, compared


def objectives(problem: DecisionProblem, name: str, labelings: np.ndarray) -> np.ndarray:
    """J of each labeling."""
    value, whole, some = risk_of(name, counts_of(problem, labelings))
    used = np.where(whole.any(-1, keepdims=True), whole, some)
    fairness = (value * used).sum(-1) / np.maximum(used.sum(-1), 1)
    loss = problem.loss.numpy()[np.arange(problem.rows), labelings].mean(-1)
    return loss + problem.weight * np.maximum(fairness - problem.target, 0)


def least(problem: DecisionProblem, name: str, at_once: int = 512) -> float:
    """The least J of all labelings."""
    every = np.array(list(itertools.product(range(problem.classes), repeat=problem.rows)))
    pieces = np.array_split(every, -(-len(every) // at_once))
    return min(float(objectives(problem, name, some).min()) for some in pieces)
