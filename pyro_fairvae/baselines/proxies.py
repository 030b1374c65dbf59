r"""Calibration by three weak proxies (Zhu, Yao, Sun, Li and Liu 2023).

Three weak classifiers of groups, each of a third of the columns, say Ã₁, Ã₂, Ã₃ of every row. Where they are
independent given the group, the label y and the decision k of a plain classifier, how often they agree,

.. math:: P(\tilde A_1 = i, \tilde A_2 = j, \tilde A_3 = l \,|\, y, k)
          = \sum_a p_a T_1(a, i) T_2(a, j) T_3(a, l),

tells their transition matrices T and the shares p of groups, without a true group. Rates within cells of (y,
k) are then calibrated: at the likeliest p and T the expected number of rows of group a is the sum of

.. math:: P(a|\tilde a_1, \tilde a_2, \tilde a_3, y, k)
          \propto p_a T_1(a, \tilde a_1) T_2(a, \tilde a_2) T_3(a, \tilde a_3)

over rows, which is what inverting T gives, without negative shares. The source calibrates metrics; here a
classifier is trained under the calibrated risk, as :mod:`.penalised` has it. Groups that are stated count as
they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import require
from pyro_fairvae.baselines.guesses import LABELS, cells_of
from pyro_fairvae.baselines.interface import Task
from pyro_fairvae.baselines.learning import NetworkClassifier, learn_probabilities, rows_with_label
from pyro_fairvae.baselines.penalised import fit_cells
from pyro_fairvae.inference.training import check_lambdas
from pyro_fairvae.schema.observed import Columns

PROXIES = 3
FEWEST_ROWS = 300  # of a cell (y, k); a smaller one takes the matrices of all rows of its label
STEPS = 1500  # of expectation maximisation
RIGHT = 0.8  # share of rows that a proxy is right about, at the start


def fit_three_proxies(task: Task, weights: Sequence[float]) -> NetworkClassifier:
    check_lambdas(weights)
    train = task.train
    stated = rows_with_label(train.y_obs, train.classes)
    decided = learn_probabilities(task, train.y_obs, stated, train.classes, LABELS).argmax(-1)
    labels = torch.where(train.y_obs < train.classes, train.y_obs, decided)
    cells = cells_of(labels, train.a_obs, train.classes, train.groups, train.x.dtype)
    of_label = functional.one_hot(labels, train.classes).to(cells)
    hidden = train.a_obs == train.groups
    if bool(hidden.any()):
        rows = hidden.cpu().numpy()
        groups = calibrated_groups(
            weak_proxies(task)[rows], labels.cpu().numpy()[rows], decided.cpu().numpy()[rows], train.groups
        )
        cells[hidden] = of_label[hidden].unsqueeze(-1) * torch.from_numpy(groups).to(cells).unsqueeze(-2)
    return fit_cells(task, weights, cells, of_label)


def weak_proxies(task: Task) -> np.ndarray:
    """What three classifiers of a third of the columns each say of every row, (rows, 3)."""
    train, columns = task.train, task.train.columns
    assert isinstance(columns, Columns)
    assert isinstance(train.x, Tensor)
    there = columns.numbers + len(columns.blocks)
    require(there >= PROXIES, f"three proxies need {PROXIES} columns or more, got {there}.")
    x, a_obs = train.x.cpu().numpy(), train.a_obs.cpu().numpy()
    stated = a_obs < train.groups
    require(
        len(set(a_obs[stated])) > 1,
        "fewer than two groups are stated, so that no proxy of groups can be learned.",
    )
    starts = [*range(columns.numbers), *(columns.numbers + np.cumsum([0, *columns.blocks])).tolist()]
    places = [np.arange(low, high) for low, high in pairwise(starts)]
    said = []
    for number in range(PROXIES):
        own = StandardScaler().fit_transform(x[:, np.concatenate(places[number::PROXIES])])
        # Balanced, since a proxy that says the same of everybody tells nothing.
        proxy = LogisticRegression(class_weight="balanced", max_iter=500)
        said.append(proxy.fit(own[stated], a_obs[stated]).predict(own))
    return np.stack(said, axis=1)


def calibrated_groups(said: np.ndarray, labels: np.ndarray, decided: np.ndarray, groups: int) -> np.ndarray:
    """P(a | what proxies say, y, k) of rows, (rows, groups)."""
    found = np.empty((len(said), groups))
    for y in np.unique(labels):
        of_label = labels == y
        whole = Consensus.learn(said[of_label], groups)
        for k in np.unique(decided[of_label]):
            inside = of_label & (decided == k)
            model = Consensus.learn(said[inside], groups) if inside.sum() >= FEWEST_ROWS else whole
            found[inside] = model.groups_of(said[inside])
    return found


@dataclass(frozen=True)
class Consensus:
    """The shares p of groups, (groups,), and T of each proxy, (proxies, groups, groups)."""

    shares: np.ndarray
    transitions: np.ndarray

    @staticmethod
    def learn(said: np.ndarray, groups: int) -> Consensus:
        """The likeliest ones, by expectation maximisation on how often proxies agree.

        It starts where every proxy is right more often than not, which tells the groups apart by name.
        """
        patterns, counts = np.unique(said, axis=0, return_counts=True)
        start = RIGHT * np.eye(groups) + (1 - RIGHT) / groups
        transitions = np.stack([start] * said.shape[1])
        shares = np.full(groups, 1 / groups)
        one_hot = np.eye(groups)[patterns]  # (patterns, proxies, groups)
        for _ in range(STEPS):
            mass = counts[:, None] * _posterior(shares, transitions, patterns)
            shares = (mass.sum(0) + 1e-6) / (mass.sum() + groups * 1e-6)
            joint = np.einsum("pa,pjg->jag", mass, one_hot) + 1e-6
            transitions = joint / joint.sum(-1, keepdims=True)
        return Consensus(shares, transitions)

    def groups_of(self, said: np.ndarray) -> np.ndarray:
        """P(a | what proxies say), (rows, groups)."""
        return _posterior(self.shares, self.transitions, said)


def _posterior(shares: np.ndarray, transitions: np.ndarray, said: np.ndarray) -> np.ndarray:
    joint = shares * np.prod([of[:, said[:, j]].T for j, of in enumerate(transitions)], axis=0)
    return np.asarray(joint / joint.sum(-1, keepdims=True))
