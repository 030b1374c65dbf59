"""Fits in several threads, and two processes that write into one place at once."""

from __future__ import annotations

import json
import random
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pyro_fairvae import FairDecisions, FairSSVAEClassifier
from tests.support.user_tables import tiny
from tests.torture.cases import Case
from tests.torture.forked import Ended, end, forked, start
from tests.torture.kills import CACHE, COMMANDS, Killed, begin, difference, undisturbed_of
from tests.torture.subjects import FIT_OPTIONS, Subjects
from tests.torture.verdict import wrong_with

FITS = 4


def together_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    """Every command beside itself, one started a moment after the other; and fits in threads."""
    draw, both = random.Random(seed), [*COMMANDS, CACHE]
    cases = []
    for number in range(count):
        if number % (len(both) + 1) == len(both):
            cases.append(
                Case(f"fits in threads {number}", lambda folder, s=number: _fits(subjects, s, folder))
            )
            continue
        what = both[number % (len(both) + 1)]
        undisturbed_of(subjects, what)
        later = draw.random() * 2.0
        cases.append(
            Case(
                f"two of {what.name}, the second {later:.2f} s later",
                lambda folder, *, w=what, t=later: _two(subjects, w, t, folder),
            )
        )
    return cases


def _two(subjects: Subjects, what: Killed, later: float, folder: Path) -> str:
    begin(subjects, what, folder)

    def go(number: int) -> Callable[[], int]:
        """A process that runs the command and waits, so that this one need not fork from threads."""

        def action() -> int:
            threading.Event().wait(number * later)
            found = what.first(subjects)(folder, None)
            (folder / f"ended {number}").write_text(json.dumps(asdict(found)))
            return 0

        return action

    for child in [start(go(number), folder) for number in range(2)]:
        end(child)
    both = [Ended(**json.loads((folder / f"ended {number}").read_text())) for number in range(2)]
    for one in both:
        if wrong := wrong_with(one):
            return wrong
    if all(one.code != 0 for one in both):
        return f"neither of them ends: {both[0].err[-200:]} {both[1].err[-200:]}"
    return difference(undisturbed_of(subjects, what) / "out", folder / "out")


def _fits(subjects: Subjects, seed: int, folder: Path) -> str:
    """Fits in threads give what they give alone, also beside one that fails, and one later."""
    made = subjects.table()

    def model(number: int) -> FairSSVAEClassifier | FairDecisions:
        if number % FITS == FITS - 1:
            return FairDecisions(folds=2, targets=(0.1,), random_state=seed)
        return tiny(hidden=4, trunk="mlp", epochs=1, options=FIT_OPTIONS, random_state=seed + number)

    def action() -> int:
        warnings.simplefilter("ignore")
        failures: list[str] = []
        found: dict[int, np.ndarray] = {}

        def fit(number: int) -> None:
            try:
                found[number] = model(number).fit(made.X, made.y_obs, made.a_obs).predict_proba(made.X)
            except Exception:
                failures.append(traceback.format_exc())

        def fail() -> None:
            try:
                tiny(epochs=1, callback=lambda done: 1 / 0).fit(made.X, made.y_obs, made.a_obs)
            except ZeroDivisionError:
                return
            failures.append("a callback that fails does not end its fit")

        threads = [threading.Thread(target=fit, args=(number,)) for number in range(FITS)]
        threads.append(threading.Thread(target=fail))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        at_once = dict(found)
        for number in range(FITS):
            fit(number)
        if failures:
            raise RuntimeError(failures[0])
        for number in range(FITS):
            np.testing.assert_array_equal(at_once[number], found[number])
        return 0

    return wrong_with(forked(action, folder))
