"""Networks for images: trunks of an encoder, and a decoder.

All are written for one member and take images as flat rows, as
:class:`~pyro_fairvae.schema.image_rows.Pixels` has them.
Under :class:`~pyro_fairvae.nn.members.Members` their convolutions become one convolution with a group of
channels for each member, which costs little more per member than a separate convolution, also on the CPU.

Layouts and precisions under vmap (PyTorch 2.13): it rejects ``channels_last``, and autocast applies
to matrix products but, on the CPU, not to convolutions. So neither is used here; outside of vmap both work.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, silu

from pyro_fairvae.base.errors import require
from pyro_fairvae.schema.image_rows import Pixels

NORM_GROUPS, NORM_CHANNELS = 8, 8  # most groups of channels, and fewest channels of a group
PART = 64  # rows that a trunk processes at a time on the CPU
EIGHTH, SQUARE = 8, 4  # the decoder starts from one position per 8 × 8 pixels and outputs squares of 4 × 4


class _FoldedGroupNorm(torch.autograd.Function):
    """Group normalisation that treats members as further groups of channels.

    PyTorch's own rule for vmap moves the members to the front. A convolution keeps members among its
    channels, so this copies its whole output, and copies it back for the next one. Here nothing is moved.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, ...]:
        rows, channels = x.shape[:2]
        pixels = x.shape[2:].numel()
        return torch.native_group_norm(x.contiguous(), weight, bias, rows, channels, pixels, groups, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.groups, _ = inputs
        _, mean, scale = output
        ctx.mark_non_differentiable(mean, scale)
        ctx.save_for_backward(x, weight, mean, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        rows, channels = x.shape[:2]
        input_gradients = torch.ops.aten.native_group_norm_backward(
            gradients[0].contiguous(), x.contiguous(), mean, scale, weight,
            rows, channels, x.shape[2:].numel(), ctx.groups, [True, True, True],
        )  # fmt: skip
        return *input_gradients, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        members = info.batch_size
        x, weight, bias = (
            tensor.unsqueeze(to).expand(*tensor.shape[:to], members, *tensor.shape[to:])
            if at is None
            else tensor.movedim(at, to)
            for tensor, at, to in zip(inputs[:3], in_dims[:3], (1, 0, 0), strict=True)
        )
        _, _, _, groups, eps = inputs
        folded = _FoldedGroupNorm.apply(
            x.flatten(1, 2), weight.flatten(), bias.flatten(), members * groups, eps
        )
        return tuple(output.unflatten(1, (members, -1)) for output in folded), 1


class GroupNorm(nn.GroupNorm):
    """:class:`torch.nn.GroupNorm` of (rows, channels, height, width), at no extra cost for members.

    It normalises each image separately. Groups are not small: where an image is reduced to one pixel, a group
    of two channels would keep only a sign.
    """

    def __init__(self, channels: int) -> None:
        groups = math.gcd(NORM_GROUPS, max(1, channels // NORM_CHANNELS), channels)
        super().__init__(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        # Under autocast x may have lower precision; sums over an image need full precision.
        x = x.to(self.weight.dtype)
        normal: Tensor = _FoldedGroupNorm.apply(x, self.weight, self.bias, self.num_groups, self.eps)[0]
        return normal


def _conv3(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)


class ImageTrunk(nn.Module):
    """Features of an image: the mean over positions of the output of ``steps``.

    With ``mirrors``, for training on randomly mirrored images, a network in evaluation mode
    (:meth:`torch.nn.Module.eval`) averages the features of the image and of its mirror image.
    """

    steps: nn.Module
    features: int

    def __init__(self, pixels: Pixels, mirrors: bool) -> None:
        super().__init__()
        _check_side(pixels)
        self.shape, self.mirrors = pixels.shape, mirrors

    def forward(self, x: Tensor) -> Tensor:
        images = x.unflatten(-1, self.shape)
        if self.training or not self.mirrors:
            return self._features(images)
        return (self._features(images) + self._features(images.flip(-1))) / 2

    def _features(self, images: Tensor) -> Tensor:
        """Features of (rows, channels, side, side); on the CPU in parts, which does not change the result.

        Tensors above 32 MB, which members of a large batch soon need, are returned to the system after each
        use, and allocating them again costs a third of the time.
        """
        parts = [images] if images.is_cuda else images.split(PART)
        return torch.cat([self.steps(part).mean((-2, -1)) for part in parts])


class SmallCNN(ImageTrunk):
    """A trunk for machines without a GPU: three times a convolution that halves the side and a residual one.

    The first convolution already halves the side, so nothing is computed at full resolution.
    """

    def __init__(self, pixels: Pixels, features: int = 128, mirrors: bool = False) -> None:
        super().__init__(pixels, mirrors)
        require(features % 4 == 0, f"features must be a multiple of 4, got {features}.")
        self.features = features
        steps: list[nn.Module] = []
        for before, after in pairwise((pixels.channels, features // 4, features // 2, features)):
            steps += [_conv3(before, after, stride=2), GroupNorm(after), nn.SiLU(), _Residual(after)]
        self.steps = nn.Sequential(*steps)


class _Residual(nn.Module):
    """A convolution whose output is added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = _conv3(channels, channels), GroupNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return silu(x + self.norm(self.conv(x)))


class WideResNet(ImageTrunk):
    """WRN-depth-widen (Zagoruyko and Komodakis 2016), normalised within each image and not over a batch.

    A row's features then depend on no other row. Where a block changes the width, its shortcut starts after
    the activation, as in the authors' code.
    """

    def __init__(self, pixels: Pixels, depth: int = 28, widen: int = 2, mirrors: bool = False) -> None:
        super().__init__(pixels, mirrors)
        require(depth >= 10 and depth % 6 == 4, f"depth must be 10, 16, 22, 28, …, got {depth}.")
        blocks = (depth - 4) // 6
        widths = (16, 16 * widen, 32 * widen, 64 * widen)
        steps: list[nn.Module] = [_conv3(pixels.channels, widths[0])]
        for (before, after), stride in zip(pairwise(widths), (1, 2, 2), strict=True):
            steps += [_WideBlock(before, after, stride)]
            steps += [_WideBlock(after, after, 1) for _ in range(blocks - 1)]
        self.steps = nn.Sequential(*steps, GroupNorm(widths[-1]), nn.ReLU())
        self.features = widths[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


class _WideBlock(nn.Module):
    """Two convolutions, each after its normalisation and activation, and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = GroupNorm(before), _conv3(before, after, stride)
        self.norm2, self.conv2 = GroupNorm(after), _conv3(after, after)
        self.shortcut = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.norm1(x))
        added = self.conv2(torch.relu(self.norm2(self.conv1(active))))
        return added + (x if self.shortcut is None else self.shortcut(active))


class ConvDecoder(nn.Module):
    """Means of p(x | a, y, z) for images, called as :class:`~pyro_fairvae.nn.tabular.ColumnDecoder` is.

    z gives ``hidden`` features for each square of 8 × 8 pixels; a and y add theirs, also for each square,
    before the first activation. So group and class can change shapes as well as colours. Two convolutions
    follow for each enumerated combination of a and y; the second outputs squares of 4 × 4 pixels, each
    computed from its neighbours too, so that edges match. At the end a and y each add an image, their effect
    common to all rows: it is learned before z could encode the same, which z then has no reason to do. Means
    are not restricted to [−1, 1]: tanh would leave the darkest and the brightest pixels without a gradient.
    """

    def __init__(self, latent: int, classes: int, groups: int, hidden: int, pixels: Pixels) -> None:
        super().__init__()
        _check_side(pixels)
        require(hidden % 2 == 0, f"the decoder's hidden width must be even for images, got {hidden}.")
        start = math.ceil(pixels.side / EIGHTH)
        self.start, self.side = (hidden, start, start), pixels.side
        self.from_z = nn.Linear(latent, hidden * start**2)
        self.from_a = nn.Embedding(groups, hidden * start**2)
        self.from_y = nn.Embedding(classes, hidden * start**2)
        self.of_a, self.of_y = (nn.Embedding(count, pixels.width) for count in (groups, classes))
        for embedding in (self.of_a, self.of_y):
            nn.init.zeros_(embedding.weight)
        # Enlarged by a pixel shuffle: transposed convolutions are slow under vmap.
        self.enlarge = nn.Conv2d(hidden, 2 * hidden, 3, padding=1)
        self.paint = nn.Conv2d(hidden // 2, pixels.channels * SQUARE**2, 3, padding=1)

    def forward(self, z: Tensor, a: Tensor, y: Tensor) -> Tensor:
        places = torch.relu(self.from_z(z) + self.from_a(a) + self.from_y(y))
        small = torch.relu(pixel_shuffle(self.enlarge(places.reshape(-1, *self.start)), 2))
        images = pixel_shuffle(self.paint(small), SQUARE)[..., : self.side, : self.side]
        return images.flatten(1).unflatten(0, places.shape[:-1]) + self.of_a(a) + self.of_y(y)


def _check_side(pixels: Pixels) -> None:
    require(pixels.side >= 8, f"images need a side of at least 8 pixels, got {pixels.side}.")
