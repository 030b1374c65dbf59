"""Rows with the scores of networks that were not trained on them, and with what withholding depends on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.posterior.sampler import bin_rows

FARTHEST = 8.0  # log-odds of scores are clamped here
CELLS, MOST_CELLS = 64, 2048  # times 2 for each score, at most, where no conditions tell rows apart
FEWEST_IN_CELL = 8


@dataclass(frozen=True)
class ScoredRows:
    """Rows of some tables with their scores; where there are no conditions, similar rows are one cell."""

    scores: Tensor  # log-odds of each value against the last, (tables, rows, values − 1)
    observed: Tensor  # (tables, rows)
    weights: Tensor  # number of people, (tables, rows)
    conditions: Tensor  # v without the label, centred, (tables, rows, columns)
    labels: Tensor  # q(y|x,ỹ), (tables, rows, classes); one class where the label is not a condition
    label_columns: Tensor  # columns of v that each label gives, (tables, classes, columns)
    cell: Tensor | None = None  # of a crossed channel, (tables, rows) or (tables, rows, classes)

    @staticmethod
    def make(
        probabilities: Tensor,
        observed: Tensor,
        outcomes: int,
        conditions: Tensor | None = None,
        labels: Tensor | None = None,
        label_columns: Tensor | None = None,
        cell: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> ScoredRows:
        """From scores ĥ, (tables, rows, values), and recorded outcomes, (tables, rows).

        A row stands for one person, or for as many as ``weights``, (tables, rows), say.

        The columns that a channel is crossed with are among the conditions, too: h may depend on them. Labels
        that are all certain are conditions like others.
        """
        scores = log_odds(probabilities)
        tables, rows = observed.shape
        if conditions is None and labels is None:
            return _cells(probabilities, scores, observed, outcomes, weights)
        conditions = scores.new_zeros(tables, rows, 0) if conditions is None else conditions.to(scores)
        label_columns = scores.new_zeros(tables, 1, 0) if label_columns is None else label_columns.to(scores)
        if labels is not None and bool((labels.amax(-1) == 1).all()):
            known = labels.argmax(-1)
            each = torch.arange(tables, device=known.device).unsqueeze(-1)
            conditions = torch.cat([conditions, label_columns[each, known]], dim=-1)
            if cell is not None and cell.dim() == 3:
                cell = cell.gather(-1, known.unsqueeze(-1)).squeeze(-1)
            labels, label_columns = None, scores.new_zeros(tables, 1, 0)
        return ScoredRows(
            scores,
            observed,
            scores.new_ones(tables, rows) if weights is None else weights.to(scores),
            conditions,
            scores.new_ones(tables, rows, 1) if labels is None else labels.to(scores),
            label_columns,
            cell,
        )

    def of_tables(self, index: Tensor) -> ScoredRows:
        """Those of some tables."""
        return ScoredRows(
            self.scores[index],
            self.observed[index],
            self.weights[index],
            self.conditions[index],
            self.labels[index],
            self.label_columns[index],
            None if self.cell is None else self.cell[index],
        )

    def some(self, kept: slice, weights: Tensor | None = None) -> ScoredRows:
        """Some rows of every table, which stand for ``weights`` people, or for themselves."""
        return ScoredRows(
            self.scores[:, kept],
            self.observed[:, kept],
            self.weights[:, kept] if weights is None else weights,
            self.conditions[:, kept],
            self.labels[:, kept],
            self.label_columns,
            None if self.cell is None else self.cell[:, kept],
        )


def _cells(
    probabilities: Tensor, scores: Tensor, observed: Tensor, outcomes: int, weights: Tensor | None
) -> ScoredRows:
    """Rows with similar scores as one cell, a line for each of its outcomes."""
    means, counts = [], []
    most = min(CELLS * 2 ** scores.shape[-1], MOST_CELLS)
    of_tables = [None] * len(scores) if weights is None else list(weights.double().cpu())
    for of_table, score, outcome, weight in zip(probabilities, scores, observed, of_tables, strict=True):
        cells = bin_rows(of_table.double().cpu().numpy(), most, FEWEST_IN_CELL)
        cell, size = torch.from_numpy(cells), int(cells.max()) + 1
        people = torch.bincount(cell, weight, minlength=size)
        # On the CPU: sums of rows by an index are not deterministic on CUDA.
        counted = score.cpu() if weight is None else score.cpu() * weight.unsqueeze(-1)
        sums = score.new_zeros(size, score.shape[-1], device="cpu").index_add_(0, cell, counted)
        means.append((sums / people.unsqueeze(-1)).to(score.device))
        counts.append(torch.bincount(cell * outcomes + outcome.cpu(), weight, minlength=size * outcomes))
    mean = torch.stack(means).repeat_interleave(outcomes, dim=1)
    weights = torch.stack(counts).to(mean)
    recorded = torch.arange(outcomes, device=mean.device).repeat(mean.shape[1] // outcomes)
    return ScoredRows(
        mean,
        recorded.expand(weights.shape),
        weights,
        mean.new_zeros(*weights.shape, 0),
        mean.new_ones(*weights.shape, 1),
        mean.new_zeros(len(mean), 1, 0),
    )


def log_odds(probabilities: Tensor) -> Tensor:
    """Log-odds of scores against the last value, clamped, (…, values − 1)."""
    logs = probabilities.double().clamp(min=1e-12).log()
    return (logs[..., :-1] - logs[..., -1:]).clamp(-FARTHEST, FARTHEST)


def recalibrated(probabilities: Tensor, recalibration: Tensor) -> Tensor:
    """h of scores (rows, values), without what conditions add, given b and C."""
    scores = log_odds(probabilities)
    logits = torch.cat([torch.ones_like(scores[..., :1]), scores], dim=-1) @ recalibration.mT
    return torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).softmax(-1)
