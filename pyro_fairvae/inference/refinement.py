"""Channels and decisions brought to their optimum given the networks, after training."""

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

ROWS = 1 << 16  # of a larger table evenly spread rows are enough for so few numbers


def refine_channels(
    program: Program, table: Observed, noise: MemberNoise, steps: int, lr: float = 0.05
) -> None:
    r"""Bring the channels' posteriors to their optimum with the networks held fixed.

    An epoch chosen by held-out likelihood may come before the channels have converged, and among such
    ones the held-out rows would pick the rate that fits themselves. This minimises, over the posterior q of
    each channel alone,

    .. math:: -E_q \sum_i \log \sum_a h(a|x_i) P(\tilde a_i|a) + \mathrm{KL}(q \| \mathrm{prior}),

    the same for y with g, over all rows of ``table``. It is the "consistent" objective as far as the
    channels are concerned, so fits of the paper's objective go without it.
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
        # Up to a factor of each row, and with rows last, over which all is done at once.
        latent = (reachable - reachable.amax(-1, keepdim=True)).exp().mT.contiguous()
        said = functional.one_hot(observed, channel.outcomes).mT.to(latent).contiguous()
        sites = channel.sites
        priors = [dist.Dirichlet(channel.concentration(row, log_latent)) for row in range(len(sites))]
        optimizer = torch.optim.Adam([getattr(guide.sites, site) for site in sites], foreach=True)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = lr * cosine_share(step / steps)
            posteriors = [guide.sites.distribution(site) for site in sites]
            matrix = channel.matrix([_draw(posterior, noise) for posterior in posteriors]).squeeze(-3)
            evidence = ((matrix.mT @ latent) * said).sum(-2).log().sum()
            kl = sum(kl_divergence(q, prior).sum() for q, prior in zip(posteriors, priors, strict=True))
            optimizer.zero_grad()
            ((kl - evidence) / table.rows).backward()
            optimizer.step()


def _draw(posterior: dist.TorchDistribution, noise: MemberNoise) -> Tensor:
    """A draw of a shared site, or its point."""
    if isinstance(posterior, dist.Dirichlet):
        return noise.dirichlet(posterior.concentration)
    return posterior.rsample()


def refine_decisions(
    program: Program, table: Observed, lambdas: Tensor, settings: RiskSettings, steps: int
) -> Tensor | None:
    """ν of each member, (members, classes, classes y, groups), of the rows of ``table``; 0 where λ is 0.

    None where decisions stay as trained: by the settings, and with a user's own F, which is a function of
    draws and not of rates.
    """
    risk = settings.chosen()
    stiffness = settings.refinement_stiffness
    if not (stiffness and isinstance(risk, ComposedRisk) and bool((lambdas > 0).any())):
        return None
    every = math.ceil(table.rows / ROWS)
    pieces: list[tuple[Tensor, ...]] = []
    for batch, encoding in program.encode(table):
        held = beliefs(encoding, program.guide.channel_a.stated(batch.a_obs))
        found = (
            decision_scores(encoding.heads, settings),
            believed_cells(encoding.heads, settings.imputer),
            impute(held, settings.imputer),
            held.label.softmax(-1),
        )
        pieces.append(tuple(each[:, ::every] for each in found))
    scores, cells, imputed, label = (torch.cat(each, dim=1) for each in zip(*pieces, strict=True))
    return best_adjustment(scores, cells, imputed, label, risk, lambdas, stiffness, steps)
