r"""Rates of small intersections, such as of sex and race, shrunk towards what their margins say.

An intersection g of several attributes may have a handful of rows, whose rate says little. Its rate is taken
as what the values of each attribute by itself say, and a deviation of its own,

.. math:: \hat r \sim N(\theta, V), \qquad \theta_g = \beta_0 + \sum_j \beta_{j, g_j} + u_g, \qquad
          u_g \sim N(0, \tau^2),

with :math:`\hat r` the estimates of an audit and V their covariance. Given τ,
with :math:`\Sigma = V + \tau^2 I` and X the indicators of the additive model,

.. math:: \hat\beta = (X^\top \Sigma^{-1} X)^{-1} X^\top \Sigma^{-1} \hat r, \qquad
          \hat\theta = X \hat\beta + B\,(\hat r - X \hat\beta), \qquad B = \tau^2 \Sigma^{-1},

.. math:: \mathrm{Var} = \tau^2 (I - B) + (I - B) X (X^\top \Sigma^{-1} X)^{-1} X^\top (I - B)^\top .

τ is averaged over its restricted likelihood with a flat prior: where intersections do no more than their
margins, rates go to the additive fit, and where they do, they stay. An interval is from the mean and the
whole variance, that of τ included (empirical Bayes, Morris 1983). An intersection that nobody states has the
additive rate, with the deviation τ around it.

V is that of the additive rates: a cell of three rows whose rate is 0 by chance would otherwise count as
certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.control_variates import AuditedRates, AuditedRows, ControlVariates
from pyro_fairvae.schema.attributes import Attributes

SMALL = 50  # stating rows of a cell, or people who tell as much, below which shrunk rates are shown
SPREADS = np.linspace(0, 0.5, 101)  # τ
LEAST = 0.02  # of a rate that a variance is computed at
RIDGE = 1e-9


def shrunk_rates(
    values: np.ndarray, covariance: np.ndarray, parts: np.ndarray, people: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates shrunk towards the additive model, their standard errors, and how much of each is its own.

    ``values`` are (groups,), NaN where nobody states a group, ``parts`` the value of each attribute in each
    group, (groups, attributes), and ``people`` how many rows tell of each. All are raw where there are as
    many parameters as groups.
    """
    every = _additive(parts)
    known = np.flatnonzero(~np.isnan(values))
    raw = values, np.sqrt(np.clip(np.diag(covariance), 0, None)), np.where(np.isnan(values), np.nan, 1.0)
    if len(known) <= np.linalg.matrix_rank(every[known]):
        return raw
    x, r, v = every[known], values[known], covariance[np.ix_(known, known)]
    for _ in range(2):  # the second time with the variance of additive rates
        posterior, weights = [], np.full(len(SPREADS), -np.inf)
        for k, spread in enumerate(SPREADS):
            weights[k], *found = _given(spread, x, r, v, every, known)
            posterior.append(found)
        share = np.exp(weights - weights.max())
        share /= share.sum()
        additive = share @ np.array([each[2] for each in posterior])
        v = _at_rates(covariance, values, additive, people)[np.ix_(known, known)]
    means, variances = (np.array([each[k] for each in posterior]) for k in (0, 1))
    mean = share @ means
    variance = share @ (variances + (means - mean) ** 2)
    own = share @ np.array([each[3] for each in posterior])
    return np.clip(mean, 0, 1), np.sqrt(np.clip(variance, 0, None)), own


