"""One SVI run that trains a whole frontier: a member for each weight of the risk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer import SVI
from torch import Tensor

from pyro_fairvae.batch import Batch, Observed
from pyro_fairvae.errors import InputError, choose, require
from pyro_fairvae.guides import GLOBAL_GUIDES, Encoding, FactoredGuide
from pyro_fairvae.models import LIKELIHOODS, PREVALENCES, FairSSVAE
from pyro_fairvae.networks import ColumnDecoder, Encoder, Members, mlp_trunk
from pyro_fairvae.objective import FairELBO, Schedule, Weights
from pyro_fairvae.optimizer import MembersAdamW
from pyro_fairvae.options import nested, option
from pyro_fairvae.priors import PRIORS, channel
from pyro_fairvae.risks import GAPS, IMPUTERS, MonteCarloRisk
from pyro_fairvae.seeds import derive_seed, seeded

EVALUATION_ROWS = 4096  # at a time, when no gradient is needed


@dataclass(frozen=True)
class Settings:
    """Everything but the data, the weights λ and the seed that decides what a fit becomes."""

    risk: str = option("deo", "fairness risk: deo, deopp or ddp")
    samples: int = option(100, "N, Monte Carlo samples of groups and labels for the risk")
    temperature: float = option(0.2, "T of the softened step σ(logit/T) in the risk")
    memory: float = option(0.2, "weight of the current batch in the risk's cell sums; 1: no memory (paper)")
    imputer: str = option("outcome", "unstated groups from x and y (outcome), or x alone (features, paper)")
    weights: Weights = nested(Weights)
    schedule: Schedule = nested(Schedule)
    prior_a: str = option("truthful", "prior on P(ã|a): truthful (nobody misstates), flat or paper")
    prior_y: str = option("truthful", "prior on P(ỹ|y): truthful, flat or paper")
    prevalence: str = option("joint", "p(a, y): joint, or independent as in the paper")
    likelihood: str = option("mixed", "p(x|a,y,z): mixed (by kind of column), or normal as in the paper")
    sites: str = option("dirichlet", "guide of the channels and π: dirichlet, or map (a point)")
    hidden: int = option(128, "width of the encoder's layers")
    layers: int = option(3, "number of the encoder's layers")
    latent: int = option(16, "dimension of z")
    decoder_hidden: int = option(64, "width of the decoder's hidden layer")
    epochs: int = option(30, "passes over the training rows")
    batch: int = option(1024, "rows in a step")
    lr: float = option(1e-3, "learning rate of the networks, falling to 0 along a cosine")
    sites_lr: float = option(0.02, "learning rate of the channels' and π's posteriors")
    weight_decay: float = option(1e-4, "weight decay of the networks")
    clip: float = option(5.0, "largest norm of a member's gradient")

    def __post_init__(self) -> None:
        choose("risk", self.risk, GAPS)
        self.monte_carlo_risk()
        for what, given, table in (
            ("imputer", self.imputer, IMPUTERS),
            ("prior", self.prior_a, PRIORS),
            ("prior", self.prior_y, PRIORS),
            ("prevalence", self.prevalence, PREVALENCES),
            ("likelihood", self.likelihood, LIKELIHOODS),
            ("guide of shared sites", self.sites, GLOBAL_GUIDES),
        ):
            choose(what, given, table)
        for name in ("hidden", "layers", "latent", "decoder_hidden", "epochs", "batch"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("lr", "sites_lr", "clip"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be positive and finite, got {value}.")
        require(
            0 <= self.weight_decay < math.inf,
            f"weight_decay must be finite and not negative, got {self.weight_decay}.",
        )

    def monte_carlo_risk(self) -> MonteCarloRisk:
        return MonteCarloRisk(GAPS[self.risk], self.samples, self.temperature, self.memory)


def check_weights(weights_of_risk: Sequence[float]) -> None:
    """λ must be a number ≥ 0 for each member."""
    require(len(weights_of_risk) > 0, "no weight of the risk was given; give at least one, such as 0.")
    for weight in weights_of_risk:
        require(
            math.isfinite(weight) and weight >= 0,
            f"a weight of the risk must be finite and not negative, got {weight}.",
        )


def resolve_device(name: str) -> torch.device:
    """The device by name; ``auto`` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as reason:
        raise InputError(f"unknown device {name!r}; expected auto, cpu, cuda or cuda:N.") from reason
    require(
        device.type in ("cpu", "cuda"), f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N."
    )
    require(
        device.type != "cuda" or (device.index or 0) < torch.cuda.device_count(),
        f"device {name!r} was asked for, but there are {torch.cuda.device_count()} CUDA devices here; "
        "use --device cpu or auto.",
    )
    return device


