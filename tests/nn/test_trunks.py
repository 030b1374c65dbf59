"""Trunks by name: each name builds its own network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.nn import trunks as registry
from pyro_fairvae.nn.images import SmallCNN, WideResNet
from pyro_fairvae.nn.tabular import NumberPieces
from pyro_fairvae.nn.trunks import TRUNKS, Trunk, register, trunk_help, trunk_names, trunks
from pyro_fairvae.schema.image_rows import PixelRows, Pixels
from pyro_fairvae.schema.observed import Columns, Observed
from tests.support.small import small_settings

CODES = torch.tensor([0, 1, 2, 0, 1, 2])


@dataclass(frozen=True)
class Options:
    trunk: str | None = None
    hidden: int = 16
    layers: int = 2
    pieces: int = 3
    augmentation: str = "flip_crop"


def pictures() -> Observed:
    pixels = Pixels(3, 8)
    stored = torch.zeros(6, pixels.width, dtype=torch.uint8)
    return Observed(PixelRows(stored, torch.arange(6)), CODES, CODES, pixels, 2, 2)


def table() -> Observed:
    return Observed(torch.randn(6, 5), CODES, CODES, Columns(3, (2,)), 2, 2)


@pytest.fixture
def _restored() -> Iterator[None]:
    before = dict(TRUNKS)
    yield
    TRUNKS.clear()
    TRUNKS.update(before)


@pytest.mark.parametrize(
    ("name", "hidden", "kind"), [(None, 16, SmallCNN), ("cnn", 16, SmallCNN), ("wrn28_2", 128, WideResNet)]
)
def test_names_build_networks_for_images(name: str | None, hidden: int, kind: type) -> None:
    built = trunks(pictures(), Options(name, hidden))(0)
    assert type(built) is kind
    assert built.mirrors is True
    assert trunks(pictures(), Options(name, hidden, augmentation="none"))(0).mirrors is False


def test_tables_take_layers_on_numbers_in_pieces() -> None:
    built = trunks(table(), Options())(0)
    assert isinstance(built[0], NumberPieces)  # type: ignore[index]
    widths = [each.in_features for each in built.modules() if isinstance(each, nn.Linear)]
    assert widths == [5 + 3 * 3, 16]


def test_a_trunk_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"trunk for tables 'cnn'.*mlp"):
        trunks(table(), Options("cnn"))
    with pytest.raises(InputError, match=r"trunk for images 'mlp'.*cnn"):
        trunks(pictures(), Options("mlp"))
    with pytest.raises(InputError, match="wrn28_2 has 128 features, but hidden is 16"):
        trunks(pictures(), Options("wrn28_2"))
    with pytest.raises(InputError, match="trunk 'resnet'"):
        small_settings(trunk="resnet")


class Brightness(nn.Module):
    """The mean of each channel, in as many features as are asked for."""

    def __init__(self, pixels: Pixels, features: int) -> None:
        super().__init__()
        self.shape, self.layer = pixels.shape, nn.Linear(pixels.channels, features)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer(x.unflatten(-1, self.shape).mean((-1, -2)))
        return features


@pytest.mark.usefixtures("_restored")
def test_a_new_name_builds_its_own_network_and_nothing_else() -> None:
    register(Trunk("brightness", lambda train, o: lambda k: Brightness(train.columns, o.hidden), images=True))
    built = trunks(pictures(), Options("brightness", 12))(0)
    assert type(built) is Brightness
    assert built(torch.zeros(4, 3 * 64)).shape == (4, 12)
    assert small_settings(trunk="brightness").trunk == "brightness"
    assert "brightness" in trunk_help()
    assert trunk_names(images=True) == ["cnn", "wrn28_2", "brightness"]
    with pytest.raises(InputError, match="exists already"):
        register(replace(registry.TRUNKS["brightness"]))
