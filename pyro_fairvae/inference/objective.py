"""What SVI minimises: the ELBO, the conditional likelihoods of what was written down, the risk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from pyro.infer import TraceEnum_ELBO
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import kl_divergence

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import option
from pyro_fairvae.guides import Encoding, FactoredGuide
from pyro_fairvae.models import FairSSVAE
from pyro_fairvae.risks import Beliefs, RiskLoss
from pyro_fairvae.schema.observed import Batch

# κ, s and ω unless given, by objective; the first's s makes evidence on a channel count once.
OBJECTIVES: dict[str, tuple[float, Callable[[float], float], float]] = {
    "consistent": (0.02, lambda kappa: 1 - kappa, 1.0),
    "paper": (1.0, lambda kappa: 1.0, 0.0),
}


@dataclass(frozen=True)
class ObjectiveWeights:
    """Which likelihoods the objective takes, and the weights of its parts; see :class:`FairELBO`."""

    objective: str = option(
        "consistent", "conditional likelihoods over all rows, or 'paper': over stated rows, with κ = s = 1"
    )
    elbo_weight: float | None = option(None, "κ, weight of the ELBO (default: 0.02, or 1 for 'paper')")
    supervision_weight: float | None = option(
        None,
        "s, weight of the conditional likelihoods (default: 1 − κ: evidence counts once; 1 for 'paper')",
    )
    reconstruction_weight: float = option(1.0, "weight of the reconstruction within the ELBO")
    kl_weight: float = option(1.0, "weight of the KL of z within the ELBO")
    decision_weight: float | None = option(
        None, "ω, weight of the error of softened decisions where λ > 0 (default: 1, or 0 for 'paper')"
    )

    def __post_init__(self) -> None:
        choose("objective", self.objective, OBJECTIVES)
        for name, value in (
            ("elbo_weight", self.kappa),
            ("reconstruction_weight", self.reconstruction_weight),
            ("kl_weight", self.kl_weight),
        ):
            require(0 < value < float("inf"), f"{name} must be positive and finite, got {value}.")
        require(
            0 <= self.omega < float("inf"),
            f"decision_weight must be finite and not negative, got {self.omega}.",
        )
        require(
            0 <= self.s < float("inf"),
            f"supervision_weight must be finite and not negative, got {self.s}; "
            "it is 1 − elbo_weight unless given.",
        )

    @property
    def kappa(self) -> float:
        return OBJECTIVES[self.objective][0] if self.elbo_weight is None else self.elbo_weight

    @property
    def omega(self) -> float:
        return OBJECTIVES[self.objective][2] if self.decision_weight is None else self.decision_weight

    @property
    def s(self) -> float:
        if self.supervision_weight is None:
            return OBJECTIVES[self.objective][1](self.kappa)
        return self.supervision_weight


@dataclass(frozen=True)
class Schedule:
    """Which share of a weight is in force at each share of training done."""

    risk_from: float = option(0.2, "share of training after which λ starts to rise from 0")
    risk_full: float = option(0.6, "share of training from which λ is in full force")
    kl_full: float = option(0.1, "share of training from which the KL of z is in full force")

    def __post_init__(self) -> None:
        require(
            0 <= self.risk_from <= self.risk_full <= 1 and 0 <= self.kl_full <= 1,
            "risk_from, risk_full and kl_full are shares of training within [0, 1], the first at most the "
            f"second; got {self.risk_from}, {self.risk_full} and {self.kl_full}.",
        )

    def risk(self, progress: float) -> float:
        return _ramp(progress, self.risk_from, self.risk_full)

    def kl(self, progress: float) -> float:
        return _ramp(progress, 0.0, self.kl_full)


def _ramp(at: float, start: float, full: float) -> float:
    return 1.0 if at >= full else max(0.0, (at - start) / (full - start))


class FairELBO(TraceEnum_ELBO):
    r"""The objective, one for each member and summed over members for SVI:

    .. math::
        -\frac1B \sum_i \big[ \kappa\,\mathrm{ELBO}_i
        + s\,( \log \sum_a h(a|x_i) P(\tilde a_i|a) + \log \sum_y g(y|x_i) P(\tilde y_i|y) ) \big]
        + \frac{\kappa + s}{n} \mathrm{KL}_\mathrm{channels} + \frac{\kappa}{n} \mathrm{KL}_\pi
        + \omega [\lambda > 0]\, \hat{\mathcal R} + \lambda \hat{\mathcal E}

    with B rows in the batch and n in the table. R̂ is the expected error of the softened decisions that Ê
    judges: the likelihoods hardly mind a decision that flips at a probability near one half, so without R̂ the
    cheapest way to be fair is to decide for hardly anybody. Within the ELBO, reconstruction and KL of z have
    weights of their own. The default objective, ``"consistent"``, takes the conditional likelihoods over
    all rows, ∅ included; ``"paper"`` takes them over stated rows only, as the paper prints it, which
    pulls the channels towards "nobody withholds".

    *Evidence counts once.* κ·ELBO + s·log Σ_a h P(ã|a) holds the evidence on a channel κ + s times, so
    the channels' KL carries κ + s, too: a prior worth m people weighs as m people at any weights.

    KLs of z, π and the channels are taken in closed form; y and a are enumerated by TraceEnum_ELBO.
    The imputers P_g and r have a likelihood of their own, log Σ_{y,a} P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a), which
    reaches their heads only.

    ``lambdas`` is λ, a number for each member. After each step :attr:`parts` holds every part,
    a (members,) tensor each, with the sign and weight that it has in the sum; :attr:`gap` is the risk
    without its weight, :attr:`gap_error` its Monte Carlo standard error, and :attr:`cells` says how far the
    rate of each cell is from that over all groups.
    """

    def __init__(
        self,
        rows: int,
        lambdas: Tensor,
        risk: RiskLoss,
        weights: ObjectiveWeights | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(max_plate_nesting=2)
        self.rows = rows
        self.lambdas = lambdas
        self.risk = risk
        self.weights = weights or ObjectiveWeights()
        self.schedule = schedule or Schedule()
        self.progress = 1.0
        self.parts: dict[str, Tensor] = {}
        self.gap = self.gap_error = torch.zeros_like(lambdas)
        self.cells = lambdas.new_zeros(len(lambdas), 0)

    def _get_trace(self, model: Any, guide: Any, args: Any, kwargs: Any) -> Any:
        self._traces = super()._get_trace(model, guide, args, kwargs)
        return self._traces

    def loss_and_grads(self, model: FairSSVAE, guide: FactoredGuide, batch: Batch) -> float:
        loss = self.differentiable_loss(model, guide, batch)
        loss.backward()
        return loss.item()

    def loss(self, model: FairSSVAE, guide: FactoredGuide, batch: Batch) -> float:
        """The objective as a number; unlike a step, it leaves the risk's memory as it was."""
        remembered = self.risk.estimator.state()
        with torch.enable_grad():  # TraceEnum_ELBO refuses to compute what cannot be differentiated
            loss = self.differentiable_loss(model, guide, batch).item()
        self.risk.estimator.load_state(remembered)
        return loss

    def differentiable_loss(self, model: FairSSVAE, guide: FactoredGuide, batch: Batch) -> Tensor:
        """The objective, summed over members; :attr:`parts` is set beside it."""
        scales = SiteScales(self.weights, batch.rows)
        enumerated = super().differentiable_loss(scales(model), scales(guide), batch)
        encoding = self._traces[1].nodes["_RETURN"]["value"]
        closed = self._closed_form_kls(batch.rows)
        beside = self._beside_elbo(encoding, batch, model)
        self._report(closed | beside, batch.rows)
        return enumerated + sum(part.sum() for part in (closed | beside).values())

    def _closed_form_kls(self, batch_rows: int) -> dict[str, Tensor]:
        """KLs that :class:`SiteScales` took out of the enumerated ELBO, with their weights."""
        model_trace, guide_trace = self._traces
        weights = self.weights
        kl_weight = weights.kappa * weights.kl_weight * self.schedule.kl(self.progress)
        parts = {"kl_z": self.lambdas.new_zeros(())}
        parts |= {"kl_channels": parts["kl_z"], "kl_pi": parts["kl_z"]}
        for name, site in guide_trace.nodes.items():
            if site["type"] != "sample" or not in_closed_form(name):
                continue
            kl = kl_divergence(site["fn"], model_trace.nodes[name]["fn"]).sum(-1)
            if name == "z":
                parts["kl_z"] = kl * (kl_weight / batch_rows)
            elif name.startswith("channel_"):
                parts["kl_channels"] = parts["kl_channels"] + kl * ((weights.kappa + weights.s) / self.rows)
            else:
                parts["kl_pi"] = parts["kl_pi"] + kl * (weights.kappa / self.rows)
        return parts

    def _beside_elbo(self, encoding: Encoding, batch: Batch, model: FairSSVAE) -> dict[str, Tensor]:
        evidence_a = encoding.log_joint_a.logsumexp(-1)
        evidence_y = encoding.log_joint_y.logsumexp(-1)
        if self.weights.objective == "paper":
            evidence_a = evidence_a * model.channel_a.stated(batch.a_obs)
            evidence_y = evidence_y * model.channel_y.stated(batch.y_obs)
        share = self.schedule.risk(self.progress)
        held = beliefs(encoding, model.channel_a.stated(batch.a_obs))
        learned = held.log_joint.flatten(-2).logsumexp(-1)
        if batch.propagated_labels is not None:
            held = by_propagation(
                held, batch.propagated_labels, encoding, model.channel_y.stated(batch.y_obs)
            )
        risk = self.risk(encoding.heads.class_logits, held, self.lambdas)
        decisions = self.risk.decision_error(encoding.heads.class_logits, held)
        self.gap, self.gap_error, self.cells = risk.value.detach(), risk.standard_error, risk.cells
        return {
            "groups": -self.weights.s * evidence_a.mean(-1),
            "labels": -self.weights.s * evidence_y.mean(-1),
            "imputer": -learned.mean(-1),
            "decisions": share * self.weights.omega * (self.lambdas > 0) * decisions,
            "risk": share * risk.penalty,
        }

    @torch.no_grad()
    def _report(self, beside: dict[str, Tensor], batch_rows: int) -> None:
        """Split the enumerated ELBO by site and member, E_q of each site's term over y and a."""
        model_trace, guide_trace = self._traces
        q_y, q_a = (guide_trace.nodes[site]["unscaled_log_prob"].exp() for site in ("y", "a"))
        both = q_a * q_y  # (groups, classes, members, rows)

        def expected(log_prob: Tensor) -> Tensor:
            return (both * log_prob).sum((0, 1, -1))

        parts = {}
        scale = self.weights.kappa / batch_rows
        for site in ("x", "a_obs", "y_obs"):
            term = expected(model_trace.nodes[site]["unscaled_log_prob"])
            parts[site] = -term * scale * (self.weights.reconstruction_weight if site == "x" else 1.0)
        for site in ("y", "a"):
            log_ratio = (
                guide_trace.nodes[site]["unscaled_log_prob"] - model_trace.nodes[site]["unscaled_log_prob"]
            )
            parts[f"kl_{site}"] = expected(log_ratio) * scale
        parts |= {name: part.detach() for name, part in beside.items()}
        self.parts = {name: part.expand_as(self.lambdas) for name, part in parts.items()}


