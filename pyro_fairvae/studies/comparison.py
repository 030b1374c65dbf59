"""Methods compared by their trade-offs of error against disparity, over repeated splits.

``results`` has a line for each panel, method, seed and trade-off weight; a panel is a data set, a group, a
level of missingness, a metric and a trunk. All figures are of the test part; less is better. Intervals and
tests allow for the overlap of splits (:mod:`.resplits`), ``overlap`` in the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pyro_fairvae.studies.resplits import (
    BETTER,
    LEVEL_OF_TESTS,
    OVERLAP,
    WORSE,
    Paired,
    half_width,
    holm,
    paired_test,
    pairs_needed,
)

PANEL = ("dataset", "group", "level", "metric", "trunk")
OURS, WITHOUT_RISK = "fair_ssvae", "ss_vae"
BUDGETS = (0.0, 0.005, 0.01, 0.02)


def pareto(points: ArrayLike) -> np.ndarray:
    """Which points (n, 2) are not dominated: no other point is less in one and no more in the other.

    Equal points are all kept. A point with a NaN is not optimal.
    """
    p = np.asarray(points, dtype=float).reshape(-1, 2)
    no_more = (p[:, None] <= p[None]).all(-1)
    less = (p[:, None] < p[None]).any(-1)
    return ~(no_more & less).any(0) & ~np.isnan(p).any(1)


def hypervolume(points: ArrayLike, reference: tuple[float, float]) -> float:
    """Share of the box [0, reference] that the points (n, 2) dominate; NaN if the box has no area.

    Points that are not below the reference in both coordinates are ignored.
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
    """The names and the lines of each panel, in the order of the frame."""
    for key, lines in frame.groupby(list(PANEL), sort=False, dropna=False):
        yield dict(zip(PANEL, key, strict=True)), lines


def overlap_of(lines: pd.DataFrame) -> float:
    """n_test / n_train of the splits that lines are of."""
    return float(lines["overlap"].mean()) if "overlap" in lines else OVERLAP


