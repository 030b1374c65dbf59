"""Networks where the outcome is a number, written for one member: heads that are densities, and a decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.nn.encoder import SCORE, Encoder, together
from pyro_fairvae.nn.tabular import ColumnDecoder
from pyro_fairvae.schema.number_outcome import NumberOutcome

COMPONENTS = 3  # of P_f(y|x); their scales depend on x, too
FARTHEST = 4.0  # the imputer of groups clamps standardised numbers there
CURVES = 5  # columns of r's scores besides those of groups


class DensityHead(nn.Module):
    """Parameters of a :class:`Mixture` of features, and the log-masses of levels under it."""

    edges: Tensor

    def __init__(self, features: int, edges: Tensor, components: int = COMPONENTS) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 3 * components)
        self.register_buffer("edges", edges.clone())  # each has its own, as members need
        with torch.no_grad():  # components start apart
            self.linear.bias[components : 2 * components] = torch.linspace(-0.5, 0.5, components)

    def forward(self, features: Tensor) -> Tensor:
        log_masses: Tensor = Mixture.of(self.linear(features)).log_masses(self.edges)
        return log_masses


class OutcomeEncoder(Encoder):
    r"""An encoder whose heads P_f(y|x) and P_g(y|x) are densities of a number.

    In place of logits of classes it returns log-masses of the number's levels, and after all else the
    parameters of P_f. r is h, recalibrated along y and along the prediction ŷ = E_f[y|x]:

    .. math:: r(\cdot|x,l) = \mathrm{softmax}\big(\log h(\cdot|x)
              + W (\log h(\cdot|x), t_l, t_l^2, \hat y, \hat y^2, \hat y t_l, 1)\big),

    with t_l the centre of level l, so that neighbouring levels share what they tell of the group.
    """

    centres: Tensor

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        latent: int,
        number: NumberOutcome,
        groups: int,
        proxies: int = 0,
    ) -> None:
        centres = torch.from_numpy(number.centres).to(torch.get_default_dtype())
        super().__init__(trunk, features, latent, len(centres), groups, proxies=proxies)
        edges = torch.from_numpy(number.edges).to(centres)
        self.register_buffer("centres", centres)
        self.add_module("classifier", DensityHead(features, edges))
        self.add_module("labeller", DensityHead(features, edges))

    def _grouper(self) -> nn.Linear:
        _, groups = self.by_label
        grouper = nn.Linear(groups + CURVES, groups)
        with torch.no_grad():  # r starts at h
            grouper.weight.zero_()
            grouper.bias.zero_()
        return grouper

    def _of_features(self, features: Tensor, u: Tensor | None) -> tuple[Tensor, ...]:
        head = self.get_submodule("classifier")
        assert isinstance(head, DensityHead)
        return (*super()._of_features(features, u), head.linear(features))

    def _narrow(self, features: Tensor) -> tuple[Tensor, ...]:
        z_loc, z_scale, group_logits = together([self.z_loc, self.z_scale, self.group], features)
        return z_loc, z_scale, self.classifier(features), group_logits

    def _by_label(
        self, group_logits: Tensor, class_logits: Tensor, grouper: nn.Linear
    ) -> tuple[Tensor, Tensor]:
        log_h = group_logits.log_softmax(-1).detach().clamp(min=-SCORE).unsqueeze(-2)
        masses = class_logits.detach().softmax(-1)
        t = self.centres.clamp(-FARTHEST, FARTHEST)
        predicted = (masses * t).sum(-1, keepdim=True)  # ŷ, by the centres of levels
        curves = torch.stack(
            torch.broadcast_tensors(t, t.square(), predicted, predicted.square(), predicted * t), dim=-1
        )
        log_h = log_h.expand(*curves.shape[:-1], log_h.shape[-1])
        return group_logits, log_h + grouper(torch.cat([log_h, curves], dim=-1))


class FromNumber(nn.Module):
    """A linear map of a number."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(1, hidden)

    def forward(self, y: Tensor) -> Tensor:
        mapped: Tensor = self.linear(y.unsqueeze(-1))
        return mapped


class OutcomeDecoder(ColumnDecoder):
    """:class:`ColumnDecoder` of a ``y`` that is a number."""

    def __init__(self, latent: int, groups: int, hidden: int, columns: int) -> None:
        super().__init__(latent, 1, groups, hidden, columns)
        self.add_module("from_y", FromNumber(hidden))
