"""Members divided between processes: each trains its own, and what all of them found is put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyro_fairvae.base.ranks import Ranks
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.shared_start import ONE_FOR_ALL, picked
from pyro_fairvae.schema.observed import Imputation, Observed
from pyro_fairvae.schema.stored_rows import StoredRows

COMPARED = 1 << 24  # numbers of a table's features, at most, by which processes compare what they read


def check_same_rows(ranks: Ranks, tables: Sequence[Observed], *options: Any) -> None:
    """Raise on every rank unless all have the same rows and options.

    Labels and groups are compared whole, and of the features of a large table evenly spaced rows.
    """
    if ranks.count > 1:
        content = [part for table in tables for part in _content_of(table)]
        ranks.check_same("rows or options", *content, *options)


def content_of(imputation: Imputation | None) -> tuple[Tensor, ...]:
    """What is compared of an imputation."""
    return () if imputation is None else (imputation.joint, imputation.label)


def _content_of(table: Observed) -> list[Any]:
    every = max(1, table.x.shape.numel() // COMPARED)
    rows = slice(None, None, every)
    x = table.x.bytes_of((..., rows)) if isinstance(table.x, StoredRows) else table.x[..., rows, :]
    more = [part for part in (table.u, table.outcome) if part is not None]
    layout = table.columns, table.u_columns, table.attributes, table.class_names, table.x.shape
    return [repr(layout), x, table.y_obs, table.a_obs, *more]


def state_of_all(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of all members, from those of each rank's."""
    together: dict[str, Any] = _together([state | {"history": None} for state in states])
    return together | {"history": rows_of_all([state["history"] for state in states])}


def state_of_own(state: dict[str, Any], own: Sequence[int]) -> dict[str, Any]:
    """The state of a rank's members, side by side, from that of all."""
    kept = [row | {"member": row["member"] - own[0]} for row in state["history"] if row["member"] in own]
    return picked(state, own) | {"history": kept}


def rows_of_all(histories: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, float]]:
    """Lines of the history, each epoch's of all members in turn, from those of each rank's members."""
    first, found = 0, []
    for history in histories:
        found += [row | {"member": row["member"] + first} for row in history]
        first += 1 + max((int(row["member"]) for row in history), default=-1)
    return sorted(found, key=lambda row: (row["epoch"], row["member"]))


def fit_of_all(
    ranks: Ranks,
    own: Fit,
    train: Observed,
    settings: Settings,
    lambdas: Sequence[float],
    seeds: Sequence[int],
) -> Fit:
    """The fit of all members, on every rank, from that of each rank's."""
    parts: list[dict[str, Any]] = ranks.gather(
        {
            "program": _on_cpu(own.program.state()),
            "chosen": _on_cpu(own.chosen),
            "chosen_epoch": own.chosen_epoch,
            "adjustment": None if own.adjustment is None else own.adjustment.cpu(),
            "history": own.history,
        }
    )
    like = train.like.to(own.device, own.dtype)
    program = Program(train.to(own.device, own.dtype), settings, seeds).to(own.device, own.dtype)
    program.load_state(_together([part["program"] for part in parts]))
    chosen = _together([part["chosen"] for part in parts])
    return replace(
        own,
        program=program,
        chosen={name: value.to(own.device) for name, value in chosen.items()},
        chosen_epoch=[epoch for part in parts for epoch in part["chosen_epoch"]],
        lambdas=tuple(map(float, lambdas)),
        history=rows_of_all([part["history"] for part in parts]),
        adjustment=_adjustments(parts, like),
    )


def _adjustments(parts: Sequence[dict[str, Any]], like: Tensor) -> Tensor | None:
    """ν of all members; 0 for those of a rank on which no member has a λ."""
    found = [part["adjustment"] for part in parts if part["adjustment"] is not None]
    if not found:
        return None
    none = [torch.zeros(len(part["chosen_epoch"]), *found[0].shape[1:]).to(found[0]) for part in parts]
    pairs = zip(parts, none, strict=True)
    return torch.cat([zero if part["adjustment"] is None else part["adjustment"] for part, zero in pairs]).to(
        like
    )


def _on_cpu(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in state.items()}


def _together(values: Sequence[Any], name: str = "") -> Any:
    """Tensors of states of some members each, put together along members, their first dimension."""
    first = values[0]
    if isinstance(first, Tensor):
        return first if name in ONE_FOR_ALL else torch.cat(list(values))
    if isinstance(first, dict):
        return {key: _together([value[key] for value in values], str(key)) for key in first}
    if isinstance(first, list):
        return [_together(entries) for entries in zip(*values, strict=True)]
    return first


ReportEpoch = Callable[[Any], None]


def reporting_all(ranks: Ranks, after_epoch: ReportEpoch | None) -> ReportEpoch:
    """Called on every rank after each epoch of its members, it calls ``after_epoch`` for all members."""

    def of_all(done: Any) -> None:
        rows = rows_of_all(ranks.gather(done.rows))
        if after_epoch is not None:
            after_epoch(replace(done, rows=rows, state=lambda: state_of_all(ranks.gather(done.state()))))

    return of_all
