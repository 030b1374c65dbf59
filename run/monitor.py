"""Audit one period after another, and tell when something changes.

Each file is a period, or with --by the dates in a column are, over all files. Every period is audited, and
the test for change allows for looking at each of them: without a change the chance of an alarm is at most
--alpha over all periods together. Exits with 4 if a change was found, so that a scheduler notices.

Examples:
  fairvae monitor model january.csv february.csv march.csv
  fairvae monitor model 2025.csv --by decided_on --every month --decisions their_decision --out page.html
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pyro_fairvae.run.audit import roles_of
from pyro_fairvae.run.user_table import (
    Estimator,
    add_model,
    check_writable,
    features_of,
    listed,
    open_model,
    read_for,
    warnings_in_words,
)

from pyro_fairvae.auditing import Audit, audit
from pyro_fairvae.auditing.monitoring import monitor
from pyro_fairvae.base.documents import write_sealed
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.coded_columns import shorten, word_of
from pyro_fairvae.data.table_files import take_columns
from pyro_fairvae.report.monitoring import write_monitoring_page

CHANGED = 4  # exit code
EVERY = {"day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser, several=True)
    parser.add_argument("--label", metavar="COLUMN", help="column of labels (default: as fitted)")
    parser.add_argument("--group", metavar="COLUMN,…", help="columns of groups (default: as fitted)")
    parser.add_argument("--decisions", metavar="COLUMN", help="audit this column instead of the model")
    parser.add_argument("--by", metavar="COLUMN", help="column of dates that tell the period of each row")
    parser.add_argument(
        "--every",
        default="month",
        choices=EVERY,
        help="how long a period is, with --by (default: %(default)s)",
    )
    parser.add_argument(
        "--alpha", type=float, default=0.05, metavar="X",
        help="chance of an alarm without change, over all periods together (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--confidence", type=float, default=0.9, metavar="X", help="level of intervals (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="HTML file for a page about all periods")
    parser.add_argument("--json", type=Path, metavar="FILE", help="JSON file for all of it")


def run(arguments: argparse.Namespace) -> int:
    require(0 < arguments.alpha < 1, f"--alpha must be within (0, 1), got {arguments.alpha}.")
    for path in (arguments.out, arguments.json):
        if path is not None:
            check_writable(path, arguments.model, *arguments.data)
    first, *others = arguments.data
    named = [*listed(arguments.group or ""), arguments.label or "", arguments.decisions or ""]
    model, table = open_model(argparse.Namespace(**{**vars(arguments), "data": first}), named)
    tables = [table, *(read_for(model, path, named) for path in others)]
    audits, notes = [], []
    for name, rows in _periods(arguments, tables):
        try:
            audits.append((name, _audited(arguments, model, rows)))
        except InputError as error:
            notes.append(f"{name} could not be audited: {error}")
    require(bool(audits), f"no period could be audited: {' '.join(notes)}")
    found = monitor(audits, arguments.alpha, notes)
    if arguments.json is not None:
        write_sealed(arguments.json, found.to_dict())
    if arguments.out is not None:
        write_monitoring_page(arguments.out, found, str(arguments.model))
    print(found)
    if arguments.out is not None:
        print(f"\nThe page is {arguments.out}")
    return CHANGED if found.alarm is not None else 0


def _audited(arguments: argparse.Namespace, model: Estimator, rows: pd.DataFrame) -> Audit:
    labels, decided, stated = roles_of(arguments, model, rows)
    with warnings_in_words():
        return audit(
            labels,
            decided,
            stated,
            X=features_of(model, rows),
            model=model if model.knows_groups_ else None,
            confidence=arguments.confidence,
        )


def _periods(arguments: argparse.Namespace, tables: list[pd.DataFrame]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each period, in the order of time, or of the files."""
    if arguments.by is None:
        names = [path.name for path in arguments.data]
        twice = {name for name in names if names.count(name) > 1}
        for path, table in zip(arguments.data, tables, strict=True):
            yield str(path) if path.name in twice else path.name, table
        return
    times = [take_columns(table, [arguments.by], "time").iloc[:, 0] for table in tables]
    words = pd.concat(times, ignore_index=True).map(word_of, na_action="ignore")
    dates = pd.to_datetime(words, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
    strange = words[dates.isna()]
    require(
        strange.empty,
        f"the column {arguments.by!r} has {len(strange)} values that are no dates, such as "
        f"{shorten(sorted(set(map(str, strange)))[:3])}; expected dates such as 2025-01-31 in every row.",
    )
    period = dates.dt.to_period(EVERY[arguments.every])
    rows = pd.concat(tables, ignore_index=True)
    for each in np.sort(period.unique()):
        yield str(each), rows[period == each].reset_index(drop=True)
