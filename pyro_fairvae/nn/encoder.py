"""The encoder: a trunk and its heads, written for one member."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

SCORE = 8.0  # the imputer of groups clamps log-probabilities at −SCORE


class Encoded(NamedTuple):
    """The outputs of an encoder; each is (members, rows, …) after :mod:`~pyro_fairvae.nn.members`."""

    z_loc: Tensor
    z_scale: Tensor
    class_logits: Tensor  # g(y|x), the classifier
    group_logits: Tensor  # h(a|x)
    # For the risk; none has a gradient into the trunk.
    features: Tensor  # of the trunk
    label_logits: Tensor  # P_g(y|x)
    group_logits_by_label: Tensor  # r(a|x,y), (…, classes, groups)


class Encoder(nn.Module):
    r"""A trunk and its heads: q(z|x), g(y|x), h(a|x), and the imputers P_g(y|x) and r(a|x,y).

    r is h, recalibrated for each y from the scores of h and of the classifier:

    .. math:: r(\cdot|x,y) = \mathrm{softmax}(U_y \log h(\cdot|x) + V_y \log g(\cdot|x) + b_y).

    A gap compares the classifier's scores within a cell, so the imputed groups must be calibrated along these
    scores. So few parameters can be learned from the few rows of a rare cell that state their group.

    ``apart`` removes from z the features that h and g use: z should hold the remainder of x given a and y,
    and a decoder that can infer both from z ignores a and y themselves.
    """

    def __init__(
        self, trunk: nn.Module, features: int, latent: int, classes: int, groups: int, apart: bool = False
    ) -> None:
        super().__init__()
        self.trunk, self.apart = trunk, apart
        self.z_loc = nn.Linear(features, latent)
        self.z_scale = nn.Linear(features, latent)
        self.classifier = nn.Linear(features, classes)
        self.group = nn.Linear(features, groups)
        self.labeller = nn.Linear(features, classes)
        self.grouper = nn.Linear(groups + classes, classes * groups)
        self.by_label = (classes, groups)
        with torch.no_grad():  # r starts at h
            self.grouper.weight.copy_(torch.eye(groups, groups + classes).repeat(classes, 1))
            self.grouper.bias.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = self.trunk(x)
        fixed = features.detach()
        class_logits, group_logits = self.classifier(features), self.group(features)
        scores = torch.cat([group_logits.log_softmax(-1), class_logits.log_softmax(-1)], dim=-1)
        rest = self._rest(features) if self.apart else features
        return (
            self.z_loc(rest),
            nn.functional.softplus(self.z_scale(rest)) + 1e-3,
            class_logits,
            group_logits,
            fixed,
            self.labeller(fixed),
            self.grouper(scores.detach().clamp(min=-SCORE)).unflatten(-1, self.by_label),
        )

    def _rest(self, features: Tensor) -> Tensor:
        """Features without the directions that h and g use to separate groups and classes."""
        heads = [head.weight.detach() for head in (self.group, self.classifier)]
        contrasts = torch.cat([weight[1:] - weight[:1] for weight in heads])
        basis, _ = torch.linalg.qr(contrasts.T)
        return features - features @ basis @ basis.T
