"""How often intervals of weighted and clustered audits cover the truth, and those that know of neither.

Households of one to six people live in towns, and are alike in group and decision. Whole towns are sampled,
the more rarely the more of their people are decided for, so that people differ in their chance to be asked;
the weight is its inverse. With --by-people they are sampled one by one, at the same chances. Groups withhold
in 60 and 30 % of the cases. The truth is that of everybody.

  python benchmarks/survey_coverage.py --simulations 200
  python benchmarks/survey_coverage.py --simulations 200 --by-people
"""

from __future__ import annotations

import argparse
import warnings

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pyro_fairvae.auditing import Audit, audit

TOWNS, HOMES = 4000, 12  # in the population, homes of each town
SAMPLED = 80  # towns
WITHHELD = np.array([0.6, 0.3])
MEASURES = ("deo", "deopp", "ddp", "impact_ratio", "predictive_parity", "auc", "calibration")


def population() -> pd.DataFrame:
    """Everybody, with the chance to be sampled."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 7, TOWNS * HOMES)
    home = np.repeat(np.arange(len(sizes)), sizes)
    town = home // HOMES
    of_town, of_home = draw.normal(size=TOWNS)[town], draw.normal(size=len(sizes))[home]
    group = (0.7 * of_town + 0.7 * of_home + draw.normal(size=len(home)) > 0.4).astype(int)
    merit = 0.6 * of_town + 0.6 * of_home + draw.normal(size=len(home)) + 0.3 * group
    y = (merit + draw.normal(size=len(home)) > 0.3).astype(int)
    score = 1 / (1 + np.exp(-(merit - 0.2 * group + 0.5 * of_town)))
    people = pd.DataFrame({"y": y, "group": group, "score": score, "decided": (score > 0.5).astype(int)})
    share = people["decided"].groupby(town).transform("mean").to_numpy()
    size = np.exp(-1.5 * share)  # towns are sampled in proportion to it
    of_towns = pd.Series(size).groupby(town).first().to_numpy()
    people["chance"] = SAMPLED * size / of_towns.sum()
    return people.assign(town=town, proba=1 / (1 + np.exp(-1.5 * (merit - 0.3))))


def simulate(
    people: pd.DataFrame, by_town: dict[int, np.ndarray], by_people: bool, seed: int
) -> dict[str, Audit]:
    """The audit of one sample: as it was drawn, and as if people had been drawn one by one, or alike."""
    draw = np.random.default_rng([seed])
    chance = people["chance"].to_numpy()
    if by_people:
        rows = people[draw.random(len(people)) < chance]
    else:
        towns = np.flatnonzero(draw.random(TOWNS) < chance[[rows[0] for rows in by_town.values()]])
        rows = people.iloc[np.concatenate([by_town[town] for town in towns])]
    said = np.where(draw.random(len(rows)) < WITHHELD[rows["group"]], None, rows["group"].astype(str))
    given = rows["y"].to_numpy(), rows["decided"].to_numpy(), said
    shared = {"groups_proba": np.c_[1 - rows["proba"], rows["proba"]], "scores": rows["score"].to_numpy()}
    weight, clusters = 1 / rows["chance"].to_numpy(), rows["town"].to_numpy()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        audits = {
            "weights alone": audit(*given, **shared, sample_weight=weight),
            "neither": audit(*given, **shared),
        }
        if not by_people:
            both = audit(*given, **shared, sample_weight=weight, clusters=clusters)
            audits = {"weights and clusters": both} | audits
        return audits


def intervals_of(found: Audit) -> pd.DataFrame:
    """Estimates and ends by what they are of."""
    assert found.figures is not None
    rates = found.rates.set_index(found.rates["rate"] + " of " + found.rates["group"])
    disparities = pd.concat([found.metrics, found.figures.disparities]).loc[list(MEASURES)]
    return pd.concat([rates, disparities])[["estimate", "low", "high"]].astype(float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--by-people", action="store_true", help="people are sampled, not towns")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    people = population()
    by_town = {int(town): rows for town, rows in people.groupby("town").indices.items()}
    everybody = audit(people["y"], people["decided"], people["group"].astype(str), scores=people["score"])
    truth = intervals_of(everybody)["estimate"]
    run = joblib.delayed(simulate)
    found = joblib.Parallel(arguments.jobs)(
        run(people, by_town, arguments.by_people, seed) for seed in range(arguments.simulations)
    )
    size = np.mean([each["neither"].rows["rows"] for each in found])
    what = "people" if arguments.by_people else f"{SAMPLED} towns"
    print(f"{arguments.simulations} samples of {what}, {size:.0f} people on average\n")
    columns = {"truth": truth}
    for name in found[0]:
        tables = [intervals_of(each[name]) for each in found]
        covered = np.mean([(t["low"] <= truth) & (truth <= t["high"]) for t in tables], axis=0)
        width = np.nanmean([t["high"] - t["low"] for t in tables], axis=0)
        columns |= {
            f"covered, {name}": pd.Series(covered, truth.index),
            f"width, {name}": pd.Series(width, truth.index),
        }
    table = pd.DataFrame(columns)
    print(table.round(3).to_string())
    print("\nmeans\n" + table.filter(like=", ").mean().round(3).to_string())


if __name__ == "__main__":
    main()
