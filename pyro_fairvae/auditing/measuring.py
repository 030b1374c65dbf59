"""Figures for regulators from the rows and estimates of an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyro_fairvae.auditing.control_variates import AuditedRates, ControlVariates
from pyro_fairvae.auditing.extremes import least_ratio, least_ratio_interval, sum_interval
from pyro_fairvae.auditing.figures import MEANS, Figures
from pyro_fairvae.auditing.group_ratios import Ratio, group_areas, group_ratios
from pyro_fairvae.auditing.intervals import largest_interval
from pyro_fairvae.base.errors import InputError, require
from pyro_fairvae.base.messages import first_line

FOUR_FIFTHS = 0.8
DRAWS = 20_000
BINS = 5  # of scores, with as many rows each, in which calibration is judged
OwnRate = Callable[[np.ndarray, np.ndarray, np.ndarray | None], tuple[Any, Any]]
Interval = tuple[float, float, float]  # an estimate and its ends
NOTHING = (float("nan"),) * 3


def checked_scores(scores: Any, rows: int) -> np.ndarray:
    """P(Y = y | row) of every row, y the label that matters."""
    try:
        given = np.asarray(scores, dtype=float)
    except (TypeError, ValueError) as reason:
        raise InputError("scores are not all numbers; give P(Y = y) of each row.") from reason
    require(
        given.shape == (rows,),
        f"scores have the shape {given.shape}; expected one number for each of {rows} rows, the probability "
        "of the label that matters.",
    )
    require(bool(np.isfinite(given).all()), f"scores have {(~np.isfinite(given)).sum()} gaps; give all.")
    outside = (given < 0) | (given > 1)
    require(
        not outside.any(),
        f"scores are within [{given.min():g}, {given.max():g}]; expected probabilities within [0, 1]. "
        "Logits p become 1 / (1 + exp(-p)), percentages are divided by 100.",
    )
    require(
        float(np.ptp(given)) > 0, f"all scores are {given[0]:g}; give scores that differ, or leave them out."
    )
    return given


class Measuring:
    """Figures of some rows, for the label ``positive`` and from ``scores`` of it, if there are any."""

    def __init__(
        self,
        estimates: ControlVariates,
        positive: int,
        words: Sequence[str],
        groups: Sequence[str],
        confidence: float,
    ) -> None:
        self.estimates, self.rows = estimates, estimates.rows
        self.positive, self.words = positive, words
        self.groups, self.confidence = groups, confidence
        self.lines: list[dict[str, Any]] = []
        self.disparities: dict[str, dict[str, float]] = {}
        self.z = float(stats.norm.ppf((1 + confidence) / 2))

    def figures(self, scores: np.ndarray | None, own: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figures:
        """All of them; ``own`` has top and bottom of ratios of a user's own, by their names."""
        four_fifths = self._selection()
        self._predictive()
        self._mean_odds()
        curve = pd.DataFrame()
        if scores is not None:
            self._areas(scores)
            curve = self._calibration(scores)
        for name, (top, bottom) in own.items():
            ratio = [Ratio(top, bottom)]
            both = group_ratios(self.estimates, ratio), group_ratios(self.estimates, ratio, False)
            self._add(name, both, 0, bottom != 0)
            self._add_largest(name, both, 0)
        return Figures(
            self.words[self.positive],
            pd.DataFrame(self.lines),
            pd.DataFrame(self.disparities).T.rename_axis("measure"),
            four_fifths,
            curve,
        )

    def _selection(self) -> dict[str, Any]:
        """Selection rates and impact ratios."""
        both = (self.estimates.parity(), self.estimates.parity(adjusted=False))
        counted = np.ones(len(self.rows), dtype=bool)
        self._add("selection rate", both, self.positive, counted)
        everyone = np.ones(self.rows.groups, dtype=bool)
        found, stated = (impact_ratios(rates, self.positive, everyone, self.confidence) for rates in both)
        of_groups, least = (found[0], stated[0]), (found[1], stated[1])
        values, covariance, known = _joint(both[0], self.positive, everyone)
        probability = probability_broken(values, covariance) if len(known) > 1 else float("nan")
        for g, name in enumerate(self.groups):
            self._line("impact ratio", name, of_groups[0][g], of_groups[1][g], self.rows.group == g)
        self._disparity("impact_ratio", least[0], least[1])
        rates_of = both[0].values[self.positive]
        some = not np.isnan(least[0][0])
        return {
            "least": self.groups[int(np.nanargmin(rates_of))] if some else None,
            "largest": self.groups[int(np.nanargmax(rates_of))] if some else None,
            "broken": bool(least[0][0] < FOUR_FIFTHS) if some else None,
            "probability": probability,
        }

    def _predictive(self) -> None:
        rows, positive = self.rows, self.positive
        labelled = rows.y < rows.classes
        chosen = rows.decided == positive
        right = (rows.y == positive).astype(float)
        of = [Ratio(right * inside, (inside & labelled).astype(float)) for inside in (chosen, ~chosen)]
        both = self._both(lambda adjusted: group_ratios(self.estimates, of, adjusted))
        self._add("positive predictive value", both, 0, chosen & labelled)
        missed = tuple(replace(rates, values=1 - rates.values) for rates in both)
        self._add("false discovery rate", (missed[0], missed[1]), 0, chosen & labelled)
        self._add("false omission rate", both, 1, ~chosen & labelled)
        self._add_largest("predictive_parity", both, 0)
        self._add_largest("false_omission", both, 1)

    def _mean_odds(self) -> None:
        found = []
        for rates in (self.estimates.odds(), self.estimates.odds(adjusted=False)):
            known = ~np.isnan(rates.values)
            compared = np.flatnonzero(known.sum(1) > 1)
            if len(compared) == 0:
                found.append(NOTHING)
                continue
            entries = [
                np.flatnonzero(known.ravel() & (np.arange(known.size) // known.shape[1] == c))
                for c in compared
            ]
            every = np.concatenate(entries)
            unit = np.eye(known.size)[:, every] / len(compared)
            parts = [np.array([unit[g] - unit[h] for g in of for h in of if g != h]) for of in entries]
            covariance = rates.covariance()[np.ix_(every, every)]
            found.append(sum_interval(rates.values.ravel()[every], covariance, parts, self.confidence, 1.0))
        self._disparity("mean_odds", *found)

    def _areas(self, scores: np.ndarray) -> None:
        both = self._both(lambda adjusted: group_areas(self.estimates, scores, self.positive, adjusted))
        self._add("AUC", both, 0, self.rows.y < self.rows.classes)
        self._add_largest("auc", both, 0)

    def _calibration(self, scores: np.ndarray) -> pd.DataFrame:
        """The curve of each group, and mean and absolute errors."""
        labelled = self.rows.y < self.rows.classes
        cuts = np.unique(np.quantile(scores, np.arange(1, BINS) / BINS))
        place = np.searchsorted(cuts, scores, side="left")
        bins = [labelled & (place == b) for b in range(len(cuts) + 1) if (place == b).any()]
        label = (self.rows.y == self.positive).astype(float)
        whole = labelled.astype(float)
        of = [Ratio((label - scores) * labelled, whole)]
        of += [Ratio((label - scores) * inside, whole) for inside in bins]
        shares = [Ratio(label * inside, inside.astype(float)) for inside in bins]
        means = [Ratio(scores * inside, inside.astype(float)) for inside in bins]
        both = self._both(lambda adjusted: group_ratios(self.estimates, of, adjusted))
        self._add("label less score", both, 0, labelled, within=(-1.0, 1.0))
        self._add_largest("calibration", both, 0)
        size = len(bins)
        parts = [np.array([row, -row]) for row in np.eye(size)]
        for g, name in enumerate(self.groups):
            errors = []
            for rates in both:
                values = rates.values[1 : 1 + size, g]
                at = np.arange(1, 1 + size) * self.rows.groups + g
                known = not np.isnan(values).any()
                covariance = rates.covariance()[np.ix_(at, at)]
                errors.append(
                    sum_interval(values, covariance, parts, self.confidence, 1.0) if known else NOTHING
                )
            self._line("calibration error", name, errors[0], errors[1], (self.rows.group == g) & labelled)
        of_bins, of_scores = (group_ratios(self.estimates, ratios) for ratios in (shares, means))
        lines = []
        for b, inside in enumerate(bins):
            for g, name in enumerate(self.groups):
                value, low, high = self._normal(of_bins, b, g, (0.0, 1.0))
                lines.append(
                    {
                        "group": name,
                        "start": float(scores[inside].min()), "end": float(scores[inside].max()),
                        "score": float(of_scores.values[b, g]), "share": value, "low": low,
                        "high": high, "stated_rows": int((inside & (self.rows.group == g)).sum()),
                    }
                )  # fmt: skip
        return pd.DataFrame(lines).sort_values("group", kind="stable", ignore_index=True)

    def _both(self, measure: Callable[[bool], AuditedRates]) -> tuple[AuditedRates, AuditedRates]:
        """By all rows, and by stating rows alone."""
        return measure(True), measure(False)

    def _normal(self, rates: AuditedRates, r: int, g: int, within: tuple[float, float]) -> Interval:
        return rates.interval(r, g, self.z, within)

    def _add(
        self, measure: str, both: tuple[AuditedRates, AuditedRates], r: int, counted: np.ndarray,
        within: tuple[float, float] = (0.0, 1.0),
    ) -> None:  # fmt: skip
        for g, name in enumerate(self.groups):
            found = [self._normal(rates, r, g, within) for rates in both]
            self._line(measure, name, found[0], found[1], counted & (self.rows.group == g))

    def _line(self, measure: str, group: str, found: Interval, stated: Interval, inside: np.ndarray) -> None:
        line = {"measure": measure, "group": group, **_columns(found, stated)}
        self.lines.append(line | {"stated_rows": int(inside.sum())})

    def _add_largest(self, name: str, both: tuple[AuditedRates, AuditedRates], r: int) -> None:
        found = []
        for rates in both:
            values = rates.values[[r]]
            if (~np.isnan(values)).sum() < 2:
                found.append(NOTHING)
                continue
            at = r * self.rows.groups + np.arange(self.rows.groups)
            ends = largest_interval(values, rates.covariance()[np.ix_(at, at)], self.confidence)
            found.append((float(np.nanmax(values) - np.nanmin(values)), *ends))
        self._disparity(name, *found)

    def _disparity(self, name: str, found: Interval, stated: Interval) -> None:
        self.disparities[name] = _columns(found, stated)


def impact_ratios(
    rates: AuditedRates, c: int, among: np.ndarray, level: float
) -> tuple[list[Interval], Interval]:
    """The rate of decision c of each group over the largest of those ``among`` them, and the least."""
    values, covariance, known = _joint(rates, c, among)
    pairs = [(g, h) for g in range(len(known)) for h in range(len(known)) if g != h]
    ratios = [NOTHING] * len(among)
    for place, g in enumerate(known):
        ratios[g] = _ratio_with_ends(values, covariance, [pair for pair in pairs if pair[0] == place], level)
    return ratios, _ratio_with_ends(values, covariance, pairs, level)


def _joint(rates: AuditedRates, c: int, among: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rates of a decision, their covariance, and the groups that have one."""
    values = rates.values[c]
    known = np.flatnonzero(~np.isnan(values) & among)
    at = c * len(values) + known
    return values[known], rates.covariance()[np.ix_(at, at)], known


def probability_broken(values: np.ndarray, covariance: np.ndarray, limit: float = FOUR_FIFTHS) -> float:
    """P(least ratio of rates < ``limit``), under a flat prior of rates within [0, 1]."""
    size, vectors = np.linalg.eigh(covariance)
    noise = np.random.default_rng(0).standard_normal((DRAWS, len(values)))
    drawn = np.clip(values + noise @ (vectors * np.sqrt(np.clip(size, 0, None))).T, 0, 1)
    return float((drawn.min(1) < limit * drawn.max(1)).mean())


def own_rates(
    own: Mapping[str, OwnRate], y: np.ndarray, decided: np.ndarray, scores: np.ndarray | None
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Top and bottom of each ratio of a user's own, checked."""
    found = {}
    for name, function in own.items():
        require(name not in MEANS, f"the rate {name!r} of own_rates exists already; choose another name.")
        try:
            pair = function(y, decided, scores)
            top, bottom = (np.asarray(part, dtype=float) for part in pair)
        except Exception as reason:  # user code may raise anything
            raise InputError(
                f"the rate {name!r} of own_rates could not be evaluated: {type(reason).__name__}, "
                f"{first_line(reason)}. It is given labels, decisions and scores, and returns a number to "
                "count above and one to count below the line for each row."
            ) from reason
        for part in (top, bottom):
            require(
                part.shape == y.shape and bool(np.isfinite(part).all()),
                f"the rate {name!r} of own_rates must return two arrays of {len(y)} finite numbers.",
            )
        require(bool((bottom >= 0).all()), f"the rate {name!r} of own_rates counts below 0 under the line.")
        found[name] = (top, bottom)
    return found


def _ratio_with_ends(
    values: np.ndarray, covariance: np.ndarray, pairs: Sequence[tuple[int, int]], level: float
) -> Interval:
    if not pairs:
        return NOTHING
    return least_ratio(values, pairs), *least_ratio_interval(values, covariance, pairs, level)


def _columns(found: Interval, stated: Interval) -> dict[str, float]:
    names = ("estimate", "low", "high")
    line = dict(zip(names, found, strict=True))
    return line | {f"stated_{name}": value for name, value in zip(names, stated, strict=True)}
