"""One bit of a file flipped: the same answer as before, or one line that says what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pyro_fairvae import InputError
from pyro_fairvae.data.fetch import Source
from pyro_fairvae.data.image_cache import cached_images
from pyro_fairvae.inference import checkpoint
from tests.support.pictures import NAMES, Counted
from tests.torture.cases import Case
from tests.torture.forked import Ended, command, forked, refuse
from tests.torture.grids import grid
from tests.torture.subjects import FIT, TRAIN, Subjects, copied, expect_success
from tests.torture.verdict import wrong_with

Answer = tuple[Ended, dict[str, bytes]]  # how a reader ended, and the files that it has written
Reader = Callable[[Path, Path, Subjects], Ended]  # of a damaged folder, in a folder, to which it may write


@dataclass(frozen=True)
class Read:
    """A folder whose files are read, and by what; ``writes`` are files that say what it has understood."""

    name: str
    share: float
    of: Callable[[Subjects], Path]
    reader: Reader
    files: tuple[str, ...]  # patterns
    writes: tuple[str, ...] = ()


def _command(*words: str) -> Reader:
    """A command; HERE is the damaged folder, PEOPLE a table."""

    def read(damaged: Path, folder: Path, subjects: Subjects) -> Ended:
        known = {"HERE": damaged.name, "PEOPLE": str(subjects.people), "FEW": str(subjects.few)}
        return command([known.get(word, word) for word in words], folder)

    return read


def _load_checkpoint(damaged: Path, folder: Path, subjects: Subjects) -> Ended:
    def load() -> int:
        path = damaged / "checkpoint.pt"
        try:
            config = json.loads((subjects.folder / f"config of {damaged.name}").read_text())
            print(_digest(checkpoint.load(path, config)))
        except InputError as reason:
            return refuse(reason)
        return 0

    return forked(load, folder)


def _digest(state: object) -> str:
    """Of numbers, words and tensors within dictionaries and lists."""
    if isinstance(state, torch.Tensor):
        content = f"{state.dtype} {tuple(state.shape)} {hashlib.sha256(state.numpy().tobytes()).hexdigest()}"
    elif isinstance(state, dict):
        content = " ".join(f"{key!r}: {_digest(value)}" for key, value in state.items())
    elif isinstance(state, list | tuple):
        content = " ".join(map(_digest, state))
    else:
        content = repr(state)
    return hashlib.sha256(content.encode()).hexdigest()


def _grid(damaged: Path, folder: Path, subjects: Subjects) -> Ended:
    return grid(damaged, folder)


def _images(damaged: Path, folder: Path, subjects: Subjects) -> Ended:
    def read() -> int:
        try:
            print(hashlib.sha256(cached_images(Counted(), NAMES, 8, damaged).numpy().tobytes()).hexdigest())
        except InputError as reason:
            return refuse(reason)
        return 0

    return forked(read, folder)


def _data(damaged: Path, folder: Path, subjects: Subjects) -> Ended:
    def read() -> int:
        names = sorted(path.name for path in subjects.data.iterdir())
        digests = {name: hashlib.sha256((subjects.data / name).read_bytes()).hexdigest() for name in names}
        try:
            print(Source("small", digests, "nowhere").locate(damaged).name)
        except InputError as reason:
            return refuse(reason)
        return 0

    return forked(read, folder)


def flip_cases(subjects: Subjects, count: int, seed: int) -> list[Case]:
    draw = random.Random(seed)
    cases = []
    for read in sorted(draw.choices(READ, [read.share for read in READ], k=count), key=READ.index):
        source, expected = read.of(subjects), _expected(read, subjects)
        files = [path for pattern in read.files for path in sorted(source.glob(pattern)) if path.is_file()]
        path = draw.choice(files)
        bit, name = draw.randrange(8 * path.stat().st_size), path.relative_to(source)
        cases.append(
            Case(
                f"{read.name}: {name}, bit {bit % 8} of byte {bit // 8}",
                lambda folder, *, r=read, f=(name, bit), e=expected: _tried(r, subjects, f, e, folder),
            )
        )
    return cases


def _expected(read: Read, subjects: Subjects) -> Path:
    """A file that holds what is said about the undamaged folder."""
    folder = subjects.folder / f"answer {read.name}"
    if not folder.exists():
        folder.mkdir()
        ended, written = _answer(read, subjects, folder, None)
        expect_success(ended)
        (folder / "answer").write_text(_said(ended, written))
    return folder / "answer"


def _stopped(subjects: Subjects) -> Path:
    return _stopped_by(subjects, "stopped", "train", *TRAIN)


def _stopped_fit(subjects: Subjects) -> Path:
    return _stopped_by(subjects, "stopped fit", "fit", subjects.few, *FIT)


def _stopped_by(subjects: Subjects, name: str, *arguments: str | Path) -> Path:
    """A folder with the checkpoint of a command that was killed after an epoch."""
    folder = subjects.folder / name
    if not folder.exists():
        command([*arguments, "--out", folder], subjects.folder, _stop_after_an_epoch)
        if not list(folder.glob("*checkpoint*")):
            raise RuntimeError(f"{folder} holds no checkpoint")
    return folder


def _cache(subjects: Subjects) -> Path:
    folder = subjects.folder / "images"
    if not folder.exists():
        expect_success(forked(lambda: cached_images(Counted(), NAMES, 8, folder) is None, subjects.folder))
    return folder


MODEL = ("*.safetensors", "trees.json", "model.json")
PREDICT = _command("predict", "HERE", "PEOPLE", "--groups", "--out", "made.csv")
READ = (
    Read("network by predict", 0.15, lambda s: s.network, PREDICT, MODEL, ("made.csv",)),
    Read("network by inspect", 0.05, lambda s: s.network, _command("inspect", "HERE", "--out", "figures"),
    MODEL),
    Read("trees by predict", 0.15, lambda s: s.trees, PREDICT, MODEL, ("made.csv",)),
    Read("run by predict", 0.05, lambda s: s.run, PREDICT, MODEL, ("made.csv",)),
    Read("run by decide", 0.1, lambda s: s.run, _command("decide", "HERE", "--draws", "3"),
         ("config.json", "model.json"), ("run/decisions-test.csv", "run/decisions-test.json")),
    Read("audit by report", 0.05, lambda s: s.network, _command("report", "HERE", "--out", "made.html"),
         ("audit.json",), ("made.html",)),
    Read("checkpoint", 0.2, _stopped, _load_checkpoint, ("checkpoint.pt",)),
    Read("checkpoint by train", 0.02, _stopped,
         _command("train", *TRAIN, "--out", "HERE", "--resume"), ("checkpoint.pt",),
         ("stopped/results.json",)),
    Read("checkpoint by fit", 0.02, _stopped_fit,
         _command("fit", "FEW", *FIT, "--out", "HERE"), (".checkpoint*", "checkpoint*"),
         ("stopped fit/model.json",)),
    Read("jobs by reproduce", 0.06, lambda s: s.grid, _grid, ("jobs/*.json",), ("grid/results.csv",)),
    Read("image cache", 0.1, _cache, _images, ("*.u8", "*.json")),
    Read("data with a digest", 0.05, lambda s: s.data, _data, ("*",)),
)  # fmt: skip


def _stop_after_an_epoch() -> None:
    """Have this process killed when it has saved a checkpoint, whose config is kept in its current folder."""
    save = checkpoint.save

    def save_and_stop(path: Path, config: dict[str, Any], state: dict[str, Any]) -> None:
        save(path, config, state)
        Path(f"config of {path.parent.name}").write_text(json.dumps(config))
        os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save = save_and_stop


def _answer(read: Read, subjects: Subjects, folder: Path, flip: tuple[Path, int] | None) -> Answer:
    damaged = copied(read.of(subjects), folder)
    if flip is not None:
        name, bit = flip
        content = bytearray((damaged / name).read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        (damaged / name).write_bytes(content)
    ended = read.reader(damaged, folder, subjects)
    written = {name: (folder / name).read_bytes() for name in read.writes if (folder / name).exists()}
    return ended, written


def _said(ended: Ended, written: dict[str, bytes]) -> str:
    return json.dumps(
        [ended.out, {name: hashlib.sha256(content).hexdigest() for name, content in written.items()}]
    )


def _tried(read: Read, subjects: Subjects, flip: tuple[Path, int], expected: Path, folder: Path) -> str:
    ended, written = _answer(read, subjects, folder, flip)
    if ended.code == 0 and _said(ended, written) != expected.read_text():
        return f"another answer: {ended.out[:300]!r}"
    return wrong_with(ended)
