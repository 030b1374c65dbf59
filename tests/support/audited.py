"""People whose groups, labels and decisions follow known rates, some of whom withhold their group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyro_fairvae.auditing import AUDITED
from pyro_fairvae.auditing.control_variates import AuditedRows


@dataclass(frozen=True)
class People:
    """``score`` tells of the group, ``proba`` is P(a | score, y, ŷ), and ``rates`` P(ŷ | y, a), (a, y, ŷ)."""

    y: np.ndarray
    decided: np.ndarray
    group: np.ndarray
    score: np.ndarray
    proba: np.ndarray
    label_shares: np.ndarray  # P(y | a), (groups, classes)
    rates: np.ndarray

    @property
    def true_rates(self) -> np.ndarray:
        """In the order of an audit's lines."""
        odds = np.einsum("gcc->cg", self.rates)
        parity = np.einsum("gy,gyc->cg", self.label_shares, self.rates)
        return np.concatenate([odds.ravel(), parity.ravel()])

    @property
    def truth(self) -> dict[str, float]:
        odds, parity = self.true_rates.reshape(2, self.rates.shape[1], -1)
        return dict(
            zip(AUDITED, (np.ptp(odds, 1).max(), np.ptp(odds[-1]), np.ptp(parity, 1).max()), strict=True)
        )


def draw_people(rows: int, classes: int = 2, groups: int = 2, seed: int = 0) -> People:
    """People of known rates; groups differ in labels, decisions and in a score of two deviations apart."""
    generator = np.random.default_rng(seed)
    share = np.arange(groups, 2 * groups) / np.arange(groups, 2 * groups).sum()
    labels = np.array([np.roll(np.linspace(1, 2, classes), g) for g in range(groups)])
    labels /= labels.sum(1, keepdims=True)
    right = np.linspace(0.85, 0.6, groups)[:, None] + np.linspace(0, 0.1, classes)
    rates = np.einsum("gy,yc->gyc", (1 - right) / (classes - 1), np.ones((classes, classes)))
    rates[:, np.arange(classes), np.arange(classes)] = right
    group = generator.choice(groups, p=share, size=rows)
    y = _draw(generator, labels[group])
    decided = _draw(generator, rates[group, y])
    score = generator.normal(size=rows) + 2 * group
    density = np.exp(-0.5 * (score[:, None] - 2 * np.arange(groups)) ** 2)
    joint = share * density * labels[:, y].T * rates[:, y, decided].T
    return People(y, decided, group, score, joint / joint.sum(1, keepdims=True), labels, rates)


def stating(
    people: People, of_group: list[float], of_label: list[float] | None = None, seed: int = 0
) -> np.ndarray:
    """Groups as words, None where withheld; stated in so many cases of a group, times those of a label."""
    states = np.array(of_group)[people.group] * (1 if of_label is None else np.array(of_label)[people.y])
    stated = np.random.default_rng([seed, 1]).random(len(states)) < states
    return np.where(stated, people.group.astype(str).astype(object), None)


def rows_of(people: People, said: np.ndarray) -> AuditedRows:
    """The coded rows of what two groups of two labels said."""
    group = np.array([2 if each is None else int(each) for each in said])
    return AuditedRows(people.y, people.decided, group, 2, 2)


def _draw(generator: np.random.Generator, shares: np.ndarray) -> np.ndarray:
    """An index for each row of shares."""
    return (generator.random(len(shares))[:, None] > shares.cumsum(1)[:, :-1]).sum(1)
