"""SVI whose steps return their measurements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyro import poutine
from pyro.infer import SVI
from pyro.infer.util import zero_grads

from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.guides import FactoredGuide
from pyro_fairvae.inference.objective import FairELBO, Measured
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.models import FairSSVAE
from pyro_fairvae.schema.observed import Batch


class MeasuredSVI(SVI):
    """:class:`pyro.infer.SVI` over a :class:`FairELBO`.

    :meth:`pyro.infer.SVI.step` returns only the loss as a number; here it returns everything that the
    objective measured. It is otherwise the same, with the objective and the learning rates scheduled for the
    share ``progress`` of training done. Critics of the risk, if it has any, take their steps afterwards: a
    batch is judged by critics that have not seen it.
    """

    def __init__(
        self, model: FairSSVAE, guide: FactoredGuide, optimizer: MembersAdamW, objective: FairELBO
    ) -> None:
        super().__init__(model, guide, optimizer, objective)
        self.objective = objective

    def step(self, batch: Batch, progress: float, noise: MemberNoise | None = None) -> Measured:
        with poutine.trace(param_only=True) as capture:
            evaluation = self.objective.evaluate(self.model, self.guide, batch, progress, noise)
            evaluation.loss.backward()
        sites: Iterable[Any] = capture.trace.nodes.values()
        params = {site["value"].unconstrained() for site in sites}
        self.optim(params, cosine_share(progress))
        zero_grads(params)
        self.objective.risk.learn(evaluation.risk.sums)
        return evaluation.measured
