"""The Monte Carlo estimator of the expected gap, with a memory of recent batches."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_fairvae.errors import require
from pyro_fairvae.risks.gaps import CellSums, Gap

CHUNK = 1 << 22  # numbers drawn at a time, which bounds the memory of one evaluation


def soften(logits: Tensor, temperature: float) -> Tensor:
    r"""The paper's softened step: :math:`\sigma(\mathrm{logit}/T)` for two classes, softmax of l/T for more.

    As T falls it tends to the rounded prediction, which is what a metric on decisions sees.
    """
    return (logits / temperature).softmax(-1)


class MonteCarloRisk:
    r"""Ê = (1/N) Σ_s F(P_f, y⁽ˢ⁾, a⁽ˢ⁾), with (y, a)⁽ˢ⁾ drawn from an imputation: the paper's estimator.

    *Memory.* In a minibatch a rare cell has a handful of rows, and E|gap| of a fair classifier is far
    from 0. With ``memory < 1`` each sample's cell sums are averaged over recent batches, the current
    one weighing ``memory``. F is evaluated at the averaged sums, and its derivative there is applied to
    the current batch's sums (stochastic compositional gradients, Wang, Fang and Liu 2017). With
    ``memory = 1`` this is the paper's estimator.

    *Empty cells.* A sample in which a cell that F needs is empty is left out of the average: the
    result is E[F | every cell has a row]. Counting its gap as 0 instead would pull the risk towards 0
    exactly where a group is rare. Where no sample is whole, the comparisons that can be made are
    averaged; where none can be made, the risk is 0 and has no gradient.
    """

    def __init__(self, gap: Gap, samples: int = 100, temperature: float = 0.2, memory: float = 0.2) -> None:
        require(samples >= 1, f"the risk needs at least 1 Monte Carlo sample, got {samples}.")
        require(temperature > 0, f"the temperature of the risk must be positive, got {temperature}.")
        require(0 < memory <= 1, f"memory, the weight of the current batch, must be in (0, 1], got {memory}.")
        self.gap = gap
        self.samples = samples
        self.temperature = temperature
        self.memory = memory
        self.remembered: CellSums | None = None

    def __call__(self, class_logits: Tensor, imputed: Tensor) -> Tensor:
        """The risk of each member; logits are (members, rows, classes), imputed also (…, groups)."""
        sums = draw_cell_sums(soften(class_logits, self.temperature), imputed, self.samples)
        return self.average(self._remember(sums))

    def average(self, sums: CellSums) -> Tensor:
        """Mean of F over samples, (members,), of sums (members, samples, …)."""
        gaps, whole, some = self.gap(sums)
        used = torch.where(whole.any(-1, keepdim=True), whole, some).to(gaps.dtype)
        return (gaps * used).sum(-1) / used.sum(-1).clamp(min=1)

    def _remember(self, now: CellSums) -> CellSums:
        if self.memory == 1:
            return now
        before = self.remembered or CellSums(now.mass, now.predicted.detach())
        weight = self.memory
        mass = torch.lerp(before.mass, now.mass, weight)
        predicted = torch.lerp(before.predicted, now.predicted.detach(), weight)
        self.remembered = CellSums(mass, predicted)
        return CellSums(mass, predicted + (now.predicted - now.predicted.detach()))

    def state(self) -> dict[str, Tensor]:
        if self.remembered is None:
            return {}
        return {"mass": self.remembered.mass, "predicted": self.remembered.predicted}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.remembered = CellSums(**state) if state else None


def draw_cell_sums(predictions: Tensor, imputed: Tensor, samples: int) -> CellSums:
    """Sums over cells for each of ``samples`` draws of (y, a) for every row.

    ``predictions`` is P_f, (members, rows, classes); ``imputed`` is (members, rows, classes, groups).
    The sums are (members, samples, …) as in :class:`CellSums`; gradients reach ``predictions`` alone.
    """
    members, rows, classes, groups = imputed.shape
    upper = imputed.flatten(-2).cumsum(-1)
    upper[..., -1] = torch.inf  # rounding must not leave a draw without a cell
    lower = torch.cat([torch.zeros_like(upper[..., :1]), upper[..., :-1]], dim=-1)
    summed = torch.cat([torch.ones_like(predictions[..., :1]), predictions], dim=-1)
    at_once = max(1, CHUNK // (members * rows))
    pieces = []
    for start in range(0, samples, at_once):
        shape = (members, min(at_once, samples - start), rows)
        uniform = torch.rand(shape, dtype=imputed.dtype, device=imputed.device)
        cells = [
            ((uniform >= low.unsqueeze(-2)) & (uniform < high.unsqueeze(-2))).to(summed.dtype) @ summed
            for low, high in zip(lower.unbind(-1), upper.unbind(-1), strict=True)
        ]
        pieces.append(torch.stack(cells, dim=-2))  # (members, samples, cells, 1 + classes)
    sums = torch.cat(pieces, dim=1).unflatten(-2, (classes, groups))
    return CellSums(sums[..., 0].detach(), sums[..., 1:])
