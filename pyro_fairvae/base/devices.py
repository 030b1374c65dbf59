"""Devices by name."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyro_fairvae.base.errors import InputError, require

# What a name may ask for besides the CPU, and how many of them there are.
ACCELERATORS: dict[str, Callable[[], int]] = {"cuda": lambda: torch.cuda.device_count()}


def resolve_device(name: str) -> torch.device:
    """Return the device by name; ``auto`` is CUDA if available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as reason:
        raise InputError(f"unknown device {name!r}; expected auto, cpu, cuda or cuda:N.") from reason
    require(
        device.type in ("cpu", "cuda"), f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N."
    )
    require(
        device.type != "cuda" or (device.index or 0) < torch.cuda.device_count(),
        f"device {name!r} was requested, but {torch.cuda.device_count()} CUDA devices are available; "
        "use cpu or auto.",
        "device",
    )
    return device
