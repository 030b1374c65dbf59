"""How often `fairvae monitor` gives an alarm over 24 periods without a change, and how soon it finds one.

Each period has so many people of two groups, who withhold at rates of their own, and labels and decisions
that differ between groups; nothing else tells of the group. Compared are the rates that audits compare, by
the same estimates: how often everyone and each group withhold, and how often each group is selected. In the
second part a rate of one group changes by --change from period 13 on.

With --stops the periods are the months of the stops by the police (data set stops), and the rates at which
groups do not state their ethnicity stand beside those by the officer's word. Withholding is taken to depend
on all features and on the label.

  python benchmarks/monitoring.py --series 200
  python benchmarks/monitoring.py --stops
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from pyro_fairvae import audit, monitor
from pyro_fairvae.auditing.control_variates import AuditedRows, ControlVariates
from pyro_fairvae.auditing.monitoring import EVERYONE, WITHHOLDING, evidence
from pyro_fairvae.data.stops import read_stops
from pyro_fairvae.report import align

PERIODS, CHANGES_AT = 24, 12


def period(
    draw: np.random.Generator, rows: int, withheld: np.ndarray, selected: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rates of one period with their standard errors."""
    group = (draw.random(rows) < 0.4).astype(int)
    y = (draw.random(rows) < np.array([0.3, 0.6])[group]).astype(int)
    decided = (draw.random(rows) < np.clip(selected[group] + 0.3 * (y - 0.5), 0, 1)).astype(int)
    stated = draw.random(rows) >= withheld[group]
    estimates = ControlVariates(AuditedRows(y, decided, np.where(stated, group, 2), 2, 2))
    rate, low, high = estimates.withholding(1.0)
    parity = estimates.parity()
    share = 1 - stated.mean()
    rates = [share, *rate, *parity.values[1]]
    errors = [np.sqrt(share * (1 - share) / rows), *np.maximum(high - rate, rate - low)]
    return np.array(rates), np.array([*errors, *np.sqrt(np.diag(parity.covariance())[2:])])


def first_alarm(seed: int, rows: int, alpha: float, of_withholding: float, of_selection: float) -> int:
    """The first period with an alarm, or the number of periods."""
    draw = np.random.default_rng(seed)
    withheld, selected = draw.uniform(0.2, 0.6, 2), draw.uniform(0.3, 0.7, 2)
    found = []
    for t in range(PERIODS):
        later = np.array([0.0, float(t >= CHANGES_AT)])
        found.append(period(draw, rows, withheld + of_withholding * later, selected + of_selection * later))
    rates, errors = np.array(found).transpose(1, 0, 2)
    kinds = rates.shape[1]
    mean = np.mean([evidence(rates[:, j], errors[:, j]) for j in range(kinds)], axis=0)
    reached = np.flatnonzero(mean >= 1 / alpha)
    return int(reached[0]) if len(reached) else PERIODS


def stops(data_dir: Path | None, alpha: float) -> None:
    """Months of stops, with rates of withholding as audited and by the officer's word."""
    table = read_stops("arrest", data_dir)
    assert table.stated is not None
    months = table.categories["month"].astype(str).to_numpy()
    X = table.categories.drop(columns="month")
    names = np.array([*table.groups, None], dtype=object)
    withheld = table.stated == len(table.groups)
    audits, yardstick = [], []
    for month in np.unique(months):
        rows = months == month
        y, own = table.y[rows], X[rows].reset_index(drop=True)
        kept = [name for name in own if own[name].nunique() > 1]
        given = {"withholding_depends_on": [*kept, "label"]}
        audits.append((month, audit(y, y, names[table.stated[rows]], X=own[kept], **given)))
        yardstick += [{"period": month, "group": EVERYONE, "by officers": withheld[rows].mean()}]
        yardstick += [
            {"period": month, "group": name, "by officers": withheld[rows & (table.a == g)].mean()}
            for g, name in enumerate(table.groups)
        ]
    found = monitor(audits, alpha)
    rates = found.rates[found.rates["rate"] == WITHHOLDING].merge(pd.DataFrame(yardstick))
    columns = ["period", "group", "by officers", "estimate", "low", "high", "evidence"]
    lines = rates.sort_values(["group", "period"])[columns].round(3).to_numpy().tolist()
    print(align([columns, *([str(cell) for cell in line] for line in lines)]))
    print(f"first alarm: {found.alarm}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2000, help="people in each period")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--change", type=float, default=0.05)
    parser.add_argument("--stops", action="store_true", help="months of stops instead of simulations")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    if arguments.stops:
        return stops(arguments.data_dir, arguments.alpha)
    for words, changes in (
        ("nothing changes", (0.0, 0.0)),
        ("withholding of one group changes", (arguments.change, 0.0)),
        ("selection of one group changes", (0.0, arguments.change)),
    ):
        found = np.array(
            [first_alarm(seed, arguments.rows, arguments.alpha, *changes) for seed in range(arguments.series)]
        )
        if not any(changes):
            print(f"{words}: an alarm in {100 * (found < PERIODS).mean():.1f} % of {len(found)} series")
            continue
        true = found[found >= CHANGES_AT]
        after = true - CHANGES_AT + 1
        within = 100 * (true < PERIODS).mean()
        print(
            f"{words} by {arguments.change:g}: found in {within:.1f} % of {len(true)} series within "
            f"{PERIODS - CHANGES_AT} periods, after {np.median(after):.0f} periods (median), "
            f"{np.quantile(after, 0.9):.0f} (nine in ten)"
        )


if __name__ == "__main__":
    main()
