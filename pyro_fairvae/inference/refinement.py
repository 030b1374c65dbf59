"""Optimises channels and decisions given the networks, after training."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.nn import functional

from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.decisions.score_adjustment import believed_cells, best_adjustment, decision_scores
from pyro_fairvae.decisions.targets import judged, settle
from pyro_fairvae.guides import mean_over_labels
from pyro_fairvae.inference.objective import beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.risks import ComposedRisk, RiskSettings, impute
from pyro_fairvae.schema.observed import Imputation, Observed

PATH = (0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)  # targets that members of several classes are tried at
ROWS = 1 << 16  # at most; evenly spaced rows of a larger table suffice for so few parameters


def refine_channels(
    program: Program,
    table: Observed,
    noise: MemberNoise,
    steps: int,
    lr: float = 0.05,
    label: Tensor | None = None,
    ranks: Ranks = ALONE,
) -> None:
    r"""Optimise the channels' posteriors with the networks held fixed.

    An epoch chosen by held-out likelihood may precede the convergence of the channels, and among such epochs
    the held-out rows would select the rates that fit these rows best. This function minimises, over the
    posterior q of each channel alone,

    .. math:: -E_q \sum_i \log \sum_a h(a|x_i) P(\tilde a_i|a) + \mathrm{KL}(q \| \mathrm{prior}),

    the same for y with g, over all rows of ``table``. With conditions v, P(ã|a,v) takes the place of P(ã|a)
    and q is of w, too; with proxies h is h(a|x,u). It is the part of the "consistent" objective that
    depends on the channels, so fits of the paper's objective skip it. With ``label``, P(y|x) by models that
    know of no fairness, (rows, classes), it takes the place of g, which moves with λ. Rows count by their
    weights, scaled to add up to Kish's effective number of rows: a pseudo-likelihood. ``ranks`` sum over
    their parts of the rows, and gradients are added up.
    """
    guide, rows = program.guide, table.rows
    ranks = ranks.for_rows(rows)
    share = None if table.weight is None else table.effective_rows / rows
    table, label = part_of(table, ranks), None if label is None else ranks.part(label, 0)
    of_groups, of_labels = [], []
    for _, encoding in program.encode(table):  # without its features, which are many numbers of each row
        of_groups.append(encoding.heads.group_logits.contiguous())
        of_labels.append(encoding.heads.class_logits.contiguous())
    if label is not None:
        of_labels = [label.clamp(min=1e-12).log().expand(len(of_labels[0]), *label.shape)]
    parts = [(guide.channel_a, table.a_obs, of_groups), (guide.channel_y, table.y_obs, of_labels)]
    if guide.channel_a.by_label or (guide.conditions is not None and guide.conditions.classes):
        parts.reverse()  # P(ã|a,v,y) needs q(y|x,ỹ)
    for channel, observed, logits in parts:
        log_latent = torch.cat(logits, dim=1).log_softmax(-1)  # (members, rows, values)
        sites = list(channel.sites)
        priors: list[dist.TorchDistribution] = [
            dist.Dirichlet(channel.concentration(row, log_latent)) for row in range(len(sites))
        ]
        weight = None if table.weight is None or share is None else table.weight * share
        if channel is guide.channel_y or (guide.conditions is None and not channel.crossed):
            evidence = _plain_evidence(channel, log_latent, observed, weight)
        else:
            evidence = _evidence_by_row(program, table, log_latent, weight)
        if channel is guide.channel_a and guide.conditions is not None:
            sites.append(channel.withholding_site)
            priors.append(_withholding_prior(program))
        parameters = [parameter for site in sites for parameter in guide.sites.parameters_of(site)]
        optimizer = torch.optim.Adam(parameters, foreach=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = lr * cosine_share(step / steps)
            posteriors = [guide.sites.distribution(site) for site in sites]
            draws = [_draw(posterior, noise) for posterior in posteriors]
            kl = sum(kl_divergence(q, prior).sum() for q, prior in zip(posteriors, priors, strict=True))
            optimizer.zero_grad()
            ((kl / ranks.count - evidence(draws)) / rows).backward()
            ranks.add_up([parameter.grad for parameter in parameters if parameter.grad is not None])
            optimizer.step()


Evidence = Callable[[list[Tensor]], Tensor]  # of draws of a channel's sites, summed over members and rows


def _plain_evidence(
    channel: Channel, log_latent: Tensor, observed: Tensor, weight: Tensor | None
) -> Evidence:
    possible = torch.from_numpy(channel.possible).to(observed.device).T[observed]
    reachable = log_latent.masked_fill(~possible, -torch.inf)
    # Up to a factor for each row; rows are the last dimension, so that operations over them vectorise.
    latent = (reachable - reachable.amax(-1, keepdim=True)).exp().mT.contiguous()
    one_hot = functional.one_hot(observed, channel.outcomes).mT.to(latent).contiguous()

    def evidence(draws: list[Tensor]) -> Tensor:
        matrix = channel.matrix(draws).squeeze(-3)
        log_likelihood = ((matrix.mT @ latent) * one_hot).sum(-2).log()
        return (log_likelihood if weight is None else log_likelihood * weight).sum()

    return evidence


def _evidence_by_row(
    program: Program, table: Observed, log_latent: Tensor, weight: Tensor | None
) -> Evidence:
    """The evidence on P(ã|a,v), or on that of each cell; with the label in it, at the current q(y|x,ỹ)."""
    channel, conditions = program.guide.channel_a, program.guide.conditions
    features = table.like
    cell = log_y = None
    if conditions is not None:
        features = torch.cat([conditions.features(batch.x) for batch in table.chunks()], dim=1)
    if channel.crossed:
        cell = torch.cat([channel.cell(batch.x) for batch in table.chunks()], dim=1)
    if channel.by_label or (conditions is not None and conditions.classes):
        joint = [encoding.log_joint_y for _, encoding in program.encode(table)]
        log_y = torch.cat(joint, dim=1).log_softmax(-1)

    def evidence(draws: list[Tensor]) -> Tensor:
        rows, tilt = draws[: len(channel.rows)], None
        if conditions is not None:
            tilt = conditions.tilt(features, draws[-1].squeeze(-3))
        log_channel = channel.log_likelihood(channel.matrix(rows).squeeze(-3), table.a_obs, tilt, cell)
        if log_y is not None:
            log_channel = mean_over_labels(log_channel, log_y)
        log_likelihood = (log_latent + log_channel).logsumexp(-1)
        return (log_likelihood if weight is None else log_likelihood * weight).sum()

    return evidence


def _withholding_prior(program: Program) -> dist.TorchDistribution:
    like = program.guide.sites.mean(program.guide.channel_a.withholding_site).detach()
    zero = torch.zeros_like(like)
    return dist.Normal(zero, zero + program.settings.withholding_scale).to_event(2)


def _draw(posterior: dist.TorchDistribution, noise: MemberNoise) -> Tensor:
    """A draw of a shared site, or its value where the posterior is a point."""
    if isinstance(posterior, dist.Dirichlet):
        return noise.dirichlet(posterior.concentration)
    if isinstance(posterior, dist.Independent):
        normal = posterior.base_dist
        return normal.loc + normal.scale * noise.normal(normal.loc.shape[1:], normal.loc)
    return posterior.rsample()


def refine_decisions(
    program: Program,
    table: Observed,
    lambdas: Tensor,
    settings: RiskSettings,
    steps: int,
    imputation: Imputation | None = None,
    ranks: Ranks = ALONE,
) -> Tensor | None:
    """ν of each member, (members, classes, classes y, groups), from the rows of ``table``; 0 where λ is 0.

    Decisions are judged by ``imputation``, or else by what each member imputes. None where decisions stay as
    trained: if the settings turn refinement off, and with a user's own F, which is a function of draws and
    not of rates. ``ranks`` score their parts of the rows.
    """
    risk = settings.chosen()
    stiffness = settings.refinement_stiffness
    if not (stiffness and isinstance(risk, ComposedRisk) and bool((lambdas > 0).any())):
        return None
    scores, cells, imputed, label = decided_rows(program, table, settings, ranks=ranks)
    if imputation is not None:
        joint = imputation.joint[:: every_row(table)]
        imputed, label = joint.expand_as(imputed), joint.sum(-1).expand_as(label)
    imputed, label = weighed(table, imputed, label)
    found = best_adjustment(
        scores, cells, imputed, label, risk, lambdas, None if risk.smooth else stiffness, steps
    )
    if scores.shape[-1] == 2:
        return ranks.agreed(found)
    # With more classes a large λ ends at the constant decision, a local minimum, from most starts.
    for k, weight in enumerate(lambdas.tolist()):
        if weight > 0:
            member = scores[k], cells[k], imputed[k], label[k]
            settled = settle(*member, risk, scores.new_tensor(PATH))
            error, disparity = judged(*member, risk, found[k])
            cost = settled.error + weight * settled.disparity
            if float(cost.min()) < float(error + weight * disparity):
                found[k] = settled.adjustment[cost.argmin()]
    return ranks.agreed(found)


def weighed(table: Observed, imputed: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows that decisions are settled on are judged by, times their weights."""
    every = every_row(table)
    return table.weighed(imputed.flatten(-2), every).unflatten(-1, imputed.shape[-2:]), table.weighed(
        label, every
    )


