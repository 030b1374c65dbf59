"""Make one self-contained page about a model: a slider over its members, frontier, who withholds, audit,
sensitivity, data and limits; and a model card with the same content.

Examples:
  fairvae report model
  fairvae report runs/gender --audit audit.json --out model.html
  fairvae report model --card card.md --card card.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyro_fairvae.run.user_table import check_writable, warnings_in_words

from pyro_fairvae.auditing import Audit, NumberAudit
from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.folders import is_current_file
from pyro_fairvae.report import model_card, write_card, write_model_page
from pyro_fairvae.report.card import CARD_KINDS
from pyro_fairvae.storage.model_folder import AUDIT, PAGE
from pyro_fairvae.storage.stored_model import load_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder written by fairvae fit or train")
    parser.add_argument(
        "--audit",
        type=Path,
        metavar="FILE",
        help="file of fairvae audit --out (default: the one in the folder)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="HTML file to write (default: report.html in the folder)"
    )

    parser.add_argument(
        "--card",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="also write a model card, Markdown or JSON by the ending .md or .json; may be repeated",
    )


def run(arguments: argparse.Namespace) -> None:
    model = load_model(arguments.model)
    out = arguments.out or arguments.model / PAGE
    path = arguments.audit or arguments.model / AUDIT
    for file in (out, *arguments.card):
        check_writable(file, arguments.model, path)
    for card in arguments.card:
        choose("ending of --card", card.suffix, CARD_KINDS)
    require(
        len({file.resolve() for file in (out, *arguments.card)}) == 1 + len(arguments.card),
        "--out and --card name the same file; name another.",
    )
    read = Audit.read if model.number is None else NumberAudit.read
    audit = read(path) if arguments.audit or is_current_file(path) else None
    with warnings_in_words():
        write_model_page(out, model, audit, str(arguments.model))
        for file in arguments.card:
            write_card(file, model_card(model, audit, str(arguments.model)))
    print(f"The report is {out}")
    for file in arguments.card:
        print(f"The model card is {file}")
