"""Labels by coordinate descent on the joint objective, from several starts."""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_fairvae.base.reports import Report
from pyro_fairvae.base.seeds import derive_seed
from pyro_fairvae.decisions.exact_search import exact_search
from pyro_fairvae.decisions.group_thresholds import labels_by_thresholds
from pyro_fairvae.decisions.joint_objective import DecisionProblem
from pyro_fairvae.decisions.score_adjustment import best_adjustment

STARTS = 8  # of descent, unless given
SWEEPS = 100  # over all rows, at most, from each start
TINY = 1e-12  # a change that lowers J by less does not
MISSES = 48  # changes in a row that no longer help, after which all are evaluated anew
MOST_AT_ONCE = 4096  # changes that are applied together
PAIRED = 40  # changes that are tried in pairs: those that alone raise J least
TILTS = (0.05, 0.2, 0.5, 1.0, 2.0)  # multiples of λ at which adjusted scores start
TILT_ROWS = 1 << 14  # at most, on which their adjustments are fitted
TILT_STEPS, TILT_STIFFNESS = 120, 50.0
SHAKEN, MOST_SHAKEN = 0.1, 64  # share of the rows whose labels are drawn anew for a start, and the most rows


def descend(problem: DecisionProblem, labels: Tensor) -> tuple[Tensor, float]:
    """Labels from which no single change lowers J, nor any of the likeliest pairs, and their J.

    Each sweep evaluates every change alone, then applies those that lower J in the order of their gain, as
    far as they still do after the earlier ones. Where none is left, pairs of changes are tried. The number
    of sweeps is bounded, so that large tables may have a change left that lowers J by next to nothing.
    """
    labels = labels.clone()
    counts = problem.counts(labels)
    for _ in range(SWEEPS):
        now = float(problem.penalty(problem.fairness(counts)))
        rows, to, gains = _helpful(problem, labels, counts, now)
        if len(rows):
            _apply(problem, labels, counts, now, rows, to, gains)
        elif not _swap(problem, labels, counts, now):
            break
    return labels, problem.objective(labels)


