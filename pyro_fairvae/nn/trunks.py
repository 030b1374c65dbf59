"""The registry of trunks, which turn a row into features, for tables and for images; and the decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.nn.images import ConvDecoder, SmallCNN, WideResNet
from pyro_fairvae.nn.tabular import ColumnDecoder, NumberPieces, mlp_trunk, piece_edges
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns, Observed

Build = Callable[[int], nn.Module]  # a network for member k


class TrunkOptions(Protocol):
    """The options that a trunk may use."""

    @property
    def trunk(self) -> str | None: ...
    @property
    def hidden(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def pieces(self) -> int: ...
    @property
    def augmentation(self) -> str: ...


class DecoderOptions(Protocol):
    """The options that a decoder uses."""

    @property
    def latent(self) -> int: ...
    @property
    def decoder_hidden(self) -> int: ...


@dataclass(frozen=True)
class Trunk:
    """A row of the registry.

    ``build`` takes the training table and the options and returns a function that builds the network of
    member ``k``, which maps (rows, width) to (rows, ``options.hidden``).
    """

    name: str
    build: Callable[[Observed, TrunkOptions], Build]
    images: bool = False  # whether it is for images, else for tables
    default: bool = False  # whether it is the default for its kind of rows
    note: str = ""  # shown in help
    features: int | None = None  # the only width supported; None: any
    scores: bool = False  # whether rows have scores of boosted trees among their columns
    # Lower bound on the number of weights, to reject a saved model before allocating memory for it.
    weights: Callable[[Columns | Pixels, TrunkOptions], int] = lambda columns, options: 0


def _mlp(train: Observed, options: TrunkOptions) -> Build:
    assert isinstance(train.x, Tensor)
    width, numbers = train.columns.width, train.columns.numbers
    tables = train.x if train.members else train.x.unsqueeze(0)
    edges = [piece_edges(table[:, :numbers], options.pieces) for table in tables]

    def build(k: int) -> nn.Sequential:
        trunk = mlp_trunk(width + numbers * options.pieces, options.hidden, options.layers)
        return trunk.insert(0, NumberPieces(edges[k if train.members else 0]))

    return build


def _mlp_weights(columns: Columns | Pixels, options: TrunkOptions) -> int:
    inputs = columns.width + columns.numbers * options.pieces
    return options.hidden * (inputs + (options.layers - 1) * options.hidden)


def _cnn(train: Observed, options: TrunkOptions) -> Build:
    pixels = _pixels(train)
    return lambda k: SmallCNN(pixels, options.hidden, mirrors=_mirrors(options))


def _wrn28_2(train: Observed, options: TrunkOptions) -> Build:
    pixels = _pixels(train)
    return lambda k: WideResNet(pixels, mirrors=_mirrors(options))


def _pixels(train: Observed) -> Pixels:
    assert isinstance(train.columns, Pixels)
    return train.columns


def _mirrors(options: TrunkOptions) -> bool:
    return options.augmentation == "flip_crop"


TRUNKS: dict[str, Trunk] = {}


def register(trunk: Trunk) -> Trunk:
    """Make a trunk available by its name."""
    require(trunk.name not in TRUNKS, f"the trunk {trunk.name!r} exists already; choose another name.")
    TRUNKS[trunk.name] = trunk
    return trunk


register(Trunk("mlp", _mlp, default=True, weights=_mlp_weights))
register(
    Trunk("boosted", _mlp, scores=True, weights=_mlp_weights, note="mlp that also sees boosted trees' scores")
)
register(Trunk("cnn", _cnn, images=True, default=True))
register(Trunk("wrn28_2", _wrn28_2, images=True, features=128, note="as in the paper"))


def trunk_names(images: bool) -> list[str]:
    """The names of the trunks for images, or for tables, with the default first."""
    rows = [trunk for trunk in TRUNKS.values() if trunk.images == images]
    return [trunk.name for trunk in sorted(rows, key=lambda trunk: not trunk.default)]


def trunk_help() -> str:
    """The help text that lists the trunks."""
    tables, images = (
        [f"{name} ({TRUNKS[name].note})" if TRUNKS[name].note else name for name in trunk_names(kind)]
        for kind in (False, True)
    )
    default = " or ".join(trunk_names(kind)[0] for kind in (False, True))
    return (
        f"the encoder's trunk: {', '.join(tables)} for tables; {', '.join(images)} for images "
        f"(default: {default})"
    )


def chosen_trunk(columns: Columns | Pixels, options: TrunkOptions) -> Trunk:
    """The registered trunk for rows with these columns."""
    images = isinstance(columns, Pixels)
    known = trunk_names(images)
    kind = "images" if images else "tables"
    return TRUNKS[choose(f"trunk for {kind}", options.trunk or known[0], known)]


def trunks(train: Observed, options: TrunkOptions) -> Build:
    """A function that builds the trunk of an encoder for member ``k``, chosen by the columns of its rows.

    The trunk computes ``options.hidden`` features of a row.
    """
    trunk = chosen_trunk(train.columns, options)
    require(
        isinstance(train.columns, Pixels) or trunk.scores == (train.columns.scores > 0),
        f"the trunk {trunk.name} takes rows {'with' if trunk.scores else 'without'} scores of boosted trees; "
        "add them by pyro_fairvae.boosting.scores.for_trunk, or choose another trunk.",
    )
    require(
        trunk.features in (None, options.hidden),
        f"{trunk.name} has {trunk.features} features, but hidden is {options.hidden}.",
    )
    return trunk.build(train, options)


def decoders(columns: Columns | Pixels, options: DecoderOptions, classes: int, groups: int) -> nn.Module:
    """The network of p(x | a, y, z), by the columns of x."""
    sizes = (options.latent, classes, groups, options.decoder_hidden)
    return (
        ConvDecoder(*sizes, columns)
        if isinstance(columns, Pixels)
        else ColumnDecoder(*sizes, columns.decoded)
    )
