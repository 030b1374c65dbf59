"""The settings of a fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.options import nested, option
from pyro_fairvae.channels.priors import PRIOR_PRESETS, parse, withholding_in
from pyro_fairvae.data.augmentation import AUGMENTATIONS
from pyro_fairvae.guides import GLOBAL_GUIDES
from pyro_fairvae.inference.schedule import Schedule
from pyro_fairvae.models import LIKELIHOODS, PREVALENCES
from pyro_fairvae.nn.trunks import TRUNKS, trunk_help
from pyro_fairvae.risks import RiskSettings
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns

INTERVALS = ("calibrated", "given_h")
PRECISIONS = ("auto", "full", "mixed")

# Defaults of κ, s and ω by objective; s of "consistent" makes evidence on a channel count once.
OBJECTIVES: dict[str, tuple[float, Callable[[float], float], float]] = {
    "consistent": (0.02, lambda kappa: 1 - kappa, 1.0),
    "paper": (1.0, lambda kappa: 1.0, 0.0),
}


@dataclass(frozen=True)
class ObjectiveWeights:
    """The likelihoods in the objective, and the weights of its parts; see ``FairELBO``."""

    objective: str = option(
        "consistent", "conditional likelihoods over all rows, or 'paper': over stated rows, with κ = s = 1"
    )
    elbo_weight: float | None = option(
        None, "κ, weight of the ELBO; 0: a classifier without the VAE (default: 0.02, or 1 for 'paper')"
    )
    supervision_weight: float | None = option(
        None,
        "s, weight of the conditional likelihoods (default: 1 − κ: evidence counts once; 1 for 'paper')",
    )
    reconstruction_weight: float = option(1.0, "weight of the reconstruction within the ELBO")
    kl_weight: float = option(1.0, "weight of the KL of z within the ELBO")
    elbo_share: float = option(
        1.0, "share of each batch's rows that the ELBO is taken over, in (0, 1]; they count for all"
    )
    decision_weight: float | None = option(
        None, "ω, weight of the error of softened decisions where λ > 0 (default: 1, or 0 for 'paper')"
    )

    def __post_init__(self) -> None:
        choose("objective", self.objective, OBJECTIVES)
        for name, value in (
            ("reconstruction_weight", self.reconstruction_weight),
            ("kl_weight", self.kl_weight),
        ):
            require(0 < value < float("inf"), f"{name} must be positive and finite, got {value}.")
        for name, value in (("elbo_weight", self.kappa), ("decision_weight", self.omega)):
            require(0 <= value < float("inf"), f"{name} must be finite and not negative, got {value}.")
        require(
            0 <= self.s < float("inf"),
            f"supervision_weight must be finite and not negative, got {self.s}; "
            "its default is 1 − elbo_weight.",
        )

        require(
            0 < self.elbo_share <= 1,
            f"elbo_share must be in (0, 1], got {self.elbo_share}.",
            "elbo_share",
        )

    def elbo_rows(self, batch_rows: int) -> int:
        """Number of a batch's rows that the ELBO is taken over."""
        return math.ceil(self.elbo_share * batch_rows)

    @property
    def kappa(self) -> float:
        return OBJECTIVES[self.objective][0] if self.elbo_weight is None else self.elbo_weight

    @property
    def omega(self) -> float:
        return OBJECTIVES[self.objective][2] if self.decision_weight is None else self.decision_weight

    @property
    def s(self) -> float:
        if self.supervision_weight is None:
            return OBJECTIVES[self.objective][1](self.kappa)
        return self.supervision_weight


