"""One SVI run that trains a whole frontier: a member for each weight of the risk."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pyro
import torch
from pyro.poutine.runtime import _DIM_ALLOCATOR, _PYRO_STACK
from torch import Tensor

from pyro_fairvae.base.devices import fixed_order
from pyro_fairvae.base.errors import DivergedError, require
from pyro_fairvae.base.options import flatten
from pyro_fairvae.base.ranks import ALONE, Ranks, current
from pyro_fairvae.base.seeds import MemberNoise, SeededDraws, derive_seed
from pyro_fairvae.base.threads import PYRO
from pyro_fairvae.data.augmentation import altered
from pyro_fairvae.data.batches import batches
from pyro_fairvae.data.block_orders import BlockOrders
from pyro_fairvae.data.possible_pairs import PairsOfRows
from pyro_fairvae.inference.divided_members import (
    check_same_rows,
    content_of,
    fit_of_all,
    reporting_all,
    state_of_own,
)
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.objective import OF_ALL_RANKS, FairELBO
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.refinement import part_of, refine_channels, refine_decisions
from pyro_fairvae.inference.regression_objective import RegressionELBO
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.shared_start import SharedStart
from pyro_fairvae.inference.svi import MeasuredSVI
from pyro_fairvae.nn.conditions import BY_FORM_ALONE, by_form_alone
from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.risks import NumberRiskLoss, RiskLoss, check_of_numbers, propagate_labels
from pyro_fairvae.schema.cells import Cell
from pyro_fairvae.schema.observed import SAMPLED, Batch, Imputation, Observed


def check_lambdas(lambdas: Sequence[float]) -> None:
    """λ must be a number ≥ 0 for each member."""
    require(len(lambdas) > 0, "no λ was given; give at least one, such as 0.")
    for weight in lambdas:
        require(
            math.isfinite(weight) and weight >= 0,
            f"λ must be finite and not negative, got {weight}.",
        )


def skip_validation() -> None:
    """Turn off Pyro's own checks: they take a tenth of a step's time, and the tests run with them on."""
    pyro.enable_validation(False)


@dataclass
class Progress:
    """The argument of a callback after each epoch."""

    epoch: int
    epochs: int
    rows: list[dict[str, float]]  # this epoch's history, a row for each member
    state: Callable[[], dict[str, Any]]  # everything needed to resume from here


def fit(
    train: Observed,
    validation: Observed,
    lambdas: Sequence[float] = (0.0,),
    settings: Settings | None = None,
    seeds: Sequence[int] | int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    after_epoch: Callable[[Progress], None] | None = None,
    state: dict[str, Any] | None = None,
    workers: int = 0,
    fold: Tensor | None = None,
    imputation: Imputation | None = None,
) -> Fit:
    r"""Train one member for each of ``lambdas`` in a single SVI run.

    Each minimises −ELBO, the conditional likelihoods of the recorded values, and
    :math:`\lambda\, E_{y,a} F(P_f, y, a)`, the fairness risk F expected over unstated labels and groups.

    Inside :func:`~pyro_fairvae.base.ranks.joined`, processes that call it with the same arguments train one
    fit: each its own members, without communication, or its own rows of every batch. All get the result.

    Parameters
    ----------
    train, validation : Observed
        Rows with their recorded values; ``validation`` selects the epoch whose channels are kept.
    lambdas : sequence of float
        λ of each member.
    settings : Settings, optional
        Default: ``Settings()``.
    seeds : int or sequence of int
        One for all members (equal initial weights and noise, so that they differ in λ alone) or one for each.
        A seed sets the member's initial weights, its noise and, where ``train`` has separate rows for each
        member (:meth:`Observed.stack`), their order; the first seed sets the order of shared rows and the
        augmentation of images. A member does not depend on the others: equal λ and seeds give equal members.
    device, dtype
        Device and precision of the computation.
    after_epoch : callable, optional
        Called with a :class:`Progress` after each epoch; of several processes in each, and if one asks for
        the state, all must.
    state : dict, optional
        The result of ``Progress.state()`` in an earlier run with the same arguments: training resumes from
        that epoch and gives the same numbers as an uninterrupted run. It may be of another number of
        processes.
    workers : int
        Processes that read images ahead.
    fold : Tensor, optional
        The fold of each row, (rows,), where members share their rows: member k is not trained on the rows of
        fold k, if there is one.
    imputation : Imputation, optional
        Labels and groups of the rows of ``train``, which members share, by models that know of no fairness
        and were not fitted on the rows. The risk and the refinement of decisions take them instead of what
        each member imputes, and P(ỹ|y) is learned through them, so that it does not depend on λ.

    Returns
    -------
    Fit
        The classifiers and the posteriors of who withholds.

    Raises
    ------
    TypeError
        If a table is not :class:`Observed`, for example one that holds its truth.
    InputError
        If tables, λ, seeds and settings are inconsistent.
    DivergedError
        If training produces numbers that are not finite.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, fit, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, lambdas=(0.0, 1.0), settings=small, seeds=1)
    >>> fitted.lambdas, fitted.chosen_epoch
    ((0.0, 1.0), [1, 1])
    """
    for table in (train, validation):
        if not isinstance(table, Observed):
            raise TypeError(
                f"fit takes Observed tables, which hold no truth, but got {type(table).__name__}."
            )
    settings = settings or Settings()
    check_lambdas(lambdas)
    member_seeds = [seeds] * len(lambdas) if isinstance(seeds, int) else list(seeds)
    require(
        len(member_seeds) == len(lambdas) and train.members in (None, len(lambdas)),
        f"got {len(lambdas)} lambdas, {len(member_seeds)} seeds and rows for {train.members} members; "
        "give one of each for every member.",
    )
    require(
        validation.members in (None, len(lambdas))
        and (validation.columns, validation.u_columns, validation.classes, validation.groups)
        == (train.columns, train.u_columns, train.classes, train.groups)
        and validation.number == train.number,
        "validation must have the columns, proxies, classes and groups of train, and rows shared by all "
        "members or separate rows for each.",
    )
    require(
        fold is None or (train.members is None and fold.shape == train.y_obs.shape),
        "fold must have the fold of each row, which all members share.",
    )
    shape = (train.rows, train.classes, train.groups)
    require(
        imputation is None or (train.members is None and imputation.joint.shape == shape),
        f"imputation must be of the {train.rows} rows that all members share, for {train.classes} classes "
        f"and {train.groups} groups.",
    )
    if any(lambdas):
        settings.fairness.check_with_lambdas(train.weight is not None)
    if train.number is None:
        settings.fairness.check(train.classes, train.groups)
    else:
        check_of_numbers(settings.fairness)
    if by_form_alone(train, settings.withholding_depends_on):
        warnings.warn(BY_FORM_ALONE, stacklevel=2)
    require(
        not settings.fairness.propagates or not train.on_disk,
        f"labeller={settings.fairness.labeller!r} needs the features of all rows in memory, but these rows "
        "are read from a file; use labeller='head', or fit to rows in memory.",
    )
    require(
        not settings.fairness.propagates or bool((train.y_obs < train.classes).any(-1).all()),
        f"labeller={settings.fairness.labeller!r} needs stated labels, but train states none; "
        "use labeller='head'.",
    )

    ranks = current()
    given = flatten(asdict(settings)), list(lambdas), member_seeds, str(dtype), torch.__version__
    check_same_rows(ranks, (train, validation), *given, fold, *content_of(imputation))
    divided = ranks.shares_members(len(lambdas))
    own = ranks.block(len(lambdas)) if divided else range(len(lambdas))
    blocks, outside = BlockOrders.of(train, fold, len(lambdas), settings.batch), None
    require(
        ranks.count == 1 or not train.on_disk,
        f"rows on disk are read by one process, but there are {ranks.count}; start it without torchrun.",
    )
    if fold is not None and blocks is None:
        outside = [np.flatnonzero(fold.cpu().numpy() != k) for k in range(len(lambdas))]
    common = _Common(
        settings,
        member_seeds[0],
        train.rows if outside is None else min(map(len, outside)),
        any(lambdas),
        ALONE if divided else ranks,
        blocks,
    )
    common.check()

    def run_of(members: Sequence[int]) -> _Run:
        place = torch.tensor(members, device=train.y_obs.device)
        return _Run(
            train.take_members(place),
            validation.take_members(place),
            [lambdas[k] for k in members],
            common,
            [member_seeds[k] for k in members],
            device,
            dtype,
            workers,
            None if outside is None else [outside[k] for k in members],
            imputation,
        )

    if divided:
        after_epoch = reporting_all(ranks, after_epoch)
        state = None if state is None else state_of_own(state, own)
    with _pyro_alone(), fixed_order():
        # Critics learn before λ rises, and only those of members with a λ.
        if train.members is None and fold is None and not settings.fairness.has_critics:
            start = SharedStart.of([member_seeds[k] for k in own], settings.epochs, settings.schedule)
            if (0 if state is None else state["epoch"]) < start.epochs:
                run = run_of([own[k] for k in start.first])
                state = run.start_for(start, [lambdas[k] for k in own], after_epoch, state)
        found = run_of(own).go(after_epoch, state)
        return fit_of_all(ranks, found, train, settings, lambdas, member_seeds) if divided else found


@contextmanager
def _pyro_alone() -> Iterator[None]:
    """Pyro's globals belong to one fit inside the ``with`` block, and are as before however it ends.

    Fits of other threads wait. Handlers and dimensions are restored, too, since an interrupt may come where
    Pyro has entered them but would not leave them.
    """
    with PYRO.held():
        stacks: tuple[list[Any], ...] = (_PYRO_STACK, _DIM_ALLOCATOR._stack)
        entered = [list(stack) for stack in stacks]
        try:
            with pyro.get_param_store().scope():
                yield
        finally:
            for stack, before in zip(stacks, entered, strict=True):
                stack[:] = before


@dataclass(frozen=True)
class _Common:
    """What all members of a fit have in common, wherever they are trained."""

    settings: Settings
    seed: int  # of the order of shared rows, and of augmentation
    epoch_rows: int  # that each member is trained on in an epoch
    any_risk: bool  # whether any member has a λ
    ranks: Ranks  # that have parts of the rows
    blocks: BlockOrders | None  # the order of rows on disk

    @property
    def steps(self) -> int:
        return math.ceil(self.epoch_rows / self.settings.batch)

    def check(self) -> None:
        """Raise unless every rank has a row in every step."""
        fewest = self.settings.objective_weights.elbo_rows(self.epoch_rows // self.steps)
        require(
            fewest >= self.ranks.count,
            f"{fewest} row{'s'[: fewest != 1]} in a step cannot be divided between {self.ranks.count} "
            "processes: start fewer, or give a larger batch.",
        )


class _Run:
    """The state of one fit, epoch by epoch."""

    def __init__(
        self,
        train: Observed,
        validation: Observed,
        lambdas: Sequence[float],
        common: _Common,
        seeds: list[int],
        device: torch.device | str,
        dtype: torch.dtype,
        workers: int,
        outside: list[np.ndarray] | None,
        imputation: Imputation | None,
    ) -> None:
        self.workers = workers
        self.outside = outside  # rows that each member is trained on, if not all
        self.common, self.ranks, self.blocks = common, common.ranks, common.blocks
        settings = common.settings
        self.device = torch.device(device)
        self.train = train.to(device, dtype)
        self.validation = validation.to(device, dtype)
        self.imputation = None if imputation is None else imputation.to(self.train.like)
        self.settings = settings
        self.seeds = seeds
        self.lambdas = tuple(float(weight) for weight in lambdas)
        self.program = Program(self.train, settings, seeds).to(self.device, dtype)
        self.pairs = self._pairs_of_rows()
        self.objective = objective_of(self.train, self.lambdas, settings)
        if common.any_risk:
            levels = train.group_attributes.levels
            self.objective.risk.give_critics(
                seeds,
                train.classes,
                train.groups,
                None if levels is None else levels.centres,
                self.train.like,
            )
        self.optimizer = MembersAdamW(
            settings.lr,
            settings.sites_lr,
            settings.weight_decay,
            settings.clip,
            sites=self.program.site_parameters,
            undecayed=self.program.undecayed_parameters,
        )
        self.objective.ranks = self.objective.risk.estimator.ranks = self.optimizer.ranks = self.ranks
        self.svi = MeasuredSVI(self.program.model, self.program.guide, self.optimizer, self.objective)
        compared = settings.fairness.cells(train.classes, train.groups)
        self.cells = [Cell(y, a).column for y, a in compared]
        self.epoch_rows, self.steps = common.epoch_rows, common.steps
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best = torch.full((len(seeds),), -torch.inf, device=device, dtype=torch.float64)
        self.chosen_epoch = torch.zeros(len(seeds), dtype=torch.long, device=device)
        self.chosen = {name: value.clone() for name, value in self.program.state().items()}
        self.propagated_labels: Tensor | None = None  # P_g by propagation, (members, rows, classes)

    def go(self, after_epoch: Callable[[Progress], None] | None, state: dict[str, Any] | None) -> Fit:
        if state is not None:
            self.load_state(state)
        self.train_until(self.settings.epochs, after_epoch)
        chosen = self.chosen
        if self.settings.objective_weights.objective == "consistent":
            program = self.program.with_state(chosen)
            seen = self.train.sampled()
            label = None if self.imputation is None else self.imputation.label
            if label is not None and self.train.on_disk:
                label = label[:: self.train.every(SAMPLED)]
            steps = self.settings.channel_steps
            refine_channels(program, seen, self._noise(2), steps, label=label, ranks=self.ranks)
            chosen = _copy(program.state(), self.device)
        adjustment = None
        if self.train.number is None:
            adjustment = refine_decisions(
                self.program,
                self.train,
                self.objective.lambdas,
                self.settings.fairness,
                self.settings.decision_steps,
                self.imputation,
                self.ranks,
            )
        self.program.train(False)  # in which threads may share it
        return Fit(
            self.program,
            chosen,
            self.chosen_epoch.tolist(),
            self.lambdas,
            self.settings,
            self.history,
            adjustment,
        )

    def train_until(self, epoch: int, after_epoch: Callable[[Progress], None] | None) -> None:
        """Train until so many epochs are done."""
        self.program.train()
        while self.epoch < epoch:
            self._refresh_propagated_labels()
            parts = self._train_epoch()
            self.epoch += 1
            held_out = held_out_scores(self.program, self.validation, self.ranks)
            self._choose(held_out["log_group"])
            rows = self._record(parts | held_out)
            current().everywhere(partial(self._check_finite, rows))
            if after_epoch is not None:
                after_epoch(Progress(self.epoch, self.settings.epochs, rows, self.state))

    def start_for(
        self,
        start: SharedStart,
        lambdas: Sequence[float],
        after_epoch: Callable[[Progress], None] | None,
        state: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """The state of all members after the epochs that they start with as one."""
        if state is not None:
            self.load_state(start.of_first(state))

        def of_all(done: Progress) -> None:
            if after_epoch is not None:
                rows = start.rows_of_all(done.rows, lambdas)
                after_epoch(replace(done, rows=rows, state=lambda: start.of_all(self.state(), lambdas)))

        with pyro.get_param_store().scope():
            self.train_until(start.epochs, of_all)
        return start.of_all(self.state(), lambdas)

    def _train_epoch(self) -> dict[str, Tensor]:
        """One pass over the rows; the mean of each part of the objective, (members,)."""
        sums: dict[str, Tensor] = {}
        noise = self._noise(3)
        draws = SeededDraws(derive_seed(self.common.seed, self.epoch, 1))  # of augmentation
        order = self._steps()
        own = order if self.ranks.count == 1 else [self.ranks.part(index) for index in order]
        batches = self._batches(order, own)
        for step, index in enumerate(own):
            done = (self.epoch + step / len(order)) / self.settings.epochs
            with draws.held():
                measured = self.svi.step(self._with_imputations(next(batches), index), done, noise)
            columns = measured.parts | {"gap": measured.gap, "gap_error": measured.gap_error}
            columns |= dict(zip(self.cells, measured.cells.unbind(-1), strict=True))
            for name, column in columns.items():
                sums[name] = sums.get(name, 0) + column
        self.ranks.add_up([sums[name] for name in sums if name not in (*OF_ALL_RANKS, *self.cells)])
        return {name: total / len(order) for name, total in sums.items()}

    def _noise(self, purpose: int) -> MemberNoise:
        """This epoch's noise for a purpose."""
        seeds = [derive_seed(seed, self.epoch, purpose) for seed in self.seeds]
        return MemberNoise(seeds, self.train.y_obs.device)

    def _refresh_propagated_labels(self) -> None:
        """Propagate labels again, on the current features, where the schedule asks for it."""
        fairness = self.settings.fairness
        if not fairness.propagates or not self.common.any_risk:
            return
        acts = self.settings.schedule.risk((self.epoch + 1) / self.settings.epochs) > 0
        if not acts or (self.propagated_labels is not None and self.epoch % fairness.propagation_every):
            return
        features = torch.cat([e.heads.features.cpu() for _, e in self.program.encode(self.train)], dim=1)
        y_obs = self.train.y_obs.cpu().expand(features.shape[:2])
        propagated = [
            propagate_labels(*member, self.train.classes, fairness.neighbours)
            for member in zip(features, y_obs, strict=True)
        ]
        self.propagated_labels = self.ranks.agreed(torch.stack(propagated).to(self.train.like))

    def _batches(self, order: Sequence[Tensor], own: Sequence[Tensor]) -> Iterator[Batch]:
        """The rows of each step that are this rank's ``own``, with images newly augmented."""
        elbo_rows = self.settings.objective_weights.elbo_rows
        possible = repeat(None) if self.pairs is None else self.pairs.of(order, elbo_rows, self.ranks)
        of_steps = zip(order, batches(self.train, own, self.workers), possible, strict=False)
        for index, batch, pairs in of_steps:
            whole = None if self.ranks.count == 1 else index.shape[-1]
            x = altered(batch.x, self.train.columns, self.settings.augmentation, self.ranks, whole)
            yield replace(batch, x=x, possible=pairs, whole=whole)

    def _pairs_of_rows(self) -> PairsOfRows | None:
        """Finds the (y, a) that rows leave possible, where not all are and members share rows."""
        apart = self.outside is not None or (self.blocks is not None and self.blocks.fold is not None)
        if self.train.members is not None or apart or self.train.number is not None:
            return None
        model = self.program.model
        pairs = PairsOfRows(self.train, model.channel_a, model.channel_y)
        return pairs if pairs.some_impossible else None

    def _with_imputations(self, batch: Batch, index: Tensor) -> Batch:
        if self.imputation is not None:
            return replace(batch, imputed=self.imputation.joint[index])
        if self.propagated_labels is None:
            return batch
        members = torch.arange(len(self.propagated_labels), device=index.device).unsqueeze(-1)
        return replace(batch, propagated_labels=self.propagated_labels[members, index])

    def _steps(self) -> Sequence[Tensor]:
        """The rows of each of this epoch's steps."""
        if self.blocks is not None:
            return self.blocks.of_epoch(derive_seed(self.common.seed, self.epoch, 0), self.train.x.device)
        return self._order().tensor_split(self.steps, dim=-1)

    def _order(self) -> Tensor:
        """This epoch's order of rows: (rows,) where members share them, else (members, rows)."""
        if self.outside is not None:
            own = [
                np.random.default_rng(derive_seed(seed, self.epoch, 0)).permutation(rows)[: self.epoch_rows]
                for seed, rows in zip(self.seeds, self.outside, strict=True)
            ]
            return torch.from_numpy(np.stack(own)).to(self.train.x.device)
        seeds = [self.common.seed] if self.train.members is None else self.seeds
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
            improved = better.view(-1, *(1,) * (value.dim() - 1))
            self.chosen[name] = torch.where(improved, value, self.chosen[name])

    def _record(self, values: dict[str, Tensor]) -> list[dict[str, float]]:
        numbers = torch.stack([value.double() for value in values.values()]).tolist()
        columns = dict(zip(values, numbers, strict=True))
        rows = [
            {
                "epoch": self.epoch,
                "member": k,
                "lambda": weight,
                **{name: v[k] for name, v in columns.items()},
            }
            for k, weight in enumerate(self.lambdas)
        ]
        self.history += rows
        return rows

    @staticmethod
    def _check_finite(rows: list[dict[str, float]]) -> None:
        for row in rows:
            for name, value in row.items():
                if not math.isfinite(value):
                    raise DivergedError(
                        f"training diverged: in epoch {row['epoch']:g} {name} of the member with "
                        f"λ = {row['lambda']:g} is {value}. Lower lr, sites_lr, clip or the largest λ."
                    )

    def state(self) -> dict[str, Any]:
        """A copy of everything needed to resume from here, on any device; it is on the CPU."""
        critics = self.objective.risk.critics
        return _copy(
            {
                "epoch": self.epoch,
                "parameters": self.program.state(),
                "optimizer": self.optimizer.get_state(),
                "risk": self.objective.risk.estimator.state(),
                "critics": None if critics is None else critics.state(),
                "best": self.best,
                "chosen": self.chosen,
                "chosen_epoch": self.chosen_epoch,
                "propagated_labels": self.propagated_labels,
                "history": self.history,
            }
        )

    def load_state(self, state: dict[str, Any]) -> None:
        # The optimizer puts its state on the device itself, except for counts, which are read in each step.
        state = {
            name: _copy(part, "cpu" if name == "optimizer" else self.device) for name, part in state.items()
        }
        self.epoch = state["epoch"]
        self.program.load_state(state["parameters"])
        self.optimizer.set_state(state["optimizer"])
        self.objective.risk.estimator.load_state(state["risk"])
        if self.objective.risk.critics is not None:
            self.objective.risk.critics.load_state(state["critics"])
        self.best, self.chosen_epoch = state["best"], state["chosen_epoch"]
        self.chosen, self.history = state["chosen"], list(state["history"])
        self.propagated_labels = state["propagated_labels"]


