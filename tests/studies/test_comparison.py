"""Comparisons of trade-offs against brute force, known answers, and results with a known best method."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pyro_fairvae.studies.comparison import (
    budget_table,
    chosen_table,
    dominance_table,
    frontier,
    hypervolume,
    hypervolume_table,
    least_disparity,
    pareto,
)
from pyro_fairvae.studies.resplits import ALIKE, BETTER, WORSE, half_width
from tests.support.comparisons import METHODS, WEIGHTS, corrected_p, made_up_results


def dominated(point: np.ndarray, points: np.ndarray) -> bool:
    return any((other <= point).all() and (other < point).any() for other in points)


@pytest.mark.parametrize("seed", range(5))
def test_pareto_is_that_of_brute_force(seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 12, (40, 2)).astype(float)  # with ties in both
    assert pareto(points).tolist() == [not dominated(point, points) for point in points]


def test_pareto_keeps_equal_points_and_no_nan() -> None:
    points = [[1.0, 2.0], [1.0, 2.0], [1.0, 3.0], [2.0, 2.0], [0.5, np.nan], [2.0, 1.0]]
    assert pareto(points).tolist() == [True, True, False, False, False, True]
    assert pareto(np.empty((0, 2))).tolist() == []


@pytest.mark.parametrize("seed", range(4))
def test_hypervolume_is_that_of_monte_carlo_and_of_a_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, (12, 2)) * (0.35, 0.3)  # some beyond the reference
    reference = (0.25, 0.2)
    found = hypervolume(points, reference)

    def covered(places: np.ndarray) -> float:
        return float((places[:, None] >= points).all(-1).any(-1).mean())

    drawn = rng.uniform(0, 1, (100_000, 2)) * reference
    assert found == pytest.approx(covered(drawn), abs=4 * np.sqrt(found * (1 - found) / len(drawn)) + 1e-9)
    centres = (np.arange(400) + 0.5) / 400
    grid = np.stack(np.meshgrid(centres, centres), axis=-1).reshape(-1, 2) * reference
    assert found == pytest.approx(covered(grid), abs=2 * 12 / 400)


def test_hypervolume_by_hand() -> None:
    assert hypervolume([[0.0, 0.0]], (0.3, 0.2)) == 1.0
    assert hypervolume([[0.15, 0.1]], (0.3, 0.2)) == pytest.approx(0.25)
    two = [[0.1, 0.1], [0.2, 0.05]]
    assert hypervolume(two, (0.3, 0.2)) == pytest.approx((0.2 * 0.1 + 0.1 * 0.05) / 0.06)
    assert hypervolume([*two, [0.25, 0.15], [0.1, 0.1], [np.nan, 0.0]], (0.3, 0.2)) == hypervolume(
        two, (0.3, 0.2)
    )
    assert hypervolume([[0.3, 0.0], [0.0, 0.2], [0.4, 0.1]], (0.3, 0.2)) == 0.0
    assert hypervolume(np.empty((0, 2)), (0.3, 0.2)) == 0.0
    assert np.isnan(hypervolume(two, (0.0, 0.2)))


def test_tables_find_the_best_method() -> None:
    gains = {"fair_ssvae": 0.03, "ss_vae": 0.0, "mfd_gty_gta": 0.05, "fairda": 0.0}
    results = made_up_results(gains, levels=("sparse", "dense"), noise=0.001)
    volumes = hypervolume_table(results)
    assert len(volumes) == 2 * 4
    verdicts = volumes[volumes.level == "dense"].set_index("method")["verdict"].to_dict()
    assert verdicts == {"fair_ssvae": "ours", "ss_vae": BETTER, "mfd_gty_gta": WORSE, "fairda": BETTER}
    assert volumes[volumes["informed"]]["method"].unique().tolist() == ["mfd_gty_gta"]
    dominance = dominance_table(results, budgets=(0.02,))
    assert dominance["best"].tolist() == ["fair_ssvae"] * 2  # the informed one is better, but no candidate
    assert dominance["other"].tolist() == ["fairda"] * 2
    assert dominance["verdict"].tolist() == [BETTER] * 2
    swapped = dominance_table(results, budgets=(0.02,), ours="fairda")
    assert swapped["verdict"].tolist() == [WORSE] * 2
    assert set(hypervolume_table(results, ours="fairda").query("method == 'fair_ssvae'").verdict) == {WORSE}


def test_tables_do_not_tell_equal_methods_apart() -> None:
    results = made_up_results(dict.fromkeys(METHODS, 0.01), noise=0.01)
    volumes = hypervolume_table(results).set_index("method")
    assert volumes.loc[["mfd_gty_gta", "fairda"], "verdict"].tolist() == [ALIKE] * 2
    assert (volumes.loc[["mfd_gty_gta", "fairda"], "p"] > 0.05).all()
    assert dominance_table(results, budgets=(0.02,))["verdict"].tolist() == [ALIKE]


def test_hypervolume_table_is_that_of_its_seeds() -> None:
    """Against means, scipy's test and Holm's factors taken from the points themselves."""
    results = made_up_results({"fair_ssvae": 0.01, "fairda": 0.0, "mfd_gty_gta": 0.012}, noise=0.006)
    results = results[~((results.method == "fairda") & (results.seed == 3))]
    found = hypervolume_table(results).set_index("method")
    volumes = {
        method: {
            seed: hypervolume(of[["error", "disparity"]], (0.247, 0.2)) for seed, of in own.groupby("seed")
        }
        for method, own in results.groupby("method")
    }
    p = {}
    for method, seeds in (("fairda", [0, 1, 2, 4]), ("mfd_gty_gta", [0, 1, 2, 3, 4])):
        ours, theirs = ([volumes[name][seed] for seed in seeds] for name in ("fair_ssvae", method))
        p[method] = corrected_p(ours, theirs)
        assert found["pairs"][method] == len(seeds)
        assert found["difference"][method] == pytest.approx(np.mean(ours) - np.mean(theirs))
        assert found["mean"][method] == pytest.approx(np.mean(list(volumes[method].values())))
    small, large = sorted(p, key=lambda method: p[method])
    assert found["p"][small] == pytest.approx(min(1, 2 * p[small]))
    assert found["p"][large] == pytest.approx(min(1, max(2 * p[small], p[large])))


def test_one_seed_has_no_interval_and_no_verdict() -> None:
    results = made_up_results({"fair_ssvae": 0.03, "ss_vae": 0.0, "fairda": 0.0}, seeds=1)
    volumes = hypervolume_table(results)
    assert volumes["half_width"].isna().all()
    assert volumes["verdict"].tolist() == ["ours", ALIKE, ALIKE]
    assert chosen_table(results)["error_half_width"].isna().all()
    assert frontier(results[results.method == "fairda"])["error_half_width"].isna().all()
    assert dominance_table(results)["p"].isna().all()


def test_without_ours_the_rest_is_still_told() -> None:
    results = made_up_results({"ss_vae": 0.0, "fairda": 0.0})
    assert hypervolume_table(results)["verdict"].tolist() == ["", ""]
    dominance = dominance_table(results, budgets=(0.02,))
    assert dominance["best"].tolist() == ["fairda"]
    assert dominance["verdict"].tolist() == ["ours not within"]


def some_points(points: dict[str, list[list[tuple[float, float]]]]) -> pd.DataFrame:
    """Results of the (error, disparity) of each method's members, seed by seed."""
    plain = made_up_results({"fairda": 0.0}, seeds=1).iloc[0].to_dict()
    return pd.DataFrame(
        [
            plain
            | {"method": method, "label": method, "seed": seed, "weight": float(w), "error": error}
            | {"disparity": disparity}
            for method, seeds in points.items()
            for seed, members in enumerate(seeds)
            for w, (error, disparity) in enumerate(members)
        ]
    )


