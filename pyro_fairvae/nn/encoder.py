"""The encoder: a trunk and its heads, written for one member."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

PROXY_UNITS = 32  # of the hidden layer on proxies
SCORE = 8.0  # the imputer of groups clamps log-probabilities at −SCORE


class Encoded(NamedTuple):
    """The outputs of an encoder; each is (members, rows, …) after :mod:`~pyro_fairvae.nn.members`."""

    z_loc: Tensor
    z_scale: Tensor
    class_logits: Tensor  # g(y|x), the classifier
    group_logits: Tensor  # h(a|x), or h(a|x,u) where proxies u were given
    # For the risk; none has a gradient into the trunk.
    features: Tensor  # of the trunk
    label_logits: Tensor  # P_g(y|x)
    group_logits_by_label: Tensor  # r(a|x,y), (…, classes, groups), or r(a|x,u,y)
    # Where proxies were given: h(a|x) and r(a|x,y), which decisions use.
    group_logits_of_x: Tensor | None = None
    group_logits_by_label_of_x: Tensor | None = None
    # logit τ where thresholds are learned, (members, groups or 1).
    log_odds_thresholds: Tensor | None = None
    # Where the label is a number, whose levels take the place of classes: parameters of P_f(y|x), a mixture.
    density: Tensor | None = None

    def without_proxies(self) -> Encoded:
        """The outputs that depend on x alone."""
        if self.group_logits_of_x is None or self.group_logits_by_label_of_x is None:
            return self
        return self._replace(
            group_logits=self.group_logits_of_x,
            group_logits_by_label=self.group_logits_by_label_of_x,
            group_logits_of_x=None,
            group_logits_by_label_of_x=None,
        )


class ProxyLogits(nn.Module):
    """What proxies u add to the logits of groups: a linear map, and a small network."""

    def __init__(self, proxies: int, groups: int) -> None:
        super().__init__()
        self.straight = nn.Linear(proxies, groups)
        self.bent = nn.Sequential(nn.Linear(proxies, PROXY_UNITS), nn.ReLU(), nn.Linear(PROXY_UNITS, groups))

    def forward(self, u: Tensor) -> Tensor:
        logits: Tensor = self.straight(u) + self.bent(u)
        return logits


class Encoder(nn.Module):
    r"""A trunk and its heads: q(z|x), g(y|x), h(a|x), and the imputers P_g(y|x) and r(a|x,y).

    r is h, recalibrated for each y from the scores of h and of the classifier:

    .. math:: r(\cdot|x,y) = \mathrm{softmax}(U_y \log h(\cdot|x) + V_y \log g(\cdot|x) + b_y).

    A gap compares the classifier's scores within a cell, so the imputed groups must be calibrated along these
    scores. So few parameters can be learned from the few rows of a rare cell that state their group.

    With ``proxies``, the number of columns of u, a small network of u adds to the logits of h, and so enters
    r; z, g and P_g depend on x alone. Heads of their own, without a gradient into the trunk, give h(a|x) and
    r(a|x,y), which decisions use; without u they are all that is returned for groups.

    ``apart`` removes from z the features that h and g use: z should hold the remainder of x given a and y,
    and a decoder that can infer both from z ignores a and y themselves.
    """

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        latent: int,
        classes: int,
        groups: int,
        apart: bool = False,
        proxies: int = 0,
    ) -> None:
        super().__init__()
        self.trunk, self.apart = trunk, apart
        self.z_loc = nn.Linear(features, latent)
        self.z_scale = nn.Linear(features, latent)
        self.classifier = nn.Linear(features, classes)
        self.group = nn.Linear(features, groups)
        self.labeller = nn.Linear(features, classes)
        self.by_label = (classes, groups)
        self.grouper = self._grouper()
        self.proxies = proxies
        if proxies:
            self.from_u = ProxyLogits(proxies, groups)
            self.group_of_x = nn.Linear(features, groups)
            self.grouper_of_x = self._grouper()

    def _grouper(self) -> nn.Linear:
        classes, groups = self.by_label
        grouper = nn.Linear(groups + classes, classes * groups)
        with torch.no_grad():  # r starts at h
            grouper.weight.copy_(torch.eye(groups, groups + classes).repeat(classes, 1))
            grouper.bias.zero_()
        return grouper

    def forward(self, x: Tensor, u: Tensor | None = None) -> tuple[Tensor, ...]:
        return self._of_features(self.trunk(x), u)

    def _of_features(self, features: Tensor, u: Tensor | None) -> tuple[Tensor, ...]:
        fixed = features.detach()
        z_loc, z_scale, class_logits, group_logits = self._narrow(features)
        outputs: tuple[Tensor, ...] = ()
        if self.proxies:
            outputs = self._by_label(self.group_of_x(fixed), class_logits, self.grouper_of_x)
        if not self.proxies or u is not None:
            if u is not None:
                group_logits = group_logits + self.from_u(u)
            outputs = (*self._by_label(group_logits, class_logits, self.grouper), *outputs)
        group_logits, by_label, *of_x = outputs
        return (
            z_loc,
            nn.functional.softplus(z_scale) + 1e-3,
            class_logits,
            group_logits,
            fixed,
            self.labeller(fixed),
            by_label,
            *of_x,
        )

    def _narrow(self, features: Tensor) -> tuple[Tensor, ...]:
        """The outputs of the heads for z (its scale before softplus), classes and groups."""
        heads = [self.z_loc, self.z_scale, self.classifier, self.group]
        if self.apart:
            return (*together(heads[:2], self._rest(features)), *together(heads[2:], features))
        return together(heads, features)

    def _by_label(
        self, group_logits: Tensor, class_logits: Tensor, grouper: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        """Logits of groups, and those recalibrated for each label."""
        scores = torch.cat([group_logits.log_softmax(-1), class_logits.log_softmax(-1)], dim=-1)
        return group_logits, grouper(scores.detach().clamp(min=-SCORE)).unflatten(-1, self.by_label)

    def _rest(self, features: Tensor) -> Tensor:
        """Features without the directions that h and g use to separate groups and classes."""
        heads = [head.weight.detach() for head in (self.group, self.classifier)]
        contrasts = torch.cat([weight[1:] - weight[:1] for weight in heads])
        basis, _ = torch.linalg.qr(contrasts.T)
        return features - features @ basis @ basis.T


def together(heads: list[nn.Linear], features: Tensor) -> tuple[Tensor, ...]:
    """The outputs of linear heads, by one product: narrow ones cost more than their share."""
    weight, bias = torch.cat([head.weight for head in heads]), torch.cat([head.bias for head in heads])
    outputs = nn.functional.linear(features, weight, bias)
    return outputs.split([head.out_features for head in heads], dim=-1)
