"""Numbers of many rows in a file that lasts as long as its tensor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import torch
from torch import Tensor

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.mapped_store import OTHER_FOLDER, cache_home, refuse_full_disk


def scratch(shape: Sequence[int]) -> Tensor:
    """A tensor of zeros in 32 bits, mapped from a file in the cache folder that has no name any more."""
    size = int(torch.Size(shape).numel())
    folder = cache_home() / "scratch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_full_disk(folder, 4 * size, "numbers of all rows need")
        handle, path = tempfile.mkstemp(dir=folder)
        try:
            os.ftruncate(handle, max(4 * size, 4))
            mapped = torch.from_file(path, shared=True, size=size, dtype=torch.float32)
        finally:
            os.close(handle)
            os.unlink(path)
    except OSError as reason:
        raise InputError(
            f"cannot write a file in {folder}: {reason.strerror or reason}. Free some space there, or "
            f"{OTHER_FOLDER}."
        ) from reason
    return mapped.view(*shape)
