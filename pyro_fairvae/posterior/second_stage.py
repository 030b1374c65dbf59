r"""Posterior of a channel given scores of networks that were not trained on the rows they score.

The scores :math:`\hat h(a|x)` are cross-fitted (:mod:`.cross_fitting`) and may be too sure, too unsure or
shifted. They are recalibrated while the channel is learned, so that its posterior has the uncertainty of
both. With :math:`s = \log \hat h(\cdot|x) - \log \hat h(\text{last}|x)`, conditions v and the label y,

.. math:: h(\cdot|x,y) = \mathrm{softmax}(b + C s + D v), \quad
          P(\tilde a | x) = \sum_y q(y|x,\tilde y) \sum_a h(a|x,y)\, P(\tilde a|a,v),

where C is around the identity, D around 0, and :math:`P(\tilde a|a,v)` is the channel, its rows with their
Dirichlet priors and :math:`w \sim N(0, \sigma^2)` (:meth:`Channel.tilted`). How far D is from 0 is learned,
and for features with many columns, such as places, how far w is: their variances are those that make the rows
likeliest (:meth:`SecondStage.learn_variances`). Where the scores
say nothing C is near 0, and the posterior is as wide as it should be.

Draws are made for many tables at once, in coordinates in which the posterior is about standard normal: the
maximum is found by Fisher's scoring, and the information there is the metric. They are drawn by importance
where that works, else by Hamiltonian Monte Carlo; with very many rows and conditions the posterior is normal
enough to be drawn as such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pyro_fairvae.channels.channel import Channel
from pyro_fairvae.posterior.sampler import bin_rows
from pyro_fairvae.schema.attributes import UNAVAILABLE

FARTHEST = 8.0  # log-odds of scores are clamped here
CELLS = 128  # at most, where no conditions tell rows apart
SHIFT = 3.0  # standard deviation of b
STRETCH = 1.0  # standard deviation of an entry of C around the identity
FREEDOM = 0.1  # first standard deviation of an entry of D
LEAST_FREEDOM = 0.02
MANY = 8  # columns of a feature whose effects are random
ROUNDS = 4  # of learning variances, at most
MOST_CHANGE = 3.0  # of a deviation in a round
SETTLED = 0.2  # change of a log deviation
MOST_ITERATIONS = 60  # of scoring
SAME_INFORMATION = 6  # iterations that use the same information
CLOSE = 0.1  # to the maximum, in log-density
LARGE = 10**7  # rows times parameters from which the posterior is taken as normal
WARMUP = 100
LEAPS = 6
ACCEPTED = 0.8  # share of proposals that the length of a leap aims at
WIDER = 1.5  # chains start this much farther from the maximum than the posterior's deviation
AVERAGED = 1 << 13  # rows that a population's rates and the information are averaged over, at most
PROPOSALS = 4000  # of a Student distribution with so many degrees of freedom:
TAILS = 5
ENOUGH = 600  # effective number of proposals that replaces a chain
ELEMENTS = 1 << 22  # numbers in memory at once
STEP = 1e-5  # of central differences
AT_ONCE = 1 << 13  # rows whose scores are in memory at once


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
    ) -> ScoredRows:
        """From scores ĥ, (tables, rows, values), and recorded outcomes, (tables, rows).

        The columns that a channel is crossed with are among the conditions, too: h may depend on them.
        """
        scores = log_odds(probabilities)
        tables, rows = observed.shape
        if conditions is None and labels is None:
            return ScoredRows._cells(probabilities, scores, observed, outcomes)
        return ScoredRows(
            scores,
            observed,
            scores.new_ones(tables, rows),
            scores.new_zeros(tables, rows, 0) if conditions is None else conditions.to(scores),
            scores.new_ones(tables, rows, 1) if labels is None else labels.to(scores),
            scores.new_zeros(tables, 1, 0) if label_columns is None else label_columns.to(scores),
            cell,
        )

    @staticmethod
    def _cells(probabilities: Tensor, scores: Tensor, observed: Tensor, outcomes: int) -> ScoredRows:
        """Rows with similar scores as one cell, a line for each of its outcomes."""
        means, counts = [], []
        for of_table, score, outcome in zip(probabilities, scores, observed, strict=True):
            cell = torch.from_numpy(bin_rows(of_table.double().cpu().numpy(), CELLS, 20)).to(outcome.device)
            size = int(cell.max()) + 1
            people = torch.bincount(cell, minlength=size)
            sums = score.new_zeros(size, score.shape[-1]).index_add_(0, cell, score)
            means.append(sums / people.unsqueeze(-1))
            counts.append(torch.bincount(cell * outcomes + outcome, minlength=size * outcomes))
        mean = torch.stack(means).repeat_interleave(outcomes, dim=1)
        weights = torch.stack(counts).to(mean)
        return ScoredRows(
            mean,
            torch.arange(outcomes, device=mean.device)
            .repeat(mean.shape[1] // outcomes)
            .expand(weights.shape),
            weights,
            mean.new_zeros(*weights.shape, 0),
            mean.new_ones(*weights.shape, 1),
            mean.new_zeros(len(mean), 1, 0),
        )


@dataclass(frozen=True)
class ChannelPosterior:
    """Draws of a channel and of what its withholding depends on."""

    rows: list[Tensor]  # each row, averaged over the population, (chains, draws, tables, support)
    at_mean: list[Tensor]  # posterior mean of each row at the mean of v, (tables, support)
    effects: Tensor  # w, (chains, draws, tables, attributes, columns of v)
    recalibration: Tensor  # posterior mean of b and C, (tables, values − 1, values)
    over_cells: dict[str, Tensor]  # P(∅|a) of a group whose rows are crossed, (chains, draws, tables)


def log_odds(probabilities: Tensor) -> Tensor:
    """Log-odds of scores against the last value, clamped, (…, values − 1)."""
    logs = probabilities.double().clamp(min=1e-12).log()
    return (logs[..., :-1] - logs[..., -1:]).clamp(-FARTHEST, FARTHEST)


def recalibrated(probabilities: Tensor, recalibration: Tensor) -> Tensor:
    """h of scores (rows, values), without what conditions add, given b and C."""
    scores = log_odds(probabilities)
    logits = torch.cat([torch.ones_like(scores[..., :1]), scores], dim=-1) @ recalibration.mT
    return torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).softmax(-1)


class SecondStage:
    """The density of b, C, D, the channel's rows and w given scored rows, for tables side by side.

    Parameters are a vector for each table: the coefficients of h for each value but the last, the rows of the
    channel as log-ratios, and w; ``scale`` is the prior standard deviation of w, for each column or for all.
    ``owners`` are the features that columns of v belong to: those of a feature have one variance in D, and,
    if there are many of them, in w, too.
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
        self.attributes = len(channel.attributes.names)
        self.features = rows.conditions.shape[-1]
        self.columns = self.features + rows.label_columns.shape[-1]
        self.design = torch.cat([torch.ones_like(rows.scores[..., :1]), rows.scores], dim=-1)
        self.owners = list(owners) if owners is not None else [""] * self.columns
        self.scale = rows.scores.new_tensor(scale).expand(self.columns)
        self.priors = [channel.concentration(row, rows.scores) for row in range(len(channel.rows))]
        self.sizes = [
            self.others * (1 + self.others),
            self.others * self.columns,
            sum(len(prior) - 1 for prior in self.priors),
            self.attributes * self.columns,
        ]
        centre = torch.cat([rows.scores.new_zeros(self.others, 1), torch.eye(self.others).to(rows.scores)], 1)
        self.centre = torch.cat([centre.flatten(), rows.scores.new_zeros(sum(self.sizes[1:]))])
        self.freedom = rows.scores.new_full((self.tables, self.columns), FREEDOM)  # deviation of D
        self.spread = self.scale.expand(self.tables, -1)  # deviation of w

    @property
    def precision(self) -> Tensor:
        """Prior precision of each parameter, (tables, parameters); rows have a prior of their own."""
        like = self.rows.scores
        recalibration = like.new_full((self.others, 1 + self.others), STRETCH**-2)
        recalibration[:, 0] = SHIFT**-2
        parts = [recalibration.flatten().expand(self.tables, -1), (self.freedom**-2).repeat(1, self.others)]
        parts += [like.new_zeros(self.tables, self.sizes[2]), (self.spread**-2).repeat(1, self.attributes)]
        return torch.cat(parts, dim=-1)

    def split(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(…, tables, parameters) as b and C, D, the rows' log-ratios, and w."""
        recalibration, of_conditions, ratios, effects = q.split(self.sizes, dim=-1)
        return (
            recalibration.unflatten(-1, (self.others, 1 + self.others)),
            of_conditions.unflatten(-1, (self.others, self.columns)),
            ratios,
            effects.unflatten(-1, (self.attributes, self.columns)),
        )

    def row_draws(self, ratios: Tensor) -> list[Tensor]:
        """Each row on its support, (…, support)."""
        parts = ratios.split([len(prior) - 1 for prior in self.priors], dim=-1)
        return [torch.cat([part, torch.zeros_like(part[..., :1])], dim=-1).softmax(-1) for part in parts]

    def predictors(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of h, (…, tables, rows, classes, values − 1), and tilts, (…, rows, classes, attributes)."""
        recalibration, of_conditions, _, effects = self.split(q)
        logits = self.design @ recalibration.mT
        of_x, of_y = of_conditions.split([self.features, self.columns - self.features], dim=-1)
        w_x, w_y = effects.split([self.features, self.columns - self.features], dim=-1)
        if self.features:
            logits = logits + self.rows.conditions @ of_x.mT
        tilt = self.rows.conditions @ w_x.mT
        labels = self.rows.label_columns
        return (
            logits.unsqueeze(-2) + (labels @ of_y.mT).unsqueeze(-3),
            tilt.unsqueeze(-2) + (labels @ w_y.mT).unsqueeze(-3),
        )

    def log_shares(self, logits: Tensor) -> Tensor:
        """log h, (…, values)."""
        return torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).log_softmax(-1)

    def row_log_likelihood(
        self, logits: Tensor, tilt: Tensor, ratios: Tensor, observed: Tensor | None = None
    ) -> Tensor:
        """log P(ã|x) of each row, (…, tables, rows), of what was recorded unless ``observed`` is given."""
        leading = logits.shape[:-3]
        matrix = self.channel.matrix(self.row_draws(ratios)).flatten(0, -3)
        observed = self.rows.observed if observed is None else observed
        observed = observed.expand(leading + observed.shape[1:]).flatten(0, -2)
        cell = self.rows.cell
        if cell is not None:
            cell = cell.expand(leading + cell.shape[1:]).flatten(0, len(leading) - 1)
        log_channel = self.channel.log_likelihood(
            matrix, observed, tilt.flatten(0, -4) if self.columns else None, cell
        )
        if not self.columns:
            log_channel = log_channel.unsqueeze(-2)
        log_joint = self.log_shares(logits) + log_channel.unflatten(0, leading)
        by_class = log_joint.logsumexp(-1)
        if by_class.shape[-1] == 1:
            return by_class.squeeze(-1)
        return (by_class + self.rows.labels.clamp(min=1e-30).log()).logsumexp(-1)

    def log_prior(self, q: Tensor) -> Tensor:
        """Log-density of the prior, (…, tables), up to a constant."""
        normal = -((q - self.centre) ** 2 * self.precision).sum(-1) / 2
        rows = self.row_draws(self.split(q)[2])
        # The Dirichlet density of a softmax, its Jacobian included, is Σ mass · log probability.
        return normal + sum(
            (prior * row.clamp(min=1e-300).log()).sum(-1)
            for prior, row in zip(self.priors, rows, strict=True)
        )

    def log_density(self, q: Tensor) -> Tensor:
        """Log of the posterior, (…, tables), up to a constant; q is (…, tables, parameters)."""
        return self.log_likelihood(q) + self.log_prior(q)

    def log_likelihood(self, q: Tensor) -> Tensor:
        """Log-likelihood of all rows, (…, tables)."""
        recalibration, _, ratios, _ = self.split(q)
        weights = self.rows.weights
        if self.columns:
            return (weights * self.row_log_likelihood(*self.predictors(q), ratios)).sum(-1)
        # The lines of a cell differ in their outcome alone.
        outcomes = self.channel.outcomes
        shares = self.log_shares(self.design[:, ::outcomes] @ recalibration.mT).exp()
        likelihood = shares @ self.channel.matrix(self.row_draws(ratios))
        return (weights.unflatten(-1, (-1, outcomes)) * likelihood.clamp(min=1e-300).log()).sum((-1, -2))

    def gradient(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Log-density and its gradient."""
        q = q.detach().requires_grad_()
        density = self.log_density(q)
        (slope,) = torch.autograd.grad(density.sum(), q)
        return density.detach(), slope

    def information(self, q: Tensor) -> Tensor:
        """Expected information of the rows, and the prior's precision, (tables, parameters, parameters).

        Of a large table it is that of evenly spaced rows, scaled.
        """
        some = self._representatives
        logits, tilt = (part.detach() for part in some.predictors(q))
        ratios = self.split(q)[2].detach()
        total = torch.diag_embed(self.precision + self._row_precision(ratios))
        for outcome in np.flatnonzero(self.channel.possible.any(0)):
            observed = torch.full_like(some.rows.observed, int(outcome))
            log_likelihood, scores = some._scores(logits, tilt, ratios, observed)
            weights = (some.rows.weights * log_likelihood.exp()).unsqueeze(-1)
            for rows, weight in zip(scores.split(AT_ONCE, 1), weights.split(AT_ONCE, 1), strict=True):
                total = total + (rows * weight).mT @ rows
        return total

    @cached_property
    def _representatives(self) -> SecondStage:
        """A line for each cell, or some of the rows, with the number of people it stands for."""
        if not self.columns:
            outcomes = self.channel.outcomes
            people = self.rows.weights.unflatten(-1, (-1, outcomes)).sum(-1)
            return self._thinned(outcomes, people)
        every = math.ceil(self.design.shape[1] / AVERAGED)
        some = self.rows.weights[:, ::every]
        scale = self.rows.weights.sum(-1, keepdim=True) / some.sum(-1, keepdim=True)
        return self._thinned(every, some * scale)

    def _scores(
        self, logits: Tensor, tilt: Tensor, ratios: Tensor, observed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log P(ã|x) of each row, and its slopes along all parameters, (tables, rows, parameters)."""
        logits, tilt = logits.requires_grad_(), tilt.requires_grad_()
        people = self.row_log_likelihood(logits, tilt, ratios, observed)
        of_logits, of_tilt = torch.autograd.grad(people.sum(), (logits, tilt), allow_unused=True)
        logits, tilt = logits.detach(), tilt.detach()
        of_tilt = torch.zeros_like(tilt) if of_tilt is None else of_tilt
        of_ratios = []
        for way in STEP * torch.eye(ratios.shape[-1]).to(ratios):  # central differences
            ahead = self.row_log_likelihood(logits, tilt, ratios + way, observed)
            of_ratios.append(
                (ahead - self.row_log_likelihood(logits, tilt, ratios - way, observed)) / (2 * STEP)
            )
        parts = [
            (of_logits.sum(-2).unsqueeze(-1) * self.design.unsqueeze(-2)).flatten(-2),
            self._along_conditions(of_logits),
            torch.stack(of_ratios, dim=-1),
            self._along_conditions(of_tilt),
        ]
        return people.detach(), torch.cat(parts, dim=-1)

    def _along_conditions(self, slopes: Tensor) -> Tensor:
        """Slopes (tables, rows, classes, m) times the columns of v, (tables, rows, m·columns)."""
        of_x = slopes.sum(-2).unsqueeze(-1) * self.rows.conditions.unsqueeze(-2)
        of_labels = torch.einsum("trym,tyk->trmk", slopes, self.rows.label_columns)
        return torch.cat([of_x, of_labels], dim=-1).flatten(-2)

    def _row_precision(self, ratios: Tensor) -> Tensor:
        """Curvature of the prior of the rows at their log-ratios, its diagonal, (tables, P)."""
        curvature = [
            (prior.sum() * row * (1 - row))[..., :-1]
            for prior, row in zip(self.priors, self.row_draws(ratios), strict=True)
        ]
        zeros = [ratios.new_zeros(len(ratios), size) for size in (sum(self.sizes[:2]), self.sizes[3])]
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

    def maximise(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """The maximum from ``q`` on, (tables, parameters), and the information there, by scoring."""
        density, slope = self.gradient(q)
        for iteration in range(MOST_ITERATIONS):
            if iteration % SAME_INFORMATION == 0:
                factor = torch.linalg.cholesky(self.information(q))
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
        return q, self.information(q)

    def learn_variances(self) -> tuple[Tensor, Tensor]:
        """The maximum and the information there, at the variances of D and w that make the rows likeliest.

        By MacKay's fixed point for each feature: the sum of squares by the number of coefficients that the
        rows determine. The variance of w is that of its prior at most, and is learned only for features with
        many columns, which act as random effects; a few columns do not tell their variance.
        """
        q, information = self.maximise(self.start())
        for _ in range(ROUNDS if self.columns else 0):
            _, of_conditions, _, effects = self.split(q)
            variances = self.split(torch.linalg.inv(information).diagonal(dim1=-2, dim2=-1))
            before = torch.cat([self.freedom, self.spread], dim=-1)
            self.freedom = self._likeliest(of_conditions, variances[1], self.freedom, 1).clamp(max=1.0)
            self.spread = torch.minimum(self._likeliest(effects, variances[3], self.spread, MANY), self.scale)
            change = (torch.cat([self.freedom, self.spread], dim=-1) / before).log().abs()
            q, information = self.maximise(q)
            if float(change.max()) < SETTLED:
                break
        return q, information

    def _likeliest(self, values: Tensor, variances: Tensor, deviation: Tensor, fewest: int) -> Tensor:
        """New standard deviations of coefficients (tables, …, columns), (tables, columns)."""
        learned = deviation.clone()
        for owner in set(self.owners):
            place = [k for k, name in enumerate(self.owners) if name == owner]
            if len(place) < fewest:
                continue
            before = deviation[:, place].mean(-1)
            determined = (1 - variances[..., place] / before[:, None, None] ** 2).clamp(min=0).sum((-1, -2))
            likeliest = ((values[..., place] ** 2).sum((-1, -2)) / determined.clamp(min=1e-3)).sqrt()
            step = (likeliest / before).clamp(1 / MOST_CHANGE, MOST_CHANGE)
            learned[:, place] = (before * step).clamp(min=LEAST_FREEDOM).unsqueeze(-1)
        return learned

    def sample(
        self, q: Tensor, information: Tensor, draws: int, chains: int, seed: int, every: int = 1
    ) -> Tensor:
        """Draws, (chains, draws, tables, parameters), around a maximum.

        Proposals of a Student distribution are drawn again by their weights, where enough of them count;
        other tables are drawn by Hamiltonian Monte Carlo, ``every`` times as long. With many rows and
        parameters the normal approximation is drawn.
        """
        if self.rows.observed.shape[1] * q.shape[-1] > LARGE:
            noise = torch.Generator().manual_seed(seed)
            normal = torch.randn(chains, draws, *q.shape, generator=noise, dtype=torch.float64).to(q)
            return q + _unwhitened(torch.linalg.cholesky(information), normal)
        drawn, enough = self._resample(q, information, draws * chains, seed)
        drawn = drawn.unflatten(0, (chains, draws))
        rest = torch.nonzero(~enough).flatten()
        if len(rest):
            some = self.of_tables(rest)
            drawn[:, :, rest] = some._hamiltonian(q[rest], information[rest], draws, chains, seed, every)
        return drawn

    @torch.no_grad()
    def _resample(self, q: Tensor, information: Tensor, draws: int, seed: int) -> tuple[Tensor, Tensor]:
        """Draws (draws, tables, parameters) by importance, and which tables have enough of them."""
        noise = torch.Generator().manual_seed(seed)
        normal = torch.randn(PROPOSALS, *q.shape, generator=noise, dtype=torch.float64)
        chi2 = torch.randn(PROPOSALS, len(q), TAILS, generator=noise, dtype=torch.float64).square().mean(-1)
        x = (normal / chi2.sqrt().unsqueeze(-1)).to(q)
        log_proposal = -(TAILS + q.shape[-1]) / 2 * torch.log1p((x**2).sum(-1) / TAILS)
        place = q + _unwhitened(torch.linalg.cholesky(information), x)
        at_once = max(
            1, ELEMENTS // (self.rows.observed.numel() * self.rows.labels.shape[-1] * (self.others + 1))
        )
        density = torch.cat([self.log_density(piece) for piece in place.split(at_once)])
        weights = (density - log_proposal).nan_to_num(-torch.inf, posinf=-torch.inf).softmax(0)
        enough = weights.square().sum(0) * ENOUGH < 1
        chosen = torch.multinomial(weights.T.cpu(), draws, replacement=True, generator=noise).T.to(q.device)
        return place.gather(0, chosen.unsqueeze(-1).expand(-1, -1, q.shape[-1])), enough

    def of_tables(self, index: Tensor) -> SecondStage:
        """The same for some of the tables, with the variances that were learned."""
        rows = self.rows
        fewer = ScoredRows(
            rows.scores[index],
            rows.observed[index],
            rows.weights[index],
            rows.conditions[index],
            rows.labels[index],
            rows.label_columns[index],
            None if rows.cell is None else rows.cell[index],
        )
        some = SecondStage(self.channel, fewer, self.scale.tolist(), self.owners)
        some.freedom, some.spread = self.freedom[index], self.spread[index]
        return some

    def _hamiltonian(
        self, q: Tensor, information: Tensor, draws: int, chains: int, seed: int, every: int
    ) -> Tensor:
        """Draws, (chains, draws, tables, parameters), by Hamiltonian Monte Carlo around a maximum."""
        like = q
        noise = torch.Generator().manual_seed(seed)
        factor = torch.linalg.cholesky(information)

        def normal() -> Tensor:
            return torch.randn(chains, *q.shape, generator=noise, dtype=torch.float64).to(like)

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=noise, dtype=torch.float64).to(like)

        def place(x: Tensor) -> Tensor:
            return q + _unwhitened(factor, x)

        def gradient(x: Tensor) -> tuple[Tensor, Tensor]:
            density, slope = self.gradient(place(x))
            slope = torch.linalg.solve_triangular(factor, slope.unsqueeze(-1), upper=False).squeeze(-1)
            return density, slope

        x = WIDER * normal()
        density, slope = gradient(x)
        leap = like.new_full((len(q),), 1.2 * q.shape[-1] ** -0.25)
        kept = []
        for step in range(WARMUP + draws * every):
            length = leap.unsqueeze(-1) * (0.8 + 0.4 * uniform(1))
            momentum = normal()
            energy = density - (momentum**2).sum(-1) / 2
            moved, moved_slope = x, slope
            momentum = momentum + length / 2 * slope
            for last in [False] * (LEAPS - 1) + [True]:
                moved = moved + length * momentum
                moved_density, moved_slope = gradient(moved)
                momentum = momentum + length * moved_slope * (0.5 if last else 1)
            change = moved_density - (momentum**2).sum(-1) / 2 - energy
            change = torch.where(change.isfinite(), change, -math.inf)
            accepted = uniform(*change.shape).log() < change
            x = torch.where(accepted.unsqueeze(-1), moved, x)
            slope = torch.where(accepted.unsqueeze(-1), moved_slope, slope)
            density = torch.where(accepted, moved_density, density)
            if step < WARMUP:
                leap = leap * torch.exp(0.1 * (change.clamp(max=0).exp().mean(0) - ACCEPTED))
            elif (step - WARMUP) % every == 0:
                kept.append(place(x))
        return torch.stack(kept, dim=1)

    @torch.no_grad()
    def posterior(self, draws: Tensor) -> ChannelPosterior:
        """Rows of the channel averaged over the people of its groups, and w, from draws of parameters."""
        rows: list[list[Tensor]] = [[] for _ in self.channel.rows]
        over_cells: dict[str, list[Tensor]] = {label: [] for label in self._crossed}
        for q in draws.flatten(0, 1):
            population, people = self._population(q)
            for store, row in zip(rows, population, strict=True):
                store.append(row)
            for label, several in self._crossed.items():
                mass = torch.stack([people[r] for r in several])
                rates = [population[r][:, self.channel.rows[r].outcomes.index(UNAVAILABLE)] for r in several]
                over_cells[label].append((mass * torch.stack(rates)).sum(0) / mass.sum(0))
        recalibration, _, ratios, effects = self.split(draws)
        return ChannelPosterior(
            [torch.stack(store).unflatten(0, draws.shape[:2]) for store in rows],
            [row.mean((0, 1)) for row in self.row_draws(ratios)],
            effects,
            recalibration.mean((0, 1)),
            {label: torch.stack(rates).unflatten(0, draws.shape[:2]) for label, rates in over_cells.items()},
        )

    @cached_property
    def _crossed(self) -> dict[str, list[int]]:
        """The rows of a group in different cells, by the group in words; all of them can be ∅."""
        attributes, found = self.channel.attributes, dict[str, list[int]]()
        for r, row in enumerate(self.channel.rows):
            if len(row.cells) == self.channel.cells:
                continue
            parts = attributes.group_parts[row.groups]
            others = [
                values[part[0]]
                for name, values, part in zip(attributes.names, attributes.values, parts.T, strict=True)
                if name != row.attribute and np.ptp(part) == 0
            ]
            prefix = f"{row.attribute}: " if len(attributes.names) > 1 else ""
            found.setdefault(prefix + ", ".join([row.own, *others]), []).append(r)
        outcomes = [row.outcomes for row in self.channel.rows]
        return {group: rs for group, rs in found.items() if all(UNAVAILABLE in outcomes[r] for r in rs)}

    def _population(self, q: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Each row averaged over the people it holds for, (tables, support), and their number, (tables,)."""
        plain = self.row_draws(self.split(q)[2])
        if not self.columns:
            return plain, []
        some = self._representatives
        logits, tilt = some.predictors(q)
        people = some.log_shares(logits).exp() * some.rows.labels.unsqueeze(-1)
        averaged, masses = [], []
        for row, probabilities in zip(self.channel.rows, plain, strict=True):
            weight = people[..., row.groups].sum(-1)
            if some.rows.cell is not None:
                inside = torch.isin(some.rows.cell, some.rows.cell.new_tensor(row.cells))
                weight = weight * (inside if inside.dim() == 3 else inside.unsqueeze(-1))
            mass = weight.sum((-1, -2))
            masses.append(mass)
            if UNAVAILABLE not in row.outcomes:
                averaged.append(probabilities)
                continue
            withheld = row.outcomes.index(UNAVAILABLE)
            t = tilt[..., self.channel.attributes.names.index(row.attribute)]
            rate = probabilities[:, withheld, None, None]
            rate = torch.sigmoid(torch.logit(rate, eps=1e-12) + t)
            mean = (weight * rate).sum((-1, -2)) / mass
            mean = torch.where(mass > 0, mean, probabilities[:, withheld])  # a cell may be empty
            rest = (1 - mean) / (1 - probabilities[:, withheld]).clamp(min=1e-12)
            whole = probabilities * rest.unsqueeze(-1)
            whole[:, withheld] = mean
            averaged.append(whole)
        return averaged, masses

    def _thinned(self, every: int, weights: Tensor) -> SecondStage:
        """The same with evenly spaced rows, which stand for ``weights`` people."""
        rows, kept = self.rows, slice(None, None, every)
        fewer = ScoredRows(
            rows.scores[:, kept],
            rows.observed[:, kept],
            weights,
            rows.conditions[:, kept],
            rows.labels[:, kept],
            rows.label_columns,
            None if rows.cell is None else rows.cell[:, kept],
        )
        return SecondStage(self.channel, fewer, self.scale.tolist(), self.owners)


def _unwhitened(factor: Tensor, x: Tensor) -> Tensor:
    """Standard normal x, (…, tables, parameters), as one whose precision has the Cholesky factor."""
    return torch.linalg.solve_triangular(factor.mT, x.unsqueeze(-1), upper=True).squeeze(-1)
