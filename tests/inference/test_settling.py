"""Members settled to targets: what they share, and that nothing judges itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import build
from pyro_fairvae.boosting.scores import folds_of
from pyro_fairvae.data import Missingness, Splits, split, synthetic
from pyro_fairvae.evaluation.metrics import evaluate
from pyro_fairvae.inference.settings import Settings
from pyro_fairvae.inference.settling import fit_to_targets
from pyro_fairvae.inference.training import fit
from pyro_fairvae.schema.observed import Columns, Observed

TARGETS = (0.05, 0.1)
SMALL = {"hidden": 16, "layers": 1, "pieces": 0, "epochs": 2, "batch": 128, "channel_steps": 5}


@pytest.fixture(scope="module")
def parts() -> Splits:
    return split(synthetic(rows=1500, seed=3), Missingness(), seed=3)


def settings(**more: object) -> Settings:
    return build(Settings, SMALL | more)


def folds(train: Observed) -> torch.Tensor:
    return torch.from_numpy(folds_of(train, 0))


def test_members_differ_in_their_adjustment_alone(parts: Splits) -> None:
    fitted = fit_to_targets(parts.train, parts.validation, TARGETS, folds(parts.train), settings())
    assert fitted.targets == (None, 0.1, 0.05)  # from loose to tight
    for value in fitted.program.state().values():
        assert all(torch.equal(value[0], other) for other in value)
    assert fitted.adjustment is not None
    assert not fitted.adjustment[0].any()
    assert fitted.adjustment[1:].flatten(1).any(1).all()
    chances = fitted.predict_proba(parts.test.features)
    assert torch.equal(chances[0], chances[2])
    assert torch.equal(fitted.decide(parts.test.features)[0], chances[0].argmax(-1))
    assert {line["member"] for line in fitted.history} == {0}


def test_a_fold_does_not_reach_the_network_that_judges_it(parts: Splits) -> None:
    """Rows of a fold exchange what they recorded; its network, and no other, comes out the same."""
    train, fold = parts.train, folds(parts.train)
    inside = torch.nonzero(fold == 1).squeeze(-1)
    shuffled = inside[torch.randperm(len(inside), generator=torch.Generator().manual_seed(0))]
    y_obs, a_obs = train.y_obs.clone(), train.a_obs.clone()
    y_obs[inside], a_obs[inside] = train.y_obs[shuffled], train.a_obs[shuffled]
    changed = Observed(train.x, y_obs, a_obs, train.columns, train.classes, train.groups)
    before, after = (
        fit(table, parts.validation, (0.0,) * 6, settings(), fold=fold).program.state()
        for table in (train, changed)
    )
    name = next(name for name in before if "classifier" in name and "weight" in name)
    same = [torch.equal(before[name][k], after[name][k]) for k in range(6)]
    assert same == [False, True, False, False, False, False]


def test_targets_are_met_on_new_rows() -> None:
    """Nine in ten are of one class, where a weight λ decides the same for everybody or changes nothing."""
    draw = np.random.default_rng(0)

    def table(rows: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
        a = (draw.random(rows) < 0.5).astype(int)
        x = draw.normal(size=(rows, 3)) + np.array([1.5, 0.0, 0.0]) * a[:, None]
        y = (draw.random(rows) < 1 / (1 + np.exp(-1.6 - 1.5 * x[:, 0] - x[:, 1]))).astype(int)
        return torch.from_numpy(x).float(), y, a

    x, y, a = table(8000)
    a_obs = np.where(draw.random(8000) < np.array([0.6, 0.3])[a], 2, a)
    rows = Observed(x, torch.from_numpy(y), torch.from_numpy(a_obs), Columns(3), 2, 2)
    train, validation = rows.take(torch.arange(6500)), rows.take(torch.arange(6500, 8000))
    options = settings(epochs=8, hidden=32, channel_steps=50)
    fitted = fit_to_targets(train, validation, (0.2, 0.1, 0.05), folds(train), options)
    new, y, a = table(20_000)
    found = [evaluate(y, decided.numpy(), a, 2) for decided in fitted.decide(new)]
    assert found[0]["deo"] > 0.25
    for metrics, target in zip(found[1:], (0.2, 0.1, 0.05), strict=True):
        assert metrics["deo"] < target + 0.05
        assert metrics["error"] < 1 - y.mean()  # the error of the decision that is the same for everybody
    assert found[1]["error"] < found[3]["error"] + 0.002


def test_what_cannot_be_settled_is_refused(parts: Splits) -> None:
    fold = folds(parts.train)
    for targets, words in (((0.0,), "within"), ((0.1, 0.1), "twice"), (("a",), "numbers")):
        with pytest.raises(InputError, match=words):
            fit_to_targets(parts.train, parts.validation, targets, fold, settings())
    with pytest.raises(InputError, match="no inferred group enters a decision"):
        fit_to_targets(parts.train, parts.validation, (0.1,), fold, settings(refine_decisions=0))
    with pytest.raises(InputError, match="fold must have"):
        fit(parts.train, parts.validation, (0.0,), settings(), fold=fold[:5])
