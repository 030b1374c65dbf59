"""Labels for the rows of a table, or for a part of a finished run's data, by a rule of
:mod:`pyro_fairvae.decisions.rules`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose
from pyro_fairvae.base.files import write_csv, write_json
from pyro_fairvae.base.options import option
from pyro_fairvae.base.reports import Report, silent
from pyro_fairvae.data import Missingness, Splits, hide
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.decisions.joint_objective import LOSSES
from pyro_fairvae.evaluation.joint_decisions import JointProblem, JointRule
from pyro_fairvae.evaluation.metrics import evaluate, evaluate_expected
from pyro_fairvae.risks.custom import without_imports
from pyro_fairvae.schema.observed import Observed
from pyro_fairvae.storage.stored_model import StoredModel
from pyro_fairvae.studies.members import check_choice, member_number
from pyro_fairvae.studies.single_run import load_run

RUN_PARTS = ("test", "validation")


@dataclass(frozen=True)
class DecideConfig(JointRule):
    """The rows to label, the member, and the rule."""

    loss: str = option(
        "likelihood",
        f"loss in the objective of the decision: {', '.join(LOSSES)} (-log q(y|x), as in the paper)",
    )
    part: str = option("test", "rows of a run to label: test (groups unknown) or validation (as masked)")
    member: int | None = option(
        None, "label by the member with this number, 0 first (default: the one chosen on validation)"
    )
    lambda_: float | None = option(
        None, "label by the member with this λ (default: the one chosen on validation)"
    )

    def __post_init__(self) -> None:
        if self.rule == "round":  # its name in earlier versions
            object.__setattr__(self, "rule", "rounding")
        super().__post_init__()
        choose("part", self.part, RUN_PARTS)
        check_choice(self.member, self.lambda_)


@dataclass(frozen=True)
class LabelledRows:
    """Labels of rows, labels by rounding, and the model's probabilities for each row."""

    labels: Tensor  # (rows,)
    rounded: Tensor  # (rows,)
    probability: Tensor  # P(y|x), (rows, classes)
    imputed: Tensor  # P(y, a | row), (rows, classes, groups)
    results: dict[str, Any]

    def write(self, table: Path, about: Path, results: dict[str, Any], classes: tuple[str, ...]) -> None:
        """Write the labels as a CSV file, and ``results`` as JSON."""
        lines = [
            {"row": row, "label": label, "class": classes[label]}
            | {f"p{c}": f"{p:.6f}" for c, p in enumerate(probabilities)}
            for row, (label, probabilities) in enumerate(
                zip(self.labels.tolist(), self.probability.tolist(), strict=True)
            )
        ]
        write_csv(table, lines)
        write_json(about, results)


def label_rows(
    model: StoredModel, table: Observed, config: DecideConfig, report: Report = silent
) -> LabelledRows:
    """Labels of the rows of ``table`` that lower error and expected risk together."""
    fit = model.fit
    member = model.selected
    if config.member is not None or config.lambda_ is not None:
        member = member_number(fit.lambdas, config.member, config.lambda_, "the model")
    problem = JointProblem.of_fit(fit, member, table, config)
    codes = np.arange(table.classes)
    together = problem.decide(config, codes, table.group_attributes.group_names, report)
    results = {
        "rule": config.rule,
        "member": member,
        "lambda": together.lambda_,
        "target": together.target,
        "changed": together.changed,
        "objective": {
            "rounded": together.summary["objective"]["before"],
            "decided": together.summary["objective"]["after"],
        },
    }
    return LabelledRows(
        torch.from_numpy(together.decisions),
        torch.from_numpy(together.alone),
        problem.rows.probability,
        problem.rows.imputed,
        results,
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
        model, parts = load_run(run, device, data_dir)
    report(f"Labelling the {config.part} rows by {config.rule} ...")
    labelled = label_rows(model, observed_part(parts, config.part), config, report)
    metrics = {
        "rounded": _metrics(parts, config.part, labelled.rounded, labelled.imputed),
        "decided": _metrics(parts, config.part, labelled.labels, labelled.imputed),
    }
    results = {"part": config.part, **labelled.results, "metrics": metrics}
    name = f"decisions-{config.part}"
    labelled.write(run / f"{name}.csv", run / f"{name}.json", results, parts.test.classes)
    return results


def decide_table(
    model: StoredModel, table: Observed, config: DecideConfig, out: Path, report: Report = silent
) -> dict[str, Any]:
    """Label the rows of a table; writes ``out``, a CSV file, and a JSON file of the same name beside it.

    Metrics are expectations under the model's imputations where label or group is not stated.
    """
    report(f"Labelling {table.rows} rows by {config.rule} ...")
    labelled = label_rows(model, table, config, report)
    metrics = {
        name: _expected(table, labels, labelled.imputed)
        for name, labels in (("rounded", labelled.rounded), ("decided", labelled.labels))
    }
    results = {"part": "given", **labelled.results, "metrics": metrics}
    labelled.write(out, out.with_suffix(".json"), results, tuple(map(word_of, model.classes)))
    return results


def observed_part(parts: Splits, part: str) -> Observed:
    """The values of a part that labelling may use: of test rows only their features."""
    if part == "validation":
        return parts.validation
    always_withheld = (*(0.0,) * (parts.test.attributes.outcomes - 1), 1.0)
    everything_hidden = Missingness(
        label_unavailable=(1.0,) * len(parts.test.classes),
        channel=(always_withheld,) * len(parts.test.groups),
    )
    return hide(replace(parts.test, stated=None), everything_hidden, seed=0)


def _metrics(parts: Splits, part: str, labels: Tensor, imputed: Tensor) -> dict[str, float]:
    if part == "test":
        return evaluate(parts.test.y, labels.numpy(), parts.test.a, len(parts.test.classes))
    return _expected(parts.validation, labels, imputed)


def _expected(table: Observed, labels: Tensor, imputed: Tensor) -> dict[str, float]:
    y_obs = table.y_obs.cpu().numpy()
    return evaluate_expected(y_obs, labels.numpy(), imputed.double().numpy(), table.classes)
