"""Locks around what all threads of a process share: PyTorch's global generators, and Pyro.

Pyro keeps its handlers, its parameters and the dimensions that it enumerates in globals, so two fits that
run at once would take each other's. PyTorch seeds one generator for all threads. A thread that holds
:func:`pyro_alone` may take :data:`GENERATORS`, never the other way round.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ThreadLock:
    """A reentrant lock of the threads of a process, which is free in a process that was forked from it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()  # its owner may be a thread that the new process has not

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait until no other thread holds the lock, and hold it inside the ``with`` block."""
        with self._lock:
            yield


GENERATORS = ThreadLock()
PYRO = ThreadLock()
