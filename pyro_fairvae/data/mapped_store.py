"""Files of items of equal size, made once with progress, resumed after a kill, and mapped into memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pooch
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.file_locks import lock
from pyro_fairvae.base.files import write_json

DIGEST_BYTES, NOT_WRITTEN = 16, b""
OTHER_FOLDER = "choose another folder for the cache with FAIRVAE_CACHE"


def cache_home() -> Path:
    """The folder of caches: ``$FAIRVAE_CACHE``, or the system's cache folder."""
    return Path(os.environ.get("FAIRVAE_CACHE") or pooch.os_cache("pyro_fairvae"))


@dataclass(frozen=True)
class Words:
    """What is made, in messages."""

    cache: str  # what the file is
    items: str
    does: str  # decodes
    doing: str
    done: str


IMAGES = Words("image cache", "images", "decodes", "decoding", "decoded")
BLOCKS = Words("mapped file", "blocks of rows", "encodes", "encoding", "encoded")


@dataclass(frozen=True)
class Store:
    """A file of ``items`` of ``width`` bytes each, then a byte for each that is 1 when the item is written.

    A JSON file next to it holds its size, its modification time when finished, and its SHA-256. While items
    are made it is a part file, which has a digest of each item that is written in place of these bytes.
    """

    folder: Path
    name: str
    items: int
    width: int
    words: Words

    @property
    def size(self) -> int:
        return self.items * (self.width + 1)

    @property
    def part_size(self) -> int:
        return self.items * (self.width + DIGEST_BYTES)

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.name}.{ending}"

    def note(self) -> dict[str, Any]:
        """The content of the JSON file."""
        return dict(json.loads(self.path("json").read_text()))

    def is_whole(self) -> bool:
        """Whether the file exists and is unchanged since it was finished.

        Size and modification time are compared each time; only if the time differs, as after a copy, the
        SHA-256 of the whole file is computed, since reading hundreds of megabytes in each of many runs would
        take too long.
        """
        try:
            note = self.note()
            status = self.path("u8").stat()
            return status.st_size == self.size and (
                status.st_mtime_ns == note["modified"]
                or pooch.file_hash(str(self.path("u8")), alg="sha256") == note["sha256"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def discard_broken(self) -> None:
        if self.path("u8").exists():
            print(
                f"{self.path('u8')} is broken or altered; {self.words.doing} the {self.words.items} again.",
                file=sys.stderr,
            )
        self.path("u8").unlink(missing_ok=True)
        self.path("json").unlink(missing_ok=True)

    def finish(self, part: Path, about: dict[str, Any]) -> None:
        """Turn a complete part file into the store; renaming it is the last step."""
        all_written = b"\1" * self.items
        digest, left = hashlib.sha256(), self.items * self.width
        with part.open("r+b") as file:
            while left:
                piece = file.read(min(left, 2**20))
                digest.update(piece)
                left -= len(piece)
            digest.update(all_written)
            file.write(all_written)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        note = {"modified": part.stat().st_mtime_ns, "sha256": digest.hexdigest(), **about}
        write_json(self.path("json"), note)
        part.replace(self.path("u8"))

    def mapped(self) -> Tensor:
        """The items (items, width), read on access; writes do not change the file."""
        total = self.items * self.width
        rows = torch.from_file(str(self.path("u8")), shared=False, size=total, dtype=torch.uint8)
        return rows.view(self.items, self.width)


Fill = Callable[[IO[bytes], np.ndarray], Sequence[str]]


def build(store: Store, fill: Fill, faulty: Callable[[Sequence[str]], str], about: dict[str, Any]) -> None:
    """Fill a part file and turn it into the store, unless another process has done so meanwhile.

    ``fill`` is called with the open file and the digest of each item in it, writes what is missing, and
    returns what cannot be made, which ``faulty`` puts into words; ``about`` goes into the note.
    """
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        with _lock(store.path("lock"), store.words) as alone:
            if store.is_whole():
                return
            store.discard_broken()
            part = store.path("part" if alone else f"{os.getpid()}.part")
            try:
                with part.open("r+b" if part.exists() else "w+b") as file:
                    written = _written(file, store)
                    _refuse_full_disk(store, int((written == NOT_WRITTEN).sum()))
                    bad = fill(file, written)
                if not bad:
                    store.finish(part, about)
            finally:
                if not alone:
                    part.unlink(missing_ok=True)
            if bad:
                part.unlink(missing_ok=True)
                raise InputError(faulty(bad))
    except OSError as reason:
        raise InputError(
            f"cannot write the {store.words.cache} {store.path('u8')}: {reason.strerror or reason}. Free "
            f"some space there or {OTHER_FOLDER}; {store.words.items} that were {store.words.done} already "
            f"will not be {store.words.done} again."
        ) from reason


@contextmanager
def _lock(path: Path, words: Words) -> Iterator[bool]:
    """Wait until no other process builds the store; yields False if the system has no file locks.

    The lock is released when its process ends, also if it is killed; the empty file remains.
    """
    with path.open("a") as file:
        yield _is_held(file, path, words)


def _is_held(file: IO[str], path: Path, words: Words) -> bool:
    held = lock(file.fileno())
    if held is False:
        print(f"Another process {words.does} the same {words.items}; waiting for {path} ...", file=sys.stderr)
        held = lock(file.fileno(), wait=True)
    return bool(held)


def put(file: IO[bytes], store: Store, written: np.ndarray, index: int, item: bytes) -> None:
    """Write an item; :func:`record` marks it as written."""
    file.seek(index * store.width)
    file.write(item)
    written[index] = _digest_of(item)


def _written(file: IO[bytes], store: Store) -> np.ndarray:
    """The digest of each item that a part file contains, (items,); a file of another size is emptied first.

    Items that were altered meanwhile do not count.
    """
    if file.seek(0, os.SEEK_END) != store.part_size:
        file.truncate(0)
        file.truncate(store.part_size)
    file.seek(store.items * store.width)
    written = np.frombuffer(file.read(store.items * DIGEST_BYTES), f"S{DIGEST_BYTES}").copy()
    altered = 0
    for index in np.flatnonzero(written != NOT_WRITTEN):
        file.seek(int(index) * store.width)
        if _digest_of(file.read(store.width)) != written[index]:
            written[index] = NOT_WRITTEN
            altered += 1
    if altered:
        words = store.words
        print(
            f"{altered} {words.items} {words.done} before are altered; {words.doing} them again.",
            file=sys.stderr,
        )
    return written


def _digest_of(item: bytes) -> bytes:
    """A digest without zeros at its end, which numpy would cut off."""
    return hashlib.blake2b(item, digest_size=DIGEST_BYTES - 1).digest() + b"\1"


def record(file: IO[bytes], store: Store, written: np.ndarray) -> None:
    """Mark items as written, after they are on disk."""
    file.flush()
    os.fsync(file.fileno())
    file.seek(store.items * store.width)
    file.write(written.tobytes())
    file.flush()


def _refuse_full_disk(store: Store, waiting: int) -> None:
    what = f"{waiting} {store.words.items} to {store.words.does.removesuffix('s')}"
    refuse_full_disk(store.folder, waiting * (store.width + DIGEST_BYTES), f"{what} need")


def refuse_full_disk(folder: Path, needed: int, what: str) -> None:
    """Raise unless so many bytes are free; ``what`` begins the message, such as "3 images to decode need"."""
    free = shutil.disk_usage(folder).free
    require(
        needed <= free,
        f"{what} {needed / 1e6:,.1f} MB in {folder}, but {free / 1e6:,.1f} MB are free. Free some space "
        f"there, or {OTHER_FOLDER}.",
    )
