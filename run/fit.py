"""Fit a fair classifier to your own table, in which groups and labels may have gaps.

The folder given by --out receives the model (model.json and weights.safetensors, which hold no code) and
audit.json, an audit of rows that were kept out of fitting. Columns are numbers or categories by what they
hold. A fit that was interrupted goes on when the same command is given again.

Examples:
  fairvae fit people.csv --label income --group sex --out model
  fairvae fit people.csv --label income --group sex,race --missing "?,prefer not to say" --out model
  fairvae fit people.parquet --label hired --group gender --drop id --max-disparity 0.05 --out model
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from pyro_fairvae.run.command import prepare, report
from pyro_fairvae.run.user_table import add_machine, listed, warnings_in_words

from pyro_fairvae.audit import audit
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import OtherConfig, write_json
from pyro_fairvae.data.coded_columns import is_missing
from pyro_fairvae.data.table_encoder import check_names
from pyro_fairvae.data.table_files import read_table, read_words, take_columns
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.report import channels_table, frontier_table
from pyro_fairvae.storage.model_folder import AUDIT, DOCUMENT

CHECKPOINT = "checkpoint.pt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    defaults = FairSSVAEClassifier()
    parser.add_argument("data", type=Path, metavar="DATA", help="CSV, TSV (also .gz) or Parquet file")
    parser.add_argument("--label", required=True, metavar="COLUMN", help="what to predict")
    parser.add_argument(
        "--group", required=True, metavar="COLUMN,…", help="the group to be fair to; several are combined"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--missing", default="", metavar="WORD,…", help="further words that mean: not stated")
    parser.add_argument(
        "--values", default="", metavar="WORD,…",
        help="words that are values of this table, though elsewhere they mean a gap, such as None",
    )  # fmt: skip
    parser.add_argument("--drop", default="", metavar="COLUMN,…", help="columns that are no features")
    parser.add_argument(
        "--risk",
        default=defaults.risk,
        help=f"what is to be alike, or module:function (default: {defaults.risk})",
    )
    parser.add_argument(
        "--lambdas", default=",".join(f"{weight:g}" for weight in defaults.lambdas), metavar="X,…",
        help="λ of each member of the frontier (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-disparity", type=float, help="choose the most accurate member that is at most so unfair"
    )
    parser.add_argument("--epochs", type=int, help="passes over the rows (default: by their number)")
    parser.add_argument(
        "--holdout",
        type=float,
        default=0.2,
        help="share of rows that are only audited (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of held-out rows and of fitting (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that --out already holds")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_machine(parser)


def run(arguments: argparse.Namespace) -> None:
    device = prepare(arguments)
    require(0 <= arguments.holdout < 1, f"--holdout must be within [0, 1), got {arguments.holdout}.")
    require(arguments.seed >= 0, f"--seed must not be negative, got {arguments.seed}.")
    require(
        arguments.overwrite or not (arguments.out / DOCUMENT).exists(),
        f"{arguments.out} already holds a model; replace it by --overwrite, or choose another folder.",
    )
    given = (arguments.missing, arguments.values, arguments.group, arguments.drop)
    words, values, groups, drop = map(listed, given)
    require(arguments.label not in groups, f"{arguments.label!r} cannot be both the label and a group.")
    for name in drop:
        require(
            name not in (arguments.label, *groups),
            f"{name!r} is the label or a group, which are no features anyway; leave it out of --drop.",
        )
    lambdas = _numbers(arguments.lambdas)
    table = read_table(arguments.data, words, values)
    table.columns = pd.Index(check_names(table))
    label = take_columns(table, [arguments.label], "label").iloc[:, 0]
    sensitive = take_columns(table, groups, "group")
    dropped = take_columns(table, drop, "columns to drop")
    _tell_gaps(arguments.data, [arguments.label, *groups], table, words)
    features = table.drop(columns=[arguments.label, *groups, *dropped])
    require(features.shape[1] > 0, f"{arguments.data} has no column that is left as a feature.")
    audited = _held_out(len(table), arguments.holdout, arguments.seed)
    model = FairSSVAEClassifier(
        risk=arguments.risk,
        lambdas=lambdas,
        max_disparity=arguments.max_disparity,
        epochs=arguments.epochs,
        device=str(device),
        random_state=arguments.seed,
        verbose=int(not arguments.quiet),
        checkpoint=arguments.out / CHECKPOINT,
    )
    with warnings_in_words():
        try:
            model.fit(features[~audited], label[~audited], sensitive[~audited])
        except OtherConfig:
            if not arguments.overwrite:
                raise
            report("A checkpoint of another fit is discarded.")
            (arguments.out / CHECKPOINT).unlink()
            model.fit(features[~audited], label[~audited], sensitive[~audited])
    model.source_ = {
        "label": arguments.label,
        "groups": groups,
        "missing": words,
        "values": values,
        "data": arguments.data.name,
    }
    model.save(arguments.out, overwrite=arguments.overwrite)
    print(frontier_table(model.frontier_, model.selected_, model.metric_))
    print(f"\n{channels_table(model.channels_, model.posterior_['describes'])}")
    for warning in model.posterior_["warnings"]:
        print(f"warning: {warning}")
    _audit_held_out(model, features[audited], label[audited], sensitive[audited], arguments.out)
    print(f"\nThe model is in {arguments.out}; fairvae report {arguments.out} makes a page of it.")


def _audit_held_out(
    model: FairSSVAEClassifier, features: pd.DataFrame, label: pd.Series, groups: pd.DataFrame, out: Path
) -> None:
    """Audit rows that nothing has seen, where they can be; the model is saved already, and stays."""
    if not len(features) or is_missing(label).all() or groups.isna().any(axis=1).all():
        report("No rows were held out that state label and group, so nothing is audited.")
        return
    try:
        found = audit(label, model.predict(features), groups, X=features, model=model)
    except InputError as reason:
        report(f"The rows held out could not be audited: {reason}")
        return
    write_json(out / AUDIT, found.to_dict())
    print(f"\nAudit of {len(features)} rows that were kept out of fitting\n{found}")


def _tell_gaps(path: Path, names: Sequence[str], table: pd.DataFrame, asked: Sequence[str]) -> None:
    """Say which words of label and groups were taken for gaps unasked, as one of them may be a value."""
    for name, column in read_words(path, names).items():
        taken = column[table[name].isna().to_numpy() & column.notna().to_numpy()]
        counts = [
            f"{word!r} in {count} rows"
            for word, count in taken.value_counts().items()
            if word not in ("", *asked)
        ]
        if counts:
            report(f"{name}: not stated, {', '.join(counts)} (--values keeps a word that is a value).")


def _held_out(rows: int, share: float, seed: int) -> np.ndarray:
    chosen = np.zeros(rows, dtype=bool)
    chosen[np.random.default_rng([seed, 1]).permutation(rows)[: round(share * rows)]] = True
    return chosen


def _numbers(words: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, listed(words)))
    except ValueError:
        require(False, f"--lambdas expects numbers with commas between, got {words!r}.")
        raise
