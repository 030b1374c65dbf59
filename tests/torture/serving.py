"""One model that many threads ask at once: every answer is the one that a single thread gets."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyro_fairvae import FairDecisions, FairSSVAEClassifier, audit
from pyro_fairvae.estimator.state import stored_model
from pyro_fairvae.studies.deciding import DecideConfig, label_rows
from tests.torture.cases import Tally, Wrong
from tests.torture.forked import forked
from tests.torture.subjects import Subjects

THREADS = 8
SLOW, RARE = ("audit", "decide"), 250  # requests that take longer, one of so many
WARM_UP = 0.2  # of a soak
GROWTH, SLACK = 1.03, 8 << 20  # of memory, that is still called flat: a share, and bytes
EVERY = 2.0  # seconds between two looks at the memory
SHOWN = 3

Model = FairSSVAEClassifier | FairDecisions


@dataclass(frozen=True)
class Request:
    """What is asked about so many rows, and what a single thread gets."""

    name: str
    rows: int
    ask: Callable[[], Any]
    expected: Any

    def is_right(self) -> bool:
        return _equal(self.ask(), self.expected)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, pd.DataFrame):
        return left.equals(right)
    return np.array_equal(np.asarray(left), np.asarray(right))


def requests_to(model: Model, subjects: Subjects, draw: random.Random, count: int = 32) -> list[Request]:
    """Requests of all kinds, about rows drawn at random."""
    made = subjects.table()
    requests = []

    def add(name: str, rows: int, ask: Callable[[], Any]) -> None:
        requests.append(Request(name, rows, ask, ask()))

    methods = ["predict", "predict_proba", "predict_groups_proba", "decision_function"]
    for number in range(count):
        rows = draw.choices(range(len(made.X)), k=draw.randint(1, 20))
        X, method = made.X.iloc[rows].reset_index(drop=True), methods[number % len(methods)]
        stated = made.a_obs.iloc[rows].reset_index(drop=True)
        add(method, len(X), lambda m=method, x=X: getattr(model, m)(x))
        if isinstance(model, FairSSVAEClassifier):
            add("groups", len(X), lambda x=X, a=stated: model.predict_groups_proba(x, a))
    decided = model.predict(made.X)
    add("audit", len(made.X), lambda: audit(made.y_obs, decided, made.a_obs, X=made.X, model=model).metrics)
    if isinstance(model, FairSSVAEClassifier):
        stored, rows = stored_model(model, model.fit_), model.observed(made.X, made.y_obs, made.a_obs)
        add("decide", len(made.X), lambda: label_rows(stored, rows, DecideConfig(draws=3)).labels)
    return requests


def serve(
    load: Callable[[], Model], subjects: Subjects, seed: int, predictions: int, minutes: float
) -> dict[str, Any]:
    """Ask a model from THREADS threads about so many rows, or so long; what was wrong, and the memory."""
    warnings.simplefilter("ignore")
    model = load()
    requests = requests_to(model, subjects, random.Random(seed))
    common, rare = ([one for one in requests if (one.name in SLOW) == slow] for slow in (False, True))
    totals: list[tuple[int, int]] = []  # requests and rows of each thread
    wrong: list[str] = []
    memory: list[int] = []
    end = time.monotonic() + 60 * minutes

    def ask(draw: random.Random) -> None:
        asked = rows = 0
        while time.monotonic() < end if minutes else rows < predictions / THREADS:
            request = draw.choice(common if draw.randrange(RARE) else rare)
            asked, rows = asked + 1, rows + request.rows
            try:
                if not request.is_right():
                    wrong.append(f"{request.name}: another answer than alone")
            except Exception:
                wrong.append(f"{request.name}: {traceback.format_exc(limit=-1).strip()}")
        totals.append((asked, rows))

    threads = [threading.Thread(target=ask, args=(random.Random(seed + k),)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append(resident())
        time.sleep(EVERY if minutes else 0.1)
    after = [request.name for request in requests if not request.is_right()]
    wrong += [f"{name}: another answer, alone, after the threads" for name in after]
    asked, rows = map(sum, zip(*totals, strict=True))
    return {"asked": asked, "rows": rows, "wrong": len(wrong), "first": wrong[:SHOWN], "memory": memory}


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def try_threads(subjects: Subjects, seed: int, predictions: int) -> Tally:
    """Ask a network and trees, about half of the rows each."""
    tally = Tally("threads")
    for name, load in _models(subjects).items():
        _take(
            tally,
            name,
            lambda load=load: serve(load, subjects, seed, -(-predictions // 2), 0),
            seed,
            predictions,
        )
    return tally


def try_soak(subjects: Subjects, seed: int, minutes: float) -> Tally:
    """Ask a network for so many minutes; its memory must be at the end what it was after the warm-up."""
    tally = Tally("soak")
    load = _models(subjects)["network"]
    done = _take(tally, "network", lambda: serve(load, subjects, seed, 0, minutes), seed, minutes)
    memory = done.get("memory", [])
    if len(memory) < 10:
        return tally
    begin = round(WARM_UP * len(memory))
    span = max(1, (len(memory) - begin) // 4)
    before, after = (float(np.median(part)) for part in (memory[begin : begin + span], memory[-span:]))
    tally.notes |= {"MB after warm-up": before / 2**20, "MB at the end": after / 2**20}
    if after > GROWTH * before + SLACK:
        tally.wrong.append(
            Wrong(
                "memory",
                f"it grew from {before / 2**20:.1f} to {after / 2**20:.1f} MB",
                _again("soak", minutes, seed),
            )
        )
    return tally


def _models(subjects: Subjects) -> dict[str, Callable[[], Model]]:
    return {
        "network": lambda: FairSSVAEClassifier.load(subjects.network, "cpu"),
        "trees": lambda: FairDecisions.load(subjects.trees),
    }


def _take(
    tally: Tally, name: str, work: Callable[[], dict[str, Any]], seed: int, size: float
) -> dict[str, Any]:
    """Do the work in a process of its own, and add what came of it."""

    def action() -> int:
        json.dump(work(), sys.stdout)
        return 0

    start = time.monotonic()
    ended = forked(action, Path.cwd(), seconds=24 * 3600)
    tally.seconds += time.monotonic() - start
    again = _again(tally.part, size, seed)
    if ended.code != 0:
        tally.tried += 1
        tally.wrong.append(Wrong(name, ended.err[-2000:], again))
        return {}
    done: dict[str, Any] = json.loads(ended.out)
    tally.tried += done["rows"]
    tally.notes[f"requests to the {name}"] = done["asked"]
    if done["wrong"]:
        words = f"{done['wrong']} of {done['asked']} requests are wrong; {'; '.join(done['first'])}"
        tally.wrong.append(Wrong(name, words, again))
    return done


def _again(part: str, size: float, seed: int) -> str:
    sizes = f"--minutes {size:g}" if part == "soak" else f"--{part} {size:g}"
    return f"python -m tests.torture --parts {part} {sizes} --seed {seed}"
