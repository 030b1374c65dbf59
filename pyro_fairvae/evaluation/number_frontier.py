"""Error and disparity of members that predict numbers, on rows with hidden outcomes or groups."""

from __future__ import annotations

import numpy as np
import torch

from pyro_fairvae.base.errors import require
from pyro_fairvae.evaluation.number_metrics import NUMBER_METRICS, Predictions
from pyro_fairvae.evaluation.selection import imputed_cells, select
from pyro_fairvae.inference.fit_result import Fit
from pyro_fairvae.risks import NUMBER_RISKS, CellSums
from pyro_fairvae.schema.arrays import Floats
from pyro_fairvae.schema.observed import Observed

if _lacking := NUMBER_RISKS.keys() ^ NUMBER_METRICS.keys():
    raise ImportError(f"risks without a metric, or metrics without a risk: {sorted(_lacking)}.")

WITHIN = 0.05  # share by which the error of the member that is chosen may exceed the least


def judge_numbers(fitted: Fit, table: Observed) -> list[dict[str, float]]:
    """Metrics of each member on rows as observed, expected under its imputed groups and levels.

    ``error`` is the root mean squared error on rows that state their outcome, in its unit, as are disparities
    that have one; ``standard_error`` is that of the metric that the fit was trained for.
    """
    number, outcome = table.number, table.outcome
    assert number is not None
    assert outcome is not None
    predicted = fitted.predict_numbers(table.x).double().numpy()
    stated = (table.y_obs < table.classes).cpu().numpy()
    require(bool(stated.any()), "no held-out row states its outcome; give more rows that do.")
    y = outcome.cpu().double().numpy()
    cells = imputed_cells(fitted, table).double().numpy()
    in_bins = np.einsum("krlg,lb->krbg", cells, number.in_bins)
    weight = None if table.weight is None else table.weight.double().cpu().numpy()
    if weight is not None:
        in_bins = in_bins * weight[:, None, None]
    members = []
    for own, mass in zip(predicted, in_bins, strict=True):
        expected = _expected(number.restored(own), mass)
        squares = np.average((own - y)[stated] ** 2, weights=None if weight is None else weight[stated])
        error = float(np.sqrt(squares)) * number.deviation
        members.append(
            {
                "error": error,
                "standard_error": standard_error(fitted.settings.fairness.risk, own, mass, number.deviation),
            }
            | {name: metric(expected) for name, metric in NUMBER_METRICS.items()}
        )
    return members


def _expected(predicted: Floats, mass: Floats) -> Predictions:
    """Each row once for each bin and group, weighed by its probability."""
    rows, bins, groups = mass.shape
    bin_code, a = np.meshgrid(np.arange(bins), np.arange(groups), indexing="ij")
    a, bin_code = (np.tile(codes.ravel(), rows) for codes in (a, bin_code))
    return Predictions(np.repeat(predicted, bins * groups), a, bin_code, mass.ravel())


def standard_error(
    name: str, predicted: Floats, mass: Floats, deviation: float, resamples: int = 200
) -> float:
    """Bootstrap standard error of a risk of standardised predictions (rows,), cells (rows, bins, groups)."""
    risk = NUMBER_RISKS[name]
    rows = len(predicted)
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    features = risk.features(torch.from_numpy(predicted)).numpy()
    sums = (mass[..., None] * features[:, None, None]).reshape(rows, -1)
    masses = (drawn @ mass.reshape(rows, -1)).reshape(resamples, *mass.shape[1:])
    totals = (drawn @ sums).reshape(*masses.shape, features.shape[-1])
    values = risk(CellSums(torch.from_numpy(masses), torch.from_numpy(totals))).value
    return float(values.std()) * (deviation if risk.in_unit else 1.0)


def select_number(lambdas: tuple[float, ...], members: list[dict[str, float]], metric: str) -> int:
    """Index of the member to use, as :func:`select` chooses it, at a cost of at most 5 % of the error."""
    least = members[int(np.argmin(lambdas))]["error"]
    return select(lambdas, members, metric, within=WITHIN * least)
