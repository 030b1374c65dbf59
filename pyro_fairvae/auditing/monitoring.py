r"""Audits of one period after another, and a test for change that one may look at every time.

Of each rate, such as how often a group withholds, the periods give estimates :math:`\hat θ_t` with standard
errors. If it changes by δ from period k on, δ normal with the deviation τ, the Bayes factor against no change
is

.. math:: B_{k,τ} = (1 + τ^2 I)^{-1/2} \exp\Big( \tfrac{\hat δ^2 I^2 τ^2}{2 (1 + τ^2 I)} \Big), \quad
    \hat δ = \barθ_{\ge k} - \barθ_{< k},

with the means of both sides weighted by their precisions, and I the precision of their difference. Without
change it has the mean 1 at every t, and is 1 before k, whatever the rate is; so have means of it over k, with
the weights 1 / k (k − 1), over τ, and over rates. Such a mean ever reaches 1/α with a probability of at most
α (Ville 1939), however often one looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.result import Audit
from pyro_fairvae.auditing.tables import intervals, number, records
from pyro_fairvae.base.errors import require

SIZES = (0.02, 0.05, 0.1, 0.2)  # τ, deviations of a change
LEAST_ERROR = 1e-4  # standard error of a rate that no sample is better than
EVERYONE = "everyone"
WITHHOLDING = "withholding"


@dataclass(frozen=True)
class Monitoring:
    """What :func:`monitor` found.

    Attributes
    ----------
    rates : DataFrame
        For each ``period``, ``rate`` and ``group``: ``estimate``, ``low``, ``high``, and ``evidence``, the
        factor by which the periods so far speak for a change of this rate.
    disparities : DataFrame
        For each ``period`` and ``measure``: ``estimate``, ``low`` and ``high``.
    periods : DataFrame
        For each ``period``: its ``rows``, those ``withheld``, and the ``evidence`` for some change.
    alpha : float
        The probability of an alarm without change, over all periods together.
    alarm : str or None
        The first period at which the evidence reached 1 / alpha.
    notes : tuple of str
        Periods that could not be audited, and why.
    """

    rates: pd.DataFrame
    disparities: pd.DataFrame
    periods: pd.DataFrame
    alpha: float
    alarm: str | None
    notes: tuple[str, ...]

    def changed(self) -> list[str]:
        """The rates with the most evidence at the alarm: those above 1 / alpha, or else the largest."""
        if self.alarm is None:
            return []
        at = self.rates[self.rates["period"] == self.alarm].sort_values("evidence", ascending=False)
        chosen = at[(at["evidence"] >= 1 / self.alpha) | (np.arange(len(at)) == 0)]
        return [f"{line['rate']} of {line['group']}" for line in chosen.to_dict("records")]

    def in_words(self) -> str:
        """Whether something changed, in one sentence."""
        count = len(self.periods)
        chance = f"{100 * self.alpha:g} % chance of an alarm without change, over all periods together"
        if self.alarm is None:
            return f"No change was found in {count} periods ({chance})."
        changed = ", ".join(self.changed())
        return f"!!! A change was found in {self.alarm}, of {count} periods: {changed} ({chance})."

    def to_dict(self) -> dict[str, Any]:
        """All of it in types that JSON supports."""
        return {
            "rates": records(self.rates),
            "disparities": records(self.disparities),
            "periods": records(self.periods),
            "alpha": self.alpha,
            "alarm": self.alarm,
            "changed": self.changed(),
            "notes": list(self.notes),
        }

    def in_cells(self) -> dict[str, list[list[str]]]:
        """Tables as cells of text by their captions, titles first."""
        periods = [["period", "rows", "withheld", "evidence of a change"]]
        for line in self.periods.to_dict("records"):
            periods.append(
                [line["period"], str(line["rows"]), str(line["withheld"]), f"{line['evidence']:.3g}"]
            )
        tables = {"Periods": periods}
        rates = self.rates.assign(column=self.rates["rate"] + " of " + self.rates["group"])
        for rate, lines in rates.groupby("rate", sort=False):
            tables[str(rate).capitalize()] = _by_period(lines, "group", list(self.periods["period"]))
        tables["Disparities"] = _by_period(self.disparities, "measure", list(self.periods["period"]))
        return tables

    def __str__(self) -> str:
        text = [self.in_words()]
        for caption, (titles, *lines) in self.in_cells().items():
            text += ["", f"{caption}:", pd.DataFrame(lines, columns=titles).to_string(index=False)]
        return "\n".join([*text, *(f"\nnote: {words}" for words in self.notes)])


def monitor(
    audits: Iterable[tuple[str, Audit]], alpha: float = 0.05, notes: Iterable[str] = ()
) -> Monitoring:
    """Compare audits of one period after another, in their order.

    Parameters
    ----------
    audits
        The name of each period, and the audit of its rows, by whatever classifier they were decided.
    alpha
        The probability with which an alarm is given although nothing changes, however many periods there
        are and however often one looks.
    notes
        Remarks to keep with the result.

    Returns
    -------
    Monitoring
        Rates and disparities by period, the evidence of change after each, and the first alarm.

    Raises
    ------
    InputError
        If there are no periods, two have the same name, or alpha is not within (0, 1).

    Notes
    -----
    Compared are how often everyone and each group withhold, and how often each group is selected. The rows of
    different periods are taken to be different people, and estimates to be normal.

    Examples
    --------
    >>> import numpy as np
    >>> from pyro_fairvae import audit, monitor
    >>> draw = np.random.default_rng(0)
    >>> def month(withheld):
    ...     sex, y = draw.choice(["f", "m"], 1000), draw.integers(2, size=1000)
    ...     return audit(y, y, np.where(draw.random(1000) < withheld, None, sex))
    >>> found = monitor([("May", month(0.2)), ("June", month(0.2)), ("July", month(0.5))])
    >>> found.alarm
    'July'
    """
    pairs = [(str(name), found) for name, found in audits]
    names = [name for name, _ in pairs]
    require(
        all(found.figures is not None for _, found in pairs),
        "an audit of an earlier version has no selection rates; audit its rows again.",
    )
    weighted = [name for name, found in pairs if found.design is not None]
    require(
        not weighted,
        f"the audits of {', '.join(weighted)} have weights or clusters, but periods are compared by rows "
        "that count alike; audit them without sample_weight and clusters.",
    )
    require(len(pairs) > 0, "no period could be audited, so that there is nothing to compare.")
    require(len(set(names)) == len(names), f"two periods have the same name, among {', '.join(names)}.")
    require(0 < alpha < 1, f"alpha must be within (0, 1), got {alpha}.")
    rates = pd.concat([_rates(found).assign(period=name) for name, found in pairs], ignore_index=True)
    order = {name: t for t, name in enumerate(names)}
    rates["evidence"] = 1.0
    for _, lines in rates.groupby(["rate", "group"]):
        usable = lines[lines["estimate"].notna() & np.isfinite(lines["error"])]
        found = evidence(usable["estimate"].to_numpy(float), usable["error"].to_numpy(float))
        for t, name in enumerate(names):  # a period without an estimate leaves it as it was
            until = int((usable["period"].map(order) <= t).sum())
            at = lines.index[lines["period"] == name]
            rates.loc[at, "evidence"] = found[until - 1] if until else 1.0
    kinds = rates.groupby(["rate", "group"]).ngroups
    total = [
        (rates.loc[rates["period"] == name, "evidence"].sum() + _absent(rates, order, t, name)) / kinds
        for t, name in enumerate(names)
    ]
    periods = pd.DataFrame(
        {
            "period": names,
            "rows": [found.rows["rows"] for _, found in pairs],
            "withheld": [found.rows["withheld"] for _, found in pairs],
            "evidence": total,
        }
    )
    reached = periods.loc[periods["evidence"] >= 1 / alpha, "period"]
    return Monitoring(
        rates[["period", "rate", "group", "estimate", "low", "high", "evidence"]],
        pd.concat([_disparities(found).assign(period=name) for name, found in pairs], ignore_index=True)[
            ["period", "measure", "estimate", "low", "high"]
        ],
        periods,
        alpha,
        None if reached.empty else str(reached.iloc[0]),
        tuple(notes),
    )


def evidence(estimates: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The mean of Bayes factors for a change, after each of some periods, (periods,)."""
    precision = 1 / np.maximum(errors, LEAST_ERROR) ** 2
    sums, totals = np.cumsum(precision), np.cumsum(precision * estimates)
    found, sizes = np.ones(len(estimates)), np.array(SIZES)[:, None]
    for t in range(1, len(estimates)):
        before, after = sums[:t], sums[t] - sums[:t]  # of a change at each k from 1 to t
        change = (totals[t] - totals[:t]) / after - totals[:t] / before
        information = 1 / (1 / before + 1 / after)
        scaled = sizes**2 * information
        power = change**2 * information / 2 * scaled / (1 + scaled)
        factors = np.exp(np.minimum(power, 500)) / np.sqrt(1 + scaled)
        k = np.arange(1, t + 1)
        # Changes that are still to come have a factor of 1.
        found[t] = 1 / (t + 1) + (factors.mean(0) / (k * (k + 1))).sum()
    return found


