"""Locks on open files, which end with the process that holds them, however it ends."""

from __future__ import annotations

from contextlib import suppress

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


def lock(handle: int, wait: bool = False) -> bool | None:
    """Lock an open file: whether this is its only holder now; None where the system has no such locks.

    With ``wait`` it is waited for until the other holder ends.
    """
    if fcntl is None:
        return None
    with suppress(OSError):  # some network file systems
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True
    return None
