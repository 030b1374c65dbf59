"""Label rows so that error and expected unfairness are low together.

Labels the rows of a table, DATA, by a model of ``fairvae fit`` or ``fairvae train``; columns of labels and
groups are used where the table has them. Without DATA it labels a part of the data of a ``fairvae train``
run, and writes decisions-PART.csv and decisions-PART.json to the folder of the run. Every rule starts from
the rounded probabilities of the classifier; the objective and the metrics of both labellings are printed.
fairvae predict --rule writes the same kind of decisions in the form of predictions, and minimises the error.

Examples:
  fairvae decide model new.csv --out decisions.csv
  fairvae decide runs/gender
  fairvae decide runs/gender --part validation --rule thresholds --lambda 0.4 --decision-lambda 1
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from pyro_fairvae.run.command import (
    add_data_dir,
    add_escape_formulas,
    add_machine,
    add_options,
    given_options,
    prepare,
    report,
)
from pyro_fairvae.run.user_table import (
    check_writable,
    features_of,
    listed,
    read_for,
    reading_of,
    warnings_in_words,
)

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.options import build
from pyro_fairvae.data.table_files import take_columns
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.report import decision_table
from pyro_fairvae.studies.deciding import DecideConfig, decide_run, decide_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder written by fairvae train or fit")
    parser.add_argument(
        "data", type=Path, nargs="?", metavar="DATA", help="CSV, TSV (also .gz) or Parquet file to label"
    )
    parser.add_argument("--label", metavar="COLUMN", help="labels in DATA (default: as fitted, if present)")
    parser.add_argument("--group", metavar="COLUMN,…", help="groups in DATA (default: as fitted, if present)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="CSV file for the labels of DATA (default: decisions.csv)"
    )
    add_escape_formulas(parser)
    add_data_dir(parser)
    add_machine(parser)
    add_options(parser, DecideConfig, exclusive=("member", "lambda_"))


def run(arguments: argparse.Namespace) -> None:
    config = build(DecideConfig, given_options(arguments, DecideConfig))
    device = prepare(arguments)
    if arguments.data is not None:
        out = arguments.out or Path("decisions.csv")
        results = _decide_table(arguments, config, device, out)
    else:
        require(
            not (arguments.out or arguments.label or arguments.group),
            "--out, --label and --group need DATA, the table to label; give it, or leave them out.",
        )
        results = decide_run(arguments.model, config, device, arguments.data_dir, report)
        out = arguments.model / f"decisions-{config.part}.csv"
    print(decision_table(results))
    print(f"\nLabels are in {out}")


def _decide_table(
    arguments: argparse.Namespace, config: DecideConfig, device: torch.device, out: Path
) -> dict[str, Any]:
    about = out.with_suffix(".json")
    require(out != about, f"labels are written as CSV, got {out}; name a file that ends in .csv.", "out")
    for path in (out, about):
        check_writable(path, arguments.model, arguments.data)
    model = FairSSVAEClassifier.load(arguments.model, str(device))
    table = read_for(model, arguments.data, [*listed(arguments.group or ""), arguments.label or ""])
    source = reading_of(model)
    labels = [arguments.label] if arguments.label else [source["label"]] if source.get("label") else []
    groups = listed(arguments.group or "") or list(source.get("groups", []))
    # Columns named by flags must be in the table; those that the model was fitted with may be absent.
    labels = labels if arguments.label or set(labels) <= set(table.columns) else []
    groups = groups if arguments.group or set(groups) <= set(table.columns) else []
    with warnings_in_words():
        rows = model.observed(
            features_of(model, table),
            take_columns(table, labels, "label").iloc[:, 0] if labels else None,
            take_columns(table, groups, "group") if groups and model.knows_groups_ else None,
        )
        return decide_table(model.stored(), rows, config, out, report)
