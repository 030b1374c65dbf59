"""Labels for a part of a finished run's data, by a rule of :mod:`pyro_fairvae.decisions.rules`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.files import write_csv, write_json
from pyro_fairvae.base.options import option
from pyro_fairvae.data import Missingness, Splits, hide
from pyro_fairvae.decisions.rules import RULES, DecisionProblem, Report, silent
from pyro_fairvae.evaluation.metrics import evaluate, evaluate_expected
from pyro_fairvae.risks import ComposedRisk
from pyro_fairvae.risks.custom import without_imports
from pyro_fairvae.risks.imputers import STANDS_IN
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.studies.single_run import load_run

LABELLED_PARTS = ("test", "validation")


@dataclass(frozen=True)
class DecideConfig:
    """Which rows are labelled, by which member, and how."""

    part: str = option("test", "rows to label: test (no group is known of them) or validation (as masked)")
    rule: str = option("descent", f"how labels are found: {', '.join(RULES)}")
    member: int | None = option(
        None, "member by its number, 0 first; the one chosen on validation unless given"
    )
    risk_weight: float | None = option(None, "λ of the decision; that of the member's training unless given")
    draws: int = option(100, "draws of groups and labels for the expected risk")
    decide_seed: int = option(0, "seed of the draws")

    def __post_init__(self) -> None:
        choose("part", self.part, LABELLED_PARTS)
        choose("rule", self.rule, RULES)
        require(self.draws >= 1, f"draws must be at least 1, got {self.draws}.")
        require(
            self.risk_weight is None or 0 <= self.risk_weight < float("inf"),
            f"risk_weight must be finite and not negative, got {self.risk_weight}.",
        )


def decide_run(
    run: Path,
    config: DecideConfig,
    device: torch.device,
    data_dir: str | Path | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """Label a part of a run's data; writes ``decisions-PART.csv`` and ``decisions-PART.json`` beside it."""
    with without_imports():
        fitted, parts, selected = load_run(run, device, data_dir)
    member = selected if config.member is None else config.member
    members = len(fitted.lambdas)
    require(
        0 <= member < members, f"member {member} was asked for, but the run has members 0 to {members - 1}."
    )
    report(f"Labelling the {config.part} rows by {config.rule} ...")
    weight = fitted.lambdas[member] if config.risk_weight is None else config.risk_weight
    risk = fitted.settings.fairness.chosen()
    require(isinstance(risk, ComposedRisk), f"decisions need a composed risk, not {risk.name!r}.")
    assert isinstance(risk, ComposedRisk)
    table = observed_part(parts, config.part)
    log_q = fitted.predict_proba(table.x)[member].double().clamp(min=1e-12).log()
    # Every row needs a group that can be drawn here, also where training did without.
    imputer = fitted.settings.fairness.imputer
    imputed = fitted.impute(table, STANDS_IN.get(imputer, imputer))[member]
    start = fitted.decide(table.x)[member]
    problem = DecisionProblem(log_q, imputed, risk, weight, config.draws, config.decide_seed, start)
    decision = RULES[config.rule](problem, report)
    rounded = problem.rounded()
    results = {
        "part": config.part,
        "rule": config.rule,
        "member": member,
        "lambda": weight,
        "changed": int((decision.labels != rounded).sum()),
        "objective": {"rounded": decision.before, "decided": decision.after},
        "metrics": {
            "rounded": _metrics(parts, config.part, rounded, imputed),
            "decided": _metrics(parts, config.part, decision.labels, imputed),
        },
    }
    labels = [
        {"row": row, "label": label} | {f"p{c}": f"{p:.6f}" for c, p in enumerate(probabilities)}
        for row, (label, probabilities) in enumerate(
            zip(decision.labels.tolist(), log_q.exp().tolist(), strict=True)
        )
    ]
    write_csv(run / f"decisions-{config.part}.csv", labels)
    write_json(run / f"decisions-{config.part}.json", results)
    return results


def observed_part(parts: Splits, part: str) -> Observed:
    """What is known of a part when it is labelled: of test rows nothing but their features."""
    if part == "validation":
        return parts.validation
    says_nothing = (*(0.0,) * (parts.test.attributes.outcomes - 1), 1.0)
    nothing = Missingness(
        label_unavailable=(1.0,) * len(parts.test.classes),
        channel=(says_nothing,) * len(parts.test.groups),
    )
    return hide(parts.test, nothing, seed=0)


def _metrics(parts: Splits, part: str, labels: Tensor, imputed: Tensor) -> dict[str, float]:
    decided = labels.numpy()
    if part == "test":
        return evaluate(parts.test.y, decided, parts.test.a, len(parts.test.classes))
    table = parts.validation
    return evaluate_expected(table.y_obs.numpy(), decided, imputed.double().numpy(), table.classes)