@dataclass(frozen=True)
class Settings:
    """Everything that determines a fit except the data, the weights λ and the seed.

    Attributes
    ----------
    fairness : RiskSettings
        The fairness risk: which risk, over which decisions, and how it is estimated.
    objective_weights : ObjectiveWeights
        Weights of the parts of the objective.
    schedule : Schedule
        How λ rises in training.
    prior_a, prior_y : str
        Priors of P(ã|a) and P(ỹ|y), as :func:`channel` takes them.
    withholding_depends_on : tuple of str
        Features, or ``"label"``, on which withholding the group may depend besides the group.
    epochs, batch, lr, hidden, layers, latent, …
        Training and networks. ``fairvae train --help`` explains every option.

    Raises
    ------
    InputError
        If an option has an invalid value.

    Examples
    --------
    >>> from pyro_fairvae import RiskSettings, Settings
    >>> settings = Settings(fairness=RiskSettings(risk="ddp"), epochs=10, prior_a="paper")
    >>> settings.fairness.risk, settings.epochs
    ('ddp', 10)
    """

    fairness: RiskSettings = nested(RiskSettings)
    objective_weights: ObjectiveWeights = nested(ObjectiveWeights)
    schedule: Schedule = nested(Schedule)
    prior_a: str = option(
        "truthful",
        f"prior on P(ã|a): {', '.join(PRIOR_PRESETS)}, or a mapping, as fairvae priors show --help explains",
    )
    prior_y: str = option("truthful", "prior on P(ỹ|y), in the same format as prior_a")
    withholding_depends_on: tuple[str, ...] = option(
        (),
        "what withholding the group may depend on besides the group: names of features, or label, separated "
        "by commas",
    )
    withholding_scale: float = option(
        1.0,
        "standard deviation of the normal prior of each effect in withholding_depends_on, in units of the "
        "log-odds of withholding; smaller: effects are shrunk more",
    )
    prior_pi: float = option(1.0, "γ, concentration of the symmetric Dirichlet prior of π")
    intervals: str | None = option(
        None,
        "who withholds, in posterior.json: calibrated (cross-fitted) or given_h (the guide's, pooled over "
        "members) (default: calibrated, or given_h for the objective 'paper')",
    )
    prevalence: str = option("joint", "p(a, y): joint, or independent as in the paper")
    likelihood: str = option("mixed", "p(x|a,y,z): mixed (by kind of column), or normal as in the paper")
    sites: str = option("dirichlet", "guide of the channels and π: dirichlet, or map (a point)")
    trunk: str | None = option(None, trunk_help)
    hidden: int = option(128, "width of the encoder's layers")
    layers: int = option(3, "number of the encoder's layers")
    pieces: int = option(16, "pieces of the encoder's split of each number's range; 0: none, as in the paper")
    latent: int = option(16, "dimension of z")
    decoder_hidden: int = option(64, "width of the decoder's hidden layer")
    epochs: int = option(30, "passes over the training rows")
    batch: int = option(1024, "rows in a step")
    lr: float = option(1e-3, "learning rate of the networks, falling to 0 along a cosine")
    sites_lr: float = option(0.02, "learning rate of the channels' and π's posteriors")
    weight_decay: float = option(1e-4, "weight decay of the networks")
    clip: float = option(5.0, "largest norm of a member's gradient")
    channel_steps: int = option(200, "steps that refine the channels' posteriors after training")
    decision_steps: int = option(300, "steps that refine the decisions after training")
    precision: str = option(
        "auto", f"{', '.join(PRECISIONS)}: products in bfloat16 (auto: for images on a GPU)"
    )
    augmentation: str = option(
        "flip_crop", f"random augmentation of training images in each step: {', '.join(AUGMENTATIONS)}"
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
        for name in (
            "hidden",
            "layers",
            "latent",
            "decoder_hidden",
            "epochs",
            "batch",
            "channel_steps",
            "decision_steps",
        ):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        self._take_from_prior()
        names = self.withholding_depends_on
        require(
            not isinstance(names, str) and all(isinstance(name, str) for name in names),
            f"withholding_depends_on must be a list of names of features, or of 'label', got {names!r}.",
        )
        require(self.pieces >= 0, f"pieces must not be negative, got {self.pieces}.")
        for name in ("prior_pi", "withholding_scale", "lr", "sites_lr", "clip"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be positive and finite, got {value}.")
        require(
            0 <= self.weight_decay < math.inf,
            f"weight_decay must be finite and not negative, got {self.weight_decay}.",
        )

    def _take_from_prior(self) -> None:
        """Let withholding depend on what the prior of groups names, if it names something."""
        require(
            not withholding_in(self.prior_y)[0],
            "depends_on in prior_y: only withholding of the group can depend on more; put it into prior_a.",
        )
        names, scale = withholding_in(self.prior_a)
        defaults = {"withholding_depends_on": (), "withholding_scale": 1.0}
        taken = {"withholding_depends_on": names or None, "withholding_scale": scale}
        for option_name, value in taken.items():
            given = getattr(self, option_name)
            given = tuple(given) if isinstance(given, list) else given
            require(
                value is None or given in (value, defaults[option_name]),
                f"{option_name} is {given!r}, but prior_a says {value!r}; give it once, or the same.",
                option_name,
                "prior_a",
            )
            if value is not None:
                object.__setattr__(self, option_name, value)

    def mixed(self, columns: Columns | Pixels, device: torch.device | str) -> bool:
        """Whether networks compute products in bfloat16."""
        images_on_gpu = isinstance(columns, Pixels) and torch.device(device).type == "cuda"
        return self.precision == "mixed" or (self.precision == "auto" and images_on_gpu)

    @property
    def kind_of_intervals(self) -> str:
        if self.intervals is None:
            return "calibrated" if self.objective_weights.objective == "consistent" else "given_h"
        return self.intervals
