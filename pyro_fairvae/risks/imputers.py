"""Imputation of unstated groups and labels.

An imputer returns P(y, a | x, ỹ, ã) of every row, (members, rows, classes, groups), with zeros for a row that
is excluded from the risk. A stated label or group whose channel cannot misstate has probability 1. Labels and
groups define the metric and must not be changed to lower it, so no imputer passes a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Beliefs:
    """Log-probabilities of labels and groups of a batch, each (members, rows, …)."""

    label: Tensor  # log P_g(y|x) P(ỹ|y), (…, classes)
    group: Tensor  # log h(a|x) P(ã|a), (…, groups)
    grouper: Tensor  # log r(a|x,y), (…, classes, groups)
    group_channel: Tensor  # log P(ã|a), (…, groups), or log P(ã|a,v,y), (…, classes, groups)
    classified: Tensor  # log g(y|x) P(ỹ|y), (…, classes); the vanilla risk draws labels from it
    group_stated: Tensor  # whether ã is a group
    given: Tensor | None = None  # P(y, a|x, ỹ, ã), (…, classes, groups), if known from elsewhere

    @property
    def log_joint(self) -> Tensor:
        """log P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a), (…, classes, groups)."""
        return self.label.unsqueeze(-1) + self.grouper + self.group_channel_by_label

    @property
    def group_channel_by_label(self) -> Tensor:
        """log P(ã|a), (…, 1, groups), or log P(ã|a,v,y), (…, classes, groups)."""
        by_label = self.group_channel.dim() == self.grouper.dim()
        return self.group_channel if by_label else self.group_channel.unsqueeze(-2)


def _softmax(log_joint: Tensor) -> Tensor:
    """Normalise over the last two dimensions; 0 for rows whose entries are all −∞."""
    return log_joint.flatten(-2).softmax(-1).nan_to_num(0.0).view_as(log_joint)


def by_features(beliefs: Beliefs) -> Tensor:
    """P_g(y|x,ỹ) q(a|x,ã), as in the paper: a is imputed without y."""
    return _softmax(beliefs.label.unsqueeze(-1) + beliefs.group.unsqueeze(-2))


def by_outcome(beliefs: Beliefs) -> Tensor:
    """P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a): unbiased within cells also where a and y depend given x."""
    return _softmax(beliefs.log_joint)


def rounded(beliefs: Beliefs) -> Tensor:
    """P_g(y|x,ỹ) and the likeliest group, as if it were certain."""
    likeliest = beliefs.group.argmax(-1, keepdim=True)
    certain = torch.full_like(beliefs.group, -torch.inf).scatter(-1, likeliest, 0.0)
    return _softmax(beliefs.label.unsqueeze(-1) + certain.unsqueeze(-2))


def stated_rows(beliefs: Beliefs) -> Tensor:
    """The paper's imputation on rows with a stated group; other rows are excluded."""
    stated = beliefs.group_stated.expand(beliefs.group.shape[:-1])[..., None, None]
    return by_features(beliefs).masked_fill(~stated, 0.0)


def by_control_variate(beliefs: Beliefs) -> Tensor:
    r"""Rows with a stated group, corrected by imputations without ã as a control variate:

    .. math:: P_g(y|x,\tilde y)\, r(a|x,y) + \frac{[\tilde a \ne ∅]}{P(\tilde a|a=\tilde a)}
              \big( P(y,a|x,\tilde y,\tilde a) - P_g(y|x,\tilde y)\, r(a|x,y) \big).

    Where missing depends only on what the channel depends on and nobody misstates, sums of this over rows
    with a stated label have the right expectation whatever r is; a bad r costs variance. Entries may be
    negative, so nothing can be drawn from it.
    """
    guess = beliefs.label.softmax(-1).unsqueeze(-1) * beliefs.grouper.softmax(-1)
    stated = beliefs.group_stated.expand(beliefs.group.shape[:-1])
    chance = beliefs.group_channel_by_label.exp().sum(-1)  # of a stated row: P(ã | a = ã), for each label
    weight = torch.where(stated.unsqueeze(-1), 1 / chance, 0.0).unsqueeze(-1)
    return guess + weight * (by_outcome(beliefs) - guess)


IMPUTERS: dict[str, Callable[[Beliefs], Tensor]] = {
    "features": by_features,
    "outcome": by_outcome,
    "rounded": rounded,
    "stated": stated_rows,
    "control_variate": by_control_variate,
}

PROBABILITIES = ("outcome", "features", "rounded")  # imputers that give group probabilities for every row
# Their replacements for the other imputers where every row needs a probability.
STANDS_IN = {"control_variate": "outcome", "stated": "features"}


def impute(beliefs: Beliefs, imputer: str) -> Tensor:
    """P(y, a | x, ỹ, ã), (members, rows, classes, groups), by an imputer of IMPUTERS, without gradient.

    Where it is ``given``, it is what is given.
    """
    if beliefs.given is not None:
        return beliefs.given.expand_as(beliefs.grouper)
    with torch.no_grad():
        return IMPUTERS[imputer](beliefs)
