"""A cache of decoded images: resized once into one file, which is memory-mapped."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import joblib
import numpy as np
import PIL
import pooch
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.file_locks import lock
from pyro_fairvae.base.files import write_json
from pyro_fairvae.data.image_sources import ImageSource

CACHE_FORMAT = 2  # increase it whenever the same images would give other bytes
IMAGES_AT_ONCE = 512  # images decoded between two records of progress,
CHUNK_BYTES = 2**24  # or fewer, if they are large
DIGEST_BYTES, NOT_WRITTEN = 16, b""
Decode = Callable[[bytes], bytes]
OTHER_FOLDER = "choose another folder for the cache with FAIRVAE_CACHE"


def cache_home() -> Path:
    """The folder of caches: ``$FAIRVAE_CACHE``, or the system's cache folder."""
    return Path(os.environ.get("FAIRVAE_CACHE") or pooch.os_cache("pyro_fairvae"))


@dataclass(frozen=True)
class Cut:
    """The square to keep of an image: its side and offset below the centre, in units of the shorter side."""

    share: float = 1.0
    down: float = 0.0

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Left, upper, right and lower edge in pixels, moved to be within the image."""
        short = min(width, height)
        side = max(1, round(self.share * short))
        left, top = (width - side) // 2, (height - side) // 2 + round(self.down * short)
        top = min(max(top, 0), height - side)
        return left, top, left + side, top + side


CENTRE = Cut()


def cached_images(
    source: ImageSource,
    names: Sequence[str],
    side: int,
    folder: str | Path | None = None,
    progress: bool | None = None,
    cut: Cut = CENTRE,
) -> Tensor:
    """The images ``names`` as bytes (images, 3 · side · side), channel by channel, mapped from a file.

    A square of each image, the largest at the centre unless ``cut`` is given, is resized to ``side`` by
    Pillow. The file is in ``folder``, or in ``images`` below :func:`cache_home`, under a name that changes
    with the images, the cut and the side. The first call decodes them; after a killed call the next one
    resumes, and of several processes one decodes while the others wait. ``progress`` shows or hides a
    progress bar; unless given, it is shown on a terminal.
    """
    require(side >= 1, f"side must be at least 1 pixel, got {side}.")
    require(len(names) > 0, f"names is empty; give at least one image of {source.where}.")
    there = source.names()
    missing = [name for name in names if name not in there]
    if missing:
        raise InputError(_faulty(f"are not in {source.where}", missing, len(names)))
    where = Path(folder) if folder else cache_home() / "images"
    store = Store(where, f"{side}x{side}-{_digest(source, names, side, cut)}", len(names), 3 * side**2)
    if not store.is_whole():
        _build(store, source, names, partial(decode, side=side, cut=cut), progress)
    return store.mapped()


def _digest(source: ImageSource, names: Sequence[str], side: int, cut: Cut) -> str:
    digest = hashlib.sha256(f"{CACHE_FORMAT} {side} {cut.share} {cut.down}\n".encode())
    for name in names:
        digest.update(f"{name} {source.mark(name)}\n".encode())
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class Store:
    """A file of ``images`` rows of ``width`` bytes, then a byte for each that is 1 when its row is written.

    A JSON file next to it holds its size, its modification time when finished, and its SHA-256. While images
    are decoded it is a part file, which has a digest of each row that is written in place of these bytes.
    """

    folder: Path
    name: str
    images: int
    width: int

    @property
    def size(self) -> int:
        return self.images * (self.width + 1)

    @property
    def part_size(self) -> int:
        return self.images * (self.width + DIGEST_BYTES)

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.name}.{ending}"

    def is_whole(self) -> bool:
        """Whether the file exists and is unchanged since it was finished.

        Size and modification time are compared each time; only if the time differs, as after a copy, the
        SHA-256 of the whole file is computed, since reading hundreds of megabytes in each of many runs would
        take too long.
        """
        try:
            note = json.loads(self.path("json").read_text())
            status = self.path("u8").stat()
            return status.st_size == self.size and (
                status.st_mtime_ns == note["modified"]
                or pooch.file_hash(str(self.path("u8")), alg="sha256") == note["sha256"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def discard_broken(self) -> None:
        if self.path("u8").exists():
            print(f"{self.path('u8')} is broken or altered; decoding the images again.", file=sys.stderr)
        self.path("u8").unlink(missing_ok=True)
        self.path("json").unlink(missing_ok=True)

    def finish(self, part: Path) -> None:
        """Turn a complete part file into the store; renaming it is the last step."""
        all_written = b"\1" * self.images
        digest, left = hashlib.sha256(), self.images * self.width
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
        note = {
            "images": self.images,
            "width": self.width,
            "modified": part.stat().st_mtime_ns,
            "sha256": digest.hexdigest(),
            "format": CACHE_FORMAT,
            "pillow": PIL.__version__,
        }
        write_json(self.path("json"), note)
        part.replace(self.path("u8"))

    def mapped(self) -> Tensor:
        """The rows (images, width), read on access; writes do not change the file."""
        total = self.images * self.width
        rows = torch.from_file(str(self.path("u8")), shared=False, size=total, dtype=torch.uint8)
        return rows.view(self.images, self.width)


def _build(
    store: Store, source: ImageSource, names: Sequence[str], small: Decode, progress: bool | None
) -> None:
    """Decode into a part file and turn it into the store, unless another process has done so meanwhile."""
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        with _lock(store.path("lock")) as alone:
            if store.is_whole():
                return
            store.discard_broken()
            part = store.path("part" if alone else f"{os.getpid()}.part")
            try:
                bad = _fill(store, part, source, names, small, progress)
                if not bad:
                    store.finish(part)
            finally:
                if not alone:
                    part.unlink(missing_ok=True)
            if bad:
                part.unlink(missing_ok=True)
                raise InputError(_faulty(f"in {source.where} cannot be decoded", bad, len(names)))
    except OSError as reason:
        raise InputError(
            f"cannot write the image cache {store.path('u8')}: {reason.strerror or reason}. Free some space "
            f"there or {OTHER_FOLDER}; images that were decoded already will not be decoded again."
        ) from reason


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Wait until no other process builds the store; yields False if the system has no file locks.

    The lock is released when its process ends, also if it is killed; the empty file remains.
    """
    with path.open("a") as file:
        yield _is_held(file, path)


