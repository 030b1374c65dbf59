"""Audit decisions on a table in which some people do not state their group.

Audits the decisions of a model of ``fairvae fit`` or ``fairvae train``, or a column with the decisions of any
other classifier. Estimates are anchored on rows that state their group, and rows that do not make them
sharper. Estimates from stated rows alone are printed beside them, and bounds for exactly these rows that hold
whatever the reason for withholding.

Examples:
  fairvae audit model new.csv
  fairvae audit model new.csv --decisions their_decision --depends-on "group and label" --out audit.json
  fairvae audit model new.csv --decisions hired --scores p_hired --pos-label yes --local-law-144
  fairvae audit model new.csv --sensitivity --tolerance 0.1
  fairvae audit model survey.csv --weights person_weight --clusters household
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pyro_fairvae.run.user_table import (
    Estimator,
    add_model,
    chosen_model,
    features_of,
    listed,
    reading_of,
    sample_for,
    warnings_in_words,
    withholding_depends_on,
)

from pyro_fairvae.auditing import DEPENDS_ON, audit, audit_numbers
from pyro_fairvae.auditing.local_law import BY
from pyro_fairvae.auditing.sensitivity import TOLERANCE
from pyro_fairvae.base.documents import write_sealed
from pyro_fairvae.base.errors import require
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.number_columns import is_number
from pyro_fairvae.data.table_files import take_columns
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.report.text import check_in_words
from pyro_fairvae.studies.streamed_fit import AUDITED
from pyro_fairvae.studies.user_fit import audit_of_predictor, audit_with_members


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--label", metavar="COLUMN", help="column of labels (default: as fitted)")
    parser.add_argument("--group", metavar="COLUMN,…", help="columns of groups (default: as fitted)")
    parser.add_argument("--decisions", metavar="COLUMN", help="audit this column instead of the model")
    parser.add_argument(
        "--scores", metavar="COLUMN", help="column with P(label that matters): adds AUC and calibration"
    )
    parser.add_argument(
        "--pos-label", metavar="VALUE",
        help="the label that matters: to be decided so is to be selected (default: the last in order)",
    )  # fmt: skip
    parser.add_argument(
        "--local-law-144", nargs="?", const=BY[0], choices=BY, metavar="BY",
        help="add the tables of New York's Local Law 144, of those selected by decisions (default), or by "
        "scores above the median",
    )  # fmt: skip
    parser.add_argument(
        "--exclude-below", type=float, default=0.0, metavar="X",
        help="leave smaller categories out of the ratios of --local-law-144 (a share; default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sensitivity", action="store_true",
        help="add how far withholding may depart from what is modelled before each finding turns",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", type=float, default=TOLERANCE, metavar="X",
        help="the largest difference that counts as fair, for --sensitivity (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="COLUMN", help="column with weights of rows: how many people each stands for"
    )
    parser.add_argument(
        "--clusters", metavar="COLUMN",
        help="column that names what was sampled as a whole, such as a household: intervals allow for it",
    )  # fmt: skip
    parser.add_argument(
        "--depends-on", default=DEPENDS_ON[0], choices=DEPENDS_ON,
        help="what withholding may depend on (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--withholding-depends-on", metavar="COLUMN,…",
        help="columns, and label, that withholding may depend on besides the group (default: as fitted)",
    )  # fmt: skip
    parser.add_argument(
        "--confidence", type=float, default=0.9, metavar="X", help="level of intervals (default: %(default)s)"
    )
    parser.add_argument(
        "--most-rows", type=int, default=AUDITED, metavar="N",
        help="audit so many rows of Parquet, drawn at random, if there are more (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the audit")


def roles_of(
    arguments: argparse.Namespace, model: Estimator, table: pd.DataFrame
) -> tuple[pd.Series, pd.Series, pd.DataFrame]:
    """Labels, decisions and groups of a table, as the flags name them or the model was fitted."""
    source = reading_of(model)
    label: str = arguments.label or source.get("label", "")
    groups: list[str] = listed(arguments.group or "") or source.get("groups", [])
    require(bool(label and groups), "the model was fitted in Python: name --label and --group.")
    labels = take_columns(table, [label], "label").iloc[:, 0]
    stated = take_columns(table, groups, "group")
    audited = take_columns(table, [arguments.decisions] if arguments.decisions else [], "decisions")
    features = features_of(model, table)
    with warnings_in_words():
        decided = audited.iloc[:, 0] if arguments.decisions else pd.Series(model.predict(features))
    if is_number(decided) != is_number(labels):  # one of them has codes such as 01
        labels, decided = (column.map(word_of, na_action="ignore") for column in (labels, decided))
    return labels, decided, stated


def run(arguments: argparse.Namespace) -> None:
    named = [*listed(arguments.group or ""), arguments.label or "", arguments.decisions or ""]
    require(
        arguments.local_law_144 != "scores" or arguments.scores is not None,
        "scoring rates need scores: name their column by --scores.",
    )
    named += [arguments.clusters or ""]
    model = chosen_model(arguments)
    table, sampled = sample_for(model, arguments.data, named, arguments.most_rows)
    labels, decided, stated = roles_of(arguments, model, table)
    design = {
        name: take_columns(table, [column], role).iloc[:, 0]
        for name, column, role in (
            ("sample_weight", arguments.weights, "weights"), ("clusters", arguments.clusters, "clusters"),
        )
        if column is not None
    }  # fmt: skip
    if isinstance(model, FairSSVAERegressor):
        features = features_of(model, table)
        _audit_numbers(arguments, model, features, labels, decided, stated, design, sampled)
        return
    scores = take_columns(table, [arguments.scores] if arguments.scores else [], "scores")
    features = features_of(model, table)
    depending = arguments.withholding_depends_on
    with warnings_in_words():
        result = audit(
            labels,
            decided,
            stated,
            X=features,
            model=model if model.knows_groups_ else None,
            depends_on=arguments.depends_on,
            withholding_depends_on=None if depending is None else listed(depending),
            confidence=arguments.confidence,
            pos_label=arguments.pos_label,
            scores=scores.iloc[:, 0] if arguments.scores else None,
            **design,
        )
        if sampled is not None:
            result = replace(result, notes=(sampled, *result.notes))
        if not arguments.decisions:
            result = audit_with_members(result, model, features, design.get("sample_weight"))
        if arguments.local_law_144 is not None:
            law = result.local_law_144(arguments.local_law_144, arguments.exclude_below)
            result = replace(result, local_law=law)
        if arguments.sensitivity:
            result = replace(result, by_gamma=result.sensitivity(tolerance=arguments.tolerance))
    if arguments.out is not None:
        write_sealed(arguments.out, result.to_dict())
    if result.check is not None:  # in the words of the command
        depends_on = listed(depending or "") or withholding_depends_on(model)
        says = check_in_words(result.check, depends_on, "Audit")
        result = replace(result, check={**result.check, "says": says})
    print(result)
    if arguments.out is not None:
        print(f"\nThe whole audit is in {arguments.out}")


def _audit_numbers(
    arguments: argparse.Namespace,
    model: FairSSVAERegressor,
    features: pd.DataFrame,
    outcomes: pd.Series,
    predicted: pd.Series,
    stated: pd.DataFrame,
    design: dict[str, pd.Series],
    sampled: str | None,
) -> None:
    """Print, and keep, an audit of predicted numbers."""
    of_classes = ("scores", "local_law_144", "sensitivity", "pos_label", "withholding_depends_on")
    given = [name for name in of_classes if getattr(arguments, name)]
    given += ["depends_on"] if arguments.depends_on != DEPENDS_ON[0] else []
    flags = ", ".join("--" + name.replace("_", "-") for name in given)
    require(
        not given,
        f"{flags}: for decisions between classes only. The model predicts a number, whose audit assumes that "
        f"withholding depends on the group alone; leave {flags} out.",
    )
    own_groups, confidence = model.knows_groups_ and not arguments.group, arguments.confidence
    if arguments.decisions:
        known = model.attributes_ if own_groups else None
        result = audit_numbers(outcomes, predicted, stated, attributes=known, confidence=confidence, **design)
    else:
        result = audit_of_predictor(model, features, outcomes, stated, own_groups, confidence, **design)
    if sampled is not None:
        result = replace(result, notes=(sampled, *result.notes))
    if arguments.out is not None:
        write_sealed(arguments.out, result.to_dict())
    print(result)
    if arguments.out is not None:
        print(f"\nThe whole audit is in {arguments.out}")
