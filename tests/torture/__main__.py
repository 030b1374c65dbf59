"""``python -m tests.torture``: try, count, report; exit code 1 if anything was wrong."""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from tests.torture.cases import Case, Tally, try_all
from tests.torture.disks import disk_cases
from tests.torture.documents import document_cases
from tests.torture.files import file_cases
from tests.torture.flips import flip_cases
from tests.torture.forked import import_what_comes_late
from tests.torture.frames import frame_cases
from tests.torture.kills import cache_cases, kill_cases
from tests.torture.options import option_cases
from tests.torture.serving import try_soak, try_threads
from tests.torture.subjects import Subjects
from tests.torture.together import together_cases

Cases = Callable[[Subjects, int, int], list[Case]]
PARTS: dict[str, tuple[Cases, int, str]] = {
    "frames": (frame_cases, 400, "tables given to the Python interface"),
    "files": (file_cases, 400, "CSV, TSV and Parquet files"),
    "documents": (document_cases, 450, "documents of models, runs, audits and jobs, and YAML"),
    "options": (option_cases, 350, "command lines, places of output and terminals"),
    "kills": (kill_cases, 100, "kill -9 of a command, then the same again"),
    "cache": (cache_cases, 30, "kill -9 while images are decoded, then the same again"),
    "flips": (flip_cases, 1000, "bits flipped in what is read"),
    "disks": (disk_cases, 44, "full disks and quotas"),
    "together": (together_cases, 28, "two processes in one folder, and fits in threads"),
}
THREADS, SOAK = "threads", "soak"
PREDICTIONS = 100_000


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    known = [*PARTS, THREADS, SOAK]
    parser.add_argument(
        "--parts",
        metavar="PART,…",
        default=",".join(known[:-1]),
        help=f"of {', '.join(known)} (default: all but soak)",
    )
    for name, (_, size, words) in PARTS.items():
        parser.add_argument(
            f"--{name}", type=int, default=size, metavar="N", help=f"{words} (default: {size})"
        )
    parser.add_argument(
        "--threads",
        type=float,
        default=PREDICTIONS,
        metavar="N",
        help=f"rows decided for threads (default: {PREDICTIONS:,})",
    )
    parser.add_argument("--minutes", type=float, default=5.0, metavar="X", help="of the soak (default: 5)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything drawn (default: 0)")
    parser.add_argument("--only", metavar="N,…", help="try these cases of one part alone, by their numbers")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="cases at a time (default: 2)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the report")
    arguments = parser.parse_args(given)
    parts = arguments.parts.split(",")
    if unknown := set(parts) - set(known):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; expected some of {', '.join(known)}")
    only = None if arguments.only is None else [int(number) for number in arguments.only.split(",")]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import_what_comes_late()
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        subjects = Subjects(Path(scratch) / "subjects")
        subjects.folder.mkdir()
        for part in parts:
            if part == THREADS:
                tally = try_threads(subjects, arguments.seed, int(arguments.threads))
            elif part == SOAK:
                tally = try_soak(subjects, arguments.seed, arguments.minutes)
            else:
                size = getattr(arguments, part)
                cases = PARTS[part][0](subjects, size, arguments.seed)
                tally = try_all(part, cases, Path(scratch), arguments.seed, size, arguments.workers, only)
            print(tally, flush=True)
            tallies.append(tally)
    wrong = sum(len(tally.wrong) for tally in tallies)
    print(f"\n{sum(tally.tried for tally in tallies):,} tried, {wrong} wrong (seed {arguments.seed})")
    if arguments.out is not None:
        report = {"seed": arguments.seed, "wrong": wrong, "parts": [tally.content() for tally in tallies]}
        arguments.out.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
