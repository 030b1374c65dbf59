"""Mutual information by critics beside its closed form, what independence costs, and the cost of a step.

    python benchmarks/dependence.py [--seeds 10] [--rows 5000] [--rounds 15] [--parts estimates price step]

*Estimates.* Normal numbers with the correlation ρ, whose mutual information is −log(1 − ρ²) / 2: MINE as the
paper prints it, by Donsker's and Varadhan's bound, and InfoNCE, by critics that have not seen the rows, and
the estimate from nearest neighbours. Means over seeds, the largest error, and the standard deviation. Of the
critics' settings only the number of passes was compared, on seeds from 1,000 on.

*Price.* ŷ = c u + b a for y = u + a, trained batch by batch on squared error plus λ I(ŷ; a) beside its
critics; the best c and b are in closed form.

*Step.* A training step of the whole model for 8 members, by risk, in turns in one process; medians.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import pyro
import torch
from scipy.optimize import minimize
from step import COLUMNS, TABLE_ROWS, random_table

from pyro_fairvae.base.options import build
from pyro_fairvae.evaluation.dependence import mutual_information_of_numbers
from pyro_fairvae.inference.objective import FairELBO
from pyro_fairvae.inference.optimizer import MembersAdamW
from pyro_fairvae.inference.program import Program
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.svi import MeasuredSVI
from pyro_fairvae.report.text import align
from pyro_fairvae.risks import RiskLoss
from pyro_fairvae.risks.critics import Critics, CriticSettings
from pyro_fairvae.risks.cross_fitted_dependence import estimate_dependence
from pyro_fairvae.risks.dependence import DEPENDENCE, Rows, view_of_rows

CORRELATIONS = (0.0, 0.3, 0.6, 0.9)
RISKS = ("deo", "mutual_information", "mine", "infonce", "hgr", "mine_given_label", "infonce_given_label",
         "hgr_given_label")  # fmt: skip
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)


def normal_rows(rho: float, rows: int, seed: int) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    a, noise = torch.randn(2, 1, rows, generator=generator)
    return Rows(decided=rho * a + math.sqrt(1 - rho**2) * noise, sensitive=a)


def by_neighbours(rows: Rows, seed: int) -> float:
    assert rows.decided is not None
    assert rows.sensitive is not None
    return mutual_information_of_numbers(rows.decided[0], rows.sensitive[0], seed=seed)


def by_critics(risk: str, bound: str = "printed") -> Callable[[Rows, int], float]:
    settings = CriticSettings(critic_rate=0.005, critic_bound=bound)
    return lambda rows, seed: estimate_dependence(rows, risk, settings, seed=seed).value


ESTIMATORS: dict[str, Callable[[Rows, int], float]] = {
    "MINE, as printed": by_critics("mine"),
    "MINE, Donsker-Varadhan": by_critics("mine", "donsker_varadhan"),
    "InfoNCE": by_critics("infonce"),
    "nearest neighbours": by_neighbours,
}


def estimates(seeds: int, first_seed: int, rows: int) -> str:
    lines = [["ρ", "closed form", "estimator", "mean", "largest error", "sd", "seconds"]]
    for rho in CORRELATIONS:
        exact = -0.5 * math.log(1 - rho**2)
        for name, estimator in ESTIMATORS.items():
            start = time.perf_counter()
            found = np.array(
                [
                    estimator(normal_rows(rho, rows, seed), seed)
                    for seed in range(first_seed, first_seed + seeds)
                ]
            )
            seconds = (time.perf_counter() - start) / seeds
            worst = np.abs(found - exact).max()
            lines.append(
                [f"{rho:g}", f"{exact:.3f}", name, f"{found.mean():.3f}", f"{worst:.3f}",
                 f"{found.std(ddof=1) if seeds > 1 else 0:.3f}", f"{seconds:.1f}"]
            )  # fmt: skip
    return align(lines)


def price(seed: int = 0, steps: int = 400) -> str:
    """Slopes that training finds, means over the last half of the steps, beside the best ones."""
    weights = torch.tensor(WEIGHTS)
    lines = [["risk", "λ", "c", "b", "best c", "best b", "I(ŷ; a)", "best I", "squared error", "best"]]
    for kind in ("mine", "infonce"):
        generator = torch.Generator().manual_seed(seed)
        slopes = torch.full((len(weights), 2), 0.5, requires_grad=True)
        optimizer = torch.optim.Adam([slopes], lr=0.03)
        critics, average = None, torch.zeros(len(weights), 2)
        for step in range(steps):
            u, a = torch.randn(2, 512, generator=generator)
            decided = slopes[:, :1] * u + slopes[:, 1:] * a
            view = view_of_rows(Rows(decided=decided, sensitive=a.expand(len(weights), -1)), False)
            critics = critics or Critics(DEPENDENCE[kind], view, CriticSettings(), [seed] * len(weights))
            optimizer.zero_grad()
            ((u + a - decided).square().mean(-1) + weights * critics(view)).sum().backward()
            optimizer.step()
            critics.learn(view)
            if step >= steps // 2:
                average += slopes.detach() / (steps - steps // 2)
        for weight, found in zip(WEIGHTS, average.double().numpy(), strict=True):
            best = minimize(_cost, [1.0, 0.5], args=(weight,)).x
            lines.append(
                [kind, f"{weight:g}", *(f"{x:.3f}" for x in (*found, *best)),
                 *(f"{f(x):.3f}" for f in (_information, _error) for x in (found, best))]
            )  # fmt: skip
    return align(lines)


def _error(slopes: np.ndarray) -> float:
    return float((1 - slopes[0]) ** 2 + (1 - slopes[1]) ** 2)


def _information(slopes: np.ndarray) -> float:
    return float(np.log1p((slopes[1] / slopes[0]) ** 2) / 2)


def _cost(slopes: np.ndarray, weight: float) -> float:
    return _error(slopes) + weight * _information(slopes)


def member_step(risk: str, members: int, rows: int) -> Callable[[], object]:
    table = random_table(rows)
    batch = table.batch(torch.arange(rows))
    settings = build(Settings, {"risk": risk})
    program = Program(table, settings, [0] * members)
    loss = RiskLoss(settings.fairness)
    loss.give_critics([0] * members, table.classes, table.groups, None, table.like)
    optimizer = MembersAdamW(
        settings.lr, settings.sites_lr, settings.weight_decay, settings.clip, program.site_parameters
    )
    objective = FairELBO(TABLE_ROWS, torch.ones(members), loss, settings.objective_weights)
    svi = MeasuredSVI(program.model, program.guide, optimizer, objective)
    store = pyro.get_param_store()
    saved = [store.get_state()]

    def step() -> object:
        with store.scope(saved[0]) as scope:
            measured = svi.step(batch, 0.5)
        saved[0] = scope
        return measured

    return step


def steps(rounds: int, members: int = 8, rows: int = 1024) -> str:
    pyro.enable_validation(False)
    taken = {risk: member_step(risk, members, rows) for risk in RISKS}
    times: dict[str, list[float]] = {risk: [] for risk in RISKS}
    for number in range(rounds + 3):
        for risk, step in taken.items():
            start = time.perf_counter()
            step()
            if number >= 3:  # the first rounds warm up
                times[risk].append(time.perf_counter() - start)
    base = statistics.median(times["deo"])
    lines = [["risk", f"ms a step of {members} members", "ratio to deo"]]
    for risk, seconds in times.items():
        cost = statistics.median(seconds)
        lines.append([risk, f"{1e3 * cost:.1f}", f"{cost / base:.2f}"])
    return f"{rows} rows, {COLUMNS.width} columns, {torch.get_num_threads()} threads\n{align(lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the estimates")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--rows", type=int, default=5000, help="rows of the estimates")
    parser.add_argument("--rounds", type=int, default=15, help="how often a step is timed")
    parser.add_argument("--parts", nargs="+", default=["estimates", "price", "step"])
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    parts = {
        "estimates": lambda: estimates(arguments.seeds, arguments.first_seed, arguments.rows),
        "price": price,
        "step": lambda: steps(arguments.rounds),
    }
    for name in arguments.parts:
        print(f"{name}\n{parts[name]()}\n", flush=True)


if __name__ == "__main__":
    main()
