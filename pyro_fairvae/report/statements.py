"""What a model's page and its card say in the same words: what it is, what it is for, what it is not."""

from __future__ import annotations

import shlex
from pathlib import Path

from pyro_fairvae.evaluation.measures import AUDITED
from pyro_fairvae.report.numbers import MEANINGS, NUMBER_LIMITS
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.storage.model_folder import AUDIT
from pyro_fairvae.storage.stored_model import StoredModel

INTENDED = (  # of classes, of numbers
    "To decide, or to help people decide, between the classes of the label, about people like "
    "those of the table that the model was fitted to, where error rates or rates of decisions are to be "
    "similar in groups that only some people state.",
    "To predict the outcome of people like those of the table that the model was fitted to, "
    "where predictions are to be alike in groups that only some people state.",
)
LIMITS = (
    "Fairness here means that error rates, or rates of decisions, are similar between the groups named "
    "here. It does not cover other groups, single persons, or whether a model should make the decision "
    "at all.",
    "How often people withhold is learned under the assumption that it depends on their group, and on "
    "nothing else unless it is named here. If the audit reports otherwise, do not rely on the rates.",
    "Imputed groups are probabilities for estimating rates over many people. Do not use them as a statement "
    "about a person.",
    "The model is as good as the labels it was fitted to. If those were decided unfairly, a model with "
    "equal errors in all groups repeats it.",
    "Members of the frontier were compared on a limited number of rows, and small groups have few of them: "
    "a difference of less than two standard errors may be chance. Audit new data before and during "
    "use.",
)


def opening_of(model: StoredModel) -> str:
    """What a model is, in one sentence."""
    summary = model.summary
    label = model.source.get("label", "the label")
    groups = ", ".join(model.attributes.names) if model.knows_groups else "no group"
    kind = "classifier" if model.number is None else "predictor"
    return (
        f"A {kind} of {label} designed to be fair to {groups}, fitted to {summary['training_rows']} of "
        f"{summary['rows']} rows by pyro_fairvae."
    )


def intended_use(model: StoredModel) -> str:
    return INTENDED[model.number is not None]


def limits_of(model: StoredModel) -> tuple[str, ...]:
    """What a model must not be used for, or taken as."""
    return LIMITS if model.number is None else NUMBER_LIMITS


def measure_in_words(model: StoredModel) -> str:
    """The measure of disparity, and what it is."""
    metric = model.metric
    if model.number is not None:
        return f"{metric}: {MEANINGS[metric]}"
    return f"{metric}: {AUDITED[metric].means if metric in AUDITED else 'the risk that was trained for'}"


def depends_in_words(model: StoredModel) -> str:
    """What the model takes withholding to depend on."""
    names = ", ".join(model.depends_on)
    others = f"on it and on: {names}" if names else "on the group alone"
    return f"In this model withholding the group may depend {others}."


def source_in_words(model: StoredModel) -> str:
    """Where the rows of a model came from."""
    source = model.source.get("data")
    return f"Fitted to {source}." if source else "Fitted in Python."


def without_audit(model: StoredModel) -> str:
    """What is missing without an audit."""
    if isinstance(model.columns, Pixels):
        return "No rows were audited. Decisions about images are audited in Python: pyro_fairvae.audit."
    adds = (
        "disparities with bounds that hold whoever withholds, rates by group, figures for regulators, and "
        "how far withholding may depart from what is modelled before a finding turns"
    )
    if model.number is not None:
        adds = "mean predictions and mean errors by group, and their largest differences, with intervals"
    return (
        "No rows were audited. What is missing until then, all on rows that the model has never seen: "
        f"{adds}; and each member's figures there."
    )


def audit_command(model: StoredModel, name: str) -> str:
    """The command that makes an audit which the next report shows."""
    out = shlex.quote(str(Path(name) / AUDIT))
    sensitivity = " --sensitivity" * (model.number is None)
    return f"fairvae audit {shlex.quote(name)} DATA{sensitivity} --out {out}"


def report_command(name: str) -> str:
    return f"fairvae report {shlex.quote(name)}"
