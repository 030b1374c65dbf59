"""Folders that one run at a time writes to, and whose files change together."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.file_locks import lock
from pyro_fairvae.base.files import check_replaceable, make_folder, write_whole

LOCK = ".fairvae.lock"
STAGED, DECIDED = ".fairvae.staged", ".fairvae.decided"

_held: dict[str, tuple[int, int]] = {}  # by path: the thread that has a folder, and the handle of its lock


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder inside the ``with`` block; it is made unless it exists.

    The lock ends with its process, also if that is killed. A thread that has it may ask again.
    """
    key, thread = os.path.realpath(folder), threading.get_ident()
    if _held.get(key, (None,))[0] == thread:
        yield
        return
    new = not folder.exists()
    make_folder(folder)
    handle = _locked(folder)
    _held[key] = thread, handle
    try:
        finish(folder)
        yield
    finally:
        del _held[key]
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)
        os.close(handle)
        if new:
            with suppress(OSError):
                folder.rmdir()  # unless something is in it


def _locked(folder: Path) -> int:
    """The handle of a folder's lock, a file that holds the number of the process."""
    path = folder / LOCK
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as reason:
            raise InputError(f"cannot write to {folder}: {reason.strerror}.", "out") from reason
        if lock(handle) is False:
            words = os.read(handle, 20).decode("ascii", "replace").strip()
            os.close(handle)
            raise InputError(
                f"another run{f', process {words},' if words.isdecimal() else ''} is writing to {folder}; "
                "wait until it has ended, or choose another folder.",
                "out",
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # its last holder has deleted it meanwhile
    with suppress(OSError):  # a full disk
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def _leave_to_parent() -> None:
    """A forked process does not hold the locks of its parent, and must not outlive it with them."""
    for _, handle in _held.values():
        with suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_parent)


def write_together(folder: Path, contents: Mapping[str, bytes | str], gone: Collection[str] = ()) -> None:
    """Replace some files of a folder and delete those named in ``gone``: all, or none if that fails.

    The files are written to a folder STAGED in the folder. Renaming it to DECIDED is the moment from which
    the new files count, wherever the process may be stopped: :func:`read_current` finds them there, and
    :func:`finish` moves them to their places. The caller is :func:`alone_in` the folder.
    """
    staged = folder / STAGED
    deleted = [name for name in gone if name not in contents and os.path.lexists(folder / name)]
    for name in contents:
        check_replaceable(folder / name)
    try:
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        for name, content in contents.items():
            require(len(content) > 0, f"{name} is empty, which stands for a file that is deleted.")
            write_whole(staged / name, content, folder / name)
        for name in deleted:
            (staged / name).touch()
        os.replace(staged, folder / DECIDED)
    except OSError as reason:
        raise InputError(
            f"cannot write to {folder}: {reason.strerror}. Free some space, or choose another folder.", "out"
        ) from reason
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    finish(folder)


def finish(folder: Path) -> None:
    """Put the files of a decided replacement into their places, if one was interrupted; empty ones delete."""
    decided = folder / DECIDED
    try:
        for path in sorted(decided.iterdir()) if decided.is_dir() else ():
            if path.stat().st_size:
                os.replace(path, folder / path.name)
            else:
                (folder / path.name).unlink(missing_ok=True)
                path.unlink()
        with suppress(FileNotFoundError, NotADirectoryError):
            decided.rmdir()
    except OSError as reason:
        raise InputError(f"cannot write to {folder}: {reason.strerror}.", "out") from reason


def read_current(path: Path) -> bytes:
    """The content of a file, also while its replacement is decided but not finished."""
    try:
        content = (path.parent / DECIDED / path.name).read_bytes()
    except OSError:
        return path.read_bytes()
    if not content:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return content


def is_current_file(path: Path) -> bool:
    """Whether :func:`read_current` finds a file."""
    try:
        return (path.parent / DECIDED / path.name).stat().st_size > 0
    except OSError:
        return path.is_file()
