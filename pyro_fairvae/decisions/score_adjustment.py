r"""Scores whose argmax is the decision, and their adjustment to minimise error plus unfairness.

Among decision rules that use x alone, one that minimises the error plus any function of its rates
:math:`P(\hat y = c\,|\,y, a)` decides for the class c with the largest

.. math:: P(c|x) + \sum_{ya} \nu_{cya} P(y, a|x)

at some weights ν, which are minus the derivatives of that function in its cell sums. So, given the
networks' estimate of P(y, a|x), few numbers remain to be chosen. They can be optimised on all rows at once,
without the minibatch noise that limits how strong the penalty may be in training.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_fairvae.base.schedules import cosine_share
from pyro_fairvae.decisions.decided_sums import DecidedRows
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.risks import Beliefs, ComposedRisk, RiskSettings, impute
from pyro_fairvae.risks.imputers import STANDS_IN
from pyro_fairvae.risks.relaxations import log_odds_of, shift
from pyro_fairvae.risks.smooth_penalty import pull

TEMPERATURES = (0.1, 0.02)  # of the softened decisions, in units of probability, at the start and the end


def decision_scores(heads: Encoded, settings: RiskSettings, adjustment: Tensor | None = None) -> Tensor:
    """Scores whose argmax is the decision, (members, rows, classes).

    Without an adjustment they are P_f at the thresholds τ of the settings, or at each member's own if they
    were learned; where each group has its own, a row takes that of its likeliest group under h(a|x).
    ``adjustment`` is ν, (members, classes, classes y, groups). With costs of errors, scores of a class are
    times what an error about its people counts.
    """
    log_odds = heads.log_odds_thresholds
    if log_odds is None:
        log_odds = log_odds_of(settings.thresholds, heads.class_logits)
    scores = shift(heads.class_logits, log_odds).softmax(-1)  # (members, rows, groups or 1, classes)
    group = heads.group_logits[..., : log_odds.shape[-1]].argmax(-1)
    scores = scores.gather(-2, group[..., None, None].expand(*group.shape, 1, scores.shape[-1])).squeeze(-2)
    if settings.relative_costs is not None:
        scores = scores * scores.new_tensor(settings.relative_costs)
    if adjustment is None:
        return scores
    return scores + torch.einsum("krya,kcya->krc", believed_cells(heads, settings.imputer), adjustment)


def believed_cells(heads: Encoded, imputer: str) -> Tensor:
    """P(y, a | x), (members, rows, classes, groups), from an imputer when nothing is stated."""
    group = heads.group_logits.log_softmax(-1)
    label = heads.label_logits.log_softmax(-1)
    nothing = Beliefs(
        label=label,
        group=group,
        grouper=heads.group_logits_by_label.log_softmax(-1),
        group_channel=torch.zeros_like(group),
        classified=label,
        group_stated=torch.zeros_like(group[..., 0], dtype=torch.bool),
    )
    return impute(nothing, STANDS_IN.get(imputer, imputer))


def best_adjustment(
    scores: Tensor,
    cells: Tensor,
    imputed: Tensor,
    label: Tensor,
    risk: ComposedRisk,
    lambdas: Tensor,
    stiffness: float | None,
    steps: int,
    lr: float = 0.02,
) -> Tensor:
    """ν that minimises the expected error of decisions plus λF, smoothed (:func:`pull`) at a stiffness.

    ``scores`` (members, rows, classes) are adjusted by ``cells``, P(y, a|x), and judged by ``imputed``,
    P(y, a|x, ỹ, ã), both (members, rows, classes, groups), and ``label``, P(y|x, ỹ). Decisions are softened,
    by a temperature that falls over the steps.
    """
    # In units of the share of a cell, every weight has the same effect on its rate.
    share = imputed.mean(1).clamp(min=1e-6)  # (members, classes, groups)
    cells = cells / share.unsqueeze(1)
    rows = DecidedRows.of(scores, cells, imputed, label)
    weights = scores.new_zeros(len(share), scores.shape[-1], *share.shape[1:]).requires_grad_()
    optimizer = torch.optim.Adam([weights], foreach=True)
    first, last = TEMPERATURES
    for step in range(steps):
        done = step / steps
        optimizer.param_groups[0]["lr"] = lr * cosine_share(done)
        error, sums = rows.judged(weights, first * (last / first) ** done, hard=False)
        if stiffness is None:
            penalty = lambdas * risk(sums).value
        else:
            penalty = pull(risk.differences(sums), lambdas, stiffness)
        optimizer.zero_grad()
        (error + penalty).sum().backward()
        optimizer.step()
    return weights.detach() / share.unsqueeze(1) * (lambdas > 0)[:, None, None, None]
