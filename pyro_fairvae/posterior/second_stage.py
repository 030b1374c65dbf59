r"""Posterior of a channel given scores of networks that were not trained on the rows they score.

The scores :math:`\hat h(a|x)` are cross-fitted (:mod:`.cross_fitting`) and may be too sure, too unsure or
shifted. They are recalibrated while the channel is learned, so that its posterior has the uncertainty of
both. With :math:`s = \log \hat h(\cdot|x) - \log \hat h(\text{last}|x)`, conditions v and the label y,

.. math:: h(\cdot|x,y) = \mathrm{softmax}(b + C s + D v), \quad
          P(\tilde a | x) = \sum_y q(y|x,\tilde y) \sum_a h(a|x,y)\, P(\tilde a|a,v), \quad
          \mathrm{logit}\,P(∅|a,v) = \theta_a + (w + \delta_a) \cdot v,

where C is around the identity, D around 0, shares of groups in the population have a Dirichlet prior, worth
one person of each group, :math:`\theta_a` is the logit of the channel's row, which has its
Dirichlet prior, and :math:`w \sim N(0, \sigma^2)` (:meth:`Channel.tilted`). The effects of v may differ
between groups by :math:`\delta_a`, which is around 0. How far D and δ are from 0 is learned for each feature,
and for features with many columns, such as places, how far w is: their variances are those that make the rows
likeliest (:meth:`SecondStage.maximise`). Where the scores say nothing C is near 0, and the posterior is as
wide as it should be.

Many tables are fitted at once. :mod:`.stage_draws` draws from the posterior around its maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.posterior.scored_rows import ScoredRows
from pyro_fairvae.schema.attributes import UNAVAILABLE

SHIFT = 3.0  # standard deviation of b
PEOPLE_OF_GROUP = 1.0  # people that the prior of each group's share is worth
STRETCH = 1.0  # standard deviation of an entry of C around the identity
FIRST_DEVIATION = 0.1  # of an entry of D and δ, before it is learned
PSEUDO = 20.0  # coefficients that the prior of a deviation of D and δ is worth
LEAST_DEVIATION = 0.02
MOST_DEVIATION = 1.0
MANY = 8  # columns of a feature whose w are random effects
ROUNDS = 60  # of scoring, at most
STEPS = 6  # of scoring with the same information
CLOSE = 0.01  # to the maximum, in log-density
NEAR = 10.0  # to the maximum, from where variances are learned
SETTLED = 0.03  # change of a log deviation
MOST_CHANGE = math.log(3)  # of a log deviation in a round
MOST_HASTE = 4.0  # factor on changes that go on in one direction
AVERAGED = 1 << 13  # rows that a population's rates, and steps' information, are averaged over, at most
ELEMENTS = 1 << 24  # numbers in memory at once
DIFFERENCE = 1e-5  # of central differences


class Parameters(NamedTuple):
    """The parameters of tables, (…, tables, …)."""

    recalibration: Tensor  # b and C, (…, values − 1, values)
    of_conditions: Tensor  # D, (…, values − 1, columns)
    ratios: Tensor  # the rows of the channel as log-ratios, (…, P)
    effects: Tensor  # w, (…, attributes, columns)
    differences: Tensor  # δ, (…, values of all attributes, columns)


class SecondStage:
    """The density of b, C, D, the channel's rows, w and δ given scored rows, for tables side by side.

    Parameters are a vector for each table (:class:`Parameters`); ``scale`` is the prior standard deviation of
    w, for each column or for all. ``owners`` are the features that columns of v belong to: those of a feature
    have one variance in D, one in δ, and, if there are many of them, one in w.
    """

    def __init__(
        self,
        channel: Channel,
        rows: ScoredRows,
        scale: float | Sequence[float] = 1.0,
        owners: Sequence[str] | None = None,
    ) -> None:
        self.channel, self.rows = channel, rows
        self.tables, _, self.others = rows.scores.shape
        self.columns = rows.conditions.shape[-1] + rows.label_columns.shape[-1]
        self.design = torch.cat([torch.ones_like(rows.scores[..., :1]), rows.scores, rows.conditions], dim=-1)
        self.owners = list(owners) if owners is not None else [""] * self.columns
        self.scale = rows.scores.new_tensor(scale).expand(self.columns)
        self.priors = [channel.concentration(row, rows.scores) for row in range(len(channel.rows))]
        attributes = channel.attributes
        values = np.array([len(several) for several in attributes.values])
        # The attribute of each value, and the place of each attribute's value in each group.
        place = (np.cumsum(values) - values + attributes.group_parts).T.copy()
        self.attribute_of, self.value_of = (
            torch.from_numpy(which).to(rows.scores.device)
            for which in (np.repeat(np.arange(len(values)), values), place)
        )
        self.sizes = [
            len(self._recalibration_centre()),
            self.others * self.columns,
            sum(len(prior) - 1 for prior in self.priors),
            len(attributes.names) * self.columns,
            len(self.attribute_of) * self.columns,
        ]
        self.centre = torch.cat([self._recalibration_centre(), rows.scores.new_zeros(sum(self.sizes[1:]))])
        free = torch.minimum(self.scale, rows.scores.new_tensor(FIRST_DEVIATION))
        # Prior standard deviations of D, w and δ, (tables, 3, columns).
        self.deviations = torch.stack([torch.full_like(free, FIRST_DEVIATION), self.scale, free]).repeat(
            self.tables, 1, 1
        )

    def _recalibration_centre(self) -> Tensor:
        """The parameters of b and C where scores stay as they are: b = 0 and C the identity."""
        shift = self.rows.scores.new_zeros(self.others, 1)
        return torch.cat([shift, _identity(self.others, shift)], 1).flatten()

    def _recalibration_deviations(self) -> Tensor:
        """Prior standard deviations of the parameters of b and C."""
        deviations = self.rows.scores.new_full((self.others, 1 + self.others), STRETCH)
        deviations[:, 0] = SHIFT
        return deviations.flatten()

    def _recalibration(self, parameters: Tensor) -> Tensor:
        """b and C, (…, values − 1, values), of their parameters."""
        return parameters.unflatten(-1, (self.others, 1 + self.others))

    @property
    def precision(self) -> Tensor:
        """Prior precision of each parameter, (tables, parameters); rows have a prior of their own."""
        of_conditions, effects, differences = (self.deviations**-2).unbind(1)
        parts = [
            (self._recalibration_deviations() ** -2).expand(self.tables, -1),
            of_conditions.repeat(1, self.others),
            self.rows.scores.new_zeros(self.tables, self.sizes[2]),
            effects.repeat(1, len(self.channel.attributes.names)),
            differences.repeat(1, len(self.attribute_of)),
        ]
        return torch.cat(parts, dim=-1)

    def split(self, q: Tensor) -> Parameters:
        """(…, tables, parameters) in parts."""
        recalibration, of_conditions, ratios, effects, differences = q.split(self.sizes, dim=-1)
        return Parameters(
            self._recalibration(recalibration),
            of_conditions.unflatten(-1, (self.others, self.columns)),
            ratios,
            effects.unflatten(-1, (len(self.channel.attributes.names), self.columns)),
            differences.unflatten(-1, (len(self.attribute_of), self.columns)),
        )

    def row_draws(self, ratios: Tensor) -> list[Tensor]:
        """Each row on its support, (…, support)."""
        parts = ratios.split([len(prior) - 1 for prior in self.priors], dim=-1)
        return [torch.cat([part, torch.zeros_like(part[..., :1])], dim=-1).softmax(-1) for part in parts]

    def coefficients(self, q: Tensor) -> Tensor:
        """Of 1, s and v, (…, predictors, 1 + values − 1 + columns).

        Predictors are the logits of h and, where there are conditions, what is added to the logit of ∅ for
        every value of every attribute.
        """
        parts = self.split(q)
        of_logits = torch.cat([parts.recalibration, parts.of_conditions], dim=-1)
        if not self.columns:
            return of_logits
        tilts = parts.effects[..., self.attribute_of, :] + parts.differences
        zero = tilts.new_zeros(*tilts.shape[:-1], 1 + self.others)
        return torch.cat([of_logits, torch.cat([zero, tilts], dim=-1)], dim=-2)

    def predictors(self, q: Tensor) -> Tensor:
        """(…, tables, rows, classes, predictors)."""
        coefficients = self.coefficients(q)
        of_x, of_y = coefficients.split([self.design.shape[-1], self.rows.label_columns.shape[-1]], dim=-1)
        return (self.design @ of_x.mT).unsqueeze(-2) + (self.rows.label_columns @ of_y.mT).unsqueeze(-3)

    def log_shares(self, predictors: Tensor) -> Tensor:
        """log h, (…, values)."""
        logits = predictors[..., : self.others]
        return torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).log_softmax(-1)

    def tilt(self, predictors: Tensor) -> Tensor | None:
        """What is added to the logit of ∅, (…, attributes, groups); None without conditions."""
        return predictors[..., self.others + self.value_of] if self.columns else None

    def row_log_likelihood(
        self, predictors: Tensor, ratios: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """log P(ã|x) of each row, (…, tables, rows), of what was recorded unless ``observed`` is given."""
        leading = predictors.shape[:-3]
        matrix = self.channel.matrix(self.row_draws(ratios)).flatten(0, -3)
        observed = self.rows.observed if observed is None else observed
        observed = observed.expand(leading + observed.shape[1:]).flatten(0, -2)
        cell, tilt = self.rows.cell, self.tilt(predictors)
        if cell is not None:
            cell = cell.expand(leading + cell.shape[1:]).flatten(0, len(leading) - 1)
        if tilt is not None:
            tilt = tilt.flatten(0, len(leading) - 1)
        log_channel = self.channel.log_likelihood(matrix, observed, tilt, cell)
        if tilt is None:
            log_channel = log_channel.unsqueeze(-2)
        log_joint = self.log_shares(predictors) + log_channel.unflatten(0, leading)
        by_class = log_joint.logsumexp(-1)
        if by_class.shape[-1] == 1:
            return by_class.squeeze(-1)
        return (by_class + self.rows.labels.clamp(min=1e-30).log()).logsumexp(-1)

    def log_prior(self, q: Tensor) -> Tensor:
        """Log-density of the prior, (…, tables), up to a constant."""
        normal = -((q - self.centre) ** 2 * self.precision).sum(-1) / 2
        rows = self.row_draws(self.split(q).ratios)
        # The Dirichlet density of a softmax, its Jacobian included, is Σ mass · log probability.
        return normal + sum(
            (prior * row.clamp(min=1e-300).log()).sum(-1)
            for prior, row in zip(self.priors, rows, strict=True)
        )

    def log_density(self, q: Tensor) -> Tensor:
        """Log of the posterior, (…, tables), up to a constant; q is (…, tables, parameters)."""
        weights, ratios = self.rows.weights, self.split(q).ratios
        if self.columns:
            predictors = self.predictors(q)
            log_likelihood = (weights * self.row_log_likelihood(predictors, ratios)).sum(-1)
            shares = (self.log_shares(predictors).exp() * self.rows.labels.unsqueeze(-1)).sum(-2)
            people = weights
        else:
            # The lines of a cell differ in their outcome alone.
            counts = weights.unflatten(-1, (-1, self.channel.outcomes))
            shares = self.log_shares(self.design[:, :: self.channel.outcomes] @ self.coefficients(q).mT).exp()
            likelihood = shares @ self.channel.matrix(self.row_draws(ratios))
            log_likelihood = (counts * likelihood.clamp(min=1e-300).log()).sum((-1, -2))
            people = counts.sum(-1)
        in_population = (shares * people.unsqueeze(-1)).sum(-2) / people.sum(-1, keepdim=True)
        of_shares = PEOPLE_OF_GROUP * in_population.clamp(min=1e-300).log().sum(-1)
        return log_likelihood + of_shares + self.log_prior(q)

    def gradient(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Log-density and its gradient."""
        q = q.detach().requires_grad_()
        density = self.log_density(q)
        (slope,) = torch.autograd.grad(density.sum(), q)
        return density.detach(), slope

    def information(self, q: Tensor, most: int | None = None) -> Tensor:
        """Expected information of the rows, and the prior's precision, (tables, parameters, parameters).

        With ``most``, that of so many evenly spaced rows at most, scaled.
        """
        of_rows = self.fewer(most)._information_of_rows(q.detach())
        return of_rows + self._prior_information(q.detach())

    def _prior_information(self, q: Tensor) -> Tensor:
        """Curvature of the prior, (tables, parameters, parameters)."""
        return torch.diag_embed(self.precision + self._row_precision(self.split(q).ratios))

    @torch.no_grad()
    def _information_of_rows(self, q: Tensor) -> Tensor:
        r"""Σ over rows and what they could have recorded of P(ã|x) times the outer product of slopes.

        Slopes along coefficients of x are slopes along predictors times x, so rows are summed for each pair
        of predictors; slopes along all other parameters, which are few, are taken as they are.
        """
        linear = self._linear
        predictors = linear.shape[-2]
        width = linear.shape[-1] - self.rows.label_columns.shape[-1]
        few = predictors * (linear.shape[-1] - width) + self.sizes[2]
        of_x = q.new_zeros(self.tables, predictors, width, predictors, width)
        across = q.new_zeros(self.tables, predictors, width, few)
        of_few = q.new_zeros(self.tables, few, few)
        at_once = max(1, ELEMENTS // (self.tables * (predictors + few) ** 2))
        for first in range(0, self.design.shape[1], at_once):
            piece = self._of_rows(self.rows.some(slice(first, first + at_once)))
            products = piece._products_of_slopes(q)  # (tables, rows, predictors + few, predictors + few)
            of_few += products[:, :, predictors:, predictors:].sum(1)
            for i in range(predictors):
                across[:, i] += piece.design.mT @ products[:, :, i, predictors:]
                for j in range(i, predictors):
                    block = (piece.design * products[:, :, i, j, None]).mT @ piece.design
                    of_x[:, i, :, j] += block
                    if i != j:
                        of_x[:, j, :, i] += block.mT
        big = predictors * width
        whole = q.new_zeros(self.tables, big + few, big + few)
        whole[:, :big, :big] = of_x.reshape(self.tables, big, big)
        whole[:, :big, big:] = across.flatten(1, 2)
        whole[:, big:, :big] = across.flatten(1, 2).mT
        whole[:, big:, big:] = of_few
        ratios = _identity(len(linear), q)[:, sum(self.sizes[:2]) : sum(self.sizes[:3])]
        along = torch.cat([linear[..., :width].flatten(1), linear[..., width:].flatten(1), ratios], dim=-1)
        return along @ whole @ along.mT

    @cached_property
    def _linear(self) -> Tensor:
        """Slopes of the coefficients along each parameter, (parameters, predictors, width)."""
        every = _identity(sum(self.sizes), self.rows.scores)
        return self.coefficients(every)

    def _products_of_slopes(self, q: Tensor) -> Tensor:
        """Mean outer products of slopes along predictors, coefficients of labels, and ratios, by row."""
        total: Tensor | float = 0.0
        predictors, ratios = self.predictors(q), self.split(q).ratios
        for outcome in np.flatnonzero(self.channel.possible.any(0)):
            observed = torch.full_like(self.rows.observed, int(outcome))
            with torch.enable_grad():
                along = predictors.detach().requires_grad_()
                log_likelihood = self.row_log_likelihood(along, ratios, observed)
                (slopes,) = torch.autograd.grad(log_likelihood.sum(), along)
            of_labels = torch.einsum("trym,tyk->trmk", slopes, self.rows.label_columns).flatten(-2)
            of_ratios = [
                self.row_log_likelihood(predictors, ratios + way, observed)
                - self.row_log_likelihood(predictors, ratios - way, observed)
                for way in DIFFERENCE * _identity(ratios.shape[-1], ratios)  # central differences
            ]
            every = torch.stack(of_ratios, dim=-1) / (2 * DIFFERENCE)
            every = torch.cat([slopes.sum(-2), of_labels, every], dim=-1)
            weight = self.rows.weights * log_likelihood.detach().exp()
            total = total + every.unsqueeze(-1) * (weight.unsqueeze(-1) * every).unsqueeze(-2)
        assert isinstance(total, Tensor)
        return total

    def fewer(self, most: int | None) -> Self:
        """A line for each cell, or evenly spaced rows, with the number of people it stands for."""
        if not self.columns:
            people = self.rows.weights.unflatten(-1, (-1, self.channel.outcomes)).sum(-1)
            return self._of_rows(self.rows.some(slice(None, None, self.channel.outcomes), people))
        every = 1 if most is None else math.ceil(self.design.shape[1] / most)
        some = self.rows.weights[:, ::every]
        scale = self.rows.weights.sum(-1, keepdim=True) / some.sum(-1, keepdim=True)
        return self._of_rows(self.rows.some(slice(None, None, every), some * scale))

    def of_tables(self, index: Tensor) -> Self:
        """The same for some of the tables, with the variances that were learned."""
        some = self._of_rows(self.rows.of_tables(index))
        some.deviations = self.deviations[index]
        return some

    def _of_rows(self, rows: ScoredRows) -> Self:
        return type(self)(self.channel, rows, self.scale.tolist(), self.owners)

    def _row_precision(self, ratios: Tensor) -> Tensor:
        """Curvature of the prior of the rows at their log-ratios, its diagonal, (tables, P)."""
        curvature = [
            (prior.sum() * row * (1 - row))[..., :-1]
            for prior, row in zip(self.priors, self.row_draws(ratios), strict=True)
        ]
        zeros = [ratios.new_zeros(len(ratios), sum(sizes)) for sizes in (self.sizes[:2], self.sizes[3:])]
        return torch.cat([zeros[0], *curvature, zeros[1]], dim=-1)

    def start(self) -> Tensor:
        """Rows at the shares of ∅ in the tables, all else at the centre of its prior."""
        q = self.centre.repeat(self.tables, 1)
        first = sum(self.sizes[:2])
        withheld = torch.from_numpy(~self.channel.attributes.stated).to(self.rows.observed.device)
        share = (self.rows.weights * withheld[self.rows.observed]).sum(-1) / self.rows.weights.sum(-1)
        share = share.clamp(0.02, 0.98).unsqueeze(-1)
        for row, prior in zip(self.channel.rows, self.priors, strict=True):
            # Own values first: others keep the proportions of the prior.
            stated = torch.tensor([outcome != UNAVAILABLE for outcome in row.outcomes], device=q.device)
            mean = (prior / prior.sum()).expand(self.tables, -1)
            mean = torch.where(stated, mean * (1 - share) / (mean * stated).sum(-1, keepdim=True), share)
            width = len(prior) - 1
            q[:, first : first + width] = mean[:, :-1].log() - mean[:, -1:].log()
            first += width
        return q

    def maximise(self) -> tuple[Tensor, Tensor]:
        """The maximum and the information there, at the variances of D, w and δ that make the rows likeliest.

        By Fisher's scoring, and MacKay's fixed point for the variances: the sum of squares of a feature's
        coefficients by the number of them that the rows determine. The variance of w is that of its prior at
        most, and is learned only for features with many columns, which act as random effects; a few columns
        do not tell their variance.
        """
        q = self.start()
        before, haste = torch.zeros_like(self.deviations), torch.ones_like(self.deviations)
        for _ in range(ROUNDS):
            information = self.information(q, AVERAGED)
            q, gain = self._climb(q, torch.linalg.cholesky(information))
            settled = not self.columns
            if self.columns and gain < NEAR:
                change = self._change_of_deviations(q, information)
                haste = torch.where(change * before > 0, (1.5 * haste).clamp(max=MOST_HASTE), 1.0)
                before = change
                settled = float(change.abs().max()) < SETTLED
                self.deviations = self._within_bounds(self.deviations * (haste * change).exp())
            settled = self._smoothed(q, information) and settled
            if gain < CLOSE and settled:
                break
        return q, self.information(q)

    def _smoothed(self, q: Tensor, information: Tensor) -> bool:
        """Learn how smooth the channel is along ordered values; whether nothing changes any more."""
        return True

    def _climb(self, q: Tensor, factor: Tensor) -> tuple[Tensor, float]:
        """Steps of scoring with the same information, and how much the density of a table grew."""
        density, slope = self.gradient(q)
        start = density
        for _ in range(STEPS):
            step = torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1)
            size = torch.ones_like(density)
            for _ in range(12):
                with torch.no_grad():
                    better = self.log_density(q + size.unsqueeze(-1) * step) >= density - 1e-9
                if bool(better.all()):
                    break
                size = torch.where(better, size, size / 3)
            q = torch.where(better.unsqueeze(-1), q + size.unsqueeze(-1) * step, q)
            before = density
            density, slope = self.gradient(q)
            if float((density - before).abs().max()) < CLOSE:
                break
        return q, float((density - start).abs().max())

    def _change_of_deviations(self, q: Tensor, information: Tensor) -> Tensor:
        """What is to be added to the logs of the deviations of D, w and δ, (tables, 3, columns)."""
        variances = self.split(torch.linalg.inv(information).diagonal(dim1=-2, dim2=-1))
        parts = self.split(q)
        change = torch.zeros_like(self.deviations)
        for kind, (value, variance) in enumerate(
            [
                (parts.of_conditions, variances.of_conditions),
                (parts.effects, variances.effects),
                (parts.differences, variances.differences),
            ]
        ):
            for owner in dict.fromkeys(self.owners):
                place = [k for k, name in enumerate(self.owners) if name == owner]
                if kind == 1 and len(place) < MANY:
                    continue
                deviation = self.deviations[:, kind, place]
                determined = 1 - variance[..., place] / deviation.unsqueeze(-2) ** 2
                total = determined.clamp(min=0).sum((-1, -2)).clamp(min=1e-3)
                squares = (value[..., place] ** 2).sum((-1, -2))
                if kind != 1:  # around what they are before they are learned
                    total, squares = total + PSEUDO, squares + PSEUDO * FIRST_DEVIATION**2
                likeliest = (squares / total).sqrt().unsqueeze(-1)
                change[:, kind, place] = (likeliest / deviation).log().clamp(-MOST_CHANGE, MOST_CHANGE)
        return self._within_bounds(self.deviations * change.exp()).log() - self.deviations.log()

    def _within_bounds(self, deviations: Tensor) -> Tensor:
        """Deviations of w and δ are that of w's prior at most; where it is 0, so are they."""
        scale = torch.stack([torch.full_like(self.scale, MOST_DEVIATION), self.scale, self.scale])
        return torch.minimum(deviations.clamp(min=LEAST_DEVIATION), scale)


def _identity(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)
