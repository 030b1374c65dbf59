"""Decisions that depend less on a number: Adult with age as the sensitive feature, and what a step costs.

Age is withheld more by the old, by the curve of fairvae train --group age --level sparse, and is no feature;
a quarter of the labels is hidden. FairDecisions (or, with --estimator vae, FairSSVAEClassifier) is fitted
with its defaults for numbers, and decides without a target, by its default, and at a third of the dependence
that its frontier has without a target, for each of the risks. Dependence on the true ages of test rows is
judged by estimators that know nothing of levels: mutual information by nearest neighbours (scikit-learn's,
after Ross 2014), over all people and as a mean over labels, and the correlation ratio of decisions on years
of age.

  python benchmarks/continuous.py --seeds 5 --rows 20000
  python benchmarks/continuous.py --step
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.feature_selection import mutual_info_classif

from pyro_fairvae.data import raw_adult
from pyro_fairvae.data.adult_age import withheld_at_age
from pyro_fairvae.estimator.classifier import FairSSVAEClassifier
from pyro_fairvae.estimator.fair_decisions import FairDecisions
from pyro_fairvae.report import align
from pyro_fairvae.risks import RiskLoss, RiskSettings
from pyro_fairvae.risks.gaps import RISK_OF_NUMBERS
from pyro_fairvae.risks.imputers import Beliefs

ESTIMATORS = {"boosting": FairDecisions, "vae": FairSSVAEClassifier}
TEST_ROWS = 9000
SHARE = 1 / 3
MEASURES = ("error %", "I(Ŷ; age) nats", "I(Ŷ; age | Y) nats", "correlation ratio")
STEP_RISKS = (("deo", 2), ("mutual_information", 2), ("deo", 16), (RISK_OF_NUMBERS, 16))


def information(decided: np.ndarray, age: np.ndarray, seed: int) -> float:
    """Mutual information of decisions and age, in nats, by nearest neighbours; ages are spread over years."""
    spread = age + np.random.default_rng([seed, 3]).uniform(-0.5, 0.5, size=len(age))
    return float(mutual_info_classif(spread[:, None], decided, n_neighbors=5, random_state=seed)[0])


def correlation_ratio(decided: np.ndarray, age: np.ndarray) -> float:
    """η², the share of the variance of decisions that lies between years of age, less that of chance."""
    between = pd.Series(decided.astype(float)).groupby(age).transform("mean").to_numpy()
    years, rows = len(np.unique(age)), len(age)
    left = np.square(decided - between).sum() / (rows - years)
    total = np.square(decided - decided.mean()).sum() / (rows - 1)
    return float(1 - left / total)


def judged(decided: np.ndarray, y: np.ndarray, age: np.ndarray, seed: int) -> list[float]:
    by_label = [information(decided[y == c], age[y == c], seed) * (y == c).mean() for c in (0, 1)]
    return [
        100 * float((decided != y).mean()), information(decided, age, seed), sum(by_label),
        correlation_ratio(decided, age),
    ]  # fmt: skip


def run_seed(raw: pd.DataFrame, risk: str, estimator: str, rows: int, seed: int) -> dict[str, list[float]]:
    """Each way of deciding, judged on test rows."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(raw))
    train, test = raw.iloc[order[:rows]], raw.iloc[order[-TEST_ROWS:]]
    age = train["age"].to_numpy(float)
    stated = pd.Series(age, name="age").mask(draw.random(rows) < withheld_at_age("sparse", age))
    label = train["income"].reset_index(drop=True).mask(draw.random(rows) < 0.25)
    features = [name for name in raw if name not in ("age", "income", "fnlwgt")]
    model = ESTIMATORS[estimator](group_levels=16, risk=risk, random_state=seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train[features].reset_index(drop=True), label, stated)
        seconds = time.perf_counter() - start
        chosen, plain = model.selected_, model.frontier_.iloc[0]
        third = float(plain["disparity"]) * SHARE
        if isinstance(model, FairDecisions):
            model.select(third)
        else:
            model.selected_ = int(
                model.frontier_["error"].where(model.frontier_["disparity"] <= third).idxmin()
            )
    at_third = model.selected_
    y = (test["income"] == ">50K").to_numpy().astype(int)
    ways = {"no target": 0, "default": chosen, f"{SHARE:.0%} of none": at_third}
    found: dict[str, list[float]] = {}
    for name, member in ways.items():
        model.selected_ = member
        decided = (model.predict(test[features]) == ">50K").astype(int)
        found[name] = judged(decided, y, test["age"].to_numpy(float), seed)
    print(f"{risk}, seed {seed}: {seconds:.0f} s to fit", flush=True)
    return found


def table(by_seed: list[dict[str, list[float]]]) -> list[list[str]]:
    """Means over seeds with half 95 % intervals, and what is left of what no target has."""
    lines = [["decides", *(word for name in MEASURES for word in (name, "left"))]]
    none = np.array([found["no target"] for found in by_seed])
    for name in by_seed[0]:
        values = np.array([found[name] for found in by_seed])
        line = [name]
        for j in range(len(MEASURES)):
            half = 1.96 * values[:, j].std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            digits = 2 if j == 0 else 4
            line.append(f"{values[:, j].mean():.{digits}f} ± {half:.{digits}f}")
            change = (values[:, j] - none[:, j]).mean()
            line.append(f"{change:+.2f}" if j == 0 else f"{values[:, j].mean() / none[:, j].mean():.0%}")
        lines.append(line)
    return lines


def step_milliseconds(risk: str, groups: int, estimator: str, rounds: int = 5) -> float:
    """The risk of 8 members on a batch of 1,024 rows, and its gradient."""
    torch.manual_seed(0)
    logits = torch.randn(8, 1024, 2, requires_grad=True)
    label, group = torch.randn(8, 1024, 2).log_softmax(-1), torch.randn(8, 1024, groups).log_softmax(-1)
    given = (label.unsqueeze(-1) + group.unsqueeze(-2)).exp()
    beliefs = Beliefs(
        label, group, group.unsqueeze(-2).expand_as(given), torch.zeros_like(group), label,
        torch.zeros(8, 1024, dtype=torch.bool),
    )  # fmt: skip
    loss = RiskLoss(RiskSettings(risk=risk, risk_estimator=estimator))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        loss(logits, beliefs, torch.ones(8)).penalty.sum().backward()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=36_000)
    parser.add_argument("--estimator", choices=tuple(ESTIMATORS), default="boosting")
    parser.add_argument("--risks", nargs="+", default=[RISK_OF_NUMBERS, "mutual_information"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--step", action="store_true", help="only the cost of the risk in a step")
    arguments = parser.parse_args()
    if arguments.step:
        lines = [["risk", "groups", "smoothed ms", "sampled ms"]]
        for risk, groups in STEP_RISKS:
            each = [step_milliseconds(risk, groups, name) for name in ("smoothed", "sampled")]
            lines.append([risk, str(groups), *(f"{value:.1f}" for value in each)])
        print(align(lines))
        return
    raw = raw_adult(arguments.data_dir).dropna(ignore_index=True)
    run: Callable[[str, int], dict[str, list[float]]] = lambda risk, seed: run_seed(  # noqa: E731
        raw, risk, arguments.estimator, arguments.rows, seed
    )
    for risk in arguments.risks:
        found = [run(risk, seed) for seed in range(arguments.seeds)]
        print(
            f"\n{risk}, {arguments.seeds} seeds, {arguments.rows} rows\n{align(table(found))}\n", flush=True
        )


if __name__ == "__main__":
    main()
