"""Whole-or-nothing writes of files: text, JSON, CSV and arrays."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.file_locks import lock
from pyro_fairvae.base.formulas import are_escaped, as_cell

TEMPORARY = ".fairvae-"  # how the names of files begin that are being written
KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def write_whole(path: Path, content: bytes | str, target: Path | None = None) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    A new file has the permissions that the umask leaves, and one that replaces another has those of the
    other. Only regular files are replaced. Files that killed writes left in the folder are deleted. With
    ``target`` the file is to take that one's place later.
    """
    with writing_whole(path, target) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing_whole(path: Path, target: Path | None = None) -> Iterator[IO[bytes]]:
    """As :func:`write_whole`, of a file that is written in pieces: it is there when the block ends."""
    goal = path if target is None else target
    mode = check_replaceable(goal)
    try:
        _delete_leftovers(path.parent)
        temporary, handle = _open_temporary(path.parent, 0o666 if mode is None else mode)
    except OSError as reason:
        raise InputError(f"cannot write {goal}: {reason.strerror}.", "out") from reason
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
            if mode is not None:
                os.chmod(temporary, mode)
            if os.name == "nt":
                file.close()  # open files cannot be renamed there, nor deleted as leftovers
            os.replace(temporary, path)
    except OSError as reason:
        raise InputError(
            f"cannot write {goal}: {reason.strerror}. Free some space, or choose another folder.", "out"
        ) from reason
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_replaceable(path: Path, *read: Path) -> int | None:
    """Raise unless ``path`` is free or a regular file, and none of those in ``read``; its permissions."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as reason:
        raise InputError(f"cannot write {path}: {getattr(reason, 'strerror', reason)}.", "out") from reason
    for is_kind, kind in KINDS:
        require(not is_kind(status.st_mode), f"cannot write {path}: it is {kind}; name a file.", "out")
    for other in read:
        with suppress(OSError):
            require(
                not os.path.samestat(status, other.stat()),
                f"cannot write {path}: it is {other}, which is read; name another file.",
                "out",
            )
    return stat.S_IMODE(status.st_mode) & 0o777


def _open_temporary(folder: Path, mode: int) -> tuple[Path, int]:
    """A new file that is locked while its writer lives, and its handle."""
    while True:
        path = folder / f"{TEMPORARY}{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags, mode)
        if lock(handle) is not False and os.fstat(handle).st_nlink:
            return path, handle
        os.close(handle)  # taken for a leftover before it was locked


def _delete_leftovers(folder: Path) -> None:
    """Delete the temporary files of writers that are dead: nobody has them locked."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(TEMPORARY) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    handle = os.open(entry.path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
                    try:
                        if lock(handle):
                            os.unlink(entry.path)
                    finally:
                        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise InputError(
            f"cannot make the folder {path}: {reason.strerror}. Choose another.", "out"
        ) from reason


def write_json(path: Path, content: Any) -> None:
    """Write JSON; a number that is not finite becomes ``null``, since JSON cannot represent it."""
    write_whole(path, json_text(content))


def json_text(content: Any) -> str:
    """What :func:`write_json` writes."""
    return json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, as numpy's ``.npz``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    write_whole(path, buffer.getvalue())


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as CSV; the header holds the names of the first row."""
    write_whole(path, csv_text(rows))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """What :func:`write_csv` writes."""
    text = _Lines()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\r\n")
    writer.writerow({name: as_cell(name) for name in writer.fieldnames})
    writer.writerows({name: as_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as CSV, without its index."""
    write_whole(path, frame_text(frame))


def frame_text(frame: pd.DataFrame, header: bool = True) -> str:
    """A table as CSV, without its index."""
    cells = frame.map(as_cell).rename(columns=as_cell) if are_escaped() else frame
    text = _Lines()
    cells.to_csv(text, index=False, header=header, lineterminator="\r\n")
    return text.getvalue()


class _Lines(io.StringIO):
    """Lines that end in a line feed alone, from a writer that must quote a carriage return inside of them."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
