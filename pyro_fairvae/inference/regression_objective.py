"""The objective of SVI where the outcome is a number."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.guides import Encoding, StatedOrNormal
from pyro_fairvae.inference.objective import FairELBO, GuidedRun, beliefs, evidence_of_x
from pyro_fairvae.models import FairRegressionVAE, FairSSVAE
from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.risks import Estimate, NumberRiskLoss
from pyro_fairvae.schema.observed import Batch


class RegressionELBO(FairELBO):
    r"""The objective of :class:`FairELBO` where y is a number, one for each member:

    .. math::
        -\frac1B \sum_i \big[ \kappa\,\mathrm{ELBO}_i
        + s\,( \log \sum_a h(a|x_i) P(\tilde a_i|a) + \log \textstyle\int g(y|x_i) P(\tilde y_i|y)\,dy ) \big]
        + \frac{\kappa + s}{n} \mathrm{KL}_\mathrm{channels} + \frac{\kappa}{n} \mathrm{KL}_\pi
        + \omega\, \hat{\mathcal R} + \lambda \hat{\mathcal E}

    The integral is :math:`g(\tilde y|x) P(\text{stated}|\tilde y)` of a row that states ỹ, and
    :math:`\sum_l g(l|x) P(∅|l)` over levels, with g(l|x) the mass of a level, of a row that does not: P(∅|y)
    is constant within levels. The ELBO enumerates a and draws an unstated y by reparametrisation, but of y's
    withholding: a step function of y has no gradient along a draw, so that
    :math:`E_q \log P(∅|y) = \sum_l q(l|x) \log P(∅|l)` is computed in closed form. R̂ is the squared error of
    the prediction ŷ = E_f[y|x], for all members: the density alone would care least where y varies most.
    """

    closed_sites = ("y_obs",)
    risk: NumberRiskLoss

    def elbo_rows(self, rows: int) -> int:
        return rows

    def _closed_form_kls(
        self, run: GuidedRun, model: FairSSVAE, batch_rows: int, kl_share: float
    ) -> dict[str, Tensor]:
        kls = super()._closed_form_kls(run, model, batch_rows, kl_share)
        posterior = run.guide_trace.nodes["y"]["fn"]
        assert isinstance(posterior, StatedOrNormal)
        assert isinstance(model, FairRegressionVAE)
        log_channel = run.encoding.log_channel_y
        free = posterior.free
        own = Mixture(
            torch.zeros_like(free.loc).unsqueeze(-1), free.loc.unsqueeze(-1), free.scale.unsqueeze(-1)
        )
        stated = posterior.stated.unsqueeze(-1)
        share = torch.where(stated, 1.0, own.log_masses(model.edges).exp())
        # Of a stated row only its own level is possible.
        expected = (share * log_channel.masked_fill(log_channel.isinf(), 0.0)).sum(-1)
        return kls | {"y_obs": -run.summed(expected) / expected.shape[-1] * self.weights.kappa}

    def _beside_elbo(
        self,
        encoding: Encoding,
        batch: Batch,
        model: FairSSVAE,
        risk_share: float,
        noise: MemberNoise | None,
    ) -> tuple[Estimate, dict[str, Tensor]]:
        assert encoding.heads.density is not None
        assert batch.outcome is not None
        density = Mixture.of(encoding.heads.density)
        stated = model.channel_y.stated(batch.y_obs)
        imputation = beliefs(encoding, model.channel_a.stated(batch.a_obs))
        learned = imputation.log_joint.flatten(-2).logsumexp(-1)
        if encoding.heads.group_logits_of_x is not None:
            learned = learned + evidence_of_x(encoding, imputation)
        predicted = density.mean
        risk = self.risk(predicted, imputation, self.lambdas, noise, batch.weight)
        return risk, {
            "groups": -self.weights.s * batch.mean(encoding.log_joint_a.logsumexp(-1)),
            "labels": -self.weights.s * batch.mean(evidence_of_outcome(encoding, batch.outcome, stated)),
            "imputer": -batch.mean(learned),
            "decisions": self.weights.omega
            * self.risk.squared_error(predicted, imputation, batch.outcome, stated, batch.weight),
            "risk": risk_share * risk.penalty,
        }

    @torch.no_grad()
    def _enumerated_parts(self, run: GuidedRun, batch_rows: int) -> dict[str, Tensor]:
        model_nodes, guide_nodes = run.model_trace.nodes, run.guide_trace.nodes
        q_a = guide_nodes["a"]["unscaled_log_prob"].exp()  # (groups, members, rows)
        scale = self.weights.kappa / batch_rows

        def expected(log_prob: Tensor) -> Tensor:
            return run.summed((q_a * log_prob).sum(0)) * scale

        parts = {
            site: -expected(model_nodes[site]["unscaled_log_prob"])
            * (1.0 if site == "a_obs" else self.weights.reconstruction_weight)
            for site in ("x", "u", "a_obs")
            if site in model_nodes
        }
        for site in ("y", "a"):
            log_ratio = guide_nodes[site]["unscaled_log_prob"] - model_nodes[site]["unscaled_log_prob"]
            parts[f"kl_{site}"] = expected(log_ratio)
        return parts


def evidence_of_outcome(encoding: Encoding, outcome: Tensor, stated: Tensor) -> Tensor:
    """log ∫ g(y|x) P(ỹ|y) dy of each row, (members, rows)."""
    assert encoding.heads.density is not None
    log_density = Mixture.of(encoding.heads.density).log_prob(outcome)
    at_level = encoding.log_channel_y.amax(-1)  # of a stated row: P(stated|l) of its level, the others are −∞
    return torch.where(stated, log_density + at_level, encoding.log_joint_y.logsumexp(-1))