class Program:
    """A model and its guide for K members."""

    def __init__(self, train: Observed, settings: Settings, seeds: Sequence[int]) -> None:
        channel_a = channel("a", train.groups, settings.prior_a)
        channel_y = channel("y", train.classes, settings.prior_y)
        width = train.columns.width
        sizes = (settings.latent, train.classes, train.groups)
        encoder = Members(
            lambda: Encoder(mlp_trunk(width, settings.hidden, settings.layers), settings.hidden, *sizes),
            seeds,
        )
        decoder = Members(
            lambda: ColumnDecoder(*sizes, settings.decoder_hidden, width),
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
            start |= {each.site(v): each.initial_concentration(v, observed) for v in range(each.values)}
        sites = GLOBAL_GUIDES[settings.sites](
            {site: _per_member(concentration, len(seeds)) for site, concentration in start.items()}
        )
        self.guide = FactoredGuide(encoder, sites, tuple(self.model.prevalence_sites), channel_a, channel_y)

    def to(self, device: torch.device, dtype: torch.dtype) -> Program:
        self.model.to(device, dtype)
        self.guide.to(device, dtype)
        return self

    def state(self) -> dict[str, Tensor]:
        """All parameters, each with its leading dimension of members (a view, not a copy)."""
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

    @torch.no_grad()
    def encode(self, table: Observed) -> Iterator[tuple[Batch, Encoding]]:
        """The encoding of all rows, a chunk at a time, with channels at their posterior means."""
        guide = self.guide
        channels = guide.channel_mean(guide.channel_a), guide.channel_mean(guide.channel_y)
        for batch in table.chunks(EVALUATION_ROWS):
            yield batch, guide.encode(batch, *channels)


def _per_member(concentration: Tensor, members: int) -> Tensor:
    """(support,) or (members, support) to (members, 1, support)."""
    return concentration.expand(members, concentration.shape[-1]).unsqueeze(1).clone()


@dataclass
class Fit:
    """What a fit came to: the last epoch's classifier, and the chosen epoch's channels.

    :attr:`program` holds the parameters of the last epoch, in which the risk has its full weight; it
    classifies. :attr:`chosen` holds, for each member, those of the epoch with the best held-out
    log P(ã|x), in which h is not overfitted yet; it says who withholds, and imputes groups.
    """

    program: Program
    chosen: dict[str, Tensor]
    chosen_epoch: list[int]
    weights_of_risk: tuple[float, ...]
    settings: Settings
    history: list[dict[str, float]]

    @contextmanager
    def at_chosen_epoch(self) -> Iterator[Program]:
        """The program with the parameters of the chosen epochs, for the time of a ``with``."""
        last = {name: value.clone() for name, value in self.program.state().items()}
        self.program.load_state(self.chosen)
        try:
            yield self.program
        finally:
            self.program.load_state(last)

    @property
    def device(self) -> torch.device:
        return self.program.model.log_scale.device

    @property
    def dtype(self) -> torch.dtype:
        return self.program.model.log_scale.dtype

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """P_f(y|x) of each member, (members, rows, classes), on the CPU; ``x`` as in :class:`Batch`."""
        pieces = [
            self.program.guide.heads(piece.to(self.device, self.dtype)).class_logits.softmax(-1).cpu()
            for piece in x.split(EVALUATION_ROWS, dim=-2)
        ]
        return torch.cat(pieces, dim=-2)


@dataclass
class Progress:
    """What a callback is told after each epoch."""

    epoch: int
    epochs: int
    rows: list[dict[str, float]]  # this epoch's history, a row for each member
    state: Callable[[], dict[str, Any]]  # all that is needed to go on from here


def fit(
    train: Observed,
    validation: Observed,
    weights_of_risk: Sequence[float] = (0.0,),
    settings: Settings | None = None,
    seeds: Sequence[int] | int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    after_epoch: Callable[[Progress], None] | None = None,
    state: dict[str, Any] | None = None,
) -> Fit:
    """Train one member for each of ``weights_of_risk`` in a single SVI run.

    ``seeds`` is one seed for all members (equal initial weights, so that they differ in λ alone) or
    one for each, which sets its initial weights and, where ``train`` gives each member rows of its own
    (:meth:`Observed.stack`), their order; shared rows and noise follow the first.
    ``after_epoch`` is called after each epoch; the ``state`` that it can save, given back here, goes on
    from that epoch to the same numbers as an unbroken run.
    """
    for table in (train, validation):
        if not isinstance(table, Observed):
            raise TypeError(
                f"fit takes Observed tables, which hold no truth, but got {type(table).__name__}."
            )
    settings = settings or Settings()
    check_weights(weights_of_risk)
    member_seeds = [seeds] * len(weights_of_risk) if isinstance(seeds, int) else list(seeds)
    require(
        len(member_seeds) == len(weights_of_risk) and train.members in (None, len(weights_of_risk)),
        f"{len(weights_of_risk)} weights, {len(member_seeds)} seeds and rows for {train.members} members "
        "were given; give one of each for every member.",
    )
    with pyro.get_param_store().scope():
        return _Run(train, validation, weights_of_risk, settings, member_seeds, device, dtype).go(
            after_epoch, state
        )


class _Run:
    """The state of one fit, epoch by epoch."""

    def __init__(
        self,
        train: Observed,
        validation: Observed,
        weights_of_risk: Sequence[float],
        settings: Settings,
        seeds: list[int],
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> None:
        self.train = train.to(device, dtype)
        self.validation = validation.to(device, dtype)
        self.settings = settings
        self.seeds = seeds
        self.weights = tuple(float(weight) for weight in weights_of_risk)
        self.program = Program(self.train, settings, seeds).to(torch.device(device), dtype)
        self.objective = FairELBO(
            train.rows,
            torch.tensor(self.weights, device=device, dtype=dtype),
            settings.monte_carlo_risk(),
            settings.weights,
            settings.imputer,
            settings.schedule,
        )
        self.optimizer = MembersAdamW(settings.lr, settings.sites_lr, settings.weight_decay, settings.clip)
        self.svi = SVI(self.program.model, self.program.guide, self.optimizer, self.objective)
        self.steps = math.ceil(train.rows / settings.batch)
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best = torch.full((len(seeds),), -torch.inf, device=device, dtype=torch.float64)
        self.chosen_epoch = torch.zeros(len(seeds), dtype=torch.long, device=device)
        self.chosen = {name: value.clone() for name, value in self.program.state().items()}

    def go(self, after_epoch: Callable[[Progress], None] | None, state: dict[str, Any] | None) -> Fit:
        if state is not None:
            self.load_state(state)
        while self.epoch < self.settings.epochs:
            parts = self._train_epoch()
            self.epoch += 1
            held_out = held_out_scores(self.program, self.validation)
            self._choose(held_out["log_group"])
            rows = self._record(parts | held_out)
            self._check_finite(rows)
            if after_epoch is not None:
                after_epoch(Progress(self.epoch, self.settings.epochs, rows, self.state))
        return Fit(
            self.program, self.chosen, self.chosen_epoch.tolist(), self.weights, self.settings, self.history
        )

    def _train_epoch(self) -> dict[str, Tensor]:
        """One pass over the rows; the mean of each part of the objective, (members,)."""
        sums: dict[str, Tensor] = {}
        with seeded(derive_seed(self.seeds[0], self.epoch, 1)):
            for step, index in enumerate(self._order().tensor_split(self.steps, dim=-1)):
                done = (self.epoch + step / self.steps) / self.settings.epochs
                self.objective.progress = done
                self.optimizer.share = 0.5 * (1 + math.cos(math.pi * done))
                self.svi.step(self.train.batch(index))
                for name, part in (self.objective.parts | {"gap": self.objective.gap}).items():
                    sums[name] = sums.get(name, 0) + part
        return {name: total / self.steps for name, total in sums.items()}

    def _order(self) -> Tensor:
        """This epoch's order of rows: (rows,) where members share them, else (members, rows)."""
        seeds = self.seeds[:1] if self.train.members is None else self.seeds
        orders = [
            np.random.default_rng(derive_seed(seed, self.epoch, 0)).permutation(self.train.rows)
            for seed in seeds
        ]
        order = torch.from_numpy(np.stack(orders)).to(self.train.x.device)
        return order[0] if self.train.members is None else order

    def _choose(self, log_group: Tensor) -> None:
        better = log_group > self.best
        self.best = torch.where(better, log_group, self.best)
        self.chosen_epoch = torch.where(better, self.epoch, self.chosen_epoch)
        for name, value in self.program.state().items():
            self.chosen[name][better] = value[better]

    def _record(self, values: dict[str, Tensor]) -> list[dict[str, float]]:
        columns = {name: value.double().cpu().tolist() for name, value in values.items()}
        rows = [
            {
                "epoch": self.epoch,
                "member": k,
                "weight": weight,
                **{name: v[k] for name, v in columns.items()},
            }
            for k, weight in enumerate(self.weights)
        ]
        self.history += rows
        return rows

    @staticmethod
    def _check_finite(rows: list[dict[str, float]]) -> None:
        for row in rows:
            for name, value in row.items():
                require(
                    math.isfinite(value),
                    f"training diverged: in epoch {row['epoch']:g} {name} of the member with "
                    f"λ = {row['weight']:g} is {value}. Lower lr, sites_lr, clip or the largest λ.",
                )

    def state(self) -> dict[str, Any]:
        """A copy of all that is needed to go on from here."""
        return _copy(
            {
                "epoch": self.epoch,
                "parameters": self.program.state(),
                "optimizer": self.optimizer.get_state(),
                "risk": self.objective.risk.state(),
                "best": self.best,
                "chosen": self.chosen,
                "chosen_epoch": self.chosen_epoch,
                "history": self.history,
            }
        )

    def load_state(self, state: dict[str, Any]) -> None:
        state = _copy(state)
        self.epoch = state["epoch"]
        self.program.load_state(state["parameters"])
        self.optimizer.set_state(state["optimizer"])
        self.objective.risk.load_state(state["risk"])
        self.best, self.chosen_epoch = state["best"], state["chosen_epoch"]
        self.chosen, self.history = state["chosen"], list(state["history"])


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def held_out_scores(program: Program, table: Observed) -> dict[str, Tensor]:
    """Means over rows that only read what was written down, (members,) each.

    ``log_group`` is log P(ã|x) and ``log_label`` log P(ỹ|x), ∅ included; ``error`` is that of the
    classifier on rows with a stated label.
    """
    totals: dict[str, Tensor] = {}
    for batch, encoding in program.encode(table):
        stated = batch.y_obs != table.classes
        wrong = (encoding.heads.class_logits.argmax(-1) != batch.y_obs) & stated
        sums = {
            "log_group": encoding.log_joint_a.logsumexp(-1),
            "log_label": encoding.log_joint_y.logsumexp(-1),
            "error": wrong,
            "stated": stated.expand_as(wrong),
        }
        for name, values in sums.items():
            totals[name] = totals.get(name, 0) + values.sum(-1, dtype=torch.float64)
    stated_rows = totals.pop("stated").clamp(min=1)
    error = totals.pop("error") / stated_rows
    return {name: total / table.rows for name, total in totals.items()} | {"error": error}
