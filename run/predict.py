"""Decide about the rows of a table by a model of ``fairvae fit``, or of ``fairvae train`` on a table.

Writes a CSV file with the decision, P(class | row) as trained and, with --groups, P(group | row). Decisions
are adjusted for fairness, so a decision need not be the likeliest class. A model that
predicts a number writes it, with the ends of a 90 % interval. Columns that the model does not know
are ignored; categories that were not in the training data are treated as unknown.

With --rule the rows are decided together, to a low expected error and unfairness of this table; groups are
used where the table has them. Objective, error, risk and rates by group, before and after, are printed.

Examples:
  fairvae predict model new.csv
  fairvae predict model new.csv --lambda 1.6 --keep id --groups --out decisions.csv
  fairvae predict model new.csv --rule descent
  fairvae predict model new.csv --rule thresholds+descent --group sex --decision-lambda 0.5 --seed 1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from pyro_fairvae.run.command import add_escape_formulas, add_options, flag_of, given_options, report
from pyro_fairvae.run.user_table import (
    Estimator,
    add_model,
    features_of,
    listed,
    open_model,
    reading_of,
    warnings_in_words,
)

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.files import write_frame
from pyro_fairvae.base.options import build
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_files import FORMATS, ending_of, read_words, take_columns
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.evaluation.joint_decisions import DecidedTogether, JointRule
from pyro_fairvae.report import members_in_words, together_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--groups", action="store_true", help="also write P(group | row)")
    parser.add_argument("--keep", default="", metavar="COLUMN,…", help="columns to copy, such as an id")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("predictions.csv"),
        metavar="FILE",
        help="CSV file to write (default: predictions.csv)",
    )
    add_escape_formulas(parser)
    together = parser.add_argument_group("deciding about all rows together, with --rule")
    together.add_argument(
        "--group", metavar="COLUMN,…", help="groups in DATA (default: as fitted, if present)"
    )
    add_options(together, JointRule)


def run(arguments: argparse.Namespace) -> None:
    require(
        ending_of(arguments.out) not in set(FORMATS) - {".csv"},
        f"predictions are written as CSV, got --out {arguments.out}; name a file that ends in .csv.",
    )
    options = given_options(arguments, JointRule)
    needing = [flag_of(name) for name in (*options, *(["group"] if arguments.group else []))]
    require(
        "rule" in options or not needing,
        f"{', '.join(needing)} given without --rule; give --rule {JointRule.rule}, or leave out the former.",
    )
    build(JointRule, options)  # its errors come before any work
    groups = listed(arguments.group or "")
    model, table = open_model(arguments, groups)
    keep = list(dict.fromkeys(listed(arguments.keep)))
    take_columns(table, keep, "columns to keep")
    kept = read_words(arguments.data, keep)
    titles = _titles(model, arguments.groups)
    twice = [name for name in keep if name in titles]
    require(
        not twice, f"{', '.join(map(repr, twice))} cannot be kept: predictions have a column of that name."
    )
    features = features_of(model, table)
    if isinstance(model, FairSSVAERegressor):
        _write_numbers(arguments, model, features, kept, titles)
        return
    with warnings_in_words():
        together = _together(model, table, features, groups, options) if options else None
        decided = model.predict(features) if together is None else together.decisions
    decision = pd.Series(decided).map({label: _decision(label) for label in model.classes_})
    columns = [decision.to_frame(), pd.DataFrame(model.predict_proba(features))]
    if arguments.groups:
        columns.append(pd.DataFrame(model.predict_groups_proba(features)))
    predictions = pd.concat(columns, axis=1).set_axis(titles, axis=1)
    chances = predictions.columns[1:]
    predictions[chances] = predictions[chances].map("{:.6g}".format)
    write_frame(arguments.out, pd.concat([kept, predictions], axis=1))
    counts = ", ".join(f"{word}: {count}" for word, count in decision.value_counts().items())
    title, names = members_in_words(model.frontier_)
    print(f"{len(table)} rows decided by the member at {title} = {names[model.selected_]}")
    print(f"({counts}); they are in {arguments.out}")
    if together is not None:
        print(f"\n{together_table(together)}")


def _together(
    model: Estimator,
    table: pd.DataFrame,
    features: pd.DataFrame,
    groups: list[str],
    options: dict[str, Any],
) -> DecidedTogether:
    """Decisions about all rows, with the groups that they state where the table has them."""
    fitted = list(reading_of(model).get("groups", []))
    # Columns named by the flag must be in the table; those that the model was fitted with may be absent.
    names = groups or (fitted if set(fitted) <= set(table.columns) else [])
    stated = take_columns(table, names, "group") if names else None
    return model.decide_together(features, stated, report=report, **options)


def _write_numbers(
    arguments: argparse.Namespace,
    model: FairSSVAERegressor,
    features: pd.DataFrame,
    kept: pd.DataFrame,
    titles: list[str],
) -> None:
    """Predicted numbers, their intervals and, if asked for, P(group | row)."""
    with warnings_in_words():
        predicted = model.predict(features)
    columns = [pd.DataFrame(predicted), pd.DataFrame(model.predict_interval(features))]
    if arguments.groups:
        columns.append(pd.DataFrame(model.predict_groups_proba(features)))
    numbers = pd.concat(columns, axis=1).set_axis(titles, axis=1)
    write_frame(arguments.out, pd.concat([kept, numbers.map("{:.6g}".format)], axis=1))
    print(
        f"{len(features)} rows predicted by the member at λ = {model.fit_.lambdas[model.selected_]:g} "
        f"(mean {predicted.mean():.6g}); they are in {arguments.out}"
    )


def _titles(model: Estimator, groups: bool) -> list[str]:
    """Column titles: decision, P of each class, P of each group, which may share the name of a class."""
    titles = ["decision", *(f"P({word_of(label)})" for label in model.classes_)]
    if isinstance(model, FairSSVAERegressor):
        titles = ["prediction", "low", "high"]
    if groups:
        require(model.knows_groups_, "the model was fitted without groups; leave out --groups.")
        named = ", ".join(model.attributes_.names)
        titles += [f"P({named} = {group})" for group in model.groups_]
    return titles


def _decision(label: Any) -> Any:
    """A class as the table has it: pandas turns whole numbers into floats in a column with gaps."""
    return int(label) if isinstance(label, float) and label.is_integer() else label
