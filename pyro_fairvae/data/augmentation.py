"""Random augmentation of training images, different at each use."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns

SHIFT = 32  # an image is shifted by at most side // SHIFT pixels; faces are aligned already


def augment(x: Tensor, pixels: Pixels, ranks: Ranks = ALONE, rows: int | None = None) -> Tensor:
    """Mirror each row's image at random and shift it by up to 1/32 of its side in each direction.

    ``x`` is (…, width). Uncovered pixels are filled by reflection at the edge, so this is a crop after
    padding by reflection. Draws are from PyTorch's global generator of the device of ``x``. With ``ranks``
    x is (…, rows, width) with this rank's part of so many ``rows``, and draws are made for all of them.
    """
    images = x.reshape(-1, pixels.channels, pixels.side**2)
    lead = x.shape[:-2] if rows is not None else ()
    count = len(images) if rows is None else math.prod(lead) * rows

    def own(drawn: Tensor) -> Tensor:
        return drawn if rows is None else ranks.part(drawn.view(*lead, rows), -1).reshape(-1, 1)

    down, across = (_shifted(own, count, pixels.side, x.device) for _ in range(2))
    mirrored = own(torch.rand(count, 1, device=x.device)) < 0.5
    across = torch.where(mirrored, across.flip(-1), across)
    source = (down.unsqueeze(-1) * pixels.side + across.unsqueeze(-2)).flatten(1)
    return images.gather(-1, source.unsqueeze(1).expand_as(images)).reshape(x.shape)


def _shifted(own: Callable[[Tensor], Tensor], rows: int, side: int, device: torch.device) -> Tensor:
    """Source position along one axis of each pixel of each image, (rows, side), for a random shift."""
    most = max(1, side // SHIFT)
    shift = own(torch.randint(-most, most + 1, (rows, 1), device=device))
    place = (torch.arange(side, device=device) + shift).abs()
    return side - 1 - (side - 1 - place).abs()


AUGMENTATIONS: dict[str, Callable[[Tensor, Pixels, Ranks, int | None], Tensor]] = {
    "flip_crop": augment,
    "none": lambda x, pixels, ranks, rows: x,
}


def altered(
    x: Tensor, columns: Columns | Pixels, augmentation: str, ranks: Ranks = ALONE, rows: int | None = None
) -> Tensor:
    """Augment rows of images at random, different at each use; rows of numbers are unchanged.

    With ``ranks`` these are the part of ``rows`` rows, and the draws are those of a single process.
    """
    return AUGMENTATIONS[augmentation](x, columns, ranks, rows) if isinstance(columns, Pixels) else x
