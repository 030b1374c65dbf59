"""The description of a data set: an entry of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.tables import Table
from pyro_fairvae.schema.arrays import Floats
from pyro_fairvae.schema.attributes import Attributes

AnyTable = Table | ImageTable
# Options that suit images. Pixels are many and redundant, so κ is small, otherwise the trunk would serve the
# reconstruction alone. The KL of z has a larger weight, otherwise z would encode a and y, and changing them
# would not change the image.
FOR_IMAGES = {
    "elbo_weight": 1e-4, "kl_weight": 5.0, "latent": 16, "decoder_hidden": 32, "epochs": 20, "batch": 64,
    "lr": 2e-3, "weight_decay": 0.3,
}  # fmt: skip
MOST_LISTED = 5  # number of values from which help gives their count and the first one


GROUP_LEVELS = 16  # of a number, unless another number of them is given


@dataclass(frozen=True)
class Number:
    """A group that is a number: its levels, given at most how many, and the simulated P(∅|number) of a level.

    The tables of a data set have the numbers themselves beside their levels.
    """

    attributes: Callable[[int], Attributes]
    withheld: Callable[[str, Floats], Floats]


@dataclass(frozen=True)
class Dataset:
    """How to read a data set, given the label to predict and the group to be fair to."""

    name: str
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    read: Callable[[str, str, int, str | Path | None], AnyTable]  # label, group, side of images, folder
    attributes: Callable[[str], Attributes]
    classes: Callable[[str], tuple[str, ...]]
    most_rows: int | None = None  # unless more are requested
    images: bool = False
    suits: Mapping[str, Any] = field(default_factory=dict)  # options that suit it better than the defaults
    default: bool = False  # whether it is the default of studies
    studied: tuple[str, ...] | None = None  # default groups of studies; None: the first alone
    # Rates of withholding (α, β) that the paper's Table 1 recovered, by group and level.
    published: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    # Draws new rows, given rows, seed and group, if the data set is generated.
    draw: Callable[[int, int, str], AnyTable] | None = None
    suits_priors: Mapping[str, Any] = field(default_factory=dict)  # options of the study of priors
    recorded: bool = False  # whether withholding is real: the tables have ã, and a is only a yardstick
    proxies: tuple[str, ...] = ()  # columns of its tables that may be named as proxies
    numbers: Mapping[str, Number] = field(default_factory=dict)  # groups that are numbers

    def group(self, group: str | None) -> str:
        """The group by name, the first unless given."""
        return self.groups[0] if group is None else group

    def label(self, label: str | None) -> str:
        return self.labels[0] if label is None else label

    @property
    def studied_groups(self) -> tuple[str, ...]:
        return self.groups[:1] if self.studied is None else self.studied

    def in_words(self, names: tuple[str, ...]) -> str:
        """Labels or groups as a help text."""
        if len(names) < MOST_LISTED:
            return f"{', '.join(names)} for {self.name}"
        return f"any of {len(names)} attributes for {self.name} (default: {names[0]})"
