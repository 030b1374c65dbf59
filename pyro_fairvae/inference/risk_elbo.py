"""The fairness risk beside anybody's ELBO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro.infer import ELBO
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.risks import RiskLoss, RiskSettings


class RiskELBO(ELBO):
    r"""An ELBO of Pyro's with the fairness risk of a classifier beside it, as a loss for SVI.

    .. math:: -\frac1n \mathrm{ELBO} + \lambda\, \hat{\mathcal E}\, F(P_f, Y, A)

    The expectation is over labels and groups as they are imputed. No gradient of the risk reaches them: a
    classifier cannot become fair by changing what it believes of people.

    Parameters
    ----------
    elbo : pyro.infer.ELBO
        Any with a ``differentiable_loss``, such as ``TraceEnum_ELBO(max_plate_nesting=1)``.
    judge : callable
        Called with the arguments of the model; returns two tensors: the logits of the classifier,
        (rows, classes), and P(y, a | everything that was stated), (rows, classes, groups), by which the
        risk is judged. A row of zeros is left out. Both may have a dimension of members before the rows.
    weight : float or Tensor
        λ, for all members or for each.
    rows : int
        n, the rows that the ELBO is a sum over: the size of the model's plate.
    risk : RiskSettings, optional
        The risk, its estimator and how decisions are softened.

    Attributes
    ----------
    gap : Tensor
        The risk of the last step, without its weight, (members,).

    Examples
    --------
    >>> import pyro, torch
    >>> from pyro.infer import SVI, TraceEnum_ELBO
    >>> from pyro_fairvae import RiskELBO, RiskSettings
    >>> classifier = torch.nn.Linear(2, 2)
    >>> def model(x, y, joint):
    ...     pyro.module("classifier", classifier)
    ...     with pyro.plate("rows", len(x)):
    ...         pyro.sample("y", pyro.distributions.Categorical(logits=classifier(x)), obs=y)
    >>> x, y, a = torch.randn(50, 2), torch.arange(50) % 2, torch.arange(50) % 3 % 2
    >>> joint = torch.eye(4)[2 * y + a].view(50, 2, 2)  # everybody's label and group are known
    >>> loss = RiskELBO(
    ...     TraceEnum_ELBO(max_plate_nesting=1), lambda x, y, joint: (classifier(x), joint),
    ...     weight=1.0, rows=50, risk=RiskSettings(risk="ddp"),
    ... )
    >>> svi = SVI(model, lambda *batch: None, pyro.optim.Adam({"lr": 0.01}), loss)
    >>> _ = svi.step(x, y, joint)
    >>> loss.gap.shape
    torch.Size([1])
    """

    def __init__(
        self,
        elbo: Any,
        judge: Callable[..., tuple[Tensor, Tensor]],
        weight: float | Tensor,
        rows: int,
        risk: RiskSettings | None = None,
    ) -> None:
        super().__init__(max_plate_nesting=elbo.max_plate_nesting)
        require(rows >= 1, f"rows must be at least 1, got {rows}.")
        settings = risk or RiskSettings()
        usual = settings.risk_gradient == "stopped" and not settings.learns_thresholds
        require(
            usual and not settings.has_critics,
            "RiskELBO takes risks with stopped gradients, without critics and learned thresholds.",
        )
        self.elbo, self.judge, self.rows = elbo, judge, rows
        self.weight = torch.as_tensor(weight)
        self.risk = RiskLoss(settings)
        self.gap = torch.zeros(1)

    def _get_trace(self, model: Any, guide: Any, args: Any, kwargs: Any) -> Any:
        return self.elbo._get_trace(model, guide, args, kwargs)

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The loss, ()."""
        elbo_loss = self.elbo.differentiable_loss(model, guide, *args, **kwargs)
        logits, imputed = self.judge(*args, **kwargs)
        require(
            imputed.dim() == logits.dim() + 1 and imputed.shape[: logits.dim()] == logits.shape,
            "judge must return logits (rows, classes) and probabilities (rows, classes, groups), or both "
            f"with members first; it returned {tuple(logits.shape)} and {tuple(imputed.shape)}.",
        )
        if logits.dim() == 2:
            logits, imputed = logits.unsqueeze(0), imputed.unsqueeze(0)
        self.risk.settings.check(imputed.shape[-2], imputed.shape[-1])
        weight = self.weight.to(logits).expand(len(logits))
        estimate = self.risk.estimator(logits, imputed.detach(), weight)
        self.gap = estimate.value.detach()
        loss: Tensor = elbo_loss / self.rows + estimate.penalty.sum()
        return loss

    def loss_and_grads(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """The loss as a number, and its gradient in the parameters."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        loss.backward()
        return loss.item()

    def loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """The loss as a number; unlike a step, it does not change the risk's memory of earlier batches."""
        remembered = self.risk.estimator.state()
        loss = self.differentiable_loss(model, guide, *args, **kwargs).item()
        self.risk.estimator.load_state(remembered)
        return loss
