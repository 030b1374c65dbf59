"""The objective of SVI: the ELBO, the conditional likelihoods of the recorded values, the risk."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from pyro.distributions import TorchDistribution
from pyro.infer import TraceEnum_ELBO
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import site_is_subsample
from torch import Tensor
from torch.distributions import Dirichlet, Independent, Normal, kl_divergence

from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.guides import Encoding, FactoredGuide
from pyro_fairvae.inference.schedule import Schedule
from pyro_fairvae.inference.settings import ObjectiveWeights
from pyro_fairvae.models import FairSSVAE
from pyro_fairvae.risks import Beliefs, Estimate, RiskLoss
from pyro_fairvae.risks.relaxations import shift
from pyro_fairvae.schema.observed import Batch

OF_ALL_ROWS = ("kl_channels", "kl_pi")  # parts of the objective that are no sums over rows
OF_ALL_RANKS = ("risk", "gap", "gap_error")  # measurements that every rank has whole


@dataclass(frozen=True)
class Measured:
    """Measurements of a step: detached tensors, which keep no autograd graph alive.

    ``parts`` holds every part of the objective, (members,) each, with its sign and weight in the sum,
    ``loss``. ``gap`` is the risk without its weight.
    """

    loss: Tensor  # summed over members, ()
    parts: dict[str, Tensor]
    gap: Tensor  # (members,)
    gap_error: Tensor  # its Monte Carlo standard error, (members,)
    cells: Tensor  # distance of each cell's rate from the rate over all groups, (members, cells)


@dataclass(frozen=True)
class Evaluation:
    """The differentiable objective of a batch, and its measurements."""

    loss: Tensor
    measured: Measured
    risk: Estimate


@dataclass(frozen=True)
class GuidedRun:
    """One run of the guide and of the model against it."""

    model_trace: Trace
    guide_trace: Trace
    encoding: Encoding  # what the guide returned
    weight: Tensor | None = None  # of the rows that the ELBO is taken over

    def summed(self, values: Tensor) -> Tensor:
        """Σ over rows, the last dimension, each weighed."""
        return (values if self.weight is None else values * self.weight).sum(-1)

    @property
    def elbo_rows(self) -> int:
        """Number of rows that the ELBO is taken over."""
        return cast(Tensor, self.guide_trace.nodes["z"]["value"]).shape[-2]

    def kl(self, site: str) -> Tensor:
        """KL of a site from its prior in closed form, summed over its last plate, (members,)."""
        return self._kls(site).sum(-1)

    def kl_of_rows(self, site: str) -> Tensor:
        """The same of a site of rows, each weighed."""
        return self.summed(self._kls(site))

    def _kls(self, site: str) -> Tensor:
        posterior, prior = (
            cast(TorchDistribution, trace.nodes[site]["fn"]) for trace in (self.guide_trace, self.model_trace)
        )
        return kl_divergence(posterior, prior)

    def smoothness(self, channel: Channel) -> Tensor:
        """Expected log-density of the bends of an ordered channel, in closed form, (members,)."""
        ratios, variances = [], []
        for site in channel.sites:  # each on its own value and ∅
            posterior = self.guide_trace.nodes[site]["fn"]
            if isinstance(posterior, Dirichlet):
                own, withheld = posterior.concentration.unbind(-1)
                ratios.append(withheld.digamma() - own.digamma())
                variances.append(torch.polygamma(1, withheld) + torch.polygamma(1, own))
            else:
                own, withheld = cast(Tensor, self.guide_trace.nodes[site]["value"]).unbind(-1)
                ratios.append(withheld.log() - own.log())
                variances.append(torch.zeros_like(own))
        return channel.log_smoothness(torch.stack(ratios, -1), torch.stack(variances, -1)).sum(-1)


class FairELBO(TraceEnum_ELBO):
    r"""The objective, one for each member and summed over members for SVI:

    .. math::
        -\frac1B \sum_i \big[ \kappa\,\mathrm{ELBO}_i
        + s\,( \log \sum_a h(a|x_i) P(\tilde a_i|a) + \log \sum_y g(y|x_i) P(\tilde y_i|y) ) \big]
        + \frac{\kappa + s}{n} \mathrm{KL}_\mathrm{channels} + \frac{\kappa}{n} \mathrm{KL}_\pi
        + \omega [\lambda > 0]\, \hat{\mathcal R} + \lambda \hat{\mathcal E}

    with B rows in the batch and n in the table. R̂ is the expected error of the softened decisions that Ê
    judges: the likelihoods hardly change when a decision flips at a probability near one half, so without R̂
    the cheapest way to be fair is to give hardly anybody a positive decision. Within the ELBO, reconstruction
    and KL of z have separate weights. The default objective, ``"consistent"``, takes the conditional
    likelihoods over all rows, ∅ included; ``"paper"`` takes them over stated rows only, as the paper prints
    it, which pulls the channels towards "nobody withholds".

    *Evidence counts once.* κ·ELBO + s·log Σ_a h P(ã|a) counts the evidence on a channel κ + s times, so
    the channels' KL has the weight κ + s, too: a prior worth m people counts as m people at any weights.

    KLs of z, π and the channels, and the expected density of the bends of a number's channel, are computed in
    closed form; y and a are enumerated by TraceEnum_ELBO.
    *The ELBO of some rows.* κ is small, and most of a step's cost is the ELBO's. It is taken over the first
    m = ⌈share · B⌉ rows of the batch, which count for all B: a Pyro plate, subsampled. Rows come in random
    order, so its expectation and that of its gradient are those over all rows. The other parts are
    over all rows. ``weights.elbo_share`` is the share.
    *Rows with weights* :math:`w_i`, whose mean over the table is 1: every term of row i, in the ELBO, the
    likelihoods, R̂ and the sums over cells of Ê, is multiplied by :math:`w_i`. ``rows``, how many people the
    KLs of channels and π are weighed against, is then :math:`n = (\sum w)^2 / \sum w^2` (Kish 1965).


    The imputers P_g and r have a separate likelihood, log Σ_{y,a} P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a), whose
    gradient reaches their heads only.

    *Conditions v and proxies u.* With conditions P(ã|a) is P(ã|a,v) throughout, and the KL of w counts among
    the channels'. With the label in v the evidence on groups is log Σ_y q(y|x,ỹ) Σ_a h(a|x) P(ã|a,v,y), with
    no gradient into q(y|x,ỹ). With proxies h is h(a|x,u) and r is r(a|x,u,y); the heads h(a|x) and r(a|x,y)
    of decisions have likelihoods of their own, whose gradient reaches these heads only.

    *Ranks.* Where ``ranks`` have parts of a batch (``Batch.whole``), each evaluates the summands of its own
    rows, its share of those that are of no row, and the risk at the cell sums of all. The sum of their
    gradients is that of the whole batch, and so is that of their measurements, but for the risk's.

    ``lambdas`` is λ, a number for each member. :meth:`evaluate` returns the loss and its measurements; the
    only state kept between steps is the risk's memory of earlier batches.
    """

    ranks: Ranks = ALONE
    closed_sites: tuple[str, ...] = ()  # further sites of rows that are computed in closed form

    def __init__(
        self,
        rows: float,
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

    def loss_and_grads(
        self, model: FairSSVAE, guide: FactoredGuide, batch: Batch, progress: float = 1.0
    ) -> float:
        loss = self.evaluate(model, guide, batch, progress).loss
        loss.backward()
        return loss.item()

    def loss(self, model: FairSSVAE, guide: FactoredGuide, batch: Batch, progress: float = 1.0) -> float:
        """The objective as a number; unlike a step, it does not change the risk's memory."""
        remembered = self.risk.estimator.state()
        loss = self.evaluate(model, guide, batch, progress).loss.item()
        self.risk.estimator.load_state(remembered)
        return loss

    def differentiable_loss(
        self, model: FairSSVAE, guide: FactoredGuide, batch: Batch, progress: float = 1.0
    ) -> Tensor:
        return self.evaluate(model, guide, batch, progress).loss

    def evaluate(
        self,
        model: FairSSVAE,
        guide: FactoredGuide,
        batch: Batch,
        progress: float = 1.0,
        noise: MemberNoise | None = None,
    ) -> Evaluation:
        """The objective of a batch when the share ``progress`` of training is done.

        All draws use ``noise`` if it is given, otherwise torch's global generator.
        """
        return self.evaluate_run(self.run(model, guide, batch, noise), model, batch, progress, noise)

    def run(
        self, model: FairSSVAE, guide: FactoredGuide, batch: Batch, noise: MemberNoise | None = None
    ) -> GuidedRun:
        """Run the guide, and the model against it, with y and a enumerated."""
        closed = frozenset(
            (
                "z",
                *self.closed_sites,
                *model.prevalence_sites,
                *model.channel_sites,
                *(channel.smoothness_site for channel in model.smooth_channels),
            )
        )
        rows = batch.rows
        counted = self.elbo_rows(batch.whole or rows)
        own = None if noise is None else noise.of_rows(self.ranks, counted)
        batch = replace(batch, elbo_rows=self.ranks.size(counted))
        scales = SiteScales(self.weights, rows, closed, batch.weight_of_elbo)
        encodings: list[Encoding] = []

        def encoding_guide(batch: Batch) -> None:
            with nullcontext() if own is None else DrawsOfMembers(own):
                encodings.append(guide(batch))

        ((model_trace, guide_trace),) = self._get_traces(scales(model), scales(encoding_guide), (batch,), {})
        (encoding,) = encodings
        return GuidedRun(model_trace, guide_trace, encoding, batch.weight_of_elbo)

    def evaluate_run(
        self,
        run: GuidedRun,
        model: FairSSVAE,
        batch: Batch,
        progress: float = 1.0,
        noise: MemberNoise | None = None,
    ) -> Evaluation:
        """The objective of a run returned by :meth:`run`."""
        kls = self._closed_form_kls(run, model, run.elbo_rows, self.schedule.kl(progress))
        if noise is not None:
            noise = noise.of_rows(self.ranks, batch.whole or batch.rows)
        risk, beside = self._beside_elbo(run.encoding, batch, model, self.schedule.risk(progress), noise)
        differentiable = kls | beside
        enumerated, parts = self._enumerated(run), self._enumerated_parts(run, run.elbo_rows)
        if batch.whole is not None:
            share = run.elbo_rows / self.elbo_rows(batch.whole)
            enumerated, parts = enumerated * share, {name: part * share for name, part in parts.items()}
            differentiable = self._shares_of_rank(differentiable, share, batch.rows / batch.whole)
        loss = enumerated + sum(part.sum() for part in differentiable.values())
        parts |= {name: part.detach().expand_as(self.lambdas) for name, part in differentiable.items()}
        return Evaluation(
            loss, Measured(loss.detach(), parts, risk.value.detach(), risk.standard_error, risk.cells), risk
        )

    def elbo_rows(self, rows: int) -> int:
        """How many of a batch's rows the ELBO is taken over."""
        return self.weights.elbo_rows(rows)

    def _shares_of_rank(
        self, parts: dict[str, Tensor], share_of_elbo: float, share_of_rows: float
    ) -> dict[str, Tensor]:
        """Parts, means over this rank's rows, as summands of those of the whole batch."""
        shares = {"kl_z": share_of_elbo, "risk": 1.0} | dict.fromkeys(OF_ALL_ROWS, 1 / self.ranks.count)
        return {name: part * shares.get(name, share_of_rows) for name, part in parts.items()}

    @staticmethod
    def _enumerated(run: GuidedRun) -> Tensor:
        """Minus the ELBO with y and a summed out, without the KLs that are computed in closed form.

        It is E_q of the sites of rows over all values of enumerated ones, as ``_compute_dice_elbo`` of Pyro
        has it for any program; here each of them has a dimension of its own, and one product is enough.
        """
        model, guide = (
            [cast(Any, node) for node in trace.nodes.values() if _is_of_rows(node)]
            for trace in (run.model_trace, run.guide_trace)
        )
        enumerated = [node for node in guide if node["infer"].get("_enumerate_dim") is not None]
        q = math.prod(node["unscaled_log_prob"].exp() for node in enumerated)
        log_ratio = sum(node["log_prob"] for node in model) - sum(node["log_prob"] for node in guide)
        loss: Tensor = -(cast(Tensor, q) * log_ratio).sum()
        return loss

    def _closed_form_kls(
        self, run: GuidedRun, model: FairSSVAE, elbo_rows: int, kl_share: float
    ) -> dict[str, Tensor]:
        """KLs that :class:`SiteScales` excludes from the enumerated ELBO, with their weights."""
        weights, none = self.weights, self.lambdas.new_zeros(())
        kl_weight = weights.kappa * weights.kl_weight * kl_share
        channel_weight, pi_weight = (weights.kappa + weights.s) / self.rows, weights.kappa / self.rows
        channels = sum((run.kl(site) for site in model.channel_sites), none)
        for channel in model.smooth_channels:
            channels = channels - run.smoothness(channel)
        return {
            "kl_z": run.kl_of_rows("z") * (kl_weight / elbo_rows),
            "kl_channels": channels * channel_weight,
            "kl_pi": sum((run.kl(site) * pi_weight for site in model.prevalence_sites), none),
        }

    def _beside_elbo(
        self,
        encoding: Encoding,
        batch: Batch,
        model: FairSSVAE,
        risk_share: float,
        noise: MemberNoise | None,
    ) -> tuple[Estimate, dict[str, Tensor]]:
        """The risk, and the parts outside the ELBO, with their weights."""
        evidence_a = encoding.log_joint_a.logsumexp(-1)
        evidence_y = encoding.log_joint_y.logsumexp(-1)
        if self.weights.objective == "paper":
            evidence_a = evidence_a * model.channel_a.stated(batch.a_obs)
            evidence_y = evidence_y * model.channel_y.stated(batch.y_obs)
        imputation = beliefs(encoding, model.channel_a.stated(batch.a_obs))
        learned = imputation.log_joint.flatten(-2).logsumexp(-1)
        if encoding.heads.group_logits_of_x is not None:
            learned = learned + evidence_of_x(encoding, imputation)
        if batch.propagated_labels is not None:
            field = batch.propagated_labels
            if self.risk.settings.labeller == "propagation_as_printed":
                imputation = replace(imputation, label=field.log())
            else:
                label_stated = model.channel_y.stated(batch.y_obs)
                imputation = by_propagation(imputation, field, encoding, label_stated)
        if batch.imputed is not None:
            imputation = replace(imputation, given=batch.imputed)
        logits = encoding.heads.class_logits
        if encoding.heads.log_odds_thresholds is not None:
            logits = shift(logits, encoding.heads.log_odds_thresholds)
        risk = self.risk(logits, imputation, self.lambdas, noise, batch.weight)
        decisions = self.risk.decision_error(logits, imputation, batch.weight)
        return risk, {
            "groups": -self.weights.s * batch.mean(evidence_a),
            "labels": -self.weights.s * batch.mean(evidence_y),
            "imputer": -batch.mean(learned),
            "decisions": risk_share * self.weights.omega * (self.lambdas > 0) * decisions,
            "risk": risk_share * risk.penalty,
        }

    @torch.no_grad()
    def _enumerated_parts(self, run: GuidedRun, elbo_rows: int) -> dict[str, Tensor]:
        """The enumerated ELBO by site and member: E_q of each site's term over y and a, (members,) each."""
        model_nodes, guide_nodes = run.model_trace.nodes, run.guide_trace.nodes
        q_y, q_a = (guide_nodes[site]["unscaled_log_prob"].exp() for site in ("y", "a"))  # a may depend on y
        both = q_a * q_y  # (groups, classes, members, rows)

        def expected(log_prob: Tensor) -> Tensor:
            return run.summed((both * log_prob).sum((0, 1)))

        parts = {}
        scale = self.weights.kappa / elbo_rows
        for site, weight in (
            ("x", self.weights.reconstruction_weight),
            ("u", self.weights.reconstruction_weight),
            ("a_obs", 1.0),
            ("y_obs", 1.0),
        ):
            if site in model_nodes:
                parts[site] = -expected(model_nodes[site]["unscaled_log_prob"]) * scale * weight
        for site in ("y", "a"):
            log_ratio = guide_nodes[site]["unscaled_log_prob"] - model_nodes[site]["unscaled_log_prob"]
            parts[f"kl_{site}"] = expected(log_ratio) * scale
        return parts


