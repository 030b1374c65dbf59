"""A model, its guide and the settings that both are built from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from pyro.params.param_store import param_with_module_name
from torch import Tensor, nn

from pyro_fairvae.base.errors import require
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.channels.priors import channel, columns_given
from pyro_fairvae.guides import GLOBAL_GUIDES, Encoding, FactoredGuide, RegressionGuide
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.models import FairRegressionVAE, FairSSVAE
from pyro_fairvae.nn.conditions import LABEL, Conditions, crossed_columns
from pyro_fairvae.nn.encoder import Encoded, Encoder
from pyro_fairvae.nn.members import Members, evaluating
from pyro_fairvae.nn.outcome_encoder import OutcomeDecoder, OutcomeEncoder
from pyro_fairvae.nn.trunks import decoders, trunks
from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Batch, Columns, Features, Observed, in_pieces


class Program:
    """A model and its guide for K members."""

    def __init__(self, train: Observed, settings: Settings, seeds: Sequence[int]) -> None:
        self.settings = settings
        channel_a = channel_of_groups(train, settings)
        channel_y = channel("y", train.label_attributes, settings.prior_y)
        channel_a.check(train.a_obs)
        channel_y.check(train.y_obs)
        require(
            settings.fairness.imputer != "control_variate" or channel_a.truthful,
            "the imputer 'control_variate' needs a prior_a under which nobody misstates, such as truthful, "
            f"got {settings.prior_a}.",
        )
        require(
            not settings.fairness.propagates or channel_y.truthful,
            f"the labeller {settings.fairness.labeller!r} takes stated labels as certain: give a prior_y "
            f"under which nobody misstates, such as truthful, got {settings.prior_y}.",
        )
        number = train.number
        check_number(train, settings)

        def decoders_of(columns: Columns | Pixels, purpose: int) -> Members:
            return Members(
                lambda _: (
                    decoders(columns, settings, train.classes, train.groups)
                    if number is None
                    else OutcomeDecoder(
                        settings.latent, train.groups, settings.decoder_hidden, columns.decoded
                    )
                ),
                [derive_seed(seed, purpose) for seed in seeds],
            )

        seen = train.sampled()
        trunk, images = trunks(seen, settings), isinstance(train.columns, Pixels)
        proxies = 0 if train.u_columns is None else train.u_columns.width
        sizes = (settings.hidden, settings.latent)

        def encoder_of(k: int) -> Encoder:
            if number is not None:
                return OutcomeEncoder(trunk(k), *sizes, number, train.groups, proxies)
            return Encoder(trunk(k), *sizes, train.classes, train.groups, apart=images, proxies=proxies)

        encoder = Members(encoder_of, seeds)
        of_number: dict[str, Any] = {} if number is None else {"number": number}
        conditions = None
        if settings.withholding_depends_on:
            conditions = Conditions.learn(seen, settings.withholding_depends_on, len(seeds))
        self.model = (FairSSVAE if number is None else FairRegressionVAE)(
            decoders_of(train.columns, 1),
            train.columns,
            settings.latent,
            channel_a,
            channel_y,
            prevalence=settings.prevalence,
            gamma=settings.prior_pi,
            likelihood=settings.likelihood,
            conditions=conditions,
            withholding_scale=settings.withholding_scale,
            decoder_u=None if train.u_columns is None else decoders_of(train.u_columns, 2),
            u_columns=train.u_columns,
            **of_number,
        )
        start = {
            site: torch.full((size,), train.rows / size) for site, size in self.model.prevalence_sites.items()
        }
        for observing, observed in ((channel_a, train.a_obs), (channel_y, train.y_obs)):
            start |= {
                site: observing.initial_concentration(r, observed) for r, site in enumerate(observing.sites)
            }
        scales = {}
        if conditions is not None:
            # As if one row in a hundred told of a coefficient.
            scale = (settings.withholding_scale**-2 + train.rows / 100) ** -0.5
            shape = (len(seeds), 1, len(channel_a.attributes.names), conditions.width)
            scales = {channel_a.withholding_site: torch.full(shape, scale)}
        sites = GLOBAL_GUIDES[settings.sites](
            {site: _per_member(concentration, len(seeds)) for site, concentration in start.items()}, scales
        )
        self.guide = (FactoredGuide if number is None else RegressionGuide)(
            encoder,
            sites,
            tuple(self.model.prevalence_sites),
            channel_a,
            channel_y,
            conditions,
            proxies=proxies > 0,
            thresholds=settings.fairness.thresholds_of(train.groups) * settings.fairness.learns_thresholds,
            **of_number,
        )
        self.train(False)

    def to(self, device: torch.device, dtype: torch.dtype) -> Program:
        self.model.to(device, dtype)
        self.guide.to(device, dtype)
        mixed = self.settings.mixed(self.model.columns, device)
        self.model.decoder.mixed = self.guide.encoder.mixed = mixed
        return self

    @property
    def conditions(self) -> Conditions | None:
        """v, what withholding depends on besides the group: its design matrix and its columns in words."""
        return self.model.conditions

    @property
    def site_parameters(self) -> frozenset[str]:
        """Pyro's names of the parameters of the sites that all rows share, and of learned thresholds."""
        names = [name for name, _ in self.guide.sites.named_parameters(prefix="sites")]
        if self.guide.thresholds:
            names.append("log_odds_thresholds")
        return frozenset(param_with_module_name("guide", name) for name in names)

    @property
    def undecayed_parameters(self) -> frozenset[str]:
        """Pyro's names of parameters without weight decay: for images, those of norms and scales."""
        if not isinstance(self.model.columns, Pixels):
            return frozenset()
        norms = (param_with_module_name("guide", f"encoder.{name}") for name in self.guide.encoder.norms)
        return frozenset((*norms, param_with_module_name("model", "log_scale")))

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

    def train(self, mode: bool = True) -> None:
        """Set the networks to training mode; those of a program that is not in training are not in it."""
        self.model.train(mode)
        self.guide.train(mode)

    def with_state(self, state: dict[str, Tensor]) -> Program:
        """A program with some or all parameters in place of its own, those of ``state`` themselves."""
        shared: dict[int, Tensor] = {}
        for part, module in (("model", self.model), ("guide", self.guide)):
            for name, value in module.named_parameters():
                shared[id(value)] = nn.Parameter(
                    state.get(f"{part}.{name}", value).detach(), value.requires_grad
                )
            for name, buffer in module.named_buffers():
                shared[id(buffer)] = state.get(f"{part}.{name}", buffer)
        return copy.deepcopy(self, shared)

    def heads(self, x: Features) -> Iterator[Encoded]:
        """Encoder outputs for the features, in chunks of rows; ``x`` as in :class:`Batch`."""
        guide, like = self.guide, self.model.log_scale
        for piece in in_pieces(x):
            with evaluating(guide.encoder):
                heads = guide.heads(piece.to(like.device, like.dtype))
            yield heads

    def encode(self, table: Observed) -> Iterator[tuple[Batch, Encoding]]:
        """The encoding of all rows, a chunk at a time, with channels at their posterior means."""
        guide = self.guide
        for batch in table.chunks():
            with evaluating(guide.encoder):
                channels = guide.channel_mean(guide.channel_a), guide.channel_mean(guide.channel_y)
                encoding = guide.encode(batch, *channels, guide.withholding_mean())
            yield batch, encoding


def check_number(train: Observed, settings: Settings) -> None:
    """Check what is possible where the outcome is a number."""
    if train.number is None:
        return
    given = columns_given(train.group_attributes, settings.prior_a)
    require(
        LABEL not in (*settings.withholding_depends_on, *given),
        "withholding of the group may depend on features, but not on an outcome that is a number; leave "
        f"{LABEL!r} out.",
    )
    require(
        settings.objective_weights.objective == "consistent",
        "of an outcome that is a number there is no objective 'paper'; use 'consistent'.",
    )


def channel_of_groups(train: Observed, settings: Settings) -> Channel:
    """P(ã|a) with its prior, crossed with the columns that the prior is given."""
    attributes, prior = train.group_attributes, settings.prior_a
    given = columns_given(attributes, prior)
    return channel("a", attributes, prior, crossed_columns(train, given, settings.withholding_depends_on))


def _per_member(concentration: Tensor, members: int) -> Tensor:
    """(support,) or (members, support) to (members, 1, support)."""
    return concentration.expand(members, concentration.shape[-1]).unsqueeze(1).clone()
