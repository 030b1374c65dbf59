"""Images decoded by a fit: reconstructions, and the same z with label and group switched."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.data import Complete
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.schema.image_rows import Pixels

Bytes = np.ndarray  # of uint8


@dataclass(frozen=True)
class Faces:
    """Some test images in bytes, (images, channels, side, side), and images decoded from them."""

    originals: Bytes
    reconstructions: Bytes  # at the likeliest label and group
    switched: Bytes  # at each label and group, (images, classes, groups, channels, side, side)
    classes: tuple[str, ...]
    groups: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """The fields as JSON types."""
        return {name: _pack(value) if isinstance(value, np.ndarray) else value
                for name, value in vars(self).items()}  # fmt: skip

    @staticmethod
    def from_record(record: dict[str, Any]) -> Faces:
        return Faces(
            _unpack(record["originals"]),
            _unpack(record["reconstructions"]),
            _unpack(record["switched"]),
            tuple(record["classes"]),
            tuple(record["groups"]),
        )


@torch.no_grad()
def look_at_faces(fit: Fit, test: Complete, member: int = 0, each: int = 2) -> Faces | None:
    """``each`` test images of every label and group, decoded by a member; None if rows are not images.

    .. math:: \\hat x = E[x | a, y, z], \\quad z = E_q[z | x]
    """
    pixels = test.columns
    if not isinstance(pixels, Pixels):
        return None
    cells = [(test.y == c) & (test.a == g) for c in range(len(test.classes)) for g in range(len(test.groups))]
    rows = torch.from_numpy(np.concatenate([np.flatnonzero(cell)[:each] for cell in cells]))
    x = test.features[rows].to(fit.device, fit.dtype)
    heads = fit.program.guide.heads(x)
    classes, groups = heads.class_logits.shape[-1], heads.group_logits.shape[-1]
    # Enumerated as in TraceEnum_ELBO: (groups, 1, 1, 1) and (classes, 1, 1).
    a = torch.arange(groups, device=x.device).view(-1, 1, 1, 1)
    y = torch.arange(classes, device=x.device).view(-1, 1, 1)
    a, y = (value.expand(*value.shape[:-1], len(rows)) for value in (a, y))
    means = fit.program.model.row(a, y, heads.z_loc).parameters  # (groups, classes, members, images, width)
    switched = means[:, :, member].permute(2, 1, 0, 3)  # (images, classes, groups, width)
    likeliest = (heads.class_logits[member].argmax(-1), heads.group_logits[member].argmax(-1))
    here = torch.arange(len(rows), device=x.device)
    return Faces(
        _to_bytes(x, pixels),
        _to_bytes(switched[here, likeliest[0], likeliest[1]], pixels),
        _to_bytes(switched, pixels),
        test.classes,
        test.groups,
    )


def _to_bytes(x: Tensor, pixels: Pixels) -> Bytes:
    """Numbers in [−1, 1], (…, width), as bytes (…, channels, side, side)."""
    return ((x + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).unflatten(-1, pixels.shape).cpu().numpy()


def _pack(images: Bytes) -> dict[str, Any]:
    return {"shape": list(images.shape), "bytes": base64.b64encode(images.tobytes()).decode()}


def _unpack(record: dict[str, Any]) -> Bytes:
    return np.frombuffer(base64.b64decode(record["bytes"]), dtype=np.uint8).reshape(record["shape"])
