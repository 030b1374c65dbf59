"""Small tables, models and runs, on which everything is tried."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pyro_fairvae import FairDecisions, FairSSVAEClassifier
from tests.support.user_tables import Made, made_table, tiny
from tests.torture.forked import Ended, command, forked
from tests.torture.grids import grid

ROWS = 60
QUIET = ("--quiet", "--device", "cpu", "--threads", "1")
COLUMNS = ("--label", "hired", "--group", "sex")
# So few rows that intervals are not cross-fitted, which takes longer than all else.
FIT_OPTIONS = {"imputation": "own", "channel_steps": 2, "decision_steps": 2, "latent": 2, "decoder_hidden": 4,
               "pieces": 0}  # fmt: skip
FIT = (
    *COLUMNS, *QUIET, "--trunk", "mlp", "--lambdas", "0,1", "--epochs", "2",
    *(word for name, value in FIT_OPTIONS.items() for word in ("--set", f"{name}={value}")),
)  # fmt: skip
FIT_ROWS = 48
TRAIN = (
    "--dataset", "synthetic", *QUIET, "--rows", "100", "--epochs", "2", "--batch", "64", "--hidden", "4",
    "--layers", "1", "--latent", "2", "--decoder-hidden", "4", "--pieces", "0", "--samples", "3",
    "--lambdas", "0,1", "--intervals", "given_h", "--imputation", "own", "--channel-steps", "2",
    "--decision-steps", "2",
)  # fmt: skip


@dataclass(frozen=True)
class Subjects:
    """Where things are, which are made when they are first asked for; nothing changes them.

    They are made in processes of their own: this one must be free to fork.
    """

    folder: Path

    @property
    def people(self) -> Path:
        """A table of people, some of whom do not state their group."""
        return self._made("people.csv", lambda: _write_table(self.folder / "people.csv", ROWS))

    @property
    def few(self) -> Path:
        """A smaller one, to fit to."""
        return self._made("few.csv", lambda: _write_table(self.folder / "few.csv", FIT_ROWS))

    @property
    def network(self) -> Path:
        """A model of ``fairvae fit``, with its audit."""

        def make() -> None:
            model = tiny(hidden=4, trunk="mlp", options=FIT_OPTIONS)
            expect_success(forked(lambda: _fit(model, self.folder / "network"), self.folder))
            audit = self.folder / "network" / "audit.json"
            expect_success(command(("audit", audit.parent, self.people, "--out", audit), self.folder))

        return self._made("network", make)

    @property
    def trees(self) -> Path:
        """A model of ``fairvae fit --estimator boosting``."""
        model = FairDecisions(targets=(0.1,), folds=2)
        where = self.folder / "trees"
        return self._made("trees", lambda: expect_success(forked(lambda: _fit(model, where), self.folder)))

    @property
    def run(self) -> Path:
        """A run of ``fairvae train``."""
        arguments = ("train", *TRAIN, "--out", "run")
        return self._made("run", lambda: expect_success(command(arguments, self.folder)))

    @property
    def grid(self) -> Path:
        """A finished ``fairvae reproduce``."""
        return self._made("grid", lambda: expect_success(grid(self.folder / "grid", self.folder)))

    @property
    def data(self) -> Path:
        """Files of a data set with digests."""

        def make() -> None:
            (self.folder / "data").mkdir()
            for name in ("rows.data", "more.test"):
                shutil.copyfile(self.people, self.folder / "data" / name)

        return self._made("data", make)

    def make(self, *names: str) -> None:
        """Make these now, before the processes that read them start."""
        for name in names:
            getattr(self, name)

    def table(self) -> Made:
        return made_table(ROWS)

    def _made(self, name: str, make: Callable[[], None]) -> Path:
        if not (self.folder / name).exists():
            make()
        return self.folder / name


def expect_success(ended: Ended) -> None:
    if ended.code != 0:
        raise RuntimeError(f"exit code {ended.code}, expected 0: {ended.err[-2000:]}")


def copied(what: Path, folder: Path) -> Path:
    """A copy of a file or folder in another folder."""
    to = folder / what.name
    shutil.copytree(what, to) if what.is_dir() else shutil.copyfile(what, to)
    return to


def _write_table(path: Path, rows: int) -> None:
    made = made_table(ROWS)
    pd.concat([made.X, made.y_obs, made.a_obs], axis=1)[:rows].to_csv(path, index=False)


def _fit(model: FairSSVAEClassifier | FairDecisions, where: Path) -> None:
    made = made_table(ROWS)
    model.fit(made.X, made.y_obs, made.a_obs)
    model.source_ = {"label": "hired", "groups": ["sex"], "missing": [], "values": []}
    model.save(where)
