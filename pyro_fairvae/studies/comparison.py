"""Methods compared by their trade-offs of error against disparity, over repeated splits.

``results`` has a line for each panel, method, seed and trade-off weight; a panel is a data set, a group, a
level of missingness and a metric. All that is told here is of the test part, and less is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

PANEL = ("dataset", "group", "level", "metric")
OURS, WITHOUT_RISK = "fair_ssvae", "ss_vae"
BETTER, WORSE, ALIKE = "ours better", "ours worse", "not told apart"
LEVEL_OF_TESTS = 0.05
BUDGETS = (0.0, 0.005, 0.01, 0.02)


def pareto(points: ArrayLike) -> np.ndarray:
    """Which points (n, 2) no other dominates, by less of one and no more of the other. Equal ones all stay.

    A point with a NaN is none of them.
    """
    p = np.asarray(points, dtype=float).reshape(-1, 2)
    no_more = (p[:, None] <= p[None]).all(-1)
    less = (p[:, None] < p[None]).any(-1)
    return ~(no_more & less).any(0) & ~np.isnan(p).any(1)


def hypervolume(points: ArrayLike, reference: tuple[float, float]) -> float:
    """Share of the box [0, reference] that the points (n, 2) dominate; NaN if the box has no area.

    A point that is not below the reference in both counts nothing.
    """
    width, height = reference
    if not (width > 0 and height > 0):
        return float("nan")
    p = np.asarray(points, dtype=float).reshape(-1, 2)
    p = np.maximum(p[(p < (width, height)).all(1)], 0)
    p = p[np.lexsort((p[:, 1], p[:, 0]))]
    lowest = np.minimum.accumulate(p[:, 1])
    strips = np.diff(np.append(p[:, 0], width))
    return float((strips * (height - lowest)).sum() / (width * height))


def by_panel(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each panel by name, and its lines, in the order of the frame."""
    for key, of in frame.groupby(list(PANEL), sort=False, dropna=False):
        yield dict(zip(PANEL, key, strict=True)), of


def _by_method(of: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    for method, lines in of.groupby("method", sort=False):
        first = lines.iloc[0]
        yield {"method": method, "label": first["label"], "informed": bool(first["informed"])}, lines


def hypervolumes(results: pd.DataFrame, disparity_limit: float = 0.2) -> pd.DataFrame:
    """``hypervolume`` of each panel, method and seed, up to the constant classifier's error and the limit.

    ``members`` is how many points it was of: with more of them it is never less.
    """
    lines = []
    for panel, of in by_panel(results):
        for method, own in _by_method(of):
            for seed, points in own.groupby("seed"):
                reference = float(points["constant_error"].iloc[0]), disparity_limit
                volume = hypervolume(points[["error", "disparity"]], reference)
                lines.append(panel | method | {"seed": seed, "members": len(points), "hypervolume": volume})
    return pd.DataFrame(lines)


def half_width(values: ArrayLike) -> float:
    """Half of the 95 % t-interval of the mean; NaN for fewer than two values."""
    v = np.asarray(values, dtype=float)
    v = v[~np.isnan(v)]
    if len(v) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(v) - 1) * v.std(ddof=1) / np.sqrt(len(v)))


class Paired(NamedTuple):
    """Mean difference of two methods over the seeds that both have, and its p-value by a paired t-test."""

    difference: float
    p: float
    pairs: int

    def verdict(self, p: float, less_is_better: bool = False) -> str:
        """In words, at 5 %, by a p-value that may have been corrected."""
        if not p < LEVEL_OF_TESTS:
            return ALIKE
        return BETTER if (self.difference < 0) == less_is_better else WORSE


def paired_test(ours: pd.Series, theirs: pd.Series) -> Paired:
    """Ours − theirs, by seed in the index. The p-value is NaN for fewer than two pairs."""
    differences = (ours - theirs).dropna().to_numpy(dtype=float)
    if len(differences) < 2:
        return Paired(float(differences.mean()) if len(differences) else float("nan"), float("nan"),
                      len(differences))  # fmt: skip
    mean = float(differences.mean())
    if np.ptp(differences) < 1e-12:  # the test's limit, which scipy warns of
        return Paired(mean, 1.0 if abs(mean) < 1e-12 else 0.0, len(differences))
    return Paired(mean, float(stats.ttest_1samp(differences, 0.0).pvalue), len(differences))


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's correction of p-values (n,) for being several: p₍ᵢ₎ ↦ maxⱼ≤ᵢ min(1, (n − j + 1) p₍ⱼ₎).

    A NaN is no test and stays.
    """
    p = np.asarray(p_values, dtype=float)
    corrected = np.full(p.shape, np.nan)
    order = np.argsort(p)[: int((~np.isnan(p)).sum())]
    corrected[order] = np.maximum.accumulate(np.minimum(1, p[order] * np.arange(len(order), 0, -1)))
    return corrected


def hypervolume_table(results: pd.DataFrame, ours: str = OURS, disparity_limit: float = 0.2) -> pd.DataFrame:
    """Hypervolume of each panel and method over seeds, and whether ours is told apart from it.

    ``difference`` is ours − theirs over common seeds, ``p`` corrected by Holm for the methods of a panel.
    """
    tables = []
    for panel, of in by_panel(hypervolumes(results, disparity_limit)):
        by_seed = {method: own.set_index("seed")["hypervolume"] for method, own in of.groupby("method")}
        lines, tests = [], []
        for method, own in _by_method(of):
            name = method["method"]
            nothing = Paired(float("nan"), float("nan"), 0)
            test = paired_test(by_seed[ours], by_seed[name]) if ours in by_seed and name != ours else nothing
            tests.append(test)
            volumes = own["hypervolume"]
            lines.append(
                panel
                | method
                | {
                    "seeds": int(volumes.notna().sum()),
                    "members": float(own["members"].mean()),
                    "mean": float(volumes.mean()),
                    "half_width": half_width(volumes),
                    "difference": test.difference,
                    "pairs": test.pairs,
                }
            )
        corrected = holm([test.p for test in tests])
        for line, test, p in zip(lines, tests, corrected, strict=True):
            line["p"] = float(p)
            line["verdict"] = "ours" if line["method"] == ours else test.verdict(p) if test.pairs else ""
        tables.append(pd.DataFrame(lines))
    return pd.concat(tables, ignore_index=True)


def least_disparity(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """The least disparity of each panel, budget, method and seed, NaN where it has no member within.

    A member is within budget b whose error is at most b above that of ``plain`` at its least weight in the
    same seed; seeds without it are left out, and in a panel without it the least error of any method serves.
    """
    lines = []
    for panel, of in by_panel(results):
        limits = _limits(of, plain)
        for budget in budgets:
            limit = of["seed"].map(limits) + budget + 1e-12
            within = of[of["error"] <= limit]
            for method, _ in _by_method(of):
                own = within[within["method"] == method["method"]]
                least = own.groupby("seed")["disparity"].min().reindex(limits.index)
                lines += [
                    panel | {"budget": budget} | method | {"seed": seed, "disparity": float(value)}
                    for seed, value in least.items()
                ]
    return pd.DataFrame(lines)


def _limits(of: pd.DataFrame, plain: str) -> pd.Series:
    """A panel's errors to which budgets are added, by seed."""
    base = of[of["method"] == plain]
    if base.empty:
        return of.groupby("seed")["error"].min()
    return base.sort_values("weight").groupby("seed")["error"].first()


