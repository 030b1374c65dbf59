"""Import of torchvision, also with a torch that does not match its compiled operators."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.messages import first_line


def torchvision_datasets() -> ModuleType:
    """The module ``torchvision.datasets``, imported on demand.

    With a CPU-only torch the wheel of torchvision cannot load its operators, and its import then fails
    because their schemas are missing. Data sets use no operators, so the schemas are declared and the
    import retried.
    """
    try:
        return import_module("torchvision.datasets")
    except ModuleNotFoundError as reason:
        raise InputError(
            f"torchvision cannot be imported ({first_line(reason)}); install it: pip install torchvision."
        ) from reason
    except RuntimeError as reason:
        if "torchvision::nms does not exist" not in str(reason):
            raise
    _declare_operators()
    return import_module("torchvision.datasets")


@cache  # torch drops the declarations when the library object is deleted
def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
