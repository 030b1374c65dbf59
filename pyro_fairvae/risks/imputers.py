"""What is assumed of the groups and labels that nobody stated."""

from __future__ import annotations

from torch import Tensor


def impute(log_joint_label: Tensor, log_joint_a: Tensor) -> Tensor:
    """P(y, a | row) = P_g(y|x,ỹ) q(a|x,ã), (members, rows, classes, groups), without gradient.

    ``log_joint_label`` is log P_g(y|x) P(ỹ|y) up to a constant, ``log_joint_a`` is log h(a|x) P(ã|a).
    A stated label whose channel cannot misstate comes out with probability 1, as does a stated group.
    Labels and groups define the metric and do not answer for it, hence no gradient.
    """
    labels = log_joint_label.detach().softmax(-1)
    groups = log_joint_a.detach().softmax(-1)
    return labels.unsqueeze(-1) * groups.unsqueeze(-2)