def every_row(table: Observed) -> int:
    """Every so many rows of a table decisions are settled on."""
    return math.ceil(table.rows / ROWS)


@torch.no_grad()
def decided_rows(
    program: Program,
    table: Observed,
    settings: RiskSettings,
    fold: Tensor | None = None,
    ranks: Ranks = ALONE,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What decisions are made of and judged by: scores, P(y, a|x), P(y, a|x, ỹ, ã) and P(y|x, ỹ).

    Each is (members, rows, …), of evenly spaced rows of a large table; with ``fold``, (1, rows, …), each row
    by the member that was not trained on its fold. ``ranks`` score their parts of the rows, and get all.
    """
    if table.on_disk:  # without reading the others
        fold = None if fold is None else fold[:: every_row(table)]
        table = table.sampled(ROWS)
    every = every_row(table)
    ranks = ranks.for_rows(table.rows)
    if ranks.count > 1:
        return _decided_by_ranks(program, table, settings, fold, ranks)
    pieces: list[tuple[Tensor, ...]] = []
    first = 0
    for batch, encoding in program.encode(table):
        heads = encoding.heads.without_proxies()
        imputation = beliefs(encoding, program.guide.channel_a.stated(batch.a_obs))
        columns: tuple[Tensor, ...] = (
            decision_scores(heads, settings),
            believed_cells(heads, settings.imputer),
            impute(imputation, settings.imputer),
            imputation.label.softmax(-1),
        )
        if fold is not None:
            member = fold[first : first + batch.rows].long()
            row = torch.arange(batch.rows, device=fold.device)
            columns = tuple(column[member, row].unsqueeze(0) for column in columns)
        kept = slice(-first % every, None, every)
        first += batch.rows
        pieces.append(tuple(column[:, kept] for column in columns))
    scores, cells, imputed, label = (torch.cat(column, dim=1) for column in zip(*pieces, strict=True))
    return scores, cells, imputed, label


def _decided_by_ranks(
    program: Program, table: Observed, settings: RiskSettings, fold: Tensor | None, ranks: Ranks
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`decided_rows`, of which each rank computes its part."""
    kept = torch.arange(0, table.rows, every_row(table), device=table.y_obs.device)
    ranks = ranks.for_rows(len(kept))
    own = ranks.part(kept)
    parts = decided_rows(program, table.take(own), settings, None if fold is None else fold[own])
    scores, cells, imputed, label = (ranks.whole(part, len(kept), dim=1) for part in parts)
    return scores, cells, imputed, label


def part_of(table: Observed, ranks: Ranks) -> Observed:
    """A rank's part of a table's rows."""
    if ranks.count == 1:
        return table
    return table.part(ranks.part(torch.arange(table.rows, device=table.y_obs.device)))
