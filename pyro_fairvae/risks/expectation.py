"""Estimators of the expected gap, with a memory of recent batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pyro_fairvae.base.errors import choose, require
from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.base.seeds import MemberNoise
from pyro_fairvae.risks.custom import CustomRisk
from pyro_fairvae.risks.gaps import CellSums, ComposedRisk, Gaps
from pyro_fairvae.risks.smooth_penalty import pull

DRAWN_AT_ONCE = 1 << 19  # numbers drawn at a time per member, which bounds the memory of one evaluation


class Estimate(NamedTuple):
    """A risk, its Monte Carlo standard error, and the penalty that the objective adds."""

    value: Tensor  # (members,)
    standard_error: Tensor  # (members,)
    penalty: Tensor  # (members,)
    cells: Tensor  # rate of each cell minus the rate over all groups, (members, cells)
    sums: CellSums | None = None  # what critics may learn from, without a gradient


def samples_for(epsilon: float, delta: float, bound: float = 1.0) -> int:
    r"""Theorem 1: :math:`N = \lceil C^2 / (2 \epsilon^2) \log(2/\delta) \rceil` draws give an error below ε.

    It holds with probability 1 − δ for a risk in [0, C], on a fixed batch. (The paper's text drops the 2.)

    Parameters
    ----------
    epsilon : float
        ε, the largest acceptable error of the Monte Carlo risk.
    delta : float
        δ, the probability that the error is larger, within (0, 1).
    bound : float
        C, the largest value of the risk.

    Returns
    -------
    int
        N.

    Examples
    --------
    >>> from pyro_fairvae import samples_for
    >>> samples_for(0.1, delta=0.05)
    185
    """
    require(epsilon > 0 and bound > 0, f"epsilon and bound must be positive, got {epsilon} and {bound}.")
    require(0 < delta < 1, f"delta must be within (0, 1), got {delta}.")
    return math.ceil(bound**2 / (2 * epsilon**2) * math.log(2 / delta))


class ExpectedRisk:
    r"""An estimate Ê of the expectation of F(P_f, y, a) over imputed labels and groups, and its penalty.

    ``sampled``, the paper's: (1/N) Σ_s F(P_f, y⁽ˢ⁾, a⁽ˢ⁾), with (y, a)⁽ˢ⁾ drawn from an imputation; λÊ.
    ``expected``: F at the expected cell sums, without draws and in O(rows); λÊ. It is lower than the sampled
    one, since the noise of draws increases |gap|; the two converge as cells grow.
    ``smoothed``: also at the expected cell sums, but λF is smoothed at 0 (:func:`pull`). A custom F and the
    vanilla risk, which are functions of draws, use the mean of the draws' differences. A risk that is smooth
    at 0 by itself is not smoothed.

    *Memory.* In a minibatch a rare cell has a handful of rows, and E|gap| of a fair classifier is far
    from 0. With ``memory < 1`` cell sums are averaged over earlier batches, the latest weighing ``memory``.
    F is evaluated at the averaged sums, and its derivative there is applied to the current batch's sums
    (after the stochastic compositional gradients of Wang, Fang and Liu 2017); the current batch enters the
    average afterwards, so that the derivative does not depend on the noise of the current batch. ``sampled``
    with ``memory = 1`` is the paper's plain estimator.

    *Empty cells.* A sample in which a cell that F needs is empty is left out of the average: the
    result is E[F | every cell has a row]. Counting its gap as 0 instead would pull the risk towards 0
    exactly where a group is rare. If no sample has all cells, the possible comparisons are
    averaged; if none is possible, the risk is 0 and has no gradient.

    *A custom F* is evaluated on the draws themselves, so it has no memory and no expected form.

    *Ranks* that have parts of a batch's rows add up their cell sums before these are remembered; for a custom
    F they put together the rows themselves.
    """

    ranks: Ranks = ALONE

    def __init__(
        self,
        risk: ComposedRisk | CustomRisk,
        relax: Callable[[Tensor], Tensor],
        samples: int = 100,
        memory: float = 1.0,
        estimator: str = "sampled",
        stiffness: float = 20.0,
    ) -> None:
        require(samples >= 1, f"the risk needs at least 1 Monte Carlo sample, got {samples}.")
        require(0 < memory <= 1, f"memory, the weight of the latest batch, must be in (0, 1], got {memory}.")
        require(0 < stiffness < math.inf, f"stiffness must be positive and finite, got {stiffness}.")
        choose("estimator", estimator, ESTIMATORS)
        require(
            isinstance(risk, ComposedRisk) or estimator != "expected",
            f"the risk {risk.name!r} is a function of draws; use the estimator 'sampled' or 'smoothed'.",
        )
        self.risk = risk
        self.relax = relax
        self.samples = samples
        self.memory = memory
        self.cell_sums = ESTIMATORS[estimator]
        self.stiffness = stiffness if estimator == "smoothed" else None
        self.remembered: CellSums | None = None

    def __call__(
        self,
        class_logits: Tensor,
        imputed: Tensor,
        weight: Tensor,
        noise: MemberNoise | None = None,
        of_rows: Tensor | None = None,
    ) -> Estimate:
        """The risk of each member, whose λ is ``weight``; draws use ``noise`` if it is given.

        Logits are (members, rows, classes), imputed is (members, rows, classes, groups). Rows count in sums
        by their weights ``of_rows``, (rows,) or (members, rows).
        """
        predictions = self.relax(class_logits)
        if isinstance(self.risk, CustomRisk):
            if noise is not None and self.ranks.count > 1:
                predictions, imputed = (
                    self.ranks.whole(rows, noise.rows, dim=1) for rows in (predictions, imputed.contiguous())
                )
                noise = noise.whole()
            return self._of_draws(self.risk, predictions.squeeze(-2), imputed, weight, noise)
        return self.of_sums(self.cell_sums(predictions, imputed, self.samples, noise, of_rows), weight)

    def of_sums(self, now: CellSums, weight: Tensor) -> Estimate:
        """The risk at sums (members, samples, …), which also update the memory."""
        assert isinstance(self.risk, ComposedRisk)
        now = CellSums(self.ranks.total(now.mass), self.ranks.total(now.predicted))
        sums = self._remember(now)
        gaps = self.risk(sums)
        used = _used(gaps)
        value, standard_error = _mean(gaps.value, used)
        if self.stiffness is None or self.risk.smooth:
            penalty = weight * value
        else:
            differences = used[..., None, None] * self.risk.differences(sums)
            penalty = pull(
                differences.sum(1) / used.sum(1).clamp(min=1)[:, None, None], weight, self.stiffness
            )
        latest = self.remembered or CellSums(now.mass.detach(), now.predicted.detach())
        cells = self.risk.cells(sums).detach().mean(1).flatten(1)
        return Estimate(value, standard_error, penalty, cells, latest)

    def average(self, sums: CellSums) -> Tensor:
        """Mean of F over samples, of sums (members, samples, …)."""
        assert isinstance(self.risk, ComposedRisk)
        gaps = self.risk(sums)
        return _mean(gaps.value, _used(gaps))[0]

    def _of_draws(
        self,
        risk: CustomRisk,
        predictions: Tensor,
        imputed: Tensor,
        weight: Tensor,
        noise: MemberNoise | None,
    ) -> Estimate:
        groups = imputed.shape[-1]
        values = [
            risk.function(predictions.unsqueeze(1), cell // groups, cell % groups)
            # All are drawn before the function, which may draw numbers of its own, is called.
            for cell in list(draw_cells(imputed, self.samples, noise))
        ]
        drawn = torch.cat(values, dim=1)
        value, standard_error = _mean(drawn, torch.ones_like(drawn))
        penalty = weight * value
        if self.stiffness is not None:
            penalty = pull(value[:, None, None], weight, self.stiffness)
        return Estimate(value, standard_error, penalty, value.new_zeros(len(value), 0))

    def _remember(self, now: CellSums) -> CellSums:
        if self.memory == 1:
            return now
        mass, predicted = now.mass.detach(), now.predicted.detach()
        before = self.remembered or CellSums(mass, predicted)
        self.remembered = CellSums(
            torch.lerp(before.mass, mass, self.memory), torch.lerp(before.predicted, predicted, self.memory)
        )
        return CellSums(before.mass + (now.mass - mass), before.predicted + (now.predicted - predicted))

    def state(self) -> dict[str, Tensor]:
        if self.remembered is None:
            return {}
        return {"mass": self.remembered.mass, "predicted": self.remembered.predicted}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.remembered = CellSums(**state) if state else None


def _used(gaps: Gaps) -> Tensor:
    """Weight 1 for samples with all cells, or if there is none for those with any comparison; else 0."""
    return torch.where(gaps.whole.any(-1, keepdim=True), gaps.whole, gaps.some).to(gaps.value.dtype)


def _mean(values: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard error over samples, the last dimension, of those that are used (weight 1)."""
    count = used.sum(-1).clamp(min=1)
    mean = (values * used).sum(-1) / count
    with torch.no_grad():
        squares = ((values - mean.unsqueeze(-1)).square() * used).sum(-1)
        standard_error = (squares / (count - 1).clamp(min=1) / count).sqrt()
    return mean, standard_error


def draw_cells(imputed: Tensor, samples: int, noise: MemberNoise | None = None) -> Iterator[Tensor]:
    """Draws of the cell y·groups + a for every row, a few samples at a time: (members, some, rows) each."""
    bounds = imputed.flatten(-2).cumsum(-1)[..., :-1].unsqueeze(1)  # (members, 1, rows, cells − 1)
    return ((uniform.unsqueeze(-1) >= bounds).sum(-1) for uniform in _uniforms(imputed, samples, noise))


def draw_cell_sums(
    predictions: Tensor,
    imputed: Tensor,
    samples: int,
    noise: MemberNoise | None = None,
    of_rows: Tensor | None = None,
) -> CellSums:
    """Sums over cells for each of ``samples`` draws of (y, a) for every row.

    ``predictions`` is P_f, (members, rows, groups or 1, classes); ``imputed`` is (members, rows, classes,
    groups), and all zero for rows that are excluded. The sums are (members, samples, …) as in
    :class:`CellSums`; gradients reach ``predictions`` alone.
    """
    classes, groups = imputed.shape[-2:]
    upper = imputed.flatten(-2).cumsum(-1)
    # Every draw must get a cell despite rounding.
    upper[..., -1] = torch.where(upper[..., -1] > 0, torch.inf, 0.0)
    lower = torch.cat([torch.zeros_like(upper[..., :1]), upper[..., :-1]], dim=-1)
    predictions = predictions.expand(-1, -1, groups, -1)
    whole = torch.cat([torch.ones_like(predictions[..., :1]), predictions], dim=-1)
    summed = (whole if of_rows is None else whole * of_rows[..., None, None]).unbind(-2)
    pieces = []
    for uniform in _uniforms(imputed, samples, noise):
        cells = [
            ((uniform >= low.unsqueeze(-2)) & (uniform < high.unsqueeze(-2))).to(uniform.dtype) @ of_group
            for low, high, of_group in zip(lower.unbind(-1), upper.unbind(-1), summed * classes, strict=True)
        ]
        pieces.append(torch.stack(cells, dim=-2))  # (members, samples, cells, 1 + classes)
    sums = torch.cat(pieces, dim=1).unflatten(-2, (classes, groups))
    return CellSums(sums[..., 0].detach(), sums[..., 1:])


def _uniforms(imputed: Tensor, samples: int, noise: MemberNoise | None) -> Iterator[Tensor]:
    """``samples`` uniform numbers for every row, (members, some, rows) at a time."""
    members, rows = imputed.shape[:2]
    at_once = max(1, DRAWN_AT_ONCE // (rows if noise is None else noise.rows or rows))
    for size in (min(at_once, samples - start) for start in range(0, samples, at_once)):
        if noise is not None:
            yield noise.uniform((size, rows), imputed, rows=1)
        else:
            yield torch.rand((members, size, rows), dtype=imputed.dtype, device=imputed.device)


def expected_cell_sums(
    predictions: Tensor,
    imputed: Tensor,
    samples: int = 1,
    noise: MemberNoise | None = None,
    of_rows: Tensor | None = None,
) -> CellSums:
    """The expectation of :func:`draw_cell_sums`, as a single sample: (members, 1, …)."""
    if of_rows is not None:
        imputed = imputed * of_rows[..., None, None]
    predicted = torch.einsum("krgc,kryg->kygc", predictions.expand(-1, -1, imputed.shape[-1], -1), imputed)
    return CellSums(imputed.sum(1).unsqueeze(1), predicted.unsqueeze(1))


ESTIMATORS: dict[str, Callable[[Tensor, Tensor, int, MemberNoise | None, Tensor | None], CellSums]] = {
    "sampled": draw_cell_sums,
    "expected": expected_cell_sums,
    "smoothed": expected_cell_sums,
}


def relaxed_cell_sums(
    predictions: Tensor,
    log_label: Tensor,
    log_group: Tensor,
    samples: int,
    temperature: float,
    noise: MemberNoise | None = None,
    of_rows: Tensor | None = None,
) -> CellSums:
    """Sums over cells whose draws of y and a have a gradient, by straight-through Gumbel-softmax.

    For the ablation, in which the gradient of the risk also reaches the imputed labels and groups.
    ``log_label`` is (members, rows, classes) and ``log_group`` (members, rows, groups), both up to a constant
    for each row.
    """

    def draw(logits: Tensor) -> Tensor:
        finite = logits.clamp(min=-60.0)  # no gradient passes through −∞
        repeated = finite.unsqueeze(1).expand(-1, samples, -1, -1)
        if noise is None:
            return functional.gumbel_softmax(repeated, tau=temperature, hard=True)
        soft = ((repeated + noise.gumbel(repeated.shape[1:], finite, rows=1)) / temperature).softmax(-1)
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        return hard + (soft - soft.detach())

    cells = draw(log_label).unsqueeze(-1) * draw(log_group).unsqueeze(-2)  # (members, samples, rows, y, a)
    if of_rows is not None:
        cells = cells * (of_rows if of_rows.dim() == 1 else of_rows.unsqueeze(1))[..., None, None]
    predictions = predictions.expand(-1, -1, cells.shape[-1], -1)
    return CellSums(cells.sum(2), torch.einsum("krgc,ksryg->ksygc", predictions, cells))
