"""What is assumed of the groups and labels that nobody stated.

An imputer says log P(y, a, ỹ, ã | x) up to a constant for each row, (members, rows, classes, groups); a row
of which it says −∞ throughout takes no part in the risk. Labels and groups define the metric and do not
answer for it, so :func:`impute` lets no gradient through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Beliefs:
    """What is known of a batch, each (members, rows, …)."""

    label: Tensor  # log P_g(y|x) P(ỹ|y), (…, classes)
    group: Tensor  # log h(a|x) P(ã|a), (…, groups)
    group_by_label: Tensor  # log r(a|x,y) P(ã|a), (…, classes, groups)
    classified: Tensor  # log g(y|x) P(ỹ|y), (…, classes); what the vanilla risk draws labels from
    group_stated: Tensor  # whether ã is a group


def by_features(beliefs: Beliefs) -> Tensor:
    """P_g(y|x,ỹ) q(a|x,ã), as in the paper: a is imputed without a look at y."""
    return beliefs.label.unsqueeze(-1) + beliefs.group.unsqueeze(-2)


def by_outcome(beliefs: Beliefs) -> Tensor:
    """P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a): unbiased within cells also where a and y depend given x."""
    return beliefs.label.unsqueeze(-1) + beliefs.group_by_label


def rounded(beliefs: Beliefs) -> Tensor:
    """P_g(y|x,ỹ) and the likeliest group, as if it were certain."""
    likeliest = beliefs.group.argmax(-1, keepdim=True)
    certain = torch.full_like(beliefs.group, -torch.inf).scatter(-1, likeliest, 0.0)
    return beliefs.label.unsqueeze(-1) + certain.unsqueeze(-2)


def stated_rows(beliefs: Beliefs) -> Tensor:
    """The paper's imputation on rows with a stated group; the others take no part."""
    stated = beliefs.group_stated.expand(beliefs.group.shape[:-1])[..., None, None]
    return by_features(beliefs).masked_fill(~stated, -torch.inf)


IMPUTERS: dict[str, Callable[[Beliefs], Tensor]] = {
    "features": by_features,
    "outcome": by_outcome,
    "rounded": rounded,
    "stated": stated_rows,
}


def impute(log_joint: Tensor) -> Tensor:
    """P(y, a | x, ỹ, ã), (members, rows, classes, groups), without gradient; 0 for rows that take no part.

    A stated label or group whose channel cannot misstate comes out with probability 1.
    """
    flat = log_joint.detach().flatten(-2)
    return flat.softmax(-1).nan_to_num(0.0).view_as(log_joint)
