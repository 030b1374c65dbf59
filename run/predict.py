"""Decide about the rows of a table by a model of ``fairvae fit``, or of ``fairvae train`` on a table.

Writes a CSV or Parquet file with the decision, P(class | row) as trained and, with --groups,
P(group | row). Decisions are adjusted for fairness, so a decision need not be the likeliest class. A model
that predicts a number writes it, with the ends of a 90 % interval. Columns that the model does not know are
ignored; categories that were not in the training data are treated as unknown. Rows of Parquet are read
some at a time, so that memory does not grow with them.

With --rule the rows are decided together, to a low expected error and unfairness of this table; groups are
used where the table has them. Objective, error, risk and rates by group, before and after, are printed.

Examples:
  fairvae predict model new.csv
  fairvae predict model new.csv --lambda 1.6 --keep id --groups --out decisions.csv
  fairvae predict model folder_of_parquet --keep id --out decisions.parquet
  fairvae predict model new.csv --rule descent
  fairvae predict model new.csv --rule thresholds+descent --group sex --decision-lambda 0.5 --seed 1
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyro_fairvae.run.command import add_escape_formulas, add_options, flag_of, given_options, report
from pyro_fairvae.run.user_table import (
    Estimator,
    add_model,
    chosen_model,
    features_of,
    listed,
    pieces_for,
    read_for,
    reading_of,
    warnings_in_words,
)
from tqdm import tqdm

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import build
from pyro_fairvae.data.coded_columns import word_of
from pyro_fairvae.data.table_files import read_words, take_columns
from pyro_fairvae.data.table_writing import check_format, writing_table
from pyro_fairvae.estimator.network_estimator import NetworkEstimator
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
        help="CSV or Parquet file to write (default: predictions.csv)",
    )
    add_escape_formulas(parser)
    together = parser.add_argument_group("deciding about all rows together, with --rule")
    together.add_argument(
        "--group", metavar="COLUMN,…", help="groups in DATA (default: as fitted, if present)"
    )
    add_options(together, JointRule)


def run(arguments: argparse.Namespace) -> None:
    check_format(arguments.out)
    options = given_options(arguments, JointRule)
    needing = [flag_of(name) for name in (*options, *(["group"] if arguments.group else []))]
    require(
        "rule" in options or not needing,
        f"{', '.join(needing)} given without --rule; give --rule {JointRule.rule}, or leave out the former.",
    )
    build(JointRule, options)  # its errors come before any work
    groups = listed(arguments.group or "")
    model = chosen_model(arguments)
    keep = list(dict.fromkeys(listed(arguments.keep)))
    titles = _titles(model, arguments.groups)
    twice = [name for name in keep if name in titles]
    require(
        not twice, f"{', '.join(map(repr, twice))} cannot be kept: predictions have a column of that name."
    )
    if options:
        _decide_together(arguments, model, keep, titles, groups, options)
        return
    pieces = pieces_for(model, arguments.data, keep)
    decided: Counter[Any] = Counter()
    rows, total = 0, 0.0
    with (
        tqdm(total=pieces.rows, unit="row", desc="predicting", unit_scale=True, disable=None) as bar,
        writing_table(arguments.out, pieces.types) as write,
    ):
        for table, kept in pieces.tables:
            with warnings_in_words() if rows == 0 else warnings.catch_warnings(action="ignore"):
                results = _results(model, features_of(model, table), arguments.groups, titles)
            write(kept, results)
            if isinstance(model, FairSSVAERegressor):
                total += float(results[titles[0]].sum())
            else:
                decided.update(results[titles[0]].value_counts().to_dict())
            rows += len(table)
            bar.update(len(table))
    if isinstance(model, FairSSVAERegressor):
        print(
            f"{rows} rows predicted by the member at λ = {model.fit_.lambdas[model.selected_]:g} "
            f"(mean {total / rows:.6g}); they are in {arguments.out}"
        )
    else:
        _print_decided(model, rows, decided, arguments.out)


def _results(
    model: Estimator, features: Any, groups: bool, titles: list[str], decided: Any = None
) -> pd.DataFrame:
    """Decisions, those given as ``decided`` if any, or numbers with intervals, and probabilities."""
    if isinstance(model, NetworkEstimator):
        features = model.encoded(features)
    if isinstance(model, FairSSVAERegressor):
        columns = [pd.DataFrame(model.predict(features)), pd.DataFrame(model.predict_interval(features))]
    else:
        decided = model.predict(features) if decided is None else decided
        decision = pd.Series(decided).map({label: _decision(label) for label in model.classes_})
        columns = [decision.to_frame(), pd.DataFrame(model.predict_proba(features))]
    if groups:
        columns.append(pd.DataFrame(model.predict_groups_proba(features)))
    return pd.concat(columns, axis=1).set_axis(titles, axis=1)


def _print_decided(model: Estimator, rows: int, decided: Mapping[Any, int], out: Path) -> None:
    by_count = sorted(decided.items(), key=lambda item: -item[1])
    counts = ", ".join(f"{word}: {count}" for word, count in by_count)
    title, names = members_in_words(model.frontier_)
    print(f"{rows} rows decided by the member at {title} = {names[model.selected_]}")
    print(f"({counts}); they are in {out}")


def _decide_together(
    arguments: argparse.Namespace,
    model: Estimator,
    keep: list[str],
    titles: list[str],
    groups: list[str],
    options: dict[str, Any],
) -> None:
    """Decide about all rows, which are in memory, together."""
    table = read_for(model, arguments.data, groups)
    take_columns(table, keep, "columns to keep")
    kept = read_words(arguments.data, keep)
    features = features_of(model, table)
    with warnings_in_words():
        together = _together(model, table, features, groups, options)
        results = _results(model, features, arguments.groups, titles, together.decisions)
    with writing_table(arguments.out, {}) as write:
        write(kept, results)
    decided = results[titles[0]].value_counts().to_dict()
    _print_decided(model, len(table), decided, arguments.out)
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
