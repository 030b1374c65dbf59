"""What is assumed of the groups and labels that nobody stated.

An imputer is log P(y, a, ỹ, ã | x) up to a constant for each row, (members, rows, classes, groups). Labels
and groups define the metric and do not answer for it, so :func:`impute` lets no gradient through.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def by_features(log_joint_label: Tensor, log_joint_a: Tensor, log_joint_group_by_label: Tensor) -> Tensor:
    """P_g(y|x,ỹ) q(a|x,ã), as in the paper: a is imputed without a look at y."""
    return log_joint_label.unsqueeze(-1) + log_joint_a.unsqueeze(-2)


def by_outcome(log_joint_label: Tensor, log_joint_a: Tensor, log_joint_group_by_label: Tensor) -> Tensor:
    """P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a): unbiased within cells also where a and y depend given x."""
    return log_joint_label.unsqueeze(-1) + log_joint_group_by_label


IMPUTERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "features": by_features,
    "outcome": by_outcome,
}


def impute(log_joint: Tensor) -> Tensor:
    """P(y, a | x, ỹ, ã), (members, rows, classes, groups), without gradient.

    A stated label or group whose channel cannot misstate comes out with probability 1.
    """
    return log_joint.detach().flatten(-2).softmax(-1).view_as(log_joint)
