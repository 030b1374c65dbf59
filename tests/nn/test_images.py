"""Networks for images against loops, closed forms and brute force."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.data.augmentation import augment
from pyro_fairvae.nn.images import PART, ConvDecoder, GroupNorm, SmallCNN, WideResNet
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.nn.trunks import trunk_names
from pyro_fairvae.schema.image_rows import Pixels

FACES, TINY = Pixels(3, 32), Pixels(3, 8)


def small_trunk(name: str, pixels: Pixels = TINY, mirrors: bool = False) -> SmallCNN | WideResNet:
    if name == "cnn":
        return SmallCNN(pixels, features=16, mirrors=mirrors)
    return WideResNet(pixels, depth=10, widen=1, mirrors=mirrors)


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_wide_resnet_has_as_many_parameters_as_the_published_one() -> None:
    """WRN-28-2 with a head of 10 classes: Zagoruyko and Komodakis give 1.5 M."""
    w, blocks = 32, 4  # the first width, and blocks in each of three stages of widths w, 2w, 4w
    first_blocks = 9 * (16 * w + w * 2 * w + 2 * w * 4 * w) + (16 * w + w * 2 * w + 2 * w * 4 * w)
    all_others = 9 * (2 * blocks - 1) * (w**2 + (2 * w) ** 2 + (4 * w) ** 2)
    norms = 2 * (16 + w + 2 * w) + 2 * (2 * blocks - 1) * (w + 2 * w + 4 * w) + 2 * 4 * w
    published = 9 * 3 * 16 + first_blocks + all_others + norms + (4 * w * 10 + 10)
    trunk = WideResNet(FACES)
    assert trunk.features == 128
    assert count(trunk) + count(nn.Linear(trunk.features, 10)) == published == 1_467_610


@pytest.mark.parametrize("features", [16, 128])
def test_small_cnn_has_as_many_parameters_as_its_layers(features: int) -> None:
    f = features
    quarter, half = f // 4, f // 2
    halving = 9 * (3 * quarter + quarter * half + half * f)
    residual = 9 * (quarter**2 + half**2 + f**2)
    norms = 2 * 2 * (quarter + half + f)
    assert count(SmallCNN(FACES, f)) == halving + residual + norms


def test_conv_decoder_has_as_many_parameters_as_its_layers() -> None:
    latent, classes, groups, hidden = 5, 3, 2, 8
    entered = (latent + 1 + classes + groups) * hidden * 4 * 4
    enlarge = (9 * hidden + 1) * 2 * hidden
    paint = (9 * hidden // 2 + 1) * 3 * 4 * 4
    own = (classes + groups) * FACES.width
    assert count(ConvDecoder(latent, classes, groups, hidden, FACES)) == entered + enlarge + paint + own


@pytest.mark.parametrize("dims", [(0, 0), (None, 0), (2, None)])
def test_group_norm_of_members_equals_torchs(dims: tuple[int | None, int | None]) -> None:
    """Members at any place, of images or of parameters only; values and gradients."""
    torch.manual_seed(0)
    x_dim, state_dim = dims
    x = torch.randn(5, 16, 4, 4, dtype=torch.double)
    x = x if x_dim is None else torch.stack([x, x + 1, 2 * x], x_dim)
    state = torch.randn(2, 16, dtype=torch.double) if state_dim is None else torch.randn(3, 2, 16).double()

    def run(own: bool, x: Tensor, state: Tensor) -> Tensor:
        norm = GroupNorm(16).double()
        if not own:
            return nn.functional.group_norm(x, norm.num_groups, state[0], state[1], norm.eps)
        named = {"weight": state[0], "bias": state[1]}
        found: Tensor = torch.func.functional_call(norm, named, (x,))
        return found

    results = []
    for own in (True, False):
        inputs = x.clone().requires_grad_(), state.clone().requires_grad_()
        out = vmap(lambda x, state, own=own: run(own, x, state), in_dims=dims)(*inputs)
        results.append((out, *torch.autograd.grad(out.sin().sum(), inputs)))
    for mine, torchs in zip(*results, strict=True):
        torch.testing.assert_close(mine, torchs)


@pytest.mark.parametrize("name", trunk_names(images=True))
def test_members_equal_separate_trunks(name: str) -> None:
    x = torch.rand(3, 4, TINY.width).double() * 2 - 1
    members = Members(lambda _: small_trunk(name).double(), [0, 1, 2])
    together = members(x, in_dims=(0,))
    together.sin().sum().backward()
    for k in range(3):
        torch.manual_seed(k)
        alone = small_trunk(name).double()
        out = alone(x[k])
        torch.testing.assert_close(together[k], out)
        out.sin().sum().backward()
        for each, parameter in alone.named_parameters():
            stacked = getattr(members, each.replace(".", "/"))
            torch.testing.assert_close(stacked.grad[k], parameter.grad)


@pytest.mark.parametrize("name", trunk_names(images=True))
def test_members_may_share_their_rows(name: str) -> None:
    x = torch.rand(4, TINY.width) * 2 - 1
    members = Members(lambda _: small_trunk(name), [0, 1])
    torch.testing.assert_close(members(x, in_dims=(None,)), members(x.expand(2, -1, -1), in_dims=(0,)))


@pytest.mark.parametrize("name", trunk_names(images=True))
def test_rows_and_members_see_only_themselves(name: str) -> None:
    x = torch.rand(2, 4, TINY.width) * 2 - 1
    members = Members(lambda _: small_trunk(name), [0, 1])
    changed = x.clone()
    changed[1, 2] = -changed[1, 2]
    before, after = (members(each, in_dims=(0,)) for each in (x, changed))
    others = torch.ones(2, 4, dtype=torch.bool)
    others[1, 2] = False
    torch.testing.assert_close(before[others], after[others], rtol=1e-5, atol=1e-6)
    assert (before[1, 2] - after[1, 2]).abs().max() > 1e-2


@pytest.mark.parametrize("name", trunk_names(images=True))
def test_large_batches_equal_their_rows(name: str) -> None:
    """More rows than a trunk takes at a time."""
    trunk, x = small_trunk(name), torch.rand(PART + 3, TINY.width) * 2 - 1
    found = trunk(x)
    torch.testing.assert_close(found[[0, PART - 1, PART, -1]], trunk(x[[0, PART - 1, PART, -1]]))
    assert trunk(x[:0]).shape == (0, trunk.features)


@pytest.mark.parametrize("name", trunk_names(images=True))
@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_trunks_take_any_side_and_train_all_parameters(name: str, side: int) -> None:
    pixels = Pixels(3, side)
    trunk = small_trunk(name, pixels)
    features = trunk(torch.rand(2, pixels.width) * 2 - 1)
    assert features.shape == (2, trunk.features)
    features.sin().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in trunk.parameters())


def decode_members(decoder: Members, z: Tensor, a: Tensor, y: Tensor) -> Tensor:
    """As the model does, with ``a`` and ``y`` (…, members, rows)."""
    out: Tensor = decoder(z, a, y, in_dims=(-3, -2, -2), out_dims=-3)
    return out


@pytest.mark.parametrize("given", ["both", "neither", "a"])
def test_decoder_under_enumeration_equals_loops(given: str) -> None:
    """Rows that state a or y come with it observed, the others with a dimension of all values."""
    members, rows, groups, classes = 2, 5, 2, 3
    seeds = [3, 4]
    decoder = Members(lambda _: ConvDecoder(4, classes, groups, 8, TINY), seeds)
    z = torch.randn(members, rows, 4)
    a, y = torch.randint(groups, (members, rows)), torch.randint(classes, (members, rows))
    if given == "neither":
        a = torch.arange(groups).view(groups, 1, 1, 1).expand(groups, 1, members, rows)
    if given != "both":
        y = torch.arange(classes).view(classes, 1, 1).expand(classes, members, 1)
    out = decode_members(decoder, z, a, y)
    shape = torch.broadcast_shapes(a.shape, y.shape)
    assert out.shape == (*shape, TINY.width)
    a, y = a.expand(shape), y.expand(shape)
    for k, seed in enumerate(seeds):
        torch.manual_seed(seed)
        alone = ConvDecoder(4, classes, groups, 8, TINY)
        for at in product(*map(range, shape[:-2]), [k], range(rows)):
            row = alone(z[k, at[-1:]], a[at].view(1), y[at].view(1))
            torch.testing.assert_close(out[at], row[0])


def test_decoders_images_depend_on_group_and_class_in_shape_too() -> None:
    decoder = ConvDecoder(4, 2, 2, 8, FACES)
    z, zero, one = torch.randn(3, 4), torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.long)
    base = decoder(z, zero, zero)
    for a, y in ((one, zero), (zero, one), (one, one)):
        change = (decoder(z, a, y) - base).unflatten(-1, FACES.shape)
        assert change.std((-2, -1)).min() > 1e-3  # not the same change at each pixel
        assert change.std(0).max() > 1e-4  # nor the same for each z


@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_decoder_takes_any_side_and_trains_all_parameters(side: int) -> None:
    pixels = Pixels(1, side)
    decoder = ConvDecoder(4, 2, 2, 8, pixels)
    out = decoder(torch.randn(6, 4), torch.arange(2).view(2, 1, 1), torch.arange(2).view(2, 1))
    assert out.shape == (2, 2, 6, pixels.width)
    out.sin().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in decoder.parameters())


def possible_crops(row: Tensor, pixels: Pixels) -> list[Tensor]:
    """All crops and flips that :func:`augment` may return, by PyTorch's own padding."""
    pad = pixels.side // 8
    padded = nn.functional.pad(row.view(1, *pixels.shape), [pad] * 4, mode="reflect")[0]
    places = range(2 * pad + 1)
    crops = [
        padded[:, i : i + pixels.side, j : j + pixels.side] for i, j in product(places, places)
    ]  # fmt: skip
    return [each.flatten() for crop in crops for each in (crop, crop.flip(-1))]


