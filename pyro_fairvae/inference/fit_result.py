"""The result of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyro_fairvae.decisions.score_adjustment import decision_scores
from pyro_fairvae.inference.objective import beliefs
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.nn.densities import Mixture
from pyro_fairvae.nn.encoder import Encoded
from pyro_fairvae.risks import impute
from pyro_fairvae.risks.costs import bayes_threshold
from pyro_fairvae.schema.observed import Features, Observed


@dataclass
class Fit:
    """The result of a fit: the classifier of the last epoch, and the channels of the chosen epoch.

    :attr:`program` holds the parameters of the last epoch, in which the risk has its full weight; it
    classifies, with decisions refined by :attr:`adjustment` (:func:`refine_decisions`). :attr:`chosen`
    holds, for each member, the parameters of the epoch with the best held-out log P(ã|x), in which h is not
    overfitted yet, and the channels' posteriors given that epoch's h and g (:func:`refine_channels`);
    it answers who withholds.

    Attributes
    ----------
    program : Program
        The Pyro model and guide, ``program.model`` and ``program.guide``.
    chosen : dict of str to Tensor
        Parameters at the chosen epochs.
    chosen_epoch : list of int
        The chosen epoch of each member.
    lambdas : tuple of float
        λ of each member.
    settings : Settings
        The settings of the fit.
    history : list of dict of str to float
        A line for each epoch and member: ``epoch``, ``member``, ``lambda``; the parts of the objective
        (``x``, ``u`` if there are proxies, ``a_obs``, ``y_obs``, ``kl_…``, ``groups``, ``labels``,
        ``imputer``, ``decisions``, ``risk``); ``gap``, the fairness risk without its weight, its standard
        error ``gap_error`` and the gap of each cell, ``cell_y…_a…``; and on held-out rows ``log_group``,
        ``log_label`` and ``error``.
        ``pandas.DataFrame(history)`` is a table.
    adjustment : Tensor or None
        ν, (members, classes, classes y, groups), by which decisions are refined.
    targets : tuple of float or None, or None
        Where decisions were settled to targets, that of each member; the first has none.

    Examples
    --------
    >>> from pyro_fairvae import Missingness, Settings, fit, split, synthetic
    >>> parts = split(synthetic(rows=100), Missingness(), seed=0)
    >>> small = Settings(epochs=1, batch=64, hidden=8, layers=1)
    >>> fitted = fit(parts.train, parts.validation, lambdas=(0.0, 1.0), settings=small)
    >>> tuple(fitted.predict_proba(parts.test.features).shape)  # P_f(y|x): members, rows, classes
    (2, 20, 2)
    >>> tuple(fitted.decide(parts.test.features).shape)  # members, rows
    (2, 20)
    >>> [(line["epoch"], line["lambda"]) for line in fitted.history]
    [(1, 0.0), (1, 1.0)]
    """

    program: Program
    chosen: dict[str, Tensor]
    chosen_epoch: list[int]
    lambdas: tuple[float, ...]
    settings: Settings
    history: list[dict[str, float]]
    adjustment: Tensor | None = None  # (members, classes, classes y, groups)
    targets: tuple[float | None, ...] | None = None

    def at_chosen_epoch(self) -> Program:
        """A program with the parameters of the chosen epochs."""
        return self.program.with_state(self.chosen)

    @property
    def device(self) -> torch.device:
        return self.program.model.log_scale.device

    @property
    def dtype(self) -> torch.dtype:
        return self.program.model.log_scale.dtype

    def predict_proba(self, x: Features) -> Tensor:
        """P_f(y|x) of each member, (members, rows, classes), on the CPU; ``x`` as in :class:`Batch`."""
        return torch.cat([heads.class_logits.softmax(-1).cpu() for heads in self.heads(x)], dim=-2)

    def decide(self, x: Features) -> Tensor:
        """The class that each member decides on, (members, rows), on the CPU; ``x`` as in :class:`Batch`.

        Probabilities are adjusted first (:func:`decision_scores`). The decision is then the likeliest class,
        or, with two classes, the last one where its probability exceeds the threshold τ of the settings, or
        the one that was learned.
        """
        decided = [
            decision_scores(heads, self.settings.fairness, self.adjustment).argmax(-1).cpu()
            for heads in self.heads(x)
        ]
        return torch.cat(decided, dim=-1)

    @property
    def thresholds(self) -> Tensor:
        """τ of each member, (members, groups or 1), on the CPU: given, learned, or of the costs of errors."""
        learned = self.program.guide.thresholds
        if learned:
            return self.program.guide.log_odds_thresholds.detach().sigmoid().cpu()
        given = [tau for tau in self.settings.fairness.thresholds if not isinstance(tau, str)]
        if self.settings.fairness.costs is not None:
            given = [bayes_threshold(self.settings.fairness.costs)]
        return torch.tensor(given, dtype=self.dtype).expand(len(self.lambdas), -1)

    def predict_numbers(self, x: Features) -> Tensor:
        """E_f[y|x] of each member, (members, rows), on the CPU, standardised, where y is a number."""
        return torch.cat([density.mean.cpu() for density in self.densities(x)], dim=-1)

    def densities(self, x: Features) -> Iterator[Mixture]:
        """P_f(y|x) of each member, in chunks of rows, standardised, where y is a number."""
        for heads in self.heads(x):
            assert heads.density is not None
            yield Mixture.of(heads.density)

    def impute(self, table: Observed, imputer: str | None = None) -> Tensor:
        """P(y, a | row), (members, rows, classes, groups), on the CPU, at the last epoch.

        The imputer of that epoch was calibrated along the scores of the classifier that decides. The default
        ``imputer`` is the one that the fit was trained with. Labels are imputed by the head P_g, even if the
        fit used label propagation, which covers training rows only.
        """
        stated = self.program.guide.channel_a.stated
        pieces = [
            impute(beliefs(encoding, stated(batch.a_obs)), imputer or self.settings.fairness.imputer).cpu()
            for batch, encoding in self.program.encode(table.to(self.device, self.dtype))
        ]
        return torch.cat(pieces, dim=1)

    def heads(self, x: Features) -> Iterator[Encoded]:
        """Encoder outputs for the features, in chunks of rows; ``x`` as in :class:`Batch`."""
        return self.program.heads(x)