def objective_of(train: Observed, lambdas: Sequence[float], settings: Settings) -> FairELBO:
    """The objective of members with these λ, by the kind of their label."""
    weights = torch.tensor(lambdas, device=train.like.device, dtype=train.like.dtype)
    others = (settings.objective_weights, settings.schedule)
    if train.number is None:
        return FairELBO(train.effective_rows, weights, RiskLoss(settings.fairness), *others)
    risk = NumberRiskLoss(settings.fairness, train.number, train.like)
    return RegressionELBO(train.effective_rows, weights, risk, *others)


def _copy(value: Any, device: torch.device | str = "cpu") -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device, copy=True)
    if isinstance(value, dict):
        return {key: _copy(entry, device) for key, entry in value.items()}
    return [_copy(entry, device) for entry in value] if isinstance(value, list) else value


def held_out_scores(program: Program, table: Observed, ranks: Ranks = ALONE) -> dict[str, Tensor]:
    """Means over rows, by their weights, that use recorded values only, (members,) each.

    ``ranks`` score their parts of the rows.

    ``log_group`` is log P(ã|x) and ``log_label`` log P(ỹ|x), ∅ included; ``error`` is the error of
    the classifier on rows with a stated label; of an outcome that is a number, its mean squared error there,
    standardised.
    """
    totals: dict[str, Tensor] = {}
    ranks = ranks.for_rows(table.rows)
    for batch, encoding in program.encode(part_of(table, ranks)):
        stated = batch.y_obs != table.classes
        cost = (encoding.heads.class_logits.argmax(-1) != batch.y_obs) & stated
        if encoding.heads.density is not None and batch.outcome is not None:
            cost = (Mixture.of(encoding.heads.density).mean - batch.outcome).square() * stated
        sums = {
            "log_group": encoding.log_joint_a.logsumexp(-1),
            "log_label": encoding.log_joint_y.logsumexp(-1),
            "error": cost,
            "stated": stated.expand_as(cost),
        }
        for name, values in sums.items():
            values = values if batch.weight is None else values * batch.weight
            totals[name] = totals.get(name, 0) + values.sum(-1, dtype=torch.float64)
    ranks.add_up(list(totals.values()))
    stated_rows = totals.pop("stated").clamp(min=1 if table.weight is None else 1e-12)
    error = totals.pop("error") / stated_rows
    return {name: total / table.rows for name, total in totals.items()} | {"error": error}
