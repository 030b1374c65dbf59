"""The risk in the objective where the outcome is a number: predictions, imputed levels and groups."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.risks.expectation import Estimate
from pyro_fairvae.risks.imputers import Beliefs, impute
from pyro_fairvae.risks.number_gaps import NUMBER_RISKS
from pyro_fairvae.risks.risk_loss import RiskLoss, RiskSettings, check_of_numbers
from pyro_fairvae.schema.number_outcome import NumberOutcome


class NumberRiskLoss(RiskLoss):
    """The estimate Ê of a risk of predicted numbers; its state is the estimator's memory."""

    def __init__(self, settings: RiskSettings, number: NumberOutcome, like: Tensor) -> None:
        check_of_numbers(settings)
        super().__init__(settings)
        self.estimator.relax = _features(settings)
        self.in_bins = torch.from_numpy(number.in_bins).to(like)
        self.centres = torch.from_numpy(number.centres).to(like)

    def __call__(
        self,
        predicted: Tensor,
        beliefs: Beliefs,
        weight: Tensor,
        noise: MemberNoise | None = None,
        of_rows: Tensor | None = None,
    ) -> Estimate:
        """The risk of each member; predictions are (members, rows), λ (members,)."""
        imputed = torch.einsum("krlg,lb->krbg", impute(beliefs, self.settings.imputer), self.in_bins)
        return self.estimator(predicted, imputed, weight, noise, of_rows)

    def squared_error(
        self,
        predicted: Tensor,
        beliefs: Beliefs,
        outcome: Tensor,
        stated: Tensor,
        of_rows: Tensor | None = None,
    ) -> Tensor:
        r"""Cost of a prediction, (members,): its squared error where y is stated, and expected elsewhere.

        An unstated y is imputed as the centre of level l with :math:`P_g(l|x, ∅)`.
        """
        believed = beliefs.label.detach().softmax(-1)
        distance = (predicted.unsqueeze(-1) - self.centres).square()
        expected = (believed * distance).sum(-1)
        squares = torch.where(stated, (predicted - outcome).square(), expected)
        return (squares if of_rows is None else squares * of_rows).mean(-1)


def _features(settings: RiskSettings) -> Callable[[Tensor], Tensor]:
    features = NUMBER_RISKS[settings.risk].features
    return lambda predicted: features(predicted).unsqueeze(-2)  # one for all groups
