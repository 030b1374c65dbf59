"""A model, its guide and the settings that both are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import nested, option
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.channels.priors import PRIOR_PRESETS, channel, parse
from pyro_fairvae.data.augmentation import AUGMENTATIONS
from pyro_fairvae.guides import GLOBAL_GUIDES, Encoding, FactoredGuide
from pyro_fairvae.inference.objective import ObjectiveWeights, Schedule
from pyro_fairvae.models import LIKELIHOODS, PREVALENCES, FairSSVAE
from pyro_fairvae.nn.encoder import Encoder
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.nn.trunks import TRUNKS, decoders, trunk_help, trunks
from pyro_fairvae.risks import RiskSettings
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Batch, Columns, Observed

INTERVALS = ("calibrated", "given_h")
PRECISIONS = ("auto", "full", "mixed")


@dataclass(frozen=True)
class Settings:
    """Everything but the data, the weights λ and the seed that decides what a fit becomes."""

    fairness: RiskSettings = nested(RiskSettings)
    objective_weights: ObjectiveWeights = nested(ObjectiveWeights)
    schedule: Schedule = nested(Schedule)
    prior_a: str = option(
        "truthful",
        f"prior on P(ã|a): {', '.join(PRIOR_PRESETS)}, or a mapping, as fairvae priors show --help explains",
    )
    prior_y: str = option("truthful", "prior on P(ỹ|y), in the same language")
    intervals: str | None = option(
        None,
        "who withholds, in posterior.json: calibrated (cross-fitted) or given_h (the guide's, pooled over "
        "members) (default: calibrated, or given_h for the objective 'paper')",
    )
    prevalence: str = option("joint", "p(a, y): joint, or independent as in the paper")
    likelihood: str = option("mixed", "p(x|a,y,z): mixed (by kind of column), or normal as in the paper")
    sites: str = option("dirichlet", "guide of the channels and π: dirichlet, or map (a point)")
    trunk: str | None = option(
        None,
        trunk_help,
    )
    hidden: int = option(128, "width of the encoder's layers")
    layers: int = option(3, "number of the encoder's layers")
    pieces: int = option(16, "pieces into which the encoder cuts each number; 0: none, as in the paper")
    latent: int = option(16, "dimension of z")
    decoder_hidden: int = option(64, "width of the decoder's hidden layer")
    epochs: int = option(30, "passes over the training rows")
    batch: int = option(1024, "rows in a step")
    lr: float = option(1e-3, "learning rate of the networks, falling to 0 along a cosine")
    sites_lr: float = option(0.02, "learning rate of the channels' and π's posteriors")
    weight_decay: float = option(1e-4, "weight decay of the networks")
    clip: float = option(5.0, "largest norm of a member's gradient")
    precision: str = option(
        "auto", f"{', '.join(PRECISIONS)}: products in bfloat16 (auto: for images on a GPU)"
    )
    augmentation: str = option(
        "flip_crop", f"what is done to training images, anew in each step: {', '.join(AUGMENTATIONS)}"
    )

    def __post_init__(self) -> None:
        for what, given, table in (
            ("prevalence", self.prevalence, PREVALENCES),
            ("likelihood", self.likelihood, LIKELIHOODS),
            ("guide of shared sites", self.sites, GLOBAL_GUIDES),
            ("augmentation", self.augmentation, AUGMENTATIONS),
            ("precision", self.precision, PRECISIONS),
        ):
            choose(what, given, table)
        if self.trunk is not None:
            choose("trunk", self.trunk, TRUNKS)
        choose("kind of intervals", self.kind_of_intervals, INTERVALS)
        for prior in (self.prior_a, self.prior_y):
            parse(prior)
        for name in ("hidden", "layers", "latent", "decoder_hidden", "epochs", "batch"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        require(self.pieces >= 0, f"pieces must not be negative, got {self.pieces}.")
        for name in ("lr", "sites_lr", "clip"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be positive and finite, got {value}.")
        require(
            0 <= self.weight_decay < math.inf,
            f"weight_decay must be finite and not negative, got {self.weight_decay}.",
        )

    def mixed(self, columns: Columns | Pixels, device: torch.device | str) -> bool:
        """Whether networks take products in bfloat16."""
        images_on_gpu = isinstance(columns, Pixels) and torch.device(device).type == "cuda"
        return self.precision == "mixed" or (self.precision == "auto" and images_on_gpu)

    @property
    def kind_of_intervals(self) -> str:
        if self.intervals is None:
            return "calibrated" if self.objective_weights.objective == "consistent" else "given_h"
        return self.intervals


class Program:
    """A model and its guide for K members."""

    def __init__(self, train: Observed, settings: Settings, seeds: Sequence[int]) -> None:
        self.settings = settings
        channel_a = channel("a", train.group_attributes, settings.prior_a)
        channel_y = channel("y", train.label_attributes, settings.prior_y)
        channel_a.check(train.a_obs)
        channel_y.check(train.y_obs)
        require(
            settings.fairness.imputer != "control_variate" or channel_a.truthful,
            "the imputer 'control_variate' needs a prior_a under which nobody misstates, such as truthful, "
            f"got {settings.prior_a}.",
        )
        require(
            settings.fairness.labeller != "propagation" or channel_y.truthful,
            "the labeller 'propagation' takes stated labels as certain: give a prior_y under which nobody "
            f"misstates, such as truthful, got {settings.prior_y}.",
        )
        sizes = (settings.latent, train.classes, train.groups)
        trunk, images = trunks(train, settings), isinstance(train.columns, Pixels)
        encoder = Members(lambda k: Encoder(trunk(k), settings.hidden, *sizes, apart=images), seeds)
        decoder = Members(
            lambda _: decoders(train.columns, settings, train.classes, train.groups),
            [derive_seed(seed, 1) for seed in seeds],
        )
        self.model = FairSSVAE(
            decoder,
            train.columns,
            settings.latent,
            channel_a,
            channel_y,
            prevalence=settings.prevalence,
            likelihood=settings.likelihood,
        )
        start = {
            site: torch.full((size,), train.rows / size) for site, size in self.model.prevalence_sites.items()
        }
        for each, observed in ((channel_a, train.a_obs), (channel_y, train.y_obs)):
            start |= {site: each.initial_concentration(r, observed) for r, site in enumerate(each.sites)}
        sites = GLOBAL_GUIDES[settings.sites](
            {site: _per_member(concentration, len(seeds)) for site, concentration in start.items()}
        )
        self.guide = FactoredGuide(encoder, sites, tuple(self.model.prevalence_sites), channel_a, channel_y)

    def to(self, device: torch.device, dtype: torch.dtype) -> Program:
        self.model.to(device, dtype)
        self.guide.to(device, dtype)
        mixed = self.settings.mixed(self.model.columns, device)
        self.model.decoder.mixed = self.guide.encoder.mixed = mixed
        return self

    @property
    def undecayed(self) -> tuple[str, ...]:
        """How the names of parameters end that weight decay would harm: of images, norms and scales."""
        images = isinstance(self.model.columns, Pixels)
        return (*(f"encoder.{name}" for name in self.guide.encoder.norms), "log_scale") if images else ()

    def state(self) -> dict[str, Tensor]:
        """All parameters and buffers, each with its leading dimension of members (a view, not a copy)."""
        return {
            f"{part}.{name}": value.detach()
            for part, module in (("model", self.model), ("guide", self.guide))
            for name, value in module.state_dict().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        for part, module in (("model", self.model), ("guide", self.guide)):
            prefix = f"{part}."
            module.load_state_dict(
                {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            )

    @contextmanager
    def holding(self, state: dict[str, Tensor]) -> Iterator[Program]:
        """The program with other parameters, some or all, for the time of a ``with``."""
        own = {name: value.clone() for name, value in self.state().items()}
        self.load_state(own | state)
        try:
            yield self
        finally:
            self.load_state(own)

    def encode(self, table: Observed) -> Iterator[tuple[Batch, Encoding]]:
        """The encoding of all rows, a chunk at a time, with channels at their posterior means."""
        guide = self.guide
        for batch in table.chunks():
            with evaluating(guide.encoder):
                channels = guide.channel_mean(guide.channel_a), guide.channel_mean(guide.channel_y)
                encoding = guide.encode(batch, *channels)
            yield batch, encoding


def _per_member(concentration: Tensor, members: int) -> Tensor:
    """(support,) or (members, support) to (members, 1, support)."""
    return concentration.expand(members, concentration.shape[-1]).unsqueeze(1).clone()