def beliefs(encoding: Encoding, group_stated: Tensor) -> Beliefs:
    """What an encoding says of labels and groups, as imputers take it, with the channels held fixed."""
    heads = encoding.heads
    return Beliefs(
        label=heads.label_logits.log_softmax(-1) + encoding.log_channel_y.detach(),
        group=encoding.log_joint_a,
        grouper=heads.group_logits_by_label.log_softmax(-1),
        group_channel=encoding.log_channel_a.detach(),
        classified=encoding.log_joint_y,
        group_stated=group_stated,
    )


def by_propagation(held: Beliefs, propagated: Tensor, encoding: Encoding, label_stated: Tensor) -> Beliefs:
    """The same with propagated labels, which have read ỹ where it is stated.

    Propagation has seen stated labels only, P(y|x) P(ỹ≠∅|y) up to a constant, so a row with ∅ takes the odds
    of ∅ given y on top of it.
    """
    log_unavailable = encoding.log_channel_y.detach()
    odds = log_unavailable - (-log_unavailable.expm1()).log()
    return replace(held, label=propagated.log() + torch.where(label_stated.unsqueeze(-1), 0.0, odds))


def in_closed_form(site: str) -> bool:
    """Whether the KL of a site is taken in closed form, outside the enumerated ELBO."""
    return site == "z" or site.startswith(("channel_", "pi"))


class SiteScales(Messenger):
    """Gives each row's sites their weight, and takes the closed-form sites out of the sampled ELBO."""

    def __init__(self, weights: ObjectiveWeights, batch_rows: int) -> None:
        super().__init__()
        self.row = weights.kappa / batch_rows
        self.x = self.row * weights.reconstruction_weight

    def _pyro_sample(self, msg: Any) -> None:
        if in_closed_form(msg["name"]):
            msg["mask"] = False
        elif not site_is_subsample(msg):
            msg["scale"] = msg["scale"] * (self.x if msg["name"] == "x" else self.row)