def _given(
    spread: float, x: np.ndarray, r: np.ndarray, v: np.ndarray, every: np.ndarray, known: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Given τ: its restricted log-likelihood; of each group mean, variance, additive rate and share B."""
    sigma = v + (spread**2 + RIDGE) * np.eye(len(r))
    inverse = np.linalg.inv(sigma)
    precision = x.T @ inverse @ x
    of_beta = np.linalg.pinv(precision, hermitian=True)
    beta = of_beta @ (x.T @ inverse @ r)
    left = r - x @ beta
    values = np.linalg.eigvalsh(precision)
    log_likelihood = -0.5 * (
        np.linalg.slogdet(sigma)[1]
        + np.log(values[values > 1e-10 * values.max()]).sum()
        + left @ inverse @ left
    )
    additive = every @ beta
    mean = additive.copy()
    share = spread**2 * inverse
    mean[known] += share @ left
    # Of a group that nobody states all is additive: no rate of its own.
    whole = np.zeros((len(every), len(r)))
    whole[known] = share
    rest = every - whole @ x
    variance = (rest @ of_beta * rest).sum(1) + spread**2
    variance[known] -= spread**2 * np.diag(share)
    own = np.zeros(len(every))
    own[known] = np.diag(share)
    return float(log_likelihood), mean, variance, additive, own


def _additive(parts: np.ndarray) -> np.ndarray:
    """X, an intercept and indicators of all values of each attribute but the first, (groups, parameters)."""
    columns = [np.ones((len(parts), 1))]
    columns += [(part[:, None] == np.arange(1, int(part.max()) + 1)).astype(float) for part in parts.T]
    return np.concatenate(columns, axis=1)


def _at_rates(
    covariance: np.ndarray, values: np.ndarray, rates: np.ndarray, people: np.ndarray
) -> np.ndarray:
    """The covariance as it would be at other rates: variances of shares are in proportion to r (1 − r)."""
    softened = (np.nan_to_num(values) * people + 2) / (people + 4)
    other = np.clip(rates, LEAST, 1 - LEAST)
    factor = np.sqrt(other * (1 - other) / (softened * (1 - softened)))
    return np.asarray(covariance * np.outer(factor, factor))


def intersection_lines(
    estimates: ControlVariates,
    attributes: Attributes,
    words: list[str],
    positive: int,
    confidence: float,
) -> pd.DataFrame:
    """A line for each rate of each intersection; none of a single attribute, or where no cell is small."""
    rows = estimates.rows
    if len(attributes.names) < 2:
        return pd.DataFrame()
    found = [
        (f"P(Ŷ = {words[c]} | Y = {words[c]})", estimates.odds(), c, rows.y == c) for c in range(rows.classes)
    ]
    found.append((f"P(Ŷ = {words[positive]})", estimates.parity(), positive, np.ones(len(rows), dtype=bool)))
    z = float(stats.norm.ppf((1 + confidence) / 2))
    lines: list[dict[str, Any]] = []
    small = False
    for title, rates, c, inside in found:
        if (~np.isnan(rates.values[c])).sum() < 2:
            continue
        people = _people(rows, inside)
        small = small or bool((people < SMALL).any())
        rate, error, own = shrunk_rates(*_of_line(rates, c), attributes.group_parts, people)
        for g, name in enumerate(attributes.group_names):
            low, high = np.clip(rate[g] + z * error[g] * np.array([-1, 1]), 0, 1)
            lines.append(
                {
                    "rate": title, "group": name, "raw": float(rates.values[c, g]),
                    "estimate": float(rate[g]), "low": float(low), "high": float(high),
                    "own": float(own[g]), "stated_rows": int((inside & (rows.group == g)).sum()),
                }
            )  # fmt: skip
    return pd.DataFrame(lines) if small else pd.DataFrame()


def _of_line(rates: AuditedRates, c: int) -> tuple[np.ndarray, np.ndarray]:
    """The rates of one line, and their covariance."""
    groups = rates.values.shape[1]
    at = c * groups + np.arange(groups)
    return rates.values[c], rates.covariance()[np.ix_(at, at)]


def _people(rows: AuditedRows, inside: np.ndarray) -> np.ndarray:
    """How many rows, or as many people as tell as much, state each group, (groups,)."""
    return np.array([rows.design.people(inside & (rows.group == g)) for g in range(rows.groups)], dtype=float)