def test_budgets_by_hand() -> None:
    results = some_points(
        {
            "ss_vae": [[(0.15, 0.10)], [(0.16, 0.12)]],
            "fair_ssvae": [[(0.15, 0.09), (0.158, 0.04)], [(0.161, 0.08), (0.169, 0.02), (0.18, 0.0)]],
            "rival": [[(0.145, 0.08), (0.17, 0.01)], [(0.16, 0.07), (0.18, 0.01)]],
        }
    )
    table = budget_table(results, budgets=(0.0, 0.01)).set_index(["budget", "method"])
    assert table["seeds"].to_dict() == {
        (0.0, "ss_vae"): 2, (0.0, "fair_ssvae"): 1, (0.0, "rival"): 2,
        (0.01, "ss_vae"): 2, (0.01, "fair_ssvae"): 2, (0.01, "rival"): 2,
    }  # fmt: skip
    assert np.isnan(table["disparity"][0.0, "fair_ssvae"])  # not within in the second seed
    assert table["disparity"][0.0, "rival"] == pytest.approx(0.075)
    assert table["disparity"][0.01, "fair_ssvae"] == pytest.approx(0.03)
    strict, loose = dominance_table(results, budgets=(0.0, 0.01)).to_dict("records")
    assert (strict["best"], strict["ours_seeds"], strict["candidates"]) == ("rival", 1, 2)
    assert strict["verdict"] == "ours not within"
    assert (loose["best"], loose["other"], loose["candidates"]) == ("fair_ssvae", "rival", 3)
    assert loose["difference"] == pytest.approx((0.04 - 0.08 + 0.02 - 0.07) / 2)
    assert loose["p"] == pytest.approx(corrected_p([0.04, 0.02], [0.08, 0.07]))


def test_without_the_plain_method_the_least_error_is_the_limit() -> None:
    results = some_points({"fair_ssvae": [[(0.15, 0.09), (0.17, 0.04)]], "rival": [[(0.16, 0.02)]]})
    found = dominance_table(results, budgets=(0.0, 0.01))
    assert found["best"].tolist() == ["fair_ssvae", "rival"]
    assert found["verdict"].tolist() == ["no other within", ALIKE]


def test_a_seed_without_the_plain_method_is_left_out() -> None:
    results = some_points({"ss_vae": [[(0.15, 0.1)]], "fair_ssvae": [[(0.15, 0.09)], [(0.10, 0.01)]]})
    assert least_disparity(results, budgets=(0.0,))["seed"].unique().tolist() == [0]


def test_chosen_and_frontier_are_means_over_seeds() -> None:
    results = made_up_results({"fair_ssvae": 0.03, "fairda": 0.0})
    own = results[results.method == "fairda"]
    chosen = chosen_table(results).set_index("method").loc["fairda"]
    assert chosen["error"] == pytest.approx(own[own.weight == 0.8].error.mean())
    assert chosen["disparity_half_width"] == pytest.approx(half_width(own[own.weight == 0.8].disparity))
    found = frontier(own)
    assert found["weight"].tolist() == list(WEIGHTS)
    np.testing.assert_allclose(found["disparity"], own.groupby("weight").disparity.mean())
    means = found[["error", "disparity"]].to_numpy()
    assert found["optimal"].tolist() == [not dominated(mean, means) for mean in means]
