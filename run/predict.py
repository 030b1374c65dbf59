"""Decide about the rows of a table by a model of ``fairvae fit``.

Writes a CSV file with the decision, the probability of each class and, with --groups, of each group. Columns
that the model does not know are not looked at; categories that it never saw are treated as unknown.

Examples:
  fairvae predict model new.csv
  fairvae predict model new.csv --weight 1.6 --keep id --groups --out decisions.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from pyro_fairvae.run.own_table import add_model, features_of, listed, open_model

from pyro_fairvae.checkpoint import write_whole
from pyro_fairvae.data.files import take_columns
from pyro_fairvae.data.stated import word_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--groups", action="store_true", help="also P(group | row)")
    parser.add_argument("--keep", default="", metavar="COLUMN,…", help="columns to copy, such as an id")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("predictions.csv"),
        help="CSV file to write (default: predictions.csv)",
    )


def run(arguments: argparse.Namespace) -> None:
    model, table = open_model(arguments)
    found = take_columns(table, listed(arguments.keep), "columns to keep").reset_index(drop=True)
    features = features_of(model, table)
    found = found.assign(decision=model.predict(features))
    probabilities = model.predict_proba(features)
    names = [f"P({word_of(each)})" for each in model.classes_]
    parts = [found, pd.DataFrame(probabilities, columns=names)]
    if arguments.groups:
        groups = model.predict_groups_proba(features)
        parts.append(pd.DataFrame(groups, columns=[f"P({name})" for name in model.groups_]))
    write_whole(arguments.out, pd.concat(parts, axis=1).to_csv(index=False, float_format="%.6g"))
    counts = ", ".join(f"{label}: {count}" for label, count in found["decision"].value_counts().items())
    print(f"{len(table)} rows decided by the member at λ = {model.fit_.weights_of_risk[model.selected_]:g}")
    print(f"({counts}); they are in {arguments.out}")
