"""Optimises channels and decisions given the networks, after training."""

from __future__ import annotations

import math

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.nn import functional

from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.decisions.score_adjustment import believed_cells, best_adjustment, decision_scores
from pyro_fairvae.inference.objective import beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.risks import ComposedRisk, RiskSettings, impute
from pyro_fairvae.schema.observed import Observed

ROWS = 1 << 16  # at most; evenly spaced rows of a larger table suffice for so few parameters


def refine_channels(
    program: Program, table: Observed, noise: MemberNoise, steps: int, lr: float = 0.05
) -> None:
    r"""Optimise the channels' posteriors with the networks held fixed.

    An epoch chosen by held-out likelihood may precede the convergence of the channels, and among such epochs
    the held-out rows would select the rates that fit these rows best. This function minimises, over the
    posterior q of each channel alone,

    .. math:: -E_q \sum_i \log \sum_a h(a|x_i) P(\tilde a_i|a) + \mathrm{KL}(q \| \mathrm{prior}),

    the same for y with g, over all rows of ``table``. It is the part of the "consistent" objective that
    depends on the channels, so fits of the paper's objective skip it.
    """
    guide = program.guide
    encodings = [encoding.heads for _, encoding in program.encode(table)]
    for channel, observed, logits in (
        (guide.channel_a, table.a_obs, [heads.group_logits for heads in encodings]),
        (guide.channel_y, table.y_obs, [heads.class_logits for heads in encodings]),
    ):
        log_latent = torch.cat(logits, dim=1).log_softmax(-1)  # (members, rows, values)
        possible = torch.from_numpy(channel.possible).to(observed.device).T[observed]
        reachable = log_latent.masked_fill(~possible, -torch.inf)
        # Up to a factor for each row; rows are the last dimension, so that operations over them vectorise.
        latent = (reachable - reachable.amax(-1, keepdim=True)).exp().mT.contiguous()
        one_hot = functional.one_hot(observed, channel.outcomes).mT.to(latent).contiguous()
        sites = channel.sites
        priors = [dist.Dirichlet(channel.concentration(row, log_latent)) for row in range(len(sites))]
        optimizer = torch.optim.Adam([getattr(guide.sites, site) for site in sites], foreach=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = lr * cosine_share(step / steps)
            posteriors = [guide.sites.distribution(site) for site in sites]
            matrix = channel.matrix([_draw(posterior, noise) for posterior in posteriors]).squeeze(-3)
            evidence = ((matrix.mT @ latent) * one_hot).sum(-2).log().sum()
            kl = sum(kl_divergence(q, prior).sum() for q, prior in zip(posteriors, priors, strict=True))
            optimizer.zero_grad()
            ((kl - evidence) / table.rows).backward()
            optimizer.step()


def _draw(posterior: dist.TorchDistribution, noise: MemberNoise) -> Tensor:
    """A draw of a shared site, or its value where the posterior is a point."""
    if isinstance(posterior, dist.Dirichlet):
        return noise.dirichlet(posterior.concentration)
    return posterior.rsample()


def refine_decisions(
    program: Program, table: Observed, lambdas: Tensor, settings: RiskSettings, steps: int
) -> Tensor | None:
    """ν of each member, (members, classes, classes y, groups), from the rows of ``table``; 0 where λ is 0.

    None where decisions stay as trained: if the settings turn refinement off, and with a user's own F, which
    is a function of draws and not of rates.
    """
    risk = settings.chosen()
    stiffness = settings.refinement_stiffness
    if not (stiffness and isinstance(risk, ComposedRisk) and bool((lambdas > 0).any())):
        return None
    every = math.ceil(table.rows / ROWS)
    pieces: list[tuple[Tensor, ...]] = []
    for batch, encoding in program.encode(table):
        imputation = beliefs(encoding, program.guide.channel_a.stated(batch.a_obs))
        columns = (
            decision_scores(encoding.heads, settings),
            believed_cells(encoding.heads, settings.imputer),
            impute(imputation, settings.imputer),
            imputation.label.softmax(-1),
        )
        pieces.append(tuple(column[:, ::every] for column in columns))
    scores, cells, imputed, label = (torch.cat(column, dim=1) for column in zip(*pieces, strict=True))
    return best_adjustment(scores, cells, imputed, label, risk, lambdas, stiffness, steps)
