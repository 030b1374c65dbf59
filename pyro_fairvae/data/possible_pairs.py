"""The (y, a) of each row that can have produced what it states, for batches of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.base.ranks import ALONE, Ranks
from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.schema.observed import Observed, PossiblePairs


class PairsOfRows:
    """Finds the possible pairs of batches of a table whose rows all members share.

    They are found on the CPU, where their number is known without waiting for the device, and copied to it
    for ``steps_at_once`` batches together.
    """

    def __init__(
        self, table: Observed, channel_a: Channel, channel_y: Channel, steps_at_once: int = 64
    ) -> None:
        self.steps_at_once = steps_at_once
        of_y, of_a = (_possible(channel) for channel in (channel_y, channel_a))
        outcomes = channel_a.outcomes
        together = (of_y.T[:, None, :, None] & of_a.T[None, :, None, :]).reshape(len(of_y.T) * outcomes, -1)
        self.classes, self.groups = channel_y.values, channel_a.values
        self.some_impossible = not together.all()
        self._pairs = [np.flatnonzero(possible) for possible in together]  # of each (ỹ, ã), as y · groups + a
        self._stated = (table.y_obs * outcomes + table.a_obs).cpu().numpy()

    def of(
        self, order: Sequence[Tensor], elbo_rows: Callable[[int], int], ranks: Ranks = ALONE
    ) -> Iterator[PossiblePairs]:
        """Those of each batch of an epoch's order; ``elbo_rows`` says how many rows of a batch count.

        With ``ranks`` they are those of this rank's part of these rows.
        """
        for start in range(0, len(order), self.steps_at_once):
            batches = order[start : start + self.steps_at_once]
            steps = [ranks.part(index[: elbo_rows(len(index))]) for index in batches]
            sizes = [len(index) for index in steps]
            index = torch.cat(steps).cpu().numpy()
            row, pair = self._of_rows(self._stated[index])
            ends = np.cumsum(sizes)
            row_in_step = row - np.repeat(ends - sizes, sizes)[row]
            found = torch.from_numpy(np.stack([row_in_step, pair // self.groups, pair % self.groups]))
            counts = np.diff(np.searchsorted(row, ends), prepend=0)
            for part in found.to(order[0].device).split(counts.tolist(), dim=1):
                yield PossiblePairs(*part)

    def _of_rows(self, stated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows in order, each as often as it has pairs, and these pairs."""
        counts = np.array([len(pairs) for pairs in self._pairs])
        firsts = np.cumsum(counts) - counts
        row = np.repeat(np.arange(len(stated)), counts[stated])
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts[stated]) - counts[stated], counts[stated])
        return row, np.concatenate(self._pairs)[firsts[stated[row]] + place]


def _possible(channel: Channel) -> np.ndarray:
    """Whether each value can have produced each outcome, in any row of the table, (values, outcomes)."""
    return np.logical_or.reduce(channel.possible.reshape(-1, channel.values, channel.outcomes))
