"""Functions shared by the commands for a user's own table."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pyro_fairvae.run.command import add_machine, prepare, report

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.files import check_replaceable
from pyro_fairvae.data.parquet_rows import ParquetRows
from pyro_fairvae.data.splits import random_share
from pyro_fairvae.data.table_encoder import names_of
from pyro_fairvae.data.table_files import is_parquet, read_table, read_words, take_columns
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.estimator.loading import load_estimator
from pyro_fairvae.estimator.regressor import FairSSVAERegressor
from pyro_fairvae.estimator.table_classifier import OneClassWarning, WithholdingWarning
from pyro_fairvae.inference.checkpoint import CHECKPOINT
from pyro_fairvae.storage.model_folder import MODEL, RUN

TABLES = "CSV, TSV (also .gz) or Parquet file, or a folder of Parquet files"
Estimator = FairSSVAEClassifier | FairDecisions | FairSSVAERegressor


def add_model(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add MODEL, DATA (``several`` files), and the flags that choose the member that decides."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder written by fairvae fit or train")
    many: dict[str, Any] = {"nargs": "+"} if several else {}
    parser.add_argument("data", type=Path, metavar="DATA", help=TABLES, **many)
    member = parser.add_mutually_exclusive_group()
    member.add_argument(
        "--lambda",
        dest="lambda_",
        metavar="X",
        type=float,
        help="decide by the member with this λ (default: as fitted)",
    )
    member.add_argument(
        "--max-disparity",
        type=float,
        metavar="X",
        help="decide by the most accurate member with at most this disparity",
    )
    add_machine(parser)


def open_model(arguments: argparse.Namespace, names: Sequence[str] = ()) -> tuple[Estimator, pd.DataFrame]:
    """The model with its member chosen, and the table, read in the same way as the model's training table.

    Columns ``names`` hold labels or groups besides those that the model was fitted with.
    """
    model = chosen_model(arguments)
    return model, read_for(model, arguments.data, names)


def chosen_model(arguments: argparse.Namespace) -> Estimator:
    """The model with its member chosen, after a check that the output can be written."""
    if arguments.out is not None:
        check_writable(arguments.out, arguments.model, arguments.data)
    device: torch.device = prepare(arguments)
    model = load_estimator(arguments.model, str(device))
    if arguments.lambda_ is not None:
        require(not isinstance(model, FairDecisions), "members have targets and no λ; give --max-disparity.")
        assert not isinstance(model, FairDecisions)
        model.select(lambda_=arguments.lambda_)
    elif arguments.max_disparity is not None:
        model.select(arguments.max_disparity)
    return model


def read_for(model: Estimator, data: Path, names: Sequence[str] = ()) -> pd.DataFrame:
    """A table, read in the same way as the model's training table."""
    source = reading_of(model)
    text = [column.name for column in model.encoder_.categories if column.is_text]
    known = [source.get("label", ""), *source.get("groups", ())]
    return read_table(data, source.get("missing", ()), source.get("values", ()), text, [*known, *names])


def sample_for(
    model: Estimator, data: Path, names: Sequence[str], most: int
) -> tuple[pd.DataFrame, str | None]:
    """As :func:`read_for`; of Parquet with more rows ``most`` drawn at random, and what was done in words."""
    require(most >= 1, f"--most-rows must be at least 1, got {most}.")
    if is_parquet(data):
        rows = ParquetRows.open(data, reading_of(model).get("missing", ()))
        if rows.rows > most:
            words = f"these are {most} rows drawn at random of {rows.rows} in {data.name}."
            return rows.chosen(random_share(rows.rows, most / rows.rows, 0)), words
    return read_for(model, data, names), None


@dataclass(frozen=True)
class Pieces:
    """A table in pieces, each with the columns to keep as they are stored."""

    rows: int | None  # if it is known
    types: Mapping[str, Any]  # of columns of Parquet
    tables: Iterator[tuple[pd.DataFrame, pd.DataFrame]]


def pieces_for(model: Estimator, data: Path, keep: Sequence[str], names: Sequence[str] = ()) -> Pieces:
    """A table for a model: rows of Parquet some at a time, those of text at once.

    Columns ``names`` hold labels or groups besides those that the model was fitted with.
    """
    if not is_parquet(data):
        table = read_for(model, data, names)
        take_columns(table, keep, "columns to keep")
        return Pieces(len(table), {}, iter([(table, read_words(data, keep))]))
    rows = ParquetRows.open(data, reading_of(model).get("missing", ()))
    take_columns(pd.DataFrame(columns=pd.Index(rows.names)), keep, "columns to keep")
    of_model = {*getattr(model, "feature_names_in_", rows.names), *keep}
    needed = rows.only([name for name in rows.names if name in of_model])
    tables = ((needed.with_gaps(stored), stored[list(keep)]) for _, stored in needed.stored())
    return Pieces(rows.rows, rows.types, tables)


def check_writable(path: Path, model: Path, *read: Path) -> None:
    """Raise :class:`InputError` before the work starts if a file cannot be written, or must not be.

    Files of the model and others that are ``read`` are not replaced.
    """
    for other in read:
        require(
            not other.is_dir() or path.resolve().parent != other.resolve(),
            f"cannot write {path}: it would be a file of the table {other}; name another folder.",
        )
    check_replaceable(path, *read, *(model / name for name in (*MODEL, *RUN, CHECKPOINT)))
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as reason:
        raise InputError(f"cannot write {path}: {reason.strerror}.") from reason


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Print warnings of the library as messages, without the line of code that raised them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        report(f"fairvae: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        for printed in (WithholdingWarning, OneClassWarning):  # above the rates, and at the top
            warnings.simplefilter("ignore", printed)
        warnings.showwarning = show
        yield


def listed(words: str) -> list[str]:
    """The words of a list separated by commas, without spaces around them."""
    return [word.strip() for word in words.split(",") if word.strip()]


def reading_of(model: Estimator) -> dict[str, Any]:
    """How fairvae fit read its table; empty for a model that was fitted in Python."""
    return dict(model.source_)


def withholding_depends_on(model: Estimator) -> tuple[str, ...]:
    """What withholding may depend on besides the group, as the model was fitted."""
    return names_of(getattr(model, "withholding_depends_on", ()))


def features_of(model: Estimator, table: pd.DataFrame) -> pd.DataFrame:
    """The model's columns in their order; other columns are ignored."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if not names:
        raise InputError("the model was fitted on an array without column names; use it from Python.")
    model.encoder_.aligned(table)
    # Columns that the encoder left out in fitting may be missing here.
    return table.rename(columns=str).reindex(columns=names)