@pytest.mark.parametrize("leading", [(200,), (3, 60)])
@pytest.mark.parametrize("pixels", [Pixels(3, 8), Pixels(1, 9)])
def test_augmented_rows_are_crops_of_themselves_and_all_crops_come(
    leading: tuple[int, ...], pixels: Pixels
) -> None:
    torch.manual_seed(0)
    x = torch.randn(*leading, pixels.width)
    seen = set()
    for row, found in zip(x.flatten(0, -2), augment(x, pixels).flatten(0, -2), strict=True):
        matches = [n for n, crop in enumerate(possible_crops(row, pixels)) if torch.equal(found, crop)]
        assert len(matches) == 1
        seen.update(matches)
    assert len(seen) == 18  # 3 × 3 places, each as it is or mirrored


def test_augmenting_follows_the_seed() -> None:
    x = torch.randn(1, FACES.width).expand(50, -1)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(augment(x, FACES))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert 12 < len(draws[0].unique(dim=0)) <= 2 * 3 * 3  # each row has a draw of its own


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SmallCNN(Pixels(3, 7)), "at least 8"),
        (lambda: SmallCNN(FACES, features=30), "multiple of 4"),
        (lambda: WideResNet(FACES, depth=27), "depth"),
        (lambda: ConvDecoder(4, 2, 2, 7, FACES), "even"),
    ],
)
def test_sizes_that_cannot_be_are_refused(build: type, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("name", trunk_names(images=True))
def test_an_evaluated_trunk_takes_an_image_and_its_mirror_image_alike(name: str) -> None:
    """The mean of what it says of either in training; of members, too, which go back to training after."""
    members = Members(lambda _: small_trunk(name, mirrors=True), [0, 1])
    x = torch.randn(5, TINY.width)
    mirrored = x.unflatten(-1, TINY.shape).flip(-1).flatten(1)
    seen = [members(each, in_dims=(None,)) for each in (x, mirrored)]
    with evaluating(members):
        found = [members(each, in_dims=(None,)) for each in (x, mirrored)]
    for each in found:
        torch.testing.assert_close(each, (seen[0] + seen[1]) / 2)
        assert not each.requires_grad
    assert (seen[0] - seen[1]).abs().max() > 1e-3
    assert torch.equal(members(x, in_dims=(None,)), seen[0])


def test_images_that_are_not_mirrored_in_training_are_not_evaluated_so() -> None:
    trunk, x = small_trunk("cnn"), torch.randn(5, TINY.width)
    assert torch.equal(trunk.eval()(x), trunk.train()(x))