def budget_table(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """Means over seeds of :func:`least_disparity`, for methods that have a member within in all ``of`` seeds.

    ``seeds`` is in how many they have.
    """
    lines = []
    for panel, of in by_panel(least_disparity(results, budgets, plain)):
        for budget, within in of.groupby("budget", sort=False):
            for method, own in _by_method(within):
                found = own["disparity"]
                all_seeds = bool(found.notna().all())
                lines.append(
                    panel
                    | {"budget": budget}
                    | method
                    | {
                        "seeds": int(found.notna().sum()),
                        "of": len(found),
                        "disparity": float(found.mean()) if all_seeds else float("nan"),
                        "half_width": half_width(found) if all_seeds else float("nan"),
                    }
                )
    return pd.DataFrame(lines)


def dominance_table(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, ours: str = OURS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """Which uninformed method has the least disparity within each panel's budget of error.

    Candidates have a member within in every seed. Ours is tested against ``other``, the best of the rest;
    the p-value is of that one test.
    """
    lines = []
    for panel, of in by_panel(least_disparity(results, budgets, plain)):
        for budget, within in of.groupby("budget", sort=False):
            uninformed = within[~within["informed"].astype(bool)]
            by_seed = {name: own.set_index("seed")["disparity"] for name, own in uninformed.groupby("method")}
            labels = dict(zip(uninformed["method"], uninformed["label"], strict=True))
            means = {
                name: float(found.mean()) for name, found in by_seed.items() if bool(found.notna().all())
            }
            best = min(means, key=lambda name: means[name], default=None)
            other = min([name for name in means if name != ours], key=lambda name: means[name], default=None)
            test = Paired(float("nan"), float("nan"), 0)
            if ours not in means:
                verdict = "ours not within"
            elif other is None:
                verdict = "no rival within"
            else:
                test = paired_test(by_seed[ours], by_seed[other])
                verdict = test.verdict(test.p, less_is_better=True)
            lines.append(
                panel
                | {
                    "budget": budget,
                    "seeds": within["seed"].nunique(),
                    "candidates": len(means),
                    "best": best,
                    "best_label": None if best is None else labels[best],
                    "best_disparity": float("nan") if best is None else means[best],
                    "ours_seeds": int(by_seed[ours].notna().sum()) if ours in by_seed else 0,
                    "ours_disparity": means.get(ours, float("nan")),
                    "other": other,
                    "other_label": None if other is None else labels[other],
                    "other_disparity": float("nan") if other is None else means[other],
                    "difference": test.difference,
                    "p": test.p,
                    "verdict": verdict,
                }
            )
    return pd.DataFrame(lines)


def chosen_table(results: pd.DataFrame) -> pd.DataFrame:
    """Error and disparity of each panel and method's member chosen on validation, over seeds."""
    lines = []
    for panel, of in by_panel(results[results["selected"].astype(bool)]):
        for method, own in _by_method(of):
            line = panel | method | {"seeds": own["seed"].nunique()}
            for column in ("error", "disparity"):
                line |= {column: float(own[column].mean()), f"{column}_half_width": half_width(own[column])}
            lines.append(line | {name: float(own[name].mean()) for name in ("floor", "positive_rate")})
    return pd.DataFrame(lines)


def frontier(own: pd.DataFrame) -> pd.DataFrame:
    """Of one method in one panel: error and disparity of each weight over seeds; which are ``optimal``."""
    lines = [
        {
            "weight": weight,
            "seeds": of["seed"].nunique(),
            "error": float(of["error"].mean()),
            "error_half_width": half_width(of["error"]),
            "disparity": float(of["disparity"].mean()),
            "disparity_half_width": half_width(of["disparity"]),
        }
        for weight, of in own.groupby("weight")
    ]
    found = pd.DataFrame(lines)
    return found.assign(optimal=pareto(found[["error", "disparity"]]))
