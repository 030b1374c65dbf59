"""torchvision, also beside a torch for which its compiled operators were not made."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from pyro_fairvae.base.errors import InputError


def torchvision_datasets() -> ModuleType:
    """The module ``torchvision.datasets``, imported when it is asked for.

    The wheel of torchvision beside a CPU-only torch cannot load its operators, and then fails at import for
    want of their schemas. Data sets use none, so the schemas are declared and the import tried again.
    """
    try:
        return import_module("torchvision.datasets")
    except ModuleNotFoundError as reason:
        raise InputError(
            f"torchvision cannot be imported ({reason}); install it: pip install torchvision."
        ) from reason
    except RuntimeError as reason:
        if "torchvision::nms does not exist" not in str(reason):
            raise
    _declare_operators()
    return import_module("torchvision.datasets")


@cache  # torch forgets what was declared when the library object goes
def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