def _helpful(
    problem: DecisionProblem, labels: Tensor, counts: Tensor, now: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The best change of each row that has one, the greatest gain first."""
    found = []
    for some, after in problem.single_changes(labels, counts):
        least, to = after.min(-1)
        gain = now - least
        rows = torch.nonzero(gain > TINY).squeeze(-1)
        found.append((rows + some.start, to[rows], gain[rows]))
    rows, to, gains = (torch.cat(parts) for parts in zip(*found, strict=True))
    order = gains.argsort(descending=True, stable=True)
    return rows[order], to[order], gains[order]


def _apply(
    problem: DecisionProblem,
    labels: Tensor,
    counts: Tensor,
    now: float,
    rows: Tensor,
    to: Tensor,
    gains: Tensor,
) -> None:
    """Apply changes in order, many at a time as long as they gain at least half of what each gained alone.

    Where two no longer do, single changes that still help are applied. ``labels`` and ``counts`` are changed.
    """
    start, size, missed = 0, MOST_AT_ONCE, 0
    while start < len(rows) and missed < MISSES:
        some = slice(start, start + size)
        added = problem.loss_added(labels, rows[None, some], to[None, some])
        value = float(problem.after_changes(labels, counts, rows[None, some], to[None, some]))
        least = TINY if size == 1 else float(gains[some].sum()) / 2
        if value < now - least:
            _move(problem, labels, counts, rows[some], to[some])
            now = value - float(added)
            start, size, missed = start + size, min(2 * size, MOST_AT_ONCE), 0
        elif size > 1:
            size //= 2
        else:
            start, missed = start + 1, missed + 1


def _move(problem: DecisionProblem, labels: Tensor, counts: Tensor, rows: Tensor, to: Tensor) -> None:
    cells = problem.cells[:, rows].long() * problem.classes
    flat = counts.view(len(counts), -1)
    one = torch.ones((), dtype=counts.dtype)
    flat.scatter_add_(1, cells + labels[rows], -one.expand(cells.shape))
    flat.scatter_add_(1, cells + to, one.expand(cells.shape))
    labels[rows] = to


def _swap(problem: DecisionProblem, labels: Tensor, counts: Tensor, now: float) -> bool:
    """Apply the best pair of changes of different rows, if one lowers J."""
    found = []
    for some, after in problem.single_changes(labels, counts):
        after.scatter_(-1, labels[some].unsqueeze(-1), torch.inf)
        values, places = after.flatten().topk(min(PAIRED, after.numel()), largest=False)
        found.append((values, places + some.start * problem.classes))
    values, places = (torch.cat(parts) for parts in zip(*found, strict=True))
    kept = places[values.argsort(stable=True)[:PAIRED]]
    kept = kept[torch.isfinite(values.sort(stable=True).values[:PAIRED])]
    rows, to = kept // problem.classes, kept % problem.classes
    first, second = torch.triu_indices(len(kept), len(kept), offset=1)
    different = rows[first] != rows[second]
    pairs = torch.stack([first[different], second[different]], dim=-1)
    if not len(pairs):
        return False
    after = problem.after_changes(labels, counts, rows[pairs], to[pairs])
    best = int(after.argmin())
    if float(after[best]) >= now - TINY:
        return False
    _move(problem, labels, counts, rows[pairs[best]], to[pairs[best]])
    return True


def best_labels(problem: DecisionProblem, starts: int, report: Report) -> tuple[Tensor, bool]:
    """The best labels found by descent from so many ``starts``, and whether none are better.

    Descent starts from rounding, from labels by group thresholds where there are two classes, from adjusted
    scores, from one class for all where that is better than rounding, and then from the best so far with some
    labels drawn anew. The first ones count even where they are more than ``starts``. Of a small table all
    labels are tried that could be the best, instead.
    """
    exact = exact_search(problem, problem.rounded())
    if exact is not None:
        report(f"all labels that could be the best were tried: {problem.objective(exact):.6f}")
        return exact, True
    first = [("rounding", problem.rounded())]
    if problem.classes == 2:
        first.append(("thresholds", labels_by_thresholds(problem, report)))
    if problem.weight > 0:
        first.append(("adjusted scores", _by_adjusted_scores(problem)))
    same = [torch.full((problem.rows,), c) for c in range(problem.classes)]
    if problem.objective(constant := min(same, key=problem.objective)) < problem.objective(first[0][1]):
        first.append(("one class", constant))
    best, value = min(((start, problem.objective(start)) for _, start in first), key=lambda found: found[1])
    noise = torch.Generator().manual_seed(derive_seed(problem.seed, 1))
    for number in range(starts):
        name, start = first[number] if number < len(first) else ("new draws", _shaken(problem, best, noise))
        found, reached = descend(problem, start)
        if reached < value:
            best, value = found, reached
        report(f"descent {number + 1} of {starts}, from {name}: {reached:.6f}; the best has {value:.6f}")
    return finished(problem, best)


def finished(problem: DecisionProblem, labels: Tensor) -> tuple[Tensor, bool]:
    """The best labels of a table that is small enough to try all; else those given, and False."""
    exact = exact_search(problem, labels)
    if exact is None:
        return labels, False
    better = problem.objective(exact) < problem.objective(labels) - TINY
    return (exact if better else labels), True


def _by_adjusted_scores(problem: DecisionProblem) -> Tensor:
    """The best labels by adjusted scores, of those at several multiples of λ.

    At expected counts, labels with the least J are those whose score -ℓ, plus a weighted sum of
    P(y, a | row), is largest. Weights are fitted on some of the rows where there are many.
    """
    every = -(-problem.rows // TILT_ROWS)
    reward, cells = -problem.loss.float(), problem.imputed.float()
    some_reward, some_cells = (
        part[::every].expand(len(TILTS), *part[::every].shape) for part in (reward, cells)
    )
    with torch.enable_grad():
        weights = best_adjustment(
            some_reward,
            some_cells,
            some_cells,
            some_reward,
            problem.risk,
            problem.weight * torch.tensor(TILTS),
            TILT_STIFFNESS,
            TILT_STEPS,
        )
    tried = [(reward + torch.einsum("rya,cya->rc", cells, of)).argmax(-1) for of in weights]
    return min(tried, key=problem.objective)


def _shaken(problem: DecisionProblem, labels: Tensor, noise: torch.Generator) -> Tensor:
    """Labels of which some, those that are cheapest to change, are drawn anew."""
    others = problem.loss.scatter(-1, labels.unsqueeze(-1), torch.inf).min(-1).values
    dear = (others - problem.loss.gather(-1, labels.unsqueeze(-1)).squeeze(-1)).abs()
    count = min(max(2, round(problem.rows * SHAKEN)), MOST_SHAKEN, problem.rows)
    rows = dear.topk(count, largest=False).indices
    drawn = torch.randint(problem.classes, (count,), generator=noise)
    return labels.scatter(0, rows, drawn)
