"""Command lines with strange values, to strange places, on strange terminals."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from tests.torture.cases import Case, drawn
from tests.torture.forked import TERMINAL, Terminal, command
from tests.torture.grids import grid, prepare
from tests.torture.subjects import COLUMNS, FIT, QUIET, TRAIN, Subjects, copied
from tests.torture.verdict import wrong_with
from tests.torture.words import PATH_TOO_LONG, numbers, words

# Flags of a command, and what their values are; of "counts" those that are valid are small.
TEXT, NUMBER, NAMES, PLACE, SWITCH = words, numbers, st.lists(words, max_size=3).map(",".join), None, ""
SETTINGS = (
    "lambdas", "targets", "seed", "rows", "alpha", "beta", "misstated", "label-missing", "side", "workers",
    "samples",
    "stiffness", "refine-decisions", "temperature", "thresholds", "memory", "neighbours", "propagation-every",
    "gumbel-temperature", "elbo-weight", "supervision-weight", "reconstruction-weight", "kl-weight",
    "decision-weight", "risk-from", "risk-full", "kl-full", "withholding-scale", "prior-pi", "hidden",
    "layers",
    "pieces", "latent", "decoder-hidden", "batch", "lr", "sites-lr", "weight-decay", "clip",
    "channel-steps", "decision-steps", "threads", "epochs", "critic-rate", "critic-steps", "critic-hidden",
)  # fmt: skip
CHOICES = (
    "dataset", "group", "label", "level", "risk", "relaxation", "imputer", "labeller", "imputation",
    "risk-gradient",
    "objective", "prior-a", "prior-y", "intervals", "prevalence", "likelihood", "sites", "trunk", "precision",
    "augmentation", "device", "truth", "proxies", "withholding-depends-on", "critic-bound",
)  # fmt: skip
MEMBER = {"lambda": NUMBER, "max-disparity": NUMBER, "device": TEXT, "threads": NUMBER}
FLAGS: dict[str, dict[str, st.SearchStrategy[str] | str | None]] = {
    "train": {**dict.fromkeys(SETTINGS, NUMBER), **dict.fromkeys(CHOICES, TEXT), "out": PLACE,
        "data-dir": PLACE,
              "resume": SWITCH, "overwrite": SWITCH, "suggest": SWITCH, "config": PLACE},
    "fit": {"label": TEXT, "group": NAMES, "missing": NAMES, "values": NAMES, "drop": NAMES, "proxy": NAMES,
            "withholding-depends-on": NAMES, "proxy-proba": NAMES, "risk": TEXT, "targets": NUMBER,
            "lambdas": NUMBER,
            "max-disparity": NUMBER, "trunk": TEXT, "set": TEXT, "epochs": NUMBER, "holdout": NUMBER,
            "seed": NUMBER,
            "device": TEXT, "threads": NUMBER, "out": PLACE, "suggest": SWITCH, "overwrite": SWITCH},
    "predict": {**MEMBER, "groups": SWITCH, "keep": NAMES, "rule": TEXT, "group": NAMES, "out": PLACE},
    "audit": {**MEMBER, "label": TEXT, "group": NAMES, "decisions": TEXT, "depends-on": TEXT,
        "confidence": NUMBER,
              "withholding-depends-on": NAMES, "scores": TEXT, "pos-label": TEXT, "local-law-144": TEXT,
              "exclude-below": NUMBER, "sensitivity": SWITCH, "tolerance": NUMBER, "out": PLACE},
    "decide": {"label": TEXT, "group": NAMES, "part": TEXT, "rule": TEXT, "member": NUMBER, "lambda": NUMBER,
               "decision-lambda": NUMBER, "draws": NUMBER, "seed": NUMBER, "threads": NUMBER, "out": PLACE},
    "decide the run": {"part": TEXT, "rule": TEXT, "member": NUMBER, "lambda": NUMBER, "draws": NUMBER,
        "seed": NUMBER,
                       "decision-lambda": NUMBER, "data-dir": PLACE},
    "inspect": {"source": TEXT, "member": NUMBER, "lambda": NUMBER, "out": PLACE, "arviz": PLACE,
        "suggest": SWITCH},
    "report": {"audit": PLACE, "out": PLACE},
    "priors show": {"dataset": TEXT, "group": TEXT, "values": NAMES, "figure": PLACE},
    "reproduce": {"preset": TEXT, "workers": NUMBER, "backend": TEXT, "device": TEXT, "groups": NAMES,
        "levels": NAMES,
                  "metrics": NAMES, "methods": NAMES, "seeds": NUMBER, "weights": NUMBER, "batch": NUMBER,
                  "rows": NUMBER, "trunk": TEXT, "side": NUMBER, "label": TEXT, "out": PLACE},
    "recover": {"groups": NAMES, "levels": NAMES, "rows": NUMBER, "out": PLACE},
}  # fmt: skip
PLACES = (
    "new", "new/within", "folder", "full", "null", "pipe", "circle", "dangling", "people.csv", "people.csv/x",
    PATH_TOO_LONG, "a\x00b", "λ.csv", "é\n.csv", "", ".", "model", "model/model.json",
    "model/weights.safetensors",
    "x.parquet", "x.csv.gz", "locked/x", "\x1b[31m.csv", "-", "x.nc", "x.png", "x.json",
)  # fmt: skip
READ = ("audit", "config", "data-dir")  # flags of files that are read: from a pipe they would wait
ALONE = {"lambdas": "targets", "targets": "lambdas"}  # of two that exclude each other, the one drawn counts
TERMINALS = {
    "utf-8": TERMINAL,
    "cp1252": Terminal("cp1252"),
    "latin-1": Terminal("latin-1"),
    "ascii": Terminal("ascii"),
    "full": Terminal(path=Path("/dev/full")),
    "closed": Terminal(closed=True),
}

terminals = st.one_of(st.just("utf-8"), st.sampled_from(sorted(TERMINALS)))


def _flags(name: str) -> st.SearchStrategy[list[str]]:
    """One to three flags of a command with their values."""

    def with_value(flag: str) -> st.SearchStrategy[str]:
        kind = FLAGS[name][flag]
        if kind == SWITCH:
            return st.just(f"--{flag}")
        places = [place for place in PLACES if place != "pipe" or flag not in READ]
        values = st.sampled_from(places) if kind is PLACE else kind
        assert isinstance(values, st.SearchStrategy)
        return values.map(lambda value: f"--{flag}={value}")

    one = st.sampled_from(sorted(FLAGS[name])).flatmap(with_value)
    return st.lists(one, max_size=3)


given = st.sampled_from(sorted(FLAGS)).flatmap(lambda name: st.tuples(st.just(name), _flags(name), terminals))


def option_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    subjects.make("network", "run", "few")
    return [
        Case(
            f"{name} {flags!r} on {terminal}"[:600],
            lambda folder, *, n=name, f=flags, t=terminal: _tried(subjects, n, f, TERMINALS[t], folder),
        )
        for name, flags, terminal in drawn(given, count, seed, "options")
    ]


def _tried(subjects: Subjects, name: str, flags: list[str], terminal: Terminal, folder: Path) -> str:
    table, model = copied(subjects.people, folder), copied(subjects.network, folder).rename(folder / "model")
    kept = {path: path.read_bytes() for path in (table, model / "model.json", model / "weights.safetensors")}
    devices = make_places(folder)
    few, run = subjects.few, copied(subjects.run, folder)
    base: dict[str, list[str | Path]] = {
        "train": ["train", *TRAIN, "--out", "new"],
        "fit": ["fit", few, *FIT, "--out", "new"],
        "predict": ["predict", model, table],
        "audit": ["audit", model, table, *COLUMNS],
        "decide": ["decide", model, table, "--draws", "3"],
        "decide the run": ["decide", run, "--draws", "3"],
        "inspect": ["inspect", model],
        "report": ["report", model],
        "priors show": ["priors", "show", "paper", "--dataset", "synthetic"],
        "reproduce": [],
        "recover": ["recover", *QUIET, "--dataset", "synthetic", "--levels", "sparse", "--seeds", "0"],
    }
    if name == "reproduce":
        ended = grid(folder / "grid", folder, more=flags, terminal=terminal)
    else:
        words_given = [str(word) for word in base[name]]
        for flag in flags:
            other = f"--{ALONE.get(flag.partition('=')[0].removeprefix('--'))}"
            if other in words_given:
                place = words_given.index(other)
                del words_given[place : place + 2]
        ended = command([*words_given, *flags], folder, prepare, terminal)
    wrong = wrong_with(ended, closed=terminal.closed)
    return wrong or _harm(kept, devices, folder)


def make_places(folder: Path) -> dict[Path, Callable[[int], bool]]:
    """Places that are no ordinary files, and what each must remain."""
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to("circle")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "linked.csv").write_text("kept")
    remains: dict[Path, Callable[[int], bool]] = {
        folder / "folder": stat.S_ISDIR,
        folder / "pipe": stat.S_ISFIFO,
        folder / "circle": stat.S_ISLNK,
        folder / "dangling": stat.S_ISLNK,
    }
    for name, minor in (("null", 3), ("full", 7)):
        try:
            os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        except OSError:  # only root may
            continue
        remains[folder / name] = stat.S_ISCHR
    return remains


def _harm(kept: dict[Path, bytes], devices: dict[Path, Callable[[int], bool]], folder: Path) -> str:
    """What a command has replaced that it was not to touch."""
    for path, remains in devices.items():
        if not path.is_symlink() and not path.exists():
            return f"{path.name} is gone"
        if not remains(path.lstat().st_mode):
            return f"{path.name} was replaced by a file"
    for path, content in kept.items():
        if not path.is_file() or path.read_bytes() != content:
            return f"{path.relative_to(folder)}, an input, was replaced or changed"
    left = [path.name for path in folder.rglob(".*") if path.name not in (".", "..")]
    return f"files are left behind: {left}" if left else ""
