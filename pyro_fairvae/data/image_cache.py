"""A cache of decoded images: resized once into one file, which is memory-mapped."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import joblib
import numpy as np
import PIL
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.image_sources import ImageSource
from pyro_fairvae.data.mapped_store import IMAGES, NOT_WRITTEN, Store, build, cache_home, put
from pyro_fairvae.data.mapped_store import record as _record

CACHE_FORMAT = 2  # increase it whenever the same images would give other bytes
IMAGES_AT_ONCE = 512  # images decoded between two records of progress,
CHUNK_BYTES = 2**24  # or fewer, if they are large
Decode = Callable[[bytes], bytes]


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
    name = f"{side}x{side}-{_digest(source, names, side, cut)}"
    store = Store(where, name, len(names), 3 * side**2, IMAGES)
    if not store.is_whole():
        fill = partial(_fill, store, source, names, partial(decode, side=side, cut=cut), progress)
        about = {
            "images": store.items, "width": store.width, "format": CACHE_FORMAT, "pillow": PIL.__version__
        }  # fmt: skip
        where_bad = f"in {source.where} cannot be decoded"
        build(store, fill, lambda bad: _faulty(where_bad, bad, len(names)), about)
    return store.mapped()


def _digest(source: ImageSource, names: Sequence[str], side: int, cut: Cut) -> str:
    digest = hashlib.sha256(f"{CACHE_FORMAT} {side} {cut.share} {cut.down}\n".encode())
    for name in names:
        digest.update(f"{name} {source.mark(name)}\n".encode())
    return digest.hexdigest()[:24]


def _fill(
    store: Store,
    source: ImageSource,
    names: Sequence[str],
    small: Decode,
    progress: bool | None,
    file: IO[bytes],
    written: np.ndarray,
) -> list[str]:
    """Decode the images missing in the part file; returns those that cannot be decoded, with the reasons."""
    bad: list[str] = []
    waiting = np.flatnonzero(written == NOT_WRITTEN)
    step = max(1, min(IMAGES_AT_ONCE, CHUNK_BYTES // store.width))
    bar = tqdm(total=store.items, initial=store.items - len(waiting), desc="decoding", unit="image",
               disable=None if progress is None else not progress)  # fmt: skip
    with bar, joblib.Parallel(n_jobs=-1, require="sharedmem", batch_size=16) as parallel:
        for start in range(0, len(waiting), step):
            chunk = waiting[start : start + step]
            rows = parallel(joblib.delayed(_decoded)(source, names[index], small) for index in chunk)
            for index, row in zip(chunk, rows, strict=True):
                if isinstance(row, str):
                    bad.append(row)
                else:
                    put(file, store, written, int(index), row)
            _record(file, store, written)
            bar.update(len(chunk))
    return bad


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
