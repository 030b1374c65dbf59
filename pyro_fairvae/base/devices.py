"""Devices by name, and constants that are copied to a device once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.ranks import Ranks, current, local_rank

# What a name may ask for besides the CPU, and how many of them there are.
ACCELERATORS: dict[str, Callable[[], int]] = {"cuda": lambda: torch.cuda.device_count()}


def resolve_device(name: str) -> torch.device:
    """Return the device by name; ``auto`` is CUDA if available, else the CPU.

    Where the name has no number, as in ``cuda``, it is the first device of its kind, or, of several processes
    that work as one, that of the process's number on its machine.
    """
    if name == "auto":
        name = "cuda" if ACCELERATORS["cuda"]() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as reason:
        raise InputError(f"unknown device {name!r}; expected auto, cpu, cuda or cuda:N.") from reason
    require(
        device.type in ("cpu", *ACCELERATORS),
        f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N.",
    )
    if device.type == "cpu":
        return torch.device("cpu")
    kind, count = device.type, ACCELERATORS[device.type]()
    index = (local_rank() if current().count > 1 else 0) if device.index is None else device.index
    have = "; use cpu or auto."
    if count:
        have = (
            f", {' and '.join(sorted({f'{kind}:0', f'{kind}:{count - 1}'}))}; use one of these, cpu or auto."
        )
        have = have.replace(" and ", " to ") if count > 2 else have
    elif kind == "cuda" and torch.version.cuda is None:
        have = " to this PyTorch, which is built without CUDA; use cpu or auto."
    require(
        index < count,
        f"device {name!r} was requested, but {count} {kind.upper()} device{'s'[: count != 1]} "
        f"{'is' if count == 1 else 'are'} available{have}",
        "device",
    )
    return torch.device(kind, index)


def device_of_rank(name: str, ranks: Ranks) -> torch.device:
    """The device of one of several processes: of GPUs that of its number on its machine.

    All must have devices of one kind; if one has none, all raise an error that names it.
    """
    require(
        ":" not in name,
        f"device {name!r} would be that of all {ranks.count} processes; use cpu, cuda or auto, with which "
        "each has its own.",
        "device",
    )

    device = ranks.everywhere(lambda: resolve_device(name))
    kinds = ranks.gather(device.type)
    other = next((rank for rank, kind in enumerate(kinds) if kind != kinds[0]), None)
    if other is not None:
        ranks.fail(
            f"rank 0 of {ranks.count} would compute on {kinds[0]}, but rank {other} on {kinds[other]}; give "
            "--device cpu, or GPUs to all processes."
        )
    return device


def chosen_of_several(name: str, device: torch.device) -> str | None:
    """Which of several devices is used where ``name``, such as ``cuda``, leaves that open; else None."""
    count = ACCELERATORS[device.type]() if device.type in ACCELERATORS else 1
    if count < 2 or ":" in name:
        return None
    model = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{count} {device.type.upper()} devices are available, and {device}{model} is used."


@contextmanager
def fixed_order() -> Iterator[None]:
    """Convolutions on CUDA sum in one order inside the ``with`` block, so that a seed fixes a run."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


class Constant:
    """An array that operations need on their device and in their precision, copied there once.

    It replaces ``torch.from_numpy(array).to(like)``, which copies the array to the device at each call.
    """

    def __init__(self, array: np.ndarray | Tensor) -> None:
        self._value = array if isinstance(array, Tensor) else torch.from_numpy(np.ascontiguousarray(array))
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, tensor: Tensor) -> Tensor:
        """The constant on the device and in the precision of ``tensor``."""
        return self.on(tensor.device, tensor.dtype)

    def on(self, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """The constant on a device; its own precision unless ``dtype`` is given. Must not be changed."""
        key = (device, dtype or self._value.dtype)
        if key not in self._copies:
            with torch.inference_mode(False):
                self._copies[key] = self._value.to(*key)
        return self._copies[key]

    def __reduce__(self) -> tuple[type[Constant], tuple[Any]]:
        return Constant, (self._value,)  # copies are made again where it is read

    def __deepcopy__(self, memo: dict[int, Any]) -> Constant:
        return self  # nothing changes it
