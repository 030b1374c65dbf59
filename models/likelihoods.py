"""Distributions of a table's row, p(x | a, y, z), given a decoder's output for each column."""

from __future__ import annotations

from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn import functional

from pyro_fairvae.schema.image_rows import Pixels
from pyro_fairvae.schema.observed import Columns, PossiblePairs


class MixedColumns(dist.TorchDistribution):
    r"""Normal for each number, Categorical for each one-hot block, independent given the parameters.

    .. math:: \log p(x) = \sum_j \log N(x_j; \mu_j, \sigma_j)
              + \sum_b \Big( \sum_{c \in b} x_c\, l_c - \log \sum_{c \in b} e^{l_c} \Big)

    ``parameters`` is (…, columns): the means :math:`\mu`, then the logits :math:`l` of the blocks;
    ``log_scale`` broadcasts against the numbers.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, parameters: Tensor, log_scale: Tensor, columns: Columns | Pixels) -> None:
        self.parameters, self.log_scale, self.columns = parameters, log_scale, columns
        super().__init__(parameters.shape[:-1], parameters.shape[-1:], validate_args=False)

    def _split(self, values: Tensor) -> tuple[Tensor, list[Tensor]]:
        numbers, *blocks = values.split([self.columns.numbers, *self.columns.blocks], dim=-1)
        return numbers, blocks

    def expand(self, batch_shape: Any, _instance: Any = None) -> MixedColumns:
        shape = torch.Size(batch_shape)
        return MixedColumns(
            self.parameters.expand(*shape, self.parameters.shape[-1]), self.log_scale, self.columns
        )

    def log_prob(self, value: Tensor) -> Tensor:
        loc, logits = self._split(self.parameters)
        numbers, chosen = self._split(value)
        normal = dist.Normal(loc, self.log_scale.exp(), validate_args=False)
        total = normal.log_prob(numbers).sum(-1)
        for block, one_hot in zip(logits, chosen, strict=True):
            # The fused cross entropy costs less than half of logsumexp and a product with x.
            category = one_hot.argmax(-1).expand(block.shape[:-1]).reshape(-1)
            surprise = functional.cross_entropy(block.flatten(0, -2), category, reduction="none")
            total = total - surprise.view_as(total)
        return total

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            loc, logits = self._split(self.parameters)
            drawn = [dist.Normal(loc, self.log_scale.exp()).sample(sample_shape)]
            drawn += [dist.OneHotCategorical(logits=block).sample(sample_shape) for block in logits]
            return torch.cat(drawn, dim=-1)


class NormalColumns(MixedColumns):
    """The paper's decoder: every column is Normal, one-hot columns too."""

    def __init__(self, parameters: Tensor, log_scale: Tensor, columns: Columns | Pixels) -> None:
        super().__init__(parameters, log_scale, Columns(numbers=columns.decoded))


class OfPossiblePairs(dist.TorchDistribution):
    r"""p(x | a, y, z) at the (y, a) that a row's ỹ and ã leave possible, with y and a enumerated.

    ``of_pairs`` has the batch shape (members, pairs). The log-density is (groups, classes, members, rows),
    with 0 where (y, a) is impossible: the guide's q(y, a) is 0 there, so that it counts for nothing, and a
    row that states label and group costs one pass of the decoder in place of one for each (y, a).
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(
        self, of_pairs: dist.TorchDistribution, pairs: PossiblePairs, groups: int, classes: int, rows: int
    ) -> None:
        self.of_pairs, self.pairs = of_pairs, pairs
        shape = torch.Size((groups, classes, of_pairs.batch_shape[0], rows))
        super().__init__(shape, of_pairs.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.of_pairs.support

    def log_prob(self, value: Tensor) -> Tensor:
        groups, classes, members, rows = self.batch_shape
        found: Tensor = self.of_pairs.log_prob(value[self.pairs.rows])
        place = (self.pairs.groups * classes + self.pairs.labels) * rows + self.pairs.rows
        every = found.new_zeros(members, groups * classes * rows).index_copy(1, place, found)
        return every.view(members, groups, classes, rows).movedim(0, 2)


LIKELIHOODS: dict[str, type[MixedColumns]] = {"mixed": MixedColumns, "normal": NormalColumns}