def _is_of_rows(node: Any) -> bool:
    """Whether a site of a trace counts in the enumerated ELBO: one for each row, not computed elsewhere."""
    return (
        node["type"] == "sample"
        and not site_is_subsample(node)
        and node["mask"] is not False
        and any(frame.name == "rows" for frame in node["cond_indep_stack"])
    )


def beliefs(encoding: Encoding, group_stated: Tensor) -> Beliefs:
    """The log-probabilities of labels and groups in an encoding that imputers take, channels detached."""
    heads, by_label = encoding.heads, encoding.log_channel_a_by_label
    return Beliefs(
        label=heads.label_logits.log_softmax(-1) + encoding.log_channel_y.detach(),
        group=encoding.log_joint_a,
        grouper=heads.group_logits_by_label.log_softmax(-1),
        group_channel=(encoding.log_channel_a if by_label is None else by_label).detach(),
        classified=encoding.log_joint_y,
        group_stated=group_stated,
    )


def evidence_of_x(encoding: Encoding, held: Beliefs) -> Tensor:
    """log Σ_a h(a|x) P(ã|a) + log Σ_{y,a} P_g(y|x) P(ỹ|y) r(a|x,y) P(ã|a) of the heads of x alone."""
    alone = encoding.heads.without_proxies()
    log_h, log_r = (logits.log_softmax(-1) for logits in (alone.group_logits, alone.group_logits_by_label))
    by_features = (log_h + encoding.log_channel_a.detach()).logsumexp(-1)
    by_outcome = replace(held, label=held.label.detach(), grouper=log_r).log_joint
    return by_features + by_outcome.flatten(-2).logsumexp(-1)


