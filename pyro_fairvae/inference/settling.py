"""Members whose decisions are settled to targets, judged by networks that were not trained on the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.ranks import current
from pyro_fairvae.decisions.targets import check_targets, settle
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.refinement import decided_rows, every_row, weighed
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import Progress, fit
from pyro_fairvae.risks import ComposedRisk, RiskSettings
from pyro_fairvae.schema.observed import Imputation, Observed


def fit_to_targets(
    train: Observed,
    validation: Observed,
    targets: Sequence[float],
    fold: Tensor,
    settings: Settings | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    after_epoch: Callable[[Progress], None] | None = None,
    state: dict[str, Any] | None = None,
    workers: int = 0,
    imputation: Imputation | None = None,
) -> Fit:
    """Train without fairness, and settle decisions to each of the ``targets``.

    Networks are trained side by side: one for each fold, on the rows outside it, and one on all rows, which
    decides. Labels and groups of training rows are imputed, and their decisions judged, by the network of
    their fold (:mod:`pyro_fairvae.decisions.targets`). So nothing that judges knows of fairness, and no row
    is judged by a network that was trained on it.

    Parameters
    ----------
    train, validation, settings, seed, device, after_epoch, state, workers
        As :func:`~pyro_fairvae.fit` has them.
    targets : sequence of float
        ε, within (0, 1]: the largest difference that the risk may find.
    fold : Tensor
        The fold of each row of ``train``, (rows,), from 0.
    imputation : Imputation, optional
        Of the rows of ``train``, by which decisions are judged, in place of what the networks of other folds
        say; of a table on disk, of every so many rows alone on which decisions are settled
        (:func:`~pyro_fairvae.inference.refinement.every_row`).

    Returns
    -------
    Fit
        Its first member has no target; the others differ from it in their ``adjustment`` alone.

    Raises
    ------
    InputError
        If targets cannot be used, decisions are not to be refined, or the risk is no function of rates.
    """
    settings, aims = settings or Settings(), check_targets(targets)
    fairness = settings.fairness
    check_refined(fairness)
    risk = fairness.chosen()
    require(
        isinstance(risk, ComposedRisk),
        f"decisions cannot be settled to targets of the risk {fairness.risk!r}, which is no function of "
        "rates; use lambdas, or a risk such as deo or ddp.",
    )
    assert isinstance(risk, ComposedRisk)
    folds = int(fold.max()) + 1
    whole = fit(
        train,
        validation,
        (0.0,) * (folds + 1),
        settings,
        seed,
        device,
        after_epoch=after_epoch,
        state=state,
        workers=workers,
        fold=fold,
    )
    table = train.to(whole.device, whole.dtype)
    rows = decided_rows(whole.program, table, fairness, fold.to(whole.device), current())
    scores, cells, joint, label = (part.squeeze(0) for part in rows)
    if imputation is not None:
        joint = (imputation.joint if train.on_disk else imputation.joint[:: every_row(train)]).to(scores)
        label = joint.sum(-1)
    joint, label = weighed(table, joint, label)
    if fairness.relative_costs is not None:
        label = label * label.new_tensor(fairness.relative_costs)
    settled = settle(scores, cells, joint, label, risk, torch.tensor(aims, device=whole.device))
    adjustment = current().agreed(settled.adjustment)
    adjustment = torch.cat([torch.zeros_like(adjustment[:1]), adjustment])
    return _copies(whole, table, folds, adjustment, (None, *aims), seed)


def check_refined(fairness: RiskSettings) -> None:
    """Refuse targets where decisions must not use inferred groups, or thresholds are to be learned."""
    require(
        not fairness.learns_thresholds,
        "thresholds are learned against a weighted risk, but members with targets are trained without one; "
        "give lambdas, or thresholds as numbers.",
        "thresholds",
        "targets",
        "lambdas",
    )
    require(
        fairness.refine_decisions != 0,
        "refine_decisions is 0, so that no inferred group enters a decision, but decisions are settled to "
        "targets by inferred groups; give lambdas, or leave refine_decisions out.",
        "refine_decisions",
        "targets",
        "lambdas",
    )


def _copies(
    whole: Fit, table: Observed, member: int, adjustment: Tensor, targets: tuple[float | None, ...], seed: int
) -> Fit:
    """A fit whose members are copies of one, each with its own adjustment."""
    chosen = [member] * len(targets)
    program = Program(table, whole.settings, [seed] * len(targets)).to(whole.device, whole.dtype)
    program.load_state({name: value[chosen] for name, value in whole.program.state().items()})
    return replace(
        whole,
        program=program,
        chosen={name: value[chosen] for name, value in whole.chosen.items()},
        chosen_epoch=[whole.chosen_epoch[member]] * len(targets),
        lambdas=(0.0,) * len(targets),
        history=[line | {"member": 0} for line in whole.history if line["member"] == member],
        adjustment=adjustment,
        targets=targets,
    )
