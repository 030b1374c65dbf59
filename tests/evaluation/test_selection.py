"""Which member is chosen on validation, and how members are judged on test."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.data import Splits
from pyro_fairvae.evaluation.members import evaluate_members
from pyro_fairvae.evaluation.selection import select, standard_error
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.training import fit
from pyro_fairvae.risks import RISKS, CellSums


@pytest.mark.parametrize(
    ("standard_error", "chosen"),
    [(0.0, 1), (0.015, 2), (1.0, 2)],
    ids=["the fairest", "within one standard error", "never beyond the budget"],
)
def test_selection_prefers_the_largest_weight_among_the_fairest(standard_error: float, chosen: int) -> None:
    validation = [
        {"error": 0.150, "deo": 0.08},
        {"error": 0.155, "deo": 0.04},
        {"error": 0.159, "deo": 0.05},
        {"error": 0.170, "deo": 0.01},
    ]
    validation = [metrics | {"standard_error": standard_error} for metrics in validation]
    assert select((0.0, 0.1, 0.2, 0.4), validation) == chosen


def test_the_standard_error_of_a_metric_is_that_of_new_rows() -> None:
    """The bootstrap's, against the spread over 400 validation parts drawn anew."""
    generator = np.random.default_rng(0)

    def part() -> tuple[np.ndarray, np.ndarray]:
        y, a = generator.integers(0, 2, size=(2, 400))
        decided = (generator.random(400) < 0.2 + 0.3 * y + 0.2 * a).astype(int)
        return decided, np.eye(4)[2 * y + a].reshape(400, 2, 2)

    risk = RISKS["deopp"]
    found = [standard_error(risk, *part()) for _ in range(20)]
    values = []
    for _ in range(400):
        decided, cells = part()
        predicted = np.einsum("rc,ryg->ygc", np.eye(2)[decided], cells)
        sums = CellSums(torch.from_numpy(cells.sum(0)), torch.from_numpy(predicted))
        values.append(float(risk(sums).value))
    assert np.mean(found) == pytest.approx(np.std(values), rel=0.15)


def test_group_accuracy_is_that_of_the_likeliest_group(splits: Splits, small: Settings) -> None:
    fitted = fit(splits.train, splits.validation, (0.0, 1.0), small)
    found = evaluate_members(fitted, splits)
    heads = fitted.program.guide.heads(splits.test.features)
    for member, logits in zip(found["members"], heads.group_logits.detach(), strict=True):
        hits = sum(int(row.argmax()) == a for row, a in zip(logits, splits.test.a, strict=True))
        assert member["group_accuracy"] == pytest.approx(hits / splits.test.rows)