def by_propagation(held: Beliefs, propagated: Tensor, encoding: Encoding, label_stated: Tensor) -> Beliefs:
    """The same beliefs with propagated labels, which already include ỹ where it is stated.

    Propagation uses stated labels only and estimates P(y|x) P(ỹ≠∅|y) up to a constant, so a row with ∅ is
    multiplied by the odds of ∅ given y.
    """
    log_unavailable = encoding.log_channel_y.detach()
    odds = log_unavailable - (-log_unavailable.expm1()).log()
    return replace(held, label=propagated.log() + torch.where(label_stated.unsqueeze(-1), 0.0, odds))


class SiteScales(Messenger):
    """Scales each row's sites by their weight, and excludes the sites in ``closed`` from the sampled ELBO.

    ``of_rows`` are the weights of the rows themselves.
    """

    def __init__(
        self,
        weights: ObjectiveWeights,
        batch_rows: int,
        closed: frozenset[str],
        of_rows: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.closed = closed
        self.row: Any = weights.kappa / batch_rows
        if of_rows is not None:
            self.row = self.row * of_rows
        self.x = self.row * weights.reconstruction_weight

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.closed:
            msg["mask"] = False
        elif not site_is_subsample(msg):
            msg["scale"] = msg["scale"] * (self.x if msg["name"] in ("x", "u") else self.row)


class DrawsOfMembers(Messenger):
    """Draws the guide's reparametrised sites, with members as leading dimension, from each member's noise."""

    def __init__(self, noise: MemberNoise) -> None:
        super().__init__()
        self.noise = noise

    def _pyro_sample(self, msg: Any) -> None:
        fn = msg["fn"]
        base = fn.base_dist if isinstance(fn, Independent) else fn
        if isinstance(base, Normal):
            rows = 0 if any(frame.name == "rows" for frame in msg["cond_indep_stack"]) else None
            msg["value"] = base.loc + base.scale * self.noise.normal(base.loc.shape[1:], base.loc, rows)
        elif isinstance(base, Dirichlet):
            msg["value"] = self.noise.dirichlet(base.concentration)
