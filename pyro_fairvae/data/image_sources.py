"""Files of images, in a folder or in a zip."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line

SUFFIXES = (".jpg", ".jpeg", ".png")
Entry = TypeVar("Entry")


class ImageSource(Protocol):
    """Images by name, in any subfolder."""

    where: Path

    def names(self) -> Collection[str]: ...

    def mark(self, name: str) -> str:
        """A string that changes when the image changes, computed without reading it."""

    def read(self, name: str) -> bytes:
        """The bytes of the file; may be called from several threads."""


class FolderImages:
    """The images below a folder; the mark of an image is its size and modification time."""

    def __init__(self, where: Path) -> None:
        self.where = where
        files = ((name, os.path.join(folder, name)) for folder, _, names in os.walk(where) for name in names)
        self._paths = _by_name(where, files)

    def names(self) -> Collection[str]:
        return self._paths.keys()

    def mark(self, name: str) -> str:
        try:
            status = os.stat(self._paths[name])
        except OSError:
            return "unreadable"  # decoding will fail as well and report it
        return f"{status.st_size} {status.st_mtime_ns}"

    def read(self, name: str) -> bytes:
        return Path(self._paths[name]).read_bytes()


class ZippedImages:
    """The images in a zip; the mark of an image is its size and checksum in the zip's directory."""

    def __init__(self, where: Path, archive: zipfile.ZipFile) -> None:
        self.where = where
        self._archive = archive
        self._turn = threading.Lock()
        files = ((info.filename.rpartition("/")[2], info) for info in archive.infolist())
        self._infos = _by_name(where, files)

    def names(self) -> Collection[str]:
        return self._infos.keys()

    def mark(self, name: str) -> str:
        return f"{self._infos[name].file_size} {self._infos[name].CRC}"

    def read(self, name: str) -> bytes:
        with self._turn:
            return self._archive.read(self._infos[name])


@contextmanager
def open_images(where: Path) -> Iterator[ImageSource]:
    """The images of a folder, or of a zip."""
    if where.is_dir():
        yield FolderImages(where)
        return
    try:
        archive = zipfile.ZipFile(where)
    except (OSError, zipfile.BadZipFile) as reason:
        raise InputError(
            f"{where} is not a complete zip of images ({first_line(reason)}). Fetch it again, or "
            f"delete it and put the images themselves into a folder {where.with_suffix('').name} beside it."
        ) from reason
    with archive:
        yield ZippedImages(where, archive)


def _by_name(where: Path, files: Iterable[tuple[str, Entry]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, entry in files:
        if name.lower().endswith(SUFFIXES) and not name.startswith("."):
            require(name not in entries, f"{where} holds two images called {name}; keep one of them.")
            entries[name] = entry
    return entries