def _is_held(file: IO[str], path: Path) -> bool:
    held = lock(file.fileno())
    if held is False:
        print(f"Another process decodes the same images; waiting for {path} ...", file=sys.stderr)
        held = lock(file.fileno(), wait=True)
    return bool(held)


def _fill(
    store: Store, part: Path, source: ImageSource, names: Sequence[str], small: Decode, progress: bool | None
) -> list[str]:
    """Decode the images missing in the part file; returns those that cannot be decoded, with the reasons."""
    bad: list[str] = []
    with part.open("r+b" if part.exists() else "w+b") as file:
        written = _written(file, store)
        waiting = np.flatnonzero(written == NOT_WRITTEN)
        _refuse_full_disk(store, len(waiting))
        step = max(1, min(IMAGES_AT_ONCE, CHUNK_BYTES // store.width))
        bar = tqdm(total=store.images, initial=store.images - len(waiting), desc="decoding", unit="image",
                   disable=None if progress is None else not progress)  # fmt: skip
        with bar, joblib.Parallel(n_jobs=-1, require="sharedmem", batch_size=16) as parallel:
            for start in range(0, len(waiting), step):
                chunk = waiting[start : start + step]
                rows = parallel(joblib.delayed(_decoded)(source, names[index], small) for index in chunk)
                for index, row in zip(chunk, rows, strict=True):
                    if isinstance(row, str):
                        bad.append(row)
                        continue
                    file.seek(int(index) * store.width)
                    file.write(row)
                    written[index] = _digest_of_row(row)
                _record(file, store, written)
                bar.update(len(chunk))
    return bad


def _written(file: IO[bytes], store: Store) -> np.ndarray:
    """The digest of each row that a part file contains, (images,); a file of another size is emptied first.

    Rows that were altered meanwhile do not count.
    """
    if file.seek(0, os.SEEK_END) != store.part_size:
        file.truncate(0)
        file.truncate(store.part_size)
    file.seek(store.images * store.width)
    written = np.frombuffer(file.read(store.images * DIGEST_BYTES), f"S{DIGEST_BYTES}").copy()
    altered = 0
    for index in np.flatnonzero(written != NOT_WRITTEN):
        file.seek(int(index) * store.width)
        if _digest_of_row(file.read(store.width)) != written[index]:
            written[index] = NOT_WRITTEN
            altered += 1
    if altered:
        print(f"{altered} images decoded before are altered; decoding them again.", file=sys.stderr)
    return written


def _digest_of_row(row: bytes) -> bytes:
    """A digest without zeros at its end, which numpy would cut off."""
    return hashlib.blake2b(row, digest_size=DIGEST_BYTES - 1).digest() + b"\1"


def _record(file: IO[bytes], store: Store, written: np.ndarray) -> None:
    """Mark rows as written, after they are on disk."""
    file.flush()
    os.fsync(file.fileno())
    file.seek(store.images * store.width)
    file.write(written.tobytes())
    file.flush()


def _refuse_full_disk(store: Store, waiting: int) -> None:
    needed = waiting * (store.width + DIGEST_BYTES)
    free = shutil.disk_usage(store.folder).free
    require(
        needed <= free,
        f"{waiting} images to decode need {needed / 1e6:,.1f} MB in {store.folder}, but {free / 1e6:,.1f} MB "
        f"are free. Free some space there, or {OTHER_FOLDER}.",
    )


def _decoded(source: ImageSource, name: str, small: Decode) -> bytes | str:
    """The bytes of a decoded image, or its name and the reason for the failure."""
    try:
        return small(source.read(name))
    except Exception as reason:  # a damaged file can raise any exception
        return f"{name} ({reason})"


def decode(content: bytes, side: int, cut: Cut = CENTRE) -> bytes:
    """The square ``cut`` of an image at ``side`` pixels, in RGB, channel by channel.

    A JPEG of at least twice the size needed is reduced by its decoder first, which is faster.
    """
    with Image.open(io.BytesIO(content)) as image:
        needed = math.ceil(2 * side / cut.share)
        image.draft("RGB", (needed, needed))
        colours = image.convert("RGB")
    small = colours.crop(cut.box(*colours.size)).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(small).transpose(2, 0, 1).tobytes()


def _faulty(what: str, names: Sequence[str], total: int) -> str:
    first = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"{len(names)} of {total} images {what}: {first}. Restore these files, or delete their rows from "
        "the attribute file."
    )