def _absent(rates: pd.DataFrame, order: dict[str, int], t: int, name: str) -> float:
    """The evidence, by earlier periods, of rates that a period does not have."""
    here = set(rates.loc[rates["period"] == name, ["rate", "group"]].itertuples(index=False, name=None))
    sum_of = 0.0
    for key, lines in rates.groupby(["rate", "group"]):
        if key not in here:
            earlier = lines[lines["period"].map(order) < t]
            sum_of += 1.0 if earlier.empty else float(earlier["evidence"].iloc[-1])
    return sum_of


def _rates(found: Audit) -> pd.DataFrame:
    """What is compared of a period, with standard errors; infinite where an interval tells nothing."""
    z = float(stats.norm.ppf((1 + found.confidence) / 2))
    rows, withheld = found.rows["rows"], found.rows["withheld"]
    share = withheld / rows
    error = float(np.sqrt((withheld + 2) * (rows - withheld + 2) / (rows + 4) ** 3))
    lines = [
        {
            "rate": WITHHOLDING, "group": EVERYONE, "estimate": share, "error": error,
            "low": max(0.0, share - z * error), "high": min(1.0, share + z * error),
        }
    ]  # fmt: skip
    for name, line in found.groups.iterrows():
        low, high = line["withhold_low"], line["withhold_high"]
        stated = line["stated"]
        error = max(high - line["withhold"], line["withhold"] - low) / z
        error = max(error, float(np.sqrt(2 * (stated + 2) / (stated + 4) ** 3)))  # where nobody withholds
        unknown = np.isnan(line["withhold"]) or (low <= 0 and high >= 1)
        lines.append(
            {
                "rate": WITHHOLDING, "group": str(name), "estimate": line["withhold"], "low": low,
                "high": high, "error": np.inf if unknown else error,
            }
        )  # fmt: skip
    assert found.figures is not None
    selected = found.figures.by_group
    for line in selected[selected["measure"] == "selection rate"].to_dict("records"):
        error = max(line["high"] - line["estimate"], line["estimate"] - line["low"]) / z
        lines.append(
            {"rate": "selection rate", "error": error}
            | {key: line[key] for key in ("group", "estimate", "low", "high")}
        )
    return pd.DataFrame(lines)


def _disparities(found: Audit) -> pd.DataFrame:
    assert found.figures is not None
    tables = [found.metrics.rename_axis("measure"), found.figures.disparities]
    return pd.concat(tables)[["estimate", "low", "high"]].astype(float).reset_index()


def _by_period(lines: pd.DataFrame, column: str, periods: list[str]) -> list[list[str]]:
    """Estimates with intervals, a line for each period and a column for each value of ``column``."""
    shown = lines.assign(cell=lines["estimate"].map(number) + " " + intervals(lines, ""))
    wide = shown.pivot(index="period", columns=column, values="cell")
    names = list(dict.fromkeys(lines[column]))
    wide = wide.reindex(index=periods, columns=names).fillna("–")
    return [["period", *map(str, names)], *([period, *wide.loc[period]] for period in periods)]
