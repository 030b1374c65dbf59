"""What the library knows of a data set: a row of the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyro_fairvae.data.images import ImageTable
from pyro_fairvae.data.tables import Table
from pyro_fairvae.schema.attributes import Attributes

AnyTable = Table | ImageTable
# Options that suit images. Pixels are many and tell much the same, so κ is small, or the trunk would serve
# the reconstruction alone. The KL of z weighs more, or z would say what a and y are there for, and switching
# them would change no face.
FOR_IMAGES = {
    "elbo_weight": 1e-4, "kl_weight": 5.0, "latent": 16, "decoder_hidden": 32, "epochs": 20, "batch": 64,
    "lr": 2e-3, "weight_decay": 0.3,
}  # fmt: skip
MANY = 5  # values from which on help says how many there are, and names the first


@dataclass(frozen=True)
class Dataset:
    """How a data set is read, by what is to be predicted and the group to be fair to."""

    name: str
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    read: Callable[[str, str, int, str | Path | None], AnyTable]  # label, group, side of images, folder
    attributes: Callable[[str], Attributes]
    classes: Callable[[str], tuple[str, ...]]
    most_rows: int | None = None  # unless more are asked for
    images: bool = False
    suits: Mapping[str, Any] = field(default_factory=dict)  # options that suit it better than the defaults
    default: bool = False  # whether studies take it unless another is named
    studied: tuple[str, ...] | None = None  # groups that studies take unless named; the first alone
    # Rates of withholding (α, β) that the paper's Table 1 recovered, by group and level.
    published: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    # Makes as many rows as are asked for, by rows, seed and group, where a generator is behind it.
    draw: Callable[[int, int, str], AnyTable] | None = None
    suits_priors: Mapping[str, Any] = field(default_factory=dict)  # options of the study of priors

    def group(self, group: str | None) -> str:
        """The group by name, the first unless given."""
        return self.groups[0] if group is None else group

    def label(self, label: str | None) -> str:
        return self.labels[0] if label is None else label

    @property
    def studied_groups(self) -> tuple[str, ...]:
        return self.groups[:1] if self.studied is None else self.studied

    def in_words(self, names: tuple[str, ...]) -> str:
        """Labels or groups for help."""
        if len(names) < MANY:
            return f"{', '.join(names)} for {self.name}"
        return f"any of {len(names)} attributes for {self.name} (default: {names[0]})"
