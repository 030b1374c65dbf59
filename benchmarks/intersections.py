"""How far rates of intersections are from the truth, raw and shrunk, and how often intervals cover it.

People of two sexes and four races, of which two are rare, are selected at rates that add up over both, and
that deviate from that by chance with a standard deviation.

  python benchmarks/intersections.py --simulations 200
"""

from __future__ import annotations

import argparse

import numpy as np

from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.auditing.intersections import intersection_lines
from pyro_fairvae.schema.attributes import Attributes

BOTH = Attributes(("sex", "race"), (("f", "m"), ("a", "b", "c", "d")))
ADDITIVE = 0.25 + BOTH.group_parts @ np.array([0.15, 0.08])
SHARES = np.array([0.3, 0.2, 0.05, 0.02] * 2) / 1.14
ROWS = 260


def simulate(deviation: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors (raw, shrunk) where a group has a row, and which intervals hold the truth."""
    draw = np.random.default_rng([seed, round(1000 * deviation)])
    truth = (ADDITIVE + deviation * draw.normal(size=len(ADDITIVE))).clip(0.02, 0.98)
    group = draw.choice(len(SHARES), p=SHARES, size=ROWS)
    decided = (draw.random(ROWS) < truth[group]).astype(int)
    rows = AuditedRows(np.full(ROWS, 2), decided, group, 2, len(SHARES))
    lines = intersection_lines(ControlVariates(rows), BOTH, ["no", "yes"], 1, 0.9)
    lines = lines[lines["rate"] == "P(Ŷ = yes)"]
    known = lines["raw"].notna().to_numpy()
    errors = [np.square(lines[name].to_numpy() - truth)[known].mean() for name in ("raw", "estimate")]
    return np.array(errors), ((lines["low"] <= truth) & (truth <= lines["high"])).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=200)
    arguments = parser.parse_args()
    print("deviation   root mean squared error, raw   shrunk   covered")
    for deviation in (0.0, 0.04, 0.08, 0.16):
        found = [simulate(deviation, seed) for seed in range(arguments.simulations)]
        raw, shrunk = np.sqrt(np.mean([errors for errors, _ in found], axis=0))
        covered = np.mean([inside for _, inside in found])
        print(f"{deviation:9.2f}   {raw:30.3f}   {shrunk:6.3f}   {covered:7.3f}")


if __name__ == "__main__":
    main()
