"""Small pictures made on the fly, and folders of them as CelebA has them."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pyro_fairvae.data.celeba import ATTRIBUTE_NAMES


def noise(seed: int, height: int = 22, width: int = 18) -> np.ndarray:
    """A picture (height, width, 3) of random bytes."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def solid(colour: Sequence[int], height: int = 22, width: int = 18) -> np.ndarray:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def file_of(picture: np.ndarray, form: str = "PNG") -> bytes:
    """The picture as a file; a PNG keeps every byte."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, form)
    return buffer.getvalue()


def image_name(row: int) -> str:
    return f"{row + 1:06d}.jpg"


def write_images(where: Path, files: Mapping[str, bytes], inside: str = "img_align_celeba") -> None:
    """Write files into a zip, if ``where`` ends so, or a folder; in both below a folder ``inside``."""
    if where.suffix == ".zip":
        with zipfile.ZipFile(where, "w") as archive:
            for name, content in files.items():
                archive.writestr(f"{inside}/{name}", content)
        return
    (where / inside).mkdir(parents=True)
    for name, content in files.items():
        (where / inside / name).write_bytes(content)


def attribute_rows(count: int) -> list[list[int]]:
    """Values −1 and 1 of the forty attributes, made so that no two attributes agree on all of 64 rows."""
    drawn = np.random.default_rng(1).choice([-1, 1], (64, len(ATTRIBUTE_NAMES)))
    return drawn[np.arange(count) % 64].tolist()


def write_attributes(path: Path, rows: Sequence[Sequence[int]]) -> None:
    """Write an attribute file as the publisher does, or a CSV if ``path`` ends so."""
    comma = path.suffix == ".csv"
    lines = (
        ["image_id," + ",".join(ATTRIBUTE_NAMES)] if comma else [str(len(rows)), " ".join(ATTRIBUTE_NAMES)]
    )
    for row, values in enumerate(rows):
        fields = [image_name(row), *(str(value) if comma else f"{value:2d}" for value in values)]
        lines.append(("," if comma else " ").join(fields))
    path.write_text("\n".join(lines) + "\n")


def write_celeba(
    folder: Path,
    pictures: Sequence[np.ndarray],
    images: str = "img_align_celeba",
    attributes: str = "list_attr_celeba.txt",
    people: Sequence[int] | None = None,
) -> list[list[int]]:
    """Write a small CelebA, and give the values of its attributes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_images(folder / images, {image_name(row): file_of(each) for row, each in enumerate(pictures)})
    rows = attribute_rows(len(pictures))
    write_attributes(folder / attributes, rows)
    if people is not None:
        lines = (f"{image_name(row)} {person}\n" for row, person in enumerate(people))
        (folder / "identity_CelebA.txt").write_text("".join(lines))
    return rows


NAMES = [image_name(row) for row in range(40)]


class Counted:
    """Forty pictures in memory, which notes what is read of them."""

    where = Path("memory")

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {name: file_of(noise(row)) for row, name in enumerate(NAMES)}
        self.asked: list[str] = []
        self.turn = threading.Lock()

    def names(self) -> Collection[str]:
        return self.files.keys()

    def mark(self, name: str) -> str:
        return str(len(self.files[name]))

    def read(self, name: str) -> bytes:
        with self.turn:
            self.asked.append(name)
            self.then()
        return self.files[name]

    def then(self) -> None:
        """What else happens when an image is read."""
