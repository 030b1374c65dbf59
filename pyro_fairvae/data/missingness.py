"""Simulated withholding of demographics and labels, at rates that depend on group and class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.data.tables import Complete
from pyro_fairvae.schema.arrays import Floats, Integers
from pyro_fairvae.schema.observed import Observed

# The paper's three levels: P(∅|a=0) = β, P(∅|a=1) = α.
LEVELS = {"sparse": (0.8, 0.4), "medium": (0.4, 0.2), "dense": (0.2, 0.1)}


@dataclass(frozen=True)
class Missingness:
    """Rates at which the stated value differs from the true one.

    Parameters
    ----------
    unavailable : tuple of float
        P(ã = ∅ | a = g) of each group g; the paper's sparse level unless given.
    misstated : tuple of float
        Rate at which each group names another, spread evenly over the others.
    label_unavailable : tuple of float
        P(ỹ = ∅ | y = c) of each class c.
    channel : tuple of tuple of float, optional
        P(ã | a) as a whole, (groups, outcomes), in place of the first two.
    withheld : callable, optional
        Where the group is a number: P(∅|number) of numbers, (rows,), in place of all three.

    Raises
    ------
    InputError
        If a rate is not within [0, 1], or those of a group sum to more than 1.

    Examples
    --------
    >>> from pyro_fairvae import Missingness
    >>> Missingness(unavailable=(0.75, 0.5)).group_channel()
    array([[0.25, 0.  , 0.75],
           [0.  , 0.5 , 0.5 ]])
    """

    unavailable: tuple[float, ...] = LEVELS["sparse"]
    misstated: tuple[float, ...] = (0.0, 0.0)
    label_unavailable: tuple[float, ...] = (0.25, 0.25)
    channel: tuple[tuple[float, ...], ...] | None = None
    withheld: Callable[[Floats], Floats] | None = None

    def __post_init__(self) -> None:
        for name in ("unavailable", "misstated", "label_unavailable"):
            for rate in getattr(self, name):
                require(0 <= rate <= 1, f"rate {name} must be within [0, 1], got {rate}.")
        require(
            len(self.unavailable) == len(self.misstated),
            f"unavailable has {len(self.unavailable)} groups, misstated has {len(self.misstated)}.",
        )
        for group, (hidden, wrong) in enumerate(zip(self.unavailable, self.misstated, strict=True)):
            require(
                hidden + wrong <= 1,
                f"group {group}: rates unavailable {hidden} and misstated {wrong} sum to more than 1.",
            )

    def group_channel(self) -> np.ndarray:
        """The true P(ã | a), (groups, outcomes)."""
        if self.channel is not None:
            return np.array(self.channel)
        groups = len(self.unavailable)
        channel = np.zeros((groups, groups + 1))
        for group, (hidden, wrong) in enumerate(zip(self.unavailable, self.misstated, strict=True)):
            channel[group, :groups] = wrong / max(groups - 1, 1)
            channel[group, group] = 1 - hidden - wrong
            channel[group, groups] = hidden
        return channel

    def label_channel(self) -> np.ndarray:
        """The true P(ỹ | y), (classes, classes + 1)."""
        rates = np.asarray(self.label_unavailable)
        return np.concatenate([np.diag(1 - rates), rates[:, None]], axis=1)


def hide(table: Complete, missingness: Missingness, seed: int) -> Observed:
    """Draw the observed table of ``table``; the result does not contain the truth.

    Where withholding is real, ã is as recorded, and of ``missingness`` only the rates of labels are used.
    """
    group_channel, label_channel = missingness.group_channel(), missingness.label_channel()
    along = missingness.withheld is not None and table.number is not None
    for what, names, outcomes, rates in (
        ("groups", table.groups, table.attributes.outcomes, group_channel),
        ("classes", table.classes, len(table.classes) + 1, label_channel),
    ):
        drawn = what == "classes" or (table.stated is None and not along)
        if drawn and rates.shape != (len(names), outcomes):
            raise InputError(
                f"the table has {len(names)} {what} and {outcomes} outcomes, but rates for {rates.shape[0]} "
                f"and {rates.shape[1]} were given."
            )
    generator = np.random.default_rng(seed)
    if along:
        assert missingness.withheld is not None
        assert table.number is not None
        hidden = generator.random(table.rows) < missingness.withheld(table.number)
        a_obs = np.where(hidden, table.attributes.outcomes - 1, table.a)
    else:
        a_obs = _transmit(table.a, group_channel, generator) if table.stated is None else table.stated
    y_obs = _transmit(table.y, label_channel, generator)
    return Observed(
        table.features,
        torch.from_numpy(y_obs),
        torch.from_numpy(a_obs),
        table.columns,
        len(table.classes),
        len(table.groups),
        table.attributes,
        table.classes,
        None if table.u is None else torch.from_numpy(table.u),
        table.u_columns,
    )


def rates_by_level(table: Complete, missingness: Missingness) -> np.ndarray | None:
    """P(ã|a) of the levels of a number, (groups, outcomes), as means over their people; None without one."""
    if missingness.withheld is None or table.number is None:
        return None
    people = np.bincount(table.a, minlength=len(table.groups))
    withheld = np.bincount(table.a, missingness.withheld(table.number), minlength=len(table.groups))
    rates = np.divide(withheld, people, out=np.full(len(people), np.nan), where=people > 0)
    return np.column_stack([np.diag(1 - rates), rates])


def _transmit(truth: Integers, channel: np.ndarray, generator: np.random.Generator) -> Integers:
    upper = channel.cumsum(axis=1)[truth, :-1]
    return (generator.random((len(truth), 1)) >= upper).sum(axis=1)
