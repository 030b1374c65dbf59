"""Make one self-contained page of a model: the frontier, who withholds, the audit, its data, its limits.

Examples:
  fairvae report model
  fairvae report model --audit audit.json --out model.html
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyro_fairvae.run.user_table import check_writable, warnings_in_words

from pyro_fairvae.auditing import Audit
from pyro_fairvae.base.errors import InputError
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.report import write_model_page
from pyro_fairvae.storage.model_folder import AUDIT, PAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder written by fairvae fit")
    parser.add_argument("--audit", type=Path, help="of fairvae audit --out (default: the one in the folder)")
    parser.add_argument("--out", type=Path, help="HTML file to write (default: report.html in the folder)")


def run(arguments: argparse.Namespace) -> None:
    model = FairSSVAEClassifier.load(arguments.model, "cpu")
    out = arguments.out or arguments.model / PAGE
    check_writable(out)
    path = arguments.audit or arguments.model / AUDIT
    found = read_audit(path) if arguments.audit or path.exists() else None
    with warnings_in_words():
        write_model_page(out, model, found, str(arguments.model))
    print(f"The report is {out}")


def read_audit(path: Path) -> Audit:
    try:
        found = Audit.from_dict(json.loads(path.read_text(encoding="utf-8")))
        str(found)  # which reads all that a page does
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
        raise InputError(f"{path} is not what fairvae audit --out writes: {reason}.") from reason