def _by_method(panel: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    for method, lines in panel.groupby("method", sort=False):
        first = lines.iloc[0]
        yield {"method": method, "label": first["label"], "informed": bool(first["informed"])}, lines


def hypervolumes(results: pd.DataFrame, disparity_limit: float = 0.2) -> pd.DataFrame:
    """``hypervolume`` of each panel, method and seed, up to the constant classifier's error and the limit.

    ``members`` is the number of points; more points never lower the hypervolume.
    """
    lines = []
    for panel, of_panel in by_panel(results):
        for method, of_method in _by_method(of_panel):
            for seed, points in of_method.groupby("seed"):
                reference = float(points["constant_error"].iloc[0]), disparity_limit
                volume = hypervolume(points[["error", "disparity"]], reference)
                lines.append(
                    panel
                    | method
                    | {"seed": seed, "members": len(points), "hypervolume": volume}
                    | {"overlap": overlap_of(points)}
                )
    return pd.DataFrame(lines)


def hypervolume_table(results: pd.DataFrame, ours: str = OURS, disparity_limit: float = 0.2) -> pd.DataFrame:
    """Hypervolume of each panel and method over seeds, and whether it differs significantly from ours.

    ``difference`` is ours − theirs over common seeds, ``p`` corrected by Holm for the methods of a panel.
    """
    tables = []
    for panel, of_panel in by_panel(hypervolumes(results, disparity_limit)):
        by_seed = {
            method: of_method.set_index("seed")["hypervolume"]
            for method, of_method in of_panel.groupby("method")
        }
        lines, tests, overlap = [], [], overlap_of(of_panel)
        for method, of_method in _by_method(of_panel):
            name = method["method"]
            test = Paired(float("nan"), float("nan"), 0)
            if ours in by_seed and name != ours:
                test = paired_test(by_seed[ours], by_seed[name], overlap)
            tests.append(test)
            volumes = of_method["hypervolume"]
            lines.append(
                panel
                | method
                | {
                    "seeds": int(volumes.notna().sum()),
                    "members": float(of_method["members"].mean()),
                    "mean": float(volumes.mean()),
                    "half_width": half_width(volumes, overlap),
                    "difference": test.difference,
                    "difference_half_width": test.half_width,
                    "deviation": test.deviation,
                    "pairs": test.pairs,
                    "overlap": overlap,
                }
            )
        corrected = holm([test.p for test in tests])
        for line, test, p in zip(lines, tests, corrected, strict=True):
            line["p"] = float(p)
            line["verdict"] = "ours" if line["method"] == ours else test.verdict(p) if test.pairs else ""
        tables.append(pd.DataFrame(lines))
    return pd.concat(tables, ignore_index=True)


def power_table(
    results: pd.DataFrame, difference: float = 0.01, ours: str = OURS, disparity_limit: float = 0.2
) -> pd.DataFrame:
    """Seeds that a difference of hypervolume would need, for each panel and other method.

    ``needed`` is for one test at 5 %, ``needed_of_all`` for the strictest of Holm's, at 5 % by the number of
    tests in the panel; both with a power of 80 %. NaN: more than any number of splits of these rows can do.
    """
    lines = []
    for panel, of_panel in by_panel(hypervolume_table(results, ours, disparity_limit)):
        tested = of_panel[of_panel["pairs"] >= 2]
        for line in tested.to_dict("records"):
            needed = [
                pairs_needed(difference, line["deviation"], line["overlap"], level)
                for level in (LEVEL_OF_TESTS, LEVEL_OF_TESTS / len(tested))
            ]
            lines.append(
                panel
                | {str(name): line[name] for name in ("method", "label", "informed", "pairs", "deviation")}
                | dict(zip(("needed", "needed_of_all"), (n or float("nan") for n in needed), strict=True))
            )
    return pd.DataFrame(lines)


def least_disparity(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """The least disparity of each panel, budget, method and seed; NaN if no member is within the budget.

    A member is within budget b if its error is at most b above that of ``plain`` at its least weight in the
    same seed. Seeds without ``plain`` are left out; a panel without it uses the least error of any method.
    """
    lines = []
    for panel, of_panel in by_panel(results):
        limits = _limits(of_panel, plain)
        for budget in budgets:
            limit = of_panel["seed"].map(limits) + budget + 1e-12
            within = of_panel[of_panel["error"] <= limit]
            for method, _ in _by_method(of_panel):
                of_method = within[within["method"] == method["method"]]
                least = of_method.groupby("seed")["disparity"].min().reindex(limits.index)
                lines += [
                    panel
                    | {"budget": budget}
                    | method
                    | {"seed": seed, "disparity": float(value), "overlap": overlap_of(of_panel)}
                    for seed, value in least.items()
                ]
    return pd.DataFrame(lines)


def _limits(panel: pd.DataFrame, plain: str) -> pd.Series:
    """Errors of a panel, by seed, to which budgets are added."""
    base = panel[panel["method"] == plain]
    if base.empty:
        return panel.groupby("seed")["error"].min()
    return base.sort_values("weight").groupby("seed")["error"].first()


def budget_table(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """Means over seeds of :func:`least_disparity`, for methods with a member within budget in all seeds.

    ``of`` is the number of seeds, ``seeds`` the number of those with a member within budget.
    """
    lines = []
    for panel, of_panel in by_panel(least_disparity(results, budgets, plain)):
        for budget, within in of_panel.groupby("budget", sort=False):
            for method, of_method in _by_method(within):
                least = of_method["disparity"]
                all_seeds = bool(least.notna().all())
                lines.append(
                    panel
                    | {"budget": budget}
                    | method
                    | {
                        "seeds": int(least.notna().sum()),
                        "of": len(least),
                        "disparity": float(least.mean()) if all_seeds else float("nan"),
                        "half_width": half_width(least, overlap_of(of_method)) if all_seeds else float("nan"),
                    }
                )
    return pd.DataFrame(lines)


def dominance_table(
    results: pd.DataFrame, budgets: Sequence[float] = BUDGETS, ours: str = OURS, plain: str = WITHOUT_RISK
) -> pd.DataFrame:
    """The uninformed method with the least disparity within each panel's budget of error.

    Candidates have a member within budget in every seed. Ours is tested against ``other``, the best of the
    other candidates; the p-value is that of this one test.
    """
    lines = []
    for panel, of_panel in by_panel(least_disparity(results, budgets, plain)):
        for budget, within in of_panel.groupby("budget", sort=False):
            uninformed = within[~within["informed"].astype(bool)]
            by_seed = {
                name: of_method.set_index("seed")["disparity"]
                for name, of_method in uninformed.groupby("method")
            }
            labels = dict(zip(uninformed["method"], uninformed["label"], strict=True))
            means = {
                name: float(least.mean()) for name, least in by_seed.items() if bool(least.notna().all())
            }
            best = min(means, key=lambda name: means[name], default=None)
            other = min([name for name in means if name != ours], key=lambda name: means[name], default=None)
            test = Paired(float("nan"), float("nan"), 0)
            if ours not in means:
                verdict = "ours not within"
            elif other is None:
                verdict = "no other within"
            else:
                test = paired_test(by_seed[ours], by_seed[other], overlap_of(within))
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
    """Error and disparity over seeds of the member chosen on validation, for each panel and method."""
    lines = []
    for panel, of_panel in by_panel(results[results["selected"].astype(bool)]):
        for method, of_method in _by_method(of_panel):
            line = panel | method | {"seeds": of_method["seed"].nunique()}
            for column in ("error", "disparity"):
                line |= {
                    column: float(of_method[column].mean()),
                    f"{column}_half_width": half_width(of_method[column], overlap_of(of_method)),
                }
            lines.append(line | {name: float(of_method[name].mean()) for name in ("floor", "positive_rate")})
    return pd.DataFrame(lines)


def frontier(own: pd.DataFrame) -> pd.DataFrame:
    """Error and disparity over seeds for each weight of one method in one panel; which are ``optimal``."""
    lines = [
        {
            "weight": weight,
            "seeds": over_seeds["seed"].nunique(),
            "error": float(over_seeds["error"].mean()),
            "error_half_width": half_width(over_seeds["error"], overlap_of(own)),
            "disparity": float(over_seeds["disparity"].mean()),
            "disparity_half_width": half_width(over_seeds["disparity"], overlap_of(own)),
        }
        for weight, over_seeds in own.groupby("weight")
    ]
    means = pd.DataFrame(lines)
    return means.assign(optimal=pareto(means[["error", "disparity"]]))


def attained(own: pd.DataFrame, disparities: ArrayLike) -> pd.DataFrame:
    """The least error of one method in one panel at most at each disparity: means over seeds, with intervals.

    The constant classifier, whose disparity is 0, counts, so that the area between the mean and its error, as
    a share of the box, is the mean hypervolume.
    """
    grid = np.asarray(disparities, dtype=float)
    curves = []
    for _, points in own.groupby("seed"):
        error, disparity = (points[name].to_numpy(dtype=float) for name in ("error", "disparity"))
        within = disparity[:, None] <= grid
        least = np.where(within, error[:, None], np.inf).min(0)
        curves.append(np.minimum(least, float(points["constant_error"].iloc[0])))
    stacked = np.array(curves)
    half = [half_width(column, overlap_of(own)) for column in stacked.T]
    return pd.DataFrame({"disparity": grid, "error": stacked.mean(0), "half_width": half})


def wins_table(volumes: pd.DataFrame, ours: str = OURS) -> pd.DataFrame:
    """For each other method: in how many panels ours has the larger mean, and how many tests found a
    difference.

    ``volumes`` is a :func:`hypervolume_table`; one table for each trunk.
    """
    lines = []
    others = volumes[(volumes["method"] != ours) & volumes["difference"].notna()]
    for (trunk, method), own in others.groupby(["trunk", "method"], sort=False):
        lines.append(
            {
                "trunk": trunk,
                "method": method,
                "label": own["label"].iloc[0],
                "informed": bool(own["informed"].iloc[0]),
                "panels": len(own),
                "ahead": int((own["difference"] > 0).sum()),
                "better": int((own["verdict"] == BETTER).sum()),
                "worse": int((own["verdict"] == WORSE).sum()),
                "difference": float(own["difference"].mean()),
            }
        )
    return pd.DataFrame(lines)
